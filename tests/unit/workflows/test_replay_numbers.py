"""Replay recomputes every number that something was decided on: one that was altered is named.

The forger here is thorough: a whole ledger is written anew around the altered number, so that its
chain is sound and only the rollouts contradict it.
"""

import asyncio
import copy

import pytest
from support.evolved import evolved_world
from support.world import DotIndex, LetterEmbedder, PlantedWorker, make_world, skill, suite

from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.events import NewEvent
from skillforge.core.gate import GateRules
from skillforge.core.package import Package
from skillforge.core.task import Split
from skillforge.workflows.audit import audit_units, audited_units
from skillforge.workflows.contrast import Context
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.nightly import Nightly, NightlySettings
from skillforge.workflows.replay import replay
from skillforge.workflows.retrieve import build_retriever

ALPHA = (
    "# Alpha\n\nAnswer alpha questions.\n\n## More\n\nBe brief.\n\n## Tips\n\neffect: tip +0.2\n"
)
STALE = "# Old\n\nalpha confirm question number, alpha question.\n\neffect: old -0.2\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A night in which a skill was evolved and promoted, and a stale one audited and retired."""
    packages = [
        skill("alpha", ALPHA, "Answers alpha confirm question number tasks."),
        skill("alpha-old", STALE, "alpha confirm question number"),
        skill("beta", "# Beta\n\neffect: work +0.7\n", "beta confirm question number"),
    ]
    world = make_world(tmp_path_factory.mktemp("world"), packages)
    tasks = suite(["alpha", "beta"])
    evolver = Evolver(
        bench=world.bench(PlantedWorker(base=0.2, examples=0.6), run="night-1"),
        curator=world.curator,
        suite=tasks,
        rules=GateRules(max_tasks=60),
        settings=EvolveSettings(max_confirm=2),
        cohort_size=2,
    )
    night = Nightly(
        evolver=evolver,
        suite=tasks,
        settings=NightlySettings(library_audits=2),
        make_retriever=lambda served: build_retriever(served, LetterEmbedder(), DotIndex),
    )
    asyncio.run(night.run(["alpha"]))
    return world


def forged(world, folder, kind, alter, *, which=lambda data: True):
    """Replay a ledger in which the first such event of a kind says something else."""
    ledger = SqliteLedger(folder / "forged.db")
    events, done = [], False
    for event in world.ledger.events():
        data = copy.deepcopy(dict(event.data))
        if event.kind == kind and not done and which(data):
            alter(data)
            done = True
        events.append(NewEvent(kind=event.kind, data=data, run=event.run))
    assert done
    ledger.append(events)
    found = replay(ledger)
    assert found.chain_ok
    ledger.close()
    return found.problems


def set_to(*path, value):
    """Return what sets one number."""

    def alter(data):
        for name in path[:-1]:
            data = data[name]
        assert data[path[-1]] != value
        data[path[-1]] = value

    return alter


def test_everything_is_recomputed(world):
    """Decisions, a screen and an audit agree with the rollouts, in a copy as well."""
    found = replay(world.ledger)

    assert found.problems == ()
    assert found.decisions >= 2
    assert (found.screens, found.audits) == (1, 1)
    assert [e.kind for e in world.ledger.events(kinds=("skill.retired", "cohort.closed"))]


def retired_by_audit(data):
    """Whether a retirement has evidence."""
    return "confirm" in data["evidence"]


def screened_out(data):
    """Whether a candidate ended at the screen."""
    return data["decision"] == "screened_out"


@pytest.mark.parametrize(
    ("kind", "alter", "which", "named"),
    [
        ("gate.decided", set_to("confirm", "lift", value=0.9), None, "says lift = 0.9"),
        ("gate.decided", set_to("confirm", "mde", value=0.01), None, "mde = 0.01"),
        ("screen.measured", set_to("arms", 0, "lift", value=0.99), None, "lift = 0.99"),
        ("screen.measured", set_to("arms", 0, "outcomes", "gains", value=11), None, "gains = 11"),
        ("audit.measured", set_to("arms", 1, "lift", value=-0.9), None, "lift = -0.9"),
        ("audit.measured", set_to("arms", 0, "interval", value=[0, 0]), None, "interval = [0, 0]"),
        ("candidate.screened", set_to("rollback_reward", value=0.95), None, "reward = 0.95"),
        ("candidate.closed", set_to("decision", value="no_change"), screened_out, "no_change"),
        ("cohort.closed", set_to("members", 0, "e_value", value=1e9), None, "1000000000.0"),
        (
            "skill.retired",
            set_to("evidence", "confirm", "e_value", value=500.0),
            retired_by_audit,
            "retirement of alpha-old",
        ),
    ],
)  # fmt: skip
def test_an_altered_number_is_named(world, tmp_path, kind, alter, which, named):
    """The problem says which number, what it was said to be, and what it is."""
    problems = forged(world, tmp_path, kind, alter, which=which or (lambda data: True))

    assert any(named in problem for problem in problems), problems


