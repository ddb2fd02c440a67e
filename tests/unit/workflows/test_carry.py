"""What one night leaves undecided goes on in the next, with its evidence and on fresh tasks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from support.proposals import propose
from support.world import DotIndex, LetterEmbedder, PlantedWorker, make_world, skill, suite

from skillforge.core.events import NewEvent
from skillforge.core.gate import Decision, GateRules, Registration, decide
from skillforge.core.package import Package
from skillforge.core.records import registered_outcomes
from skillforge.core.rollout import Attempt, Failure, FailureKind
from skillforge.core.task import Split, Task
from skillforge.errors import SkillError
from skillforge.workflows import carry
from skillforge.workflows.admission import Admission
from skillforge.workflows.contrast import Context
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.nightly import Nightly, NightlySettings
from skillforge.workflows.replay import replay
from skillforge.workflows.retrieve import build_retriever
from skillforge.workflows.spend import Caps

BODY = "# Ask\n\nAnswer the question.\n"


def sure() -> PlantedWorker:
    """Return a worker that fails every task without worked examples and passes it with them."""
    return PlantedWorker(base=0.0, examples=1.0)


@dataclass(slots=True)
class Turning:
    """A worker of one fingerprint that turns: by and by, worked examples make it fail."""

    turned: bool = False
    inner: PlantedWorker = field(default_factory=sure)
    other: PlantedWorker = field(default_factory=lambda: PlantedWorker(base=1.0, examples=-1.0))
    fingerprint = "turning"

    def bound(self, task: Task, skills: Sequence[Package]):
        """Return what an attempt uses at most."""
        return self.inner.bound(task, skills)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int):
        """Solve the task or not."""
        return await (self.other if self.turned else self.inner).attempt(task, skills, seed=seed)


@dataclass(slots=True)
class Dying:
    """A worker that dies at its first attempt on a confirm task."""

    inner: PlantedWorker

    @property
    def fingerprint(self) -> str:
        """That of the worker it stands for."""
        return self.inner.fingerprint

    def bound(self, task: Task, skills: Sequence[Package]):
        """Return what an attempt uses at most."""
        return self.inner.bound(task, skills)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int):
        """Perform a task of another split."""
        if task.split is Split.CONFIRM:
            raise MemoryError("killed")
        return await self.inner.attempt(task, skills, seed=seed)


def night(world, worker, *, run, tasks=None, max_tasks=4, cohort_size=3, rules=None, **settings):
    """Return a night over the skill ``ask``."""
    tasks = tasks or suite(["ask"])
    evolver = Evolver(
        bench=world.bench(worker, run=run, seed=int(run[-1])),
        curator=world.curator,
        suite=tasks,
        rules=rules or GateRules(max_tasks=max_tasks),
        settings=EvolveSettings(**settings),
        cohort_size=cohort_size,
    )
    return Nightly(
        evolver=evolver,
        suite=tasks,
        settings=NightlySettings(library_audits=0),
        make_retriever=lambda packages: build_retriever(packages, LetterEmbedder(), DotIndex),
    )


def run_night(world, worker=None, **options):
    """Run a night on ``ask``; return its report and that of the skill."""
    report = asyncio.run(night(world, worker or sure(), **options).run(["ask"]))
    return report, report.skills[0]


def registrations(world, run):
    """Return what a run registered, by candidate."""
    events = world.ledger.events(run=run, kinds=("gate.registered",))
    found = [Registration.from_json(dict(event.data)) for event in events]
    return {registration.candidate: registration for registration in found}


@pytest.fixture
def undecided(tmp_path):
    """Return a world after a night of four wins in four tasks: E is 5.74, short of 20."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    _, report = run_night(world, run="night-1")
    (candidate,) = [c for c in report.candidates if c.result]
    assert candidate.decision is Decision.INSUFFICIENT_EVIDENCE
    assert candidate.result.evidence.e_value == pytest.approx(5.7416)
    return world, candidate


