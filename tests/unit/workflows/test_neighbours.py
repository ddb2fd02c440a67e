"""An edit that takes the tasks of its neighbours away is found before it is served."""

import asyncio

import pytest
from support.world import DotIndex, LetterEmbedder, PlantedWorker, make_world, skill, suite

from skillforge.analytics import decisions_frame
from skillforge.core.events import NewEvent
from skillforge.core.gate import Decision, GateRules
from skillforge.core.rollout import Attempt, Cause, Failure, FailureKind
from skillforge.core.task import Split
from skillforge.workflows.cohorts import OPEN, close_cohorts, read_cohorts
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.replay import replay
from skillforge.workflows.retrieve import build_retriever
from skillforge.workflows.spend import Caps

OAK = skill("oak", "# Oak\n\nAnswer oak.\n", "Oak.")
PINE = (
    "# Softwood\n\nSay what the tree is good for, in few plain words, and stop there.\n\n"
    "effect: pine {effect}\n"
)


def pine(effect, name="pine"):
    """Return a skill whose tasks are found by words that the edit of oak brings along as well."""
    return skill(name, PINE.format(effect=effect), "Softwood things of every kind.")


def retriever(packages):
    """Embed by words and search exactly."""
    return build_retriever(packages, LetterEmbedder(), DotIndex)


def evolver(world, worker, *, tasks=("oak", "pine"), run="run-1", caps=None, **settings):
    """Return an evolver whose edits are checked on the tasks of the skills beside theirs."""
    return Evolver(
        bench=world.bench(worker, run=run, caps=caps),
        curator=world.curator,
        suite=suite(tasks, confirm=120),
        rules=GateRules(max_tasks=60),
        settings=EvolveSettings(**settings),
        make_retriever=retriever,
    )


class CrashingWorker(PlantedWorker):
    """Takes every task of pine that oak was shown for, and fails for want of a machine."""

    async def attempt(self, task, skills, *, seed):
        """Solve the task or not, or crash."""
        tried = await super().attempt(task, skills, seed=seed)
        if task.skill == "pine" and skills[0].name == "oak" and tried.output == "wrong":
            gone = Failure(kind=FailureKind.INFRA, message="out of memory", where="worker")
            return Attempt(output="", failure=gone)
        return tried


class LateWorker(PlantedWorker):
    """Runs out of time on every task of pine that it does not solve with oak."""

    async def attempt(self, task, skills, *, seed):
        """Solve the task or not, or be late."""
        tried = await super().attempt(task, skills, seed=seed)
        if task.skill == "pine" and skills[0].name == "oak" and tried.output == "wrong":
            late = Failure(
                kind=FailureKind.AGENT, message="timeout", where="worker", cause=Cause.TIMEOUT
            )
            return Attempt(output="", failure=late)
        return tried


@pytest.fixture
def worker():
    """Return a worker for which examples help a good deal; pine's own skill helps more."""
    return PlantedWorker(base=0.2, examples=0.4)


@pytest.fixture
def world(tmp_path):
    """Return oak and pine; pine lifts its tasks by 80 points, oak's examples by 40."""
    return make_world(tmp_path, [OAK, pine("+0.8")])


def test_an_edit_that_takes_a_neighbours_tasks_is_not_adopted(world, worker):
    """It helped its own tasks beyond doubt, and does harm where retrieval puts it now."""
    before = world.curator.state.skill("oak").current
    report = asyncio.run(evolver(world, worker).evolve("oak"))

    (found,) = report.to_json()["neighbours"]
    (beside,) = found["neighbours"]
    assert found["decision"] == "rejected_harm"
    assert found["e_value"] == beside["e_harm"] >= 5
    assert beside["skill"] == "pine"
    assert beside["lift"] < -0.2
    (examples,) = [c for c in report.candidates if c.id == found["candidate"]]
    assert examples.result.evidence.e_value >= 20
    assert examples.decision is Decision.REJECTED_HARM
    assert "neighbours" in examples.reasons[-1]
    assert "pine" in examples.reasons[-1]
    assert report.adopted is report.staged is None
    assert world.curator.state.skill("oak").current == before
    assert not world.curator.state.staged


