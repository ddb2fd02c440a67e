"""What accepted edits do together: a joint loss is found, named, and taken back."""

import asyncio

import pytest
from support.proposals import propose
from support.world import DotIndex, LetterEmbedder, PlantedWorker, make_world, skill, suite

from skillforge.core.events import NewEvent
from skillforge.core.gate import GateRules
from skillforge.core.task import Split
from skillforge.errors import BudgetSpent
from skillforge.workflows.composition import AcceptedEdit, Composer, CompositionReport, planned
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.nightly import Nightly, NightlySettings
from skillforge.workflows.replay import replay
from skillforge.workflows.retrieve import build_retriever
from skillforge.workflows.spend import Caps

NAMES = ("ash", "birch", "cedar", "elm", "fir")


def retriever(packages):
    """Embed by words and search exactly."""
    return build_retriever(packages, LetterEmbedder(), DotIndex)


def composition(world, worker, lines, *, caps=None, run="night"):
    """Check edits that add a line each to five skills; every task gets all of them."""
    tasks = suite(["ash"], confirm=3000)
    old = {name: world.curator.package(name) for name in NAMES}
    new = {name: skill(name, f"# {name}\n\n{lines.get(name, 'Edited.')}") for name in NAMES}
    edits = tuple(
        AcceptedEdit(skill=n, parent=old[n].version, version=new[n].version, candidate=f"c-{n}")
        for n in NAMES
    )
    composer = Composer(
        bench=world.bench(worker, caps=caps, run=run),
        rules=GateRules(max_tasks=100),
        suite=tasks.name,
        tasks=tasks.select(split=Split.CONFIRM),
        library=old,
        edited=new,
        make_retriever=retriever,
        state=lambda: world.curator.state,
        k=len(NAMES),
        wave=20,
    )
    report = CompositionReport(edits=edits)
    return report, lambda: asyncio.run(composer.check(report))


@pytest.fixture
def world(tmp_path):
    """Return a library of five skills that do nothing yet."""
    return make_world(tmp_path, [skill(name, f"# {name}") for name in NAMES])


def names(sets):
    """Return the skills of each set of edits."""
    return [{edit.skill for edit in edits} for edits in sets]


@pytest.mark.parametrize("pair", [("ash", "fir"), ("cedar", "elm")])
def test_two_edits_that_clash_are_named_and_no_other(world, pair):
    """Each edit is harmless alone; the minimal set is exactly the two that clash."""
    worker = PlantedWorker(base=0.7)
    report, check = composition(world, worker, dict.fromkeys(pair, "clash: words -0.5"))
    check()

    assert names(report.harmful) == [set(pair)]
    proofs = [t for t in report.tests if t["proof"] and set(t["skills"]) == set(pair)]
    assert [t["harmful"] for t in proofs] == [True]
    used = [t["used"] for t in report.tests]
    spent = world.curator.state.spent_by("planted/library/composition")
    assert len(spent) == sum(used)  # fresh each time


def test_two_clashes_are_both_found(world):
    """What is left after the first harmful set is measured again."""
    lines = dict.fromkeys(("ash", "elm"), "clash: words -0.4")
    lines |= dict.fromkeys(("birch", "cedar"), "clash: order -0.4")
    report, check = composition(world, PlantedWorker(base=0.9), lines)
    check()

    assert sorted(map(sorted, names(report.harmful))) == [["ash", "elm"], ["birch", "cedar"]]


def test_edits_that_do_nothing_together_cost_one_test(world):
    """Without a joint loss nothing is taken back and no subset is tried."""
    report, check = composition(world, PlantedWorker(base=0.5), {})
    check()

    assert report.harmful == []
    assert len(report.tests) == 1


def test_what_proved_an_edit_in_an_earlier_run_is_not_fresh(world):
    """Its own evidence would flatter the edit once more: such tasks are in no test."""
    ash = skill("ash", "# ash\n\nEdited.")
    order = [t.id for t in suite(["ash"], confirm=3000).select(split=Split.CONFIRM)][:2950]
    data = {"candidate": "c", "skill": "ash", "version": ash.version, "lineage": "planted/ash/llm"}
    decided = {**data, "decision": "probation", "unused": []}
    world.ledger.append(
        [
            NewEvent(kind="gate.registered", data={**data, "order": order}, run="earlier"),
            NewEvent(kind="gate.decided", data=decided, run="earlier"),
        ]
    )
    _, check = composition(world, PlantedWorker(base=0.5), {})
    check()

    (registered,) = world.ledger.events(run="night", kinds=("gate.registered",))
    assert 0 < len(registered.data["order"]) <= 50
    assert not set(registered.data["order"]) & set(order)


def test_a_budget_that_ends_the_search_takes_back_the_smallest_proven_set(world):
    """A joint loss is not kept because there was no money to reduce it."""
    lines = dict.fromkeys(("ash", "fir"), "clash: words -0.6")
    worker = PlantedWorker(base=0.8)
    report, check = composition(world, worker, lines, caps=Caps(rollouts=120))
    with pytest.raises(BudgetSpent):
        check()

    (found,) = names(report.harmful)
    assert {"ash", "fir"} <= found