def test_a_candidate_without_a_verdict_goes_on_with_its_evidence(undecided):
    """Four tasks tonight and four last night are eight: E, counts and looks go on."""
    world, before = undecided
    _, report = run_night(world, run="night-2", cohort_size=9)
    (after,) = [c for c in report.candidates if c.id == before.id]

    assert after.decision is Decision.PROBATION
    assert after.standing.registration.enough == before.standing.registration.enough
    assert after.result.evidence.table.pairs == after.result.evidence.table.gains == 8
    assert after.result.evidence.e_value == pytest.approx(43.1, abs=0.1)
    assert report.adopted == after.package.version == world.library.read("ask").version
    assert after.to_json()["looks"] == 2
    assert "4 in night-1" in after.reasons[-1]
    (decided,) = world.ledger.events(run="night-2", kinds=("gate.decided",), about=(before.id,))
    assert (decided.data["looks"], decided.data["tried"]) == (2, 1)
    assert replay(world.ledger).problems == ()


def test_no_task_bets_twice_and_no_pair_mixes_nights(undecided):
    """The order is last night's bets and then fresh tasks; each pair is of one night's rollouts."""
    world, before = undecided
    run_night(world, run="night-2")
    first, second = (registrations(world, run)[before.id] for run in ("night-1", "night-2"))

    assert second.order[:4] == first.order
    assert second.carried == (("night-1", 4),)
    assert len(set(second.order)) == len(second.order) == 8
    for run, registration in (("night-1", first), ("night-2", second)):
        confirm = [
            event.data["task"]
            for event in world.ledger.events(run=run, kinds=("rollout.finished",))
            if event.data["purpose"] == "confirm" and event.data["subject"] == first.version
        ]
        assert sorted(confirm) == sorted(registration.fresh)


def test_new_candidates_bet_beside_carried_ones_on_the_same_tasks(undecided):
    """The base is run once for all; what a carried candidate is, is not proposed again."""
    world, _ = undecided
    worker = sure()
    _, report = run_night(world, worker, run="night-2")
    registered = registrations(world, "night-2")
    base = [task for task, shown in worker.calls if "/confirm/" in task]

    assert len(registered) >= 2
    assert len({r.fresh for r in registered.values()}) == 1
    assert len(base) == 4 * (1 + len(registered))
    versions = [c.package.version for c in report.candidates if c.package]
    assert len(versions) == len(set(versions))