def test_a_candidate_that_was_screened_out_without_cause_is_named(world, tmp_path):
    """The end of a candidate must follow from its screen."""
    kept = next(
        e.data
        for e in world.ledger.events(kinds=("candidate.screened",))
        if e.data["rollback_reward"] > 0
    )
    ledger = SqliteLedger(tmp_path / "forged.db")
    events = [NewEvent(kind=e.kind, data=e.data, run=e.run) for e in world.ledger.events()]
    data = {**kept, "version": "", "decision": "screened_out", "reasons": []}
    ledger.append([*events, NewEvent(kind="candidate.closed", data=data, run="night-1")])
    problems = replay(ledger).problems
    ledger.close()

    assert any("its screen lets it go on" in problem for problem in problems)


def test_a_screen_reuses_rollouts_of_an_earlier_run_and_still_replays(tmp_path):
    """An audit before evolving leaves rollouts that the screen's base arm takes over."""
    world = make_world(tmp_path, [skill("ask", ALPHA)])
    tasks, worker = suite(["ask"]), PlantedWorker(base=0.3)
    package: Package = world.curator.package("ask")
    anchors = tasks.select(skill="ask", split=Split.SCREEN)
    audit = audit_units(
        world.bench(worker, run="audit-1"),
        package,
        audited_units(package, parts=True),
        anchors,
        Context(skill="ask"),
    )
    asyncio.run(audit)
    ran = len(worker.calls)
    evolver = Evolver(
        bench=world.bench(worker, run="evolve-1"),
        curator=world.curator,
        suite=tasks,
        rules=GateRules(max_tasks=30),
        settings=EvolveSettings(),
    )
    asyncio.run(evolver.evolve("ask"))
    stored = list(world.ledger.events(kinds=("rollout.finished",), run="evolve-1"))
    found = replay(world.ledger)

    own = {e.data["subject"] for e in stored if e.data["purpose"] == "screen"}
    assert package.version not in own  # the base arm is the audit's
    assert len(worker.calls) > ran
    assert (found.screens, found.audits, found.problems) == (1, 2, ())


def test_what_failed_and_was_made_good_later_changes_no_screen(tmp_path):
    """A rollout that a later run gets right does not enter a screen that was without it."""
    failing = frozenset(f"ask/screen/{i}" for i in (0, 7, 15))
    broken = PlantedWorker(base=0.3, examples=0.4, broken=failing)
    world, report = evolved_world(tmp_path, worker=broken)
    before = replay(world.ledger)
    whole = PlantedWorker(base=0.3, examples=0.4)
    package = world.curator.package("ask", report.base)
    anchors = suite(["ask"]).select(skill="ask", split=Split.SCREEN)
    bench = world.bench(whole, run="later")
    asyncio.run(audit_units(bench, package, audited_units(package), anchors, Context(skill="ask")))

    (screen,) = world.ledger.events(kinds=("screen.measured",))
    assert "" in screen.data["shared"]
    assert len(whole.calls) > 0
    assert before.problems == ()
    assert replay(world.ledger).problems == ()


def test_going_on_after_a_crash_writes_no_screen_twice(tmp_path):
    """The same run again measures the same and adds no event about it."""
    world, _ = evolved_world(tmp_path)
    (started,) = world.ledger.events(kinds=("run.started",))
    evolver = Evolver(
        bench=world.bench(PlantedWorker(base=0.2, examples=0.5), run=started.run),
        curator=world.curator,
        suite=suite(["ask"]),
        rules=GateRules(max_tasks=60),
        settings=EvolveSettings(),
    )
    asyncio.run(evolver.evolve("ask"))

    assert len(list(world.ledger.events(kinds=("screen.measured",)))) == 1
    assert len(list(world.ledger.events(kinds=("audit.measured",)))) == 1