def test_what_is_rejected_counts_against_its_cohort_and_is_not_proposed_again(world, worker):
    """The cohort holds it as no discovery, the frame shows the decision, a rerun refuses it."""
    report = asyncio.run(evolver(world, worker).evolve("oak"))
    (found,) = report.neighbours

    members = {m.candidate: m.decision for m in read_cohorts(world.ledger).members(OPEN)}
    assert members[found["candidate"]] is Decision.INSUFFICIENT_EVIDENCE
    shown = {r["candidate"]: r["decision"] for r in decisions_frame(world.ledger).to_dicts()}
    assert shown[found["candidate"]] == "rejected_harm"
    again = asyncio.run(evolver(world, worker, run="run-2").evolve("oak"))
    (twin,) = [c for c in again.candidates if c.proposal.proposer == "examples"]
    assert twin.decision is Decision.REFUSED


def test_an_edit_that_harms_no_neighbour_is_adopted(tmp_path, worker):
    """Where oak's edit serves the tasks it takes as well as pine did, it is kept."""
    world = make_world(tmp_path, [OAK, pine("+0.4")])
    report = asyncio.run(evolver(world, worker).evolve("oak"))

    (found,) = report.neighbours
    assert found["stopped_by"] is None
    assert found["decision"] == "probation"
    assert 0 < found["neighbours"][0]["tasks"] <= 60
    assert report.adopted is not None


@pytest.mark.parametrize("tasks", [("oak",), ("oak", "elm")])
def test_where_nothing_changes_for_others_nothing_is_paid(tmp_path, worker, tasks):
    """Skills without tasks, or with tasks to which the edit shows nothing else, cost no rollout."""
    far = skill("elm", "# elm confirm\n\nelm confirm question number elm\n", "elm confirm question")
    world = make_world(tmp_path, [OAK, far])
    report = asyncio.run(evolver(world, worker, tasks=tasks).evolve("oak"))

    (found,) = report.neighbours
    assert found["stopped_by"] is None
    assert all(row["tasks"] == 0 for row in found["neighbours"])
    assert "neighbour" in found["reasons"][0]
    assert report.adopted is not None
    assert not any(
        event.data["subject"].startswith("with")
        for event in world.ledger.events(kinds=("rollout.finished",))
    )


def test_an_edit_that_crashes_its_neighbours_tasks_is_not_served(tmp_path):
    """Harm that infrastructure failures may hide is not taken for none."""
    world = make_world(tmp_path, [OAK, pine("+0.8")])
    crashing = CrashingWorker(base=0.2, examples=0.4)
    report = asyncio.run(evolver(world, crashing).evolve("oak"))

    (found,) = report.neighbours
    (beside,) = found["neighbours"]
    assert beside["dropped"]["with"] > 5 > beside["dropped"]["without"]
    assert found["decision"] == "insufficient_evidence"
    assert "infrastructure" in found["reasons"][0]
    assert report.adopted is report.staged is None
    assert replay(world.ledger).problems == ()


def test_what_the_agent_fails_by_on_its_neighbours_tasks_is_told(world):
    """By arm and cause, in the numbers and in the reasons, as for the edit's own tasks."""
    late = LateWorker(base=0.2, examples=0.4)
    report = asyncio.run(evolver(world, late).evolve("oak"))

    (found,) = report.to_json()["neighbours"]
    (rejected,) = [c for c in report.candidates if c.id == found["candidate"]]
    times = found["agent_failures"]["with"]["timeout"]
    assert found["agent_failures"] == {"with": {"timeout": times}, "without": {}}
    assert 0 < times <= found["neighbours"][0]["tasks"]
    assert rejected.reasons[-1] == (
        "agent failures on its neighbours' tasks, which score 0: "
        f"{times} (timeout {times}) with and 0 without the edit"
    )
    assert replay(world.ledger).problems == ()


def test_only_tasks_that_get_something_else_are_run(world, worker):
    """Every task that was bet on had another skill with the edit than without."""
    asyncio.run(evolver(world, worker).evolve("oak"))
    (registered,) = world.ledger.events(kinds=("neighbours.registered",))
    edited = {
        **world.curator.served(),
        "oak": world.curator.package("oak", registered.data["version"]),
    }
    by_id = {t.id: t for t in suite(("oak", "pine"), confirm=120).tasks}
    tasks = [by_id[name] for name in registered.data["order"]]
    before = retriever(world.curator.served()).show(tasks, 1)
    after = retriever(edited).show(tasks, 1)

    assert tasks
    assert all(before[t.id] != after[t.id] for t in tasks)
    assert {t.skill for t in tasks} == {"pine"}
    assert {t.split.value for t in tasks} == {"confirm"}