def test_the_same_edit_is_not_tried_beside_itself(tmp_path):
    """A proposal of what a carried candidate is already is that candidate, and goes on as such."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    for run in ("night-1", "late-1"):  # of equal seeds, so that the proposals are equal too
        _, report = run_night(world, run=run)

    (carried,) = [c for c in report.candidates if c.proposal.proposer == "examples"]
    assert carried.standing.registration.looks == 2
    proposed = [e.data["candidate"] for e in world.ledger.events(kinds=("candidate.proposed",))]
    assert len(proposed) == len(set(proposed))


@pytest.mark.parametrize(
    ("change", "said"),
    [("worker", "worker, its model"), ("verifier", "their verifier"), ("rules", "rules of the")],
)
def test_evidence_begins_anew_where_the_conditions_changed(undecided, change, said):
    """Another worker, verifier or rule: E is 1 again, on tasks that are not spent."""
    world, before = undecided
    tasks, options = suite(["ask"]), {}
    if change == "worker":
        options["worker"] = PlantedWorker(base=0.01, examples=1.0)
    elif change == "rules":
        options["rules"] = GateRules(max_tasks=4, alpha=0.04)
    else:
        laxer = {"strip": True, "ignore_case": True}
        options["tasks"] = replace(
            tasks,
            tasks=tuple(
                replace(t, verifier=replace(t.verifier, options=laxer)) for t in tasks.tasks
            ),
        )
    _, report = run_night(world, run="night-2", **options)
    (after,) = [c for c in report.candidates if c.id == before.id]
    first, second = (registrations(world, run)[before.id] for run in ("night-1", "night-2"))

    assert (after.result.evidence.table.pairs, second.looks) == (4, 1)
    assert after.result.evidence.e_value == pytest.approx(5.7416)
    assert said in after.reasons[-1]
    assert not set(first.order) & set(second.order)
    assert set(first.order) <= world.curator.state.spent_by(first.lineage)
    assert replay(world.ledger).problems == ()


def test_evidence_begins_anew_where_another_skill_is_shown_beside(tmp_path):
    """What stands around the candidate is part of what was measured."""
    world = make_world(tmp_path, [skill("ask", BODY), skill("near", "# Near\n\nBe near.\n")])
    for number in (1, 2, 3):
        if number == 3:
            world.library.write(skill("near", "# Near\n\nBe nearer.\n"))
            world.curator.sync()
        shown = night(world, sure(), run=f"night-{number}", max_tasks=2, k=2)
        shown.evolver.retriever = shown.make_retriever(world.curator.served())
        asyncio.run(shown.evolver.evolve("ask"))
    name = next(iter(registrations(world, "night-1")))
    second, third = (registrations(world, run)[name] for run in ("night-2", "night-3"))

    assert second.carried == (("night-1", 2),)
    assert third.carried == ()
    assert "skills shown beside have changed" in third.restarted


def test_a_budget_that_ends_before_the_gate_leaves_it_as_it_was(undecided):
    """Nothing was decided, nothing is reported as if it were, and the next night goes on."""
    world, before = undecided
    digest = world.curator.state.digest
    poor = night(world, sure(), run="night-2")
    poor.evolver.bench = world.bench(sure(), run="night-2", seed=2, caps=Caps(rollouts=0))
    report = asyncio.run(poor.evolver.evolve("ask"))

    assert "0 rollouts" in report.stopped_by
    assert report.candidates == []
    assert world.curator.state.digest == digest
    run_night(world, run="night-3")
    assert registrations(world, "night-3")[before.id].carried == (("night-1", 4),)


def test_more_tasks_a_night_are_no_change_of_the_rules(undecided):
    """How many tasks a night may take says nothing about what they show."""
    world, before = undecided
    run_night(world, run="night-2", max_tasks=6)

    assert registrations(world, "night-2")[before.id].carried == (("night-1", 4),)


def test_after_a_hand_edit_the_edit_is_tried_anew(undecided):
    """Another base is another candidate, whose lineage has spent what it spent."""
    world, before = undecided
    world.library.write(skill("ask", BODY + "\nMine.\n"))
    world.curator.sync()
    _, report = run_night(world, run="night-2")
    (again,) = [c for c in report.candidates if c.proposal.again == before.id]
    first, second = registrations(world, "night-1"), registrations(world, "night-2")

    assert before.id not in second
    assert again.result.evidence.table.pairs == 4
    assert before.id in again.reasons[-1]
    assert not set(first[before.id].order) & set(second[again.id].order)
    _, third = run_night(world, run="night-3")
    assert all(not c.proposal.again for c in third.candidates if c.id != again.id)
    assert replay(world.ledger).problems == ()


def test_what_an_accepted_edit_replaced_waits(tmp_path):
    """While another version is served, a candidate keeps its E and does not bet."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    for run in ("night-1", "night-2"):
        run_night(world, run=run)
    (left,) = [
        c for c in registrations(world, "night-2") if c not in registrations(world, "night-1")
    ]
    adopted = world.curator.state.skill("ask").current
    run_night(world, run="night-3")
    assert left not in registrations(world, "night-3")

    while (
        world.curator.state.skill("ask").current
        != registrations(world, "night-1")[next(iter(registrations(world, "night-1")))].base
    ):
        world.curator.roll_back("ask", reason="test")
    assert world.curator.state.skill("ask").current != adopted
    base = world.curator.state.skill("ask").current
    assert left in {c.id for c in carry.undecided(world.curator, "planted", "ask", base)}


def test_without_fresh_tasks_a_candidate_stays_as_it_is(tmp_path):
    """It keeps its E and its place, and the report says what would help."""
    world, few = make_world(tmp_path, [skill("ask", BODY)]), suite(["ask"], confirm=4)
    _, first = run_night(world, run="night-1", tasks=few)
    before = next(c for c in first.candidates if c.result)
    _, report = run_night(world, run="night-2", tasks=few)
    after = next(c for c in report.candidates if c.id == before.id)

    assert registrations(world, "night-2") == {}
    assert after.result.evidence.e_value == before.result.evidence.e_value
    assert "add tasks" in after.reasons[-1]
    _, report = run_night(world, run="night-3", tasks=suite(["ask"], confirm=12))
    after = next(c for c in report.candidates if c.id == before.id)
    assert (after.decision, after.result.evidence.table.pairs) == (Decision.PROBATION, 8)