def test_a_check_that_was_cut_off_goes_on_where_it_was(world):
    """The same run again repeats no rollout and comes to the same end."""
    worker = PlantedWorker(base=0.7)
    lines = dict.fromkeys(("ash", "birch"), "clash: words -0.5")
    first, check = composition(world, worker, lines)
    check()
    calls = len(worker.calls)
    again, check = composition(world, worker, lines)
    check()

    assert len(worker.calls) == calls
    assert again.to_json() == first.to_json()
    assert replay(world.ledger).problems == ()


def test_a_night_rolls_back_two_adopted_edits_that_clash(tmp_path):
    """Both edits prove themselves alone; together they lose, so both go and none is promoted."""
    body = "# {0}\n\nAnswer oak pine questions.\n"
    world = make_world(
        tmp_path,
        [skill(n, body.format(n), "oak pine confirm question number") for n in ("oak", "pine")],
    )
    before = {name: world.curator.state.skill(name).current for name in ("oak", "pine")}
    tasks = suite(["oak", "pine"], confirm=400)
    worker = PlantedWorker(base=0.4, examples=0.55, crowd=-0.9)
    evolver = Evolver(
        bench=world.bench(worker),
        curator=world.curator,
        suite=tasks,
        rules=GateRules(max_tasks=80),
        settings=EvolveSettings(k=2),
        retriever=retriever(world.curator.served()),
        cohort_size=2,
    )
    night = Nightly(
        evolver=evolver,
        suite=tasks,
        settings=NightlySettings(library_audits=0),
        make_retriever=retriever,
    )
    report = asyncio.run(night.run(["oak", "pine"])).to_json()

    assert all(entry["adopted"] for entry in report["skills"])
    assert [sorted(s) for s in report["composition"]["rolled_back"]] == [["oak", "pine"]]
    assert {n: world.curator.state.skill(n).current for n in before} == before
    assert report["promoted"] == []
    assert replay(world.ledger).problems == ()


def test_a_night_cut_off_before_the_joint_test_leaves_its_cohort_to_the_next(tmp_path):
    """What was adopted is promoted only once it has been measured together, if a night later."""
    body = "# {0}\n\nAnswer oak pine questions.\n"
    skills = [skill(n, body.format(n), "oak pine confirm question number") for n in ("oak", "pine")]
    tasks = suite(["oak", "pine"], confirm=400)

    def night(world, run, order, caps=None):
        worker = PlantedWorker(base=0.2, examples=0.6)
        evolver = Evolver(
            bench=world.bench(worker, run=run, caps=caps),
            curator=world.curator,
            suite=tasks,
            rules=GateRules(max_tasks=80),
            settings=EvolveSettings(k=2),
            retriever=retriever(world.curator.served()),
            cohort_size=2,
        )
        settings = NightlySettings(library_audits=0)
        night = Nightly(evolver=evolver, suite=tasks, settings=settings, make_retriever=retriever)
        return asyncio.run(night.run(order)).to_json(), len(worker.calls)

    undisturbed = make_world(tmp_path / "undisturbed", skills)
    _, whole = night(undisturbed, "night-1", ["oak", "pine"])
    joint = sum(
        e.data["purpose"] == "confirm" and e.data["subject"].startswith(("with:", "without:"))
        for e in undisturbed.ledger.events(kinds=("rollout.finished",))
    )
    world = make_world(tmp_path / "cut-off", skills)
    first, _ = night(world, "night-1", ["oak", "pine"], Caps(rollouts=whole - joint))
    assert all(entry["adopted"] for entry in first["skills"])
    assert first["promoted"] == []
    second, _ = night(world, "night-2", [])

    assert [sorted(t["skills"]) for t in second["composition"]["tests"]] == [["oak", "pine"]]
    assert second["composition"]["rolled_back"] == []
    assert sorted(p["skill"] for p in second["promoted"]) == ["oak", "pine"]


def test_what_waits_is_measured_together_once_for_each_library(world):
    """Staged anew every night, the same edits are tried again only when something has changed."""
    waiting = [propose(world, "n", world.curator.package(name), ["A line."])[0] for name in NAMES]

    def night(run, count):
        for candidate in waiting[:count]:
            name, version = candidate.package.name, candidate.package.version
            about = {"base": world.curator.state.skill(name).current, "evidence": "probation"}
            world.curator.stage(name, version, run=run, candidate=candidate.id, **about)
        edits, _ = planned(world.bench(PlantedWorker(), run=run), world.curator.state)
        return len(edits)

    def close(run):
        data = {"cohort": run, "fdr": 0.1, "members": [], "promoted": []}
        world.ledger.append([NewEvent(kind="cohort.closed", data=data, run=run)])

    assert night("n-1", 2) == 2  # stopped by the budget: its cohort stays open
    assert night("n-2", 2) == 2
    close("n-2")
    assert night("n-3", 2) == 0
    close("n-3")
    assert night("n-4", 3) == 3
    close("n-4")
    world.curator.retire(NAMES[-1], evidence={}, reason="test")
    assert night("n-5", 3) == 3