def test_the_nearest_are_asked_and_no_more(tmp_path, worker):
    """With three softwoods and room for two, the two nearest bet."""
    names = ("pine", "larch", "spruce")
    world = make_world(tmp_path, [OAK, *(pine("+0.8", name) for name in names)])
    report = asyncio.run(evolver(world, worker, tasks=("oak", *names), neighbours=2).evolve("oak"))
    (found,) = report.neighbours
    (registered,) = world.ledger.events(kinds=("neighbours.registered",))
    edited = {
        **world.curator.served(),
        "oak": world.curator.package("oak", registered.data["version"]),
    }
    near = [hit.skill for hit in retriever(edited).neighbours("oak", 2)]

    assert [row["skill"] for row in found["neighbours"]] == near
    assert len(near) == 2


def test_a_lineage_does_not_bet_on_a_neighbours_task_twice(world, worker):
    """What the check used is spent; what it registered and did not need is given back."""
    report = asyncio.run(evolver(world, worker).evolve("oak"))
    (decided,) = world.ledger.events(kinds=("neighbours.decided",))
    (registered,) = world.ledger.events(kinds=("neighbours.registered",))
    used = sum(row["tasks"] for row in report.neighbours[0]["neighbours"])

    spent = world.curator.state.spent_by(decided.data["lineage"])
    assert spent == set(registered.data["order"]) - set(decided.data["unused"])
    assert 0 < len(spent) == used < len(registered.data["order"])


def test_where_all_tasks_of_a_neighbour_are_spent_the_verdict_is_withheld(world, worker):
    """An edit that nobody can be asked about any more is not served; the reason says what to do."""
    pine = [t.id for t in suite(["oak", "pine"]).select(skill="pine", split=Split.CONFIRM)]
    before = {
        "candidate": "earlier",
        "skill": "oak",
        "version": "v",
        "lineage": "planted/oak/examples/neighbours",
    }
    world.ledger.append(
        [
            NewEvent(kind="neighbours.registered", data={**before, "order": pine}, run="run-0"),
            NewEvent(
                kind="neighbours.decided",
                data={
                    **before,
                    "decision": "probation",
                    "unused": [],
                    "found": {"stopped_by": None},
                },
                run="run-0",
            ),
        ]
    )
    report = asyncio.run(evolver(world, worker).evolve("oak"))
    (found,) = report.neighbours

    assert found["decision"] == "insufficient_evidence"
    assert "all confirm tasks of pine" in found["reasons"][0]
    assert "add tasks" in found["reasons"][0]
    assert report.adopted is report.staged is None


def test_the_verdict_is_recomputed_from_the_ledger(world, worker):
    """Replay comes to the same verdict, and tells one that is not borne out."""
    asyncio.run(evolver(world, worker).evolve("oak"))
    assert replay(world.ledger).problems == ()

    (decided,) = world.ledger.events(kinds=("neighbours.decided",))
    forged = {**decided.data, "decision": "probation"}
    world.ledger.append([NewEvent(kind="neighbours.decided", data=forged, run=decided.run)])
    (problem,) = replay(world.ledger).problems
    assert "decision = 'probation'" in problem


@pytest.mark.parametrize("rollouts", [0, 1, 10])
def test_a_check_that_was_cut_off_leaves_the_edit_waiting(tmp_path, rollouts):
    """Without money for the neighbours the edit is staged, not served, and the report says so."""
    whole = make_world(tmp_path / "whole", [OAK, pine("+0.8")])
    worker = PlantedWorker(base=0.2, examples=0.4)
    asyncio.run(evolver(whole, worker).evolve("oak"))
    beside = sum(
        event.data["subject"].startswith("with")
        for event in whole.ledger.events(kinds=("rollout.finished",))
    )
    world = make_world(tmp_path / "cut", [OAK, pine("+0.8")])
    caps = Caps(rollouts=len(worker.calls) - beside + rollouts)
    report = asyncio.run(
        evolver(world, PlantedWorker(base=0.2, examples=0.4), caps=caps).evolve("oak")
    )

    (found,) = report.neighbours
    assert found["stopped_by"]
    assert found["decision"] == "probation"
    assert "cut off" in found["reasons"][0]
    assert report.adopted is None
    assert report.staged is not None
    assert report.stopped_by == found["stopped_by"]
    assert replay(world.ledger).problems == ()