def test_carried_candidates_are_bounded_and_the_strongest_goes_first(tmp_path):
    """No more go on than ``max_confirm``; of the others none is proposed as if it were new."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    base = world.curator.package("ask")
    weak, strong, worthless = propose(
        world, "night-1", base, ["effect: a +0.6", "effect: b +1.0", "effect: c 0.0"]
    )
    gate = Admission(
        bench=world.bench(PlantedWorker(base=0.0), run="night-1"),
        curator=world.curator,
        rules=GateRules(max_tasks=4),
        suite="planted",
        skill="ask",
        tasks=suite(["ask"]).select(skill="ask", split=Split.CONFIRM),
        context=Context(skill="ask"),
        wave=8,
        cohort_size=3,
    )
    asyncio.run(gate.decide(base, [weak, strong, worthless]))
    assert 1 < weak.standing.e_value < strong.standing.e_value < 20
    assert worthless.standing.e_value == 1
    run_night(world, PlantedWorker(base=0.0), run="night-2", max_confirm=1)

    carried = [c for c, r in registrations(world, "night-2").items() if r.carried]
    assert carried == [strong.id]
    waiting = carry.undecided(world.curator, "planted", "ask", base.version)
    assert weak.id in [c.id for c in waiting]
    assert worthless.id not in [c.id for c in waiting]


def test_what_needs_no_more_tasks_takes_no_place_of_what_does(tmp_path):
    """Proven beyond need but not staged, it waits behind a candidate that has yet to be proven."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    base = world.curator.package("ask")
    proven, weak = propose(world, "night-1", base, ["effect: b +1.0", "effect: a +0.6"])
    confirm = suite(["ask"]).select(skill="ask", split=Split.CONFIRM)
    rules = GateRules(max_tasks=8, fdr=0.9)
    gate = night(world, PlantedWorker(base=0.0), run="night-1", rules=rules, cohort_size=1)
    gate = gate.evolver._admission("ask", confirm, Context(skill="ask"))
    asyncio.run(gate.decide(base, [proven, weak]))

    assert proven.standing.satisfied
    assert 1 < weak.standing.e_value < 20
    waiting = carry.undecided(world.curator, "planted", "ask", base.version)
    assert [c.id for c in waiting] == [weak.id, proven.id]


def on_probation(root, worker):
    """Return a world in which one edit is served on probation: E is 43, its cohort asks for 50."""
    world = make_world(root, [skill("ask", BODY)])
    rules = GateRules(max_tasks=8, fdr=0.02)
    report, of_skill = run_night(world, worker, run="night-1", rules=rules)
    assert of_skill.adopted
    assert report.promoted == []
    assert world.curator.state.skill("ask").evidence == "probation"
    return world, of_skill


def test_a_version_on_probation_is_promoted_by_its_own_cohort_the_next_night(tmp_path):
    """It bets on against its parent; the cohort of its first night is closed again."""
    world, first = on_probation(tmp_path, sure())
    report, second = run_night(world, run="night-2", rules=GateRules(max_tasks=8, fdr=0.02))
    (watched,) = [c for c in second.candidates if c.package and c.package.version == first.adopted]

    assert watched.result.evidence.table.gains == 15  # of 16: then E is ten times what m asks for
    assert registrations(world, "night-2")[watched.id].base == first.base
    assert [(p["version"], p["cohort"]) for p in report.promoted] == [(first.adopted, "night-1")]
    closed = [e.data["cohort"] for e in world.ledger.events(kinds=("cohort.closed",))]
    assert closed == ["night-1", "night-2", "night-1"]
    assert world.curator.state.versions["ask", first.adopted].promoted
    _, third = run_night(world, run="night-3", rules=GateRules(max_tasks=8, fdr=0.02))
    assert all(c.id != watched.id for c in third.candidates)
    assert replay(world.ledger).problems == ()


def test_a_version_on_probation_is_rolled_back_by_harm_the_next_night(tmp_path):
    """When harm reaches 20 the parent is served again, by name, and tonight's edits start there."""
    worker = Turning()
    world, first = on_probation(tmp_path, worker)
    worker.turned = True
    rules = GateRules(max_tasks=60, fdr=0.02)
    _, second = run_night(world, worker, run="night-2", rules=rules)
    (watched,) = [c for c in second.candidates if c.package and c.package.version == first.adopted]

    assert watched.decision is Decision.ROLLED_BACK
    assert watched.result.evidence.e_harm >= 20
    assert second.base == first.base == world.library.read("ask").version
    (back,) = world.ledger.events(kinds=("version.rolled_back",))
    assert (back.data["from"], back.data["version"]) == (first.adopted, first.base)
    assert "harm evidence reached 1/0.05" in back.data["reason"]
    closed = {e.data["cohort"]: e.data for e in world.ledger.events(kinds=("cohort.closed",))}
    (member,) = closed["night-1"]["members"]
    assert (member["candidate"], member["decision"]) == (watched.id, "rolled_back")
    assert replay(world.ledger).problems == ()


def test_probation_stands_while_its_evidence_begins_anew(tmp_path):
    """Under another worker E is 1 again; the version is still served, and futility ends nothing."""
    world, first = on_probation(tmp_path, sure())
    worker = PlantedWorker(base=0.5)
    rules = GateRules(max_tasks=60, fdr=0.02)
    report, second = run_night(world, worker, run="night-2", rules=rules)
    (watched,) = [c for c in second.candidates if c.package and c.package.version == first.adopted]

    assert watched.decision is Decision.PROBATION
    assert watched.result.evidence.table.pairs == 60
    assert "begins anew" in watched.reasons[-1]
    assert report.promoted == []
    assert world.curator.state.skill("ask").evidence == "probation"
    assert replay(world.ledger).problems == ()


@dataclass(slots=True)
class FullDisk:
    """A library whose disk takes no more."""

    inner: object

    def __getattr__(self, name):
        """Do what the library does."""
        return getattr(self.inner, name)

    def write(self, package, *, ready=lambda: None):
        """Refuse."""
        raise SkillError("no space left")


def test_a_roll_back_that_failed_is_made_up_for(tmp_path):
    """What harm has proven is taken back by the next run, once; whoever restores it then knows."""
    worker = Turning()
    world, first = on_probation(tmp_path, worker)
    worker.turned = True
    rules = GateRules(max_tasks=60, fdr=0.02)
    library, world.curator.library = world.curator.library, FullDisk(world.curator.library)
    _, second = run_night(world, worker, run="night-2", rules=rules)
    assert "not rolled back: no space left" in second.candidates[0].reasons[-1]
    assert world.curator.state.skill("ask").current == first.adopted
    world.curator.library = library
    run_night(world, worker, run="night-3", rules=rules)
    assert world.curator.state.skill("ask").current == first.base

    world.curator.roll_back("ask", to=first.adopted, reason="mine")
    run_night(world, worker, run="night-4", rules=rules)
    assert world.curator.state.skill("ask").current == first.adopted


def test_what_waits_to_be_adopted_goes_on_and_is_withdrawn_by_harm(tmp_path):
    """A staged version bets like any other; when harm is proven it waits no longer."""
    worker = Turning()
    world = make_world(tmp_path, [skill("ask", BODY)])
    rules = GateRules(max_tasks=8, fdr=0.02)
    _, first = run_night(world, worker, run="night-1", rules=rules, stage_only=True)
    assert [s.version for s in world.curator.state.staged["ask"]] == [first.staged]
    worker.turned = True
    rules = replace(rules, max_tasks=60)
    _, second = run_night(world, worker, run="night-2", rules=rules, stage_only=True)
    (staged,) = [c for c in second.candidates if c.package and c.package.version == first.staged]

    assert staged.decision is Decision.ROLLED_BACK
    assert all(s.version != first.staged for s in world.curator.state.staged.get("ask", ()))
    assert replay(world.ledger).problems == ()