@pytest.mark.parametrize("fdr", [0.1, 1e-4])
def test_a_check_that_was_cut_off_is_made_up_for(tmp_path, fdr):
    """What waits is not promoted; the next night checks it, and what harms waits no longer."""
    whole = make_world(tmp_path / "whole", [OAK, pine("+0.8")])
    worker = PlantedWorker(base=0.2, examples=0.4)
    asyncio.run(evolver(whole, worker).evolve("oak"))
    beside = sum(
        event.data["subject"].startswith("with")
        for event in whole.ledger.events(kinds=("rollout.finished",))
    )
    world = make_world(tmp_path / "cut", [OAK, pine("+0.8")])
    caps = Caps(rollouts=len(worker.calls) - beside)
    asyncio.run(evolver(world, PlantedWorker(base=0.2, examples=0.4), caps=caps).evolve("oak"))
    (waiting,) = world.curator.state.staged["oak"]
    assert close_cohorts(world.curator, "run-1", fdr) == []

    again = evolver(world, PlantedWorker(base=0.2, examples=0.4), run="run-2")
    report = asyncio.run(again.evolve("oak"))
    decisions = {found["candidate"]: found["decision"] for found in report.neighbours}
    assert decisions[waiting.candidate] == "rejected_harm"
    assert world.curator.state.staged == {}
    promoted = [p["candidate"] for p in close_cohorts(world.curator, "run-2", fdr)]
    assert waiting.candidate not in promoted
    assert replay(world.ledger).problems == ()


@pytest.mark.parametrize("changed", [False, True])
def test_who_waits_is_asked_about_its_neighbours_once(tmp_path, worker, changed):
    """Tried every night at .20, an edit that harms nobody would fall; another library is asked."""
    world = make_world(tmp_path, [OAK, pine("+0.4"), skill("elm", "# Elm\n\nElm.\n", "Elm.")])
    for run in ("run-1", "run-2"):
        night = evolver(world, worker, run=run, stage_only=True, max_confirm=1)
        night.rules, night.cohort_size = GateRules(max_tasks=20), 1000
        asyncio.run(night.evolve("oak"))
        if changed and run == "run-1":
            world.library.write(skill("elm", "# Elm\n\nTall.\n", "Elm."))
            world.curator.sync()

    first, *again = world.ledger.events(kinds=("neighbours.decided",))
    about = (first.data["candidate"],)
    assert first.data["decision"] == "probation"
    assert len(list(world.ledger.events(kinds=("gate.registered",), about=about))) == 2
    assert (first.data["candidate"] in [e.data["candidate"] for e in again]) is changed


class ProcessEndError(Exception):
    """Stands for the end of the process."""


def test_a_check_that_crashed_goes_on_where_it_was(tmp_path, worker):
    """Whatever it dies at, the same run again repeats no rollout and comes to the same end."""
    whole = make_world(tmp_path / "whole", [OAK, pine("+0.8")])
    expected = asyncio.run(evolver(whole, worker).evolve("oak")).to_json()
    total = len(worker.calls)
    for dies_after in (total - 9, total - 1):
        world = make_world(tmp_path / str(dies_after), [OAK, pine("+0.8")])
        dying = PlantedWorker(base=0.2, examples=0.4)
        first = evolver(world, dying)

        def die(_, dying=dying, dies_after=dies_after):
            if len(dying.calls) >= dies_after:
                raise ProcessEndError

        first.bench.on_rollout = die
        with pytest.raises(ProcessEndError):
            asyncio.run(first.evolve("oak"))
        done = sum(1 for _ in world.ledger.events(kinds=("rollout.finished",)))
        second = PlantedWorker(base=0.2, examples=0.4)
        report = asyncio.run(evolver(world, second).evolve("oak"))

        assert report.to_json() == expected
        assert done + len(second.calls) == total
        assert replay(world.ledger).problems == ()
    asyncio.run(evolver(world, second).evolve("oak"))
    assert done + len(second.calls) == total