def test_a_cohort_counts_everyone_it_ever_started(undecided):
    """Closed anew, it still holds its own members and no others, at their current E."""
    world, before = undecided
    run_night(world, run="night-2")
    closed = [(e.run, e.data) for e in world.ledger.events(kinds=("cohort.closed",))]
    own, new, again = (data for _, data in closed)
    first, second = registrations(world, "night-1"), registrations(world, "night-2")

    assert [run for run, _ in closed] == ["night-1", "night-2", "night-2"]
    assert [m["candidate"] for m in own["members"]] == list(first)
    assert [m["candidate"] for m in again["members"]] == list(first)
    assert {m["candidate"] for m in new["members"]} == set(second) - set(first)
    assert own["members"][0]["e_value"] < 20 < again["members"][0]["e_value"]
    assert all(r.tried == len(new["members"]) for c, r in second.items() if c != before.id)
    (promoted,) = again["promoted"]
    assert promoted["candidate"] == before.id


def test_a_second_night_cut_off_after_its_registration_ends_as_if_undisturbed(tmp_path):
    """Killed between registration and rollouts, the same night again comes to the same state."""
    worlds = [make_world(tmp_path / name, [skill("ask", BODY)]) for name in ("whole", "cut")]
    for world in worlds:
        run_night(world, run="night-1")
    whole, cut = worlds
    with pytest.raises(MemoryError):
        run_night(cut, Dying(sure()), run="night-2")
    assert list(cut.ledger.events(run="night-2", kinds=("gate.registered",)))
    assert not list(cut.ledger.events(run="night-2", kinds=("gate.decided",)))
    reports = [run_night(world, run="night-2")[0].to_json() for world in worlds]

    assert reports[0] == reports[1]
    assert cut.curator.state.digest == whole.curator.state.digest
    decided = [
        [event.data for event in world.ledger.events(kinds=("gate.decided",))] for world in worlds
    ]
    assert decided[0] == decided[1]
    assert replay(cut.ledger).problems == ()


def test_who_was_left_out_for_want_of_tasks_is_left_out_after_a_crash(tmp_path):
    """Two lineages have spent one half each; the second of the pair does not bet on its own."""
    world, rules = make_world(tmp_path, [skill("ask", BODY)]), GateRules(max_tasks=8)
    base = world.curator.package("ask")
    tasks = suite(["ask"], confirm=16).select(skill="ask", split=Split.CONFIRM)

    def decide(run, tasks, texts, proposers, worker):
        candidates = propose(world, run, base, texts, proposers)
        gate = night(world, worker, run=run, rules=rules).evolver
        gate = gate._admission("ask", tasks, Context(skill="ask"))
        asyncio.run(gate.decide(base, candidates))
        return candidates

    worker = PlantedWorker(base=0.5)
    decide("night-1", tasks[:8], ["effect: a 0"], ["one"], worker)
    decide("night-2", tasks[8:], ["effect: b 0"], ["two"], worker)
    both = (["effect: c 0", "effect: d 0"], ["one", "two"])
    with pytest.raises(MemoryError):
        decide("night-3", tasks, *both, Dying(worker))
    first, second = decide("night-3", tasks, *both, worker)

    assert list(registrations(world, "night-3")) == [first.id]
    assert first.result.used == 8
    assert "spent for proposer two" in second.reasons[0]


def test_families_that_have_bet_do_not_bet_again(tmp_path):
    """With inference over families, tasks added to a family that has bet are left out."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    rules = GateRules(inference="families", max_tasks=64)
    worker, tasks = PlantedWorker(base=0.5, examples=0.1), suite(["ask"], confirm=200, families=100)
    _, first = run_night(world, worker, run="night-1", tasks=tasks, rules=rules)
    undecided = [c for c in first.candidates if c.decision is Decision.INSUFFICIENT_EVIDENCE]
    more = suite(["ask"], confirm=300, families=100)
    _, _ = run_night(world, worker, run="night-2", tasks=more, rules=rules)
    second = registrations(world, "night-2")
    (carried,) = [c.id for c in undecided if c.id in second]
    family = {task.id: task.family for task in more.tasks}
    registration = second[carried]
    old = {family[t] for t in registration.order[:64]}

    assert registration.blocks[:32] == (2,) * 32
    assert not old & {family[t] for t in registration.fresh}
    assert replay(world.ledger).problems == ()


def test_a_night_that_was_killed_after_it_adopted_watches_nothing_of_its_own(tmp_path):
    """The same night again reports each candidate once, as if undisturbed."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    rules = GateRules(max_tasks=8, fdr=0.02)
    first, of_skill = run_night(world, run="night-1", rules=rules)
    assert of_skill.adopted

    again, _ = run_night(world, run="night-1", rules=rules)
    assert again.to_json() == first.to_json()


@dataclass(slots=True)
class Failing(PlantedWorker):
    """A worker whose host fails some confirm tasks once, where one text is shown."""

    left: int = 0

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int):
        """Solve the task or not, or fail."""
        if self.left and task.split is Split.CONFIRM and "effect: a" in skills[0].body:
            self.left -= 1
            gone = Failure(kind=FailureKind.INFRA, message="503", where="model")
            return Attempt(output="", failure=gone)
        return await PlantedWorker.attempt(self, task, skills, seed=seed)


def test_a_retry_for_another_candidate_changes_no_decision(tmp_path):
    """What is served on probation is the base of tonight's edits: the two share its rollouts."""
    world, tasks = make_world(tmp_path, [skill("ask", BODY)]), suite(["ask"], confirm=60)
    worker, rules = Failing(base=0.2, examples=0.15), GateRules(max_tasks=40, fdr=5e-10)
    base = world.curator.package("ask")
    (served,) = propose(world, "night-1", base, ["effect: a +0.75"])
    world.curator.stage(
        "ask",
        served.package.version,
        base=base.version,
        run="night-1",
        candidate=served.id,
        evidence="probation",
    )
    world.curator.adopt("ask")
    gate = night(world, worker, run="night-1", tasks=tasks, rules=rules).evolver
    confirm = tasks.select(skill="ask", split=Split.CONFIRM)
    gate = gate._admission("ask", confirm[:10], Context(skill="ask"))
    asyncio.run(gate.decide(base, [served]))
    worker.left = 4
    _, report = run_night(world, worker, run="night-2", tasks=tasks, rules=rules)
    watched, *new = (c for c in report.candidates if c.result)

    assert watched.result.evidence.table.dropped["augmented"] == 4
    voided = set(watched.result.evidence.voided)
    assert voided & {task for c in new for task in c.standing.registration.order}
    assert replay(world.ledger).problems == ()


def test_what_is_proven_goes_on_once_its_base_is_served_again(tmp_path):
    """Of two proven edits one is served; when that is taken back, the other is, at its E."""
    body = BODY + "\n## Old way\n\neffect: old -0.3\n"
    world = make_world(tmp_path, [skill("ask", body)])
    worker, rules = PlantedWorker(base=0.45, examples=0.5), GateRules(max_tasks=100, fdr=0.9)
    _, first = run_night(world, worker, run="night-1", rules=rules)
    other = first.winners[1]
    assert other.standing.satisfied
    world.curator.roll_back("ask", reason="test")
    _, second = run_night(world, worker, run="night-2", rules=rules)
    (again,) = [c for c in second.candidates if c.id == other.id]

    assert again.result.evidence == other.result.evidence
    assert again in second.winners
    assert replay(world.ledger).problems == ()


def test_what_replay_recomputes_is_the_joined_evidence(undecided):
    """The decision of the second night is that of one gate over the tasks of both."""
    world, before = undecided
    _, report = run_night(world, run="night-2")
    registration = registrations(world, "night-2")[before.id]
    outcomes = registered_outcomes(world.ledger.events, "night-2", registration)
    again = decide(outcomes, registration.rules, registration.basis, enough=registration.enough)
    (after,) = [c for c in report.candidates if c.id == before.id]

    assert again.evidence == after.result.evidence
    assert again.decision is after.decision


@pytest.mark.parametrize("change", [{"e_value": 40.0}, {"candidate": "another"}, None])
def test_replay_counts_the_members_of_a_cohort_itself(undecided, change):
    """Closed on other members or E-values than the decisions give, it is a named problem."""
    world, before = undecided
    (closed,) = world.ledger.events(kinds=("cohort.closed",))
    members = [] if change is None else [closed.data["members"][0] | change]
    data = closed.data | {"members": members}
    world.ledger.append([NewEvent(kind="cohort.closed", data=data, run="night-2")])
    (problem,) = replay(world.ledger).problems

    assert f"the decisions before it say {{'{before.id}': 5.74" in problem
