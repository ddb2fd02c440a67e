"""Evolving one skill in a planted world, where the right decision is known."""

import asyncio
from dataclasses import replace

import pytest
from support.world import PlantedWorker, make_world, skill, suite

from skillforge.core.gate import Decision, GateRules
from skillforge.core.task import Split
from skillforge.errors import InfraError, SkillError, SuiteError
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.replay import replay
from skillforge.workflows.spend import Caps

BODY = "# Ask\n\nAnswer the question.\n\n## Notes\n\nKeep calm.\n\n## Tips\n\nStay warm.\n"


def evolver(world, worker, *, rules=None, caps=None, run="run-1", seed=0, tasks=None, **settings):
    """Return an evolver of a world."""
    return Evolver(
        bench=world.bench(worker, caps=caps, run=run, seed=seed),
        curator=world.curator,
        suite=tasks or suite(["ask"]),
        rules=rules or GateRules(max_tasks=60),
        settings=EvolveSettings(**settings),
    )


def test_a_good_edit_is_adopted_and_written_to_the_folder(tmp_path):
    """Worked examples that help reach probation, and the folder holds the new version."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    before = world.curator.state.skill("ask").current
    report = asyncio.run(evolver(world, PlantedWorker(base=0.1, examples=0.8)).evolve("ask"))

    (examples,) = [c for c in report.candidates if c.proposal.proposer == "examples"]
    assert examples.decision is Decision.PROBATION
    assert examples.result.evidence.e_value >= 20
    assert report.adopted == examples.package.version == world.library.read("ask").version
    assert report.adopted != before
    assert b"Assistant: answer-" in world.library.read("ask").files["SKILL.md"].data


def test_an_edit_without_effect_is_not_adopted(tmp_path):
    """Worked examples that change nothing end in futility, and the library stays as it is."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    before = world.curator.state.library_digest
    rules = GateRules(max_tasks=120)
    report = asyncio.run(evolver(world, PlantedWorker(base=0.5), rules=rules).evolve("ask"))

    assert report.adopted is None
    assert world.curator.state.library_digest == before
    assert all(c.decision is not Decision.PROBATION for c in report.candidates)


def test_a_harmful_unit_is_found_and_pruned(tmp_path):
    """The audit names the unit that does harm, and the gate lets it go."""
    body = BODY + "\n## Old way\n\neffect: old -0.6\n"
    world = make_world(tmp_path, [skill("ask", body)])
    report = asyncio.run(evolver(world, PlantedWorker(base=0.9)).evolve("ask"))

    worst = min(report.audit, key=lambda u: u.utility)
    assert worst.unit.id == "section:old-way"
    assert report.adopted is not None
    assert b"Old way" not in world.library.read("ask").files["SKILL.md"].data
    removed = [u["id"] for u in report.audit_json()["units"] if u["removed"]]
    assert removed == ["section:old-way"]


def test_confirm_uses_only_fresh_tasks_of_its_split(tmp_path):
    """Diagnosis and screen tasks never count in a decision, nor sealed ones in anything."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    asyncio.run(evolver(world, PlantedWorker(base=0.2, examples=0.5)).evolve("ask"))

    purposes = {"propose": Split.PROPOSE, "screen": Split.SCREEN, "confirm": Split.CONFIRM}
    for event in world.ledger.events(kinds=("rollout.finished",)):
        assert f"/{purposes[event.data['purpose']].value}/" in event.data["task"]


def test_what_is_decided_can_be_recomputed(tmp_path):
    """Replay agrees with every decision, and the chain holds."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    asyncio.run(evolver(world, PlantedWorker(base=0.2, examples=0.5)).evolve("ask"))

    found = replay(world.ledger)
    assert found.chain_ok
    assert found.decisions >= 1
    assert found.problems == ()


def test_the_same_run_again_repeats_no_rollout(tmp_path):
    """A second call within the same run reads everything from the ledger and decides the same."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    worker = PlantedWorker(base=0.2, examples=0.5)
    first = asyncio.run(evolver(world, worker).evolve("ask")).to_json()
    calls = len(worker.calls)
    second = asyncio.run(evolver(world, worker).evolve("ask")).to_json()

    assert len(worker.calls) == calls
    assert second == first


def test_a_spent_budget_keeps_what_was_measured(tmp_path):
    """A cap of rollouts is never passed, and the report says why it stopped."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    worker = PlantedWorker(base=0.2, examples=0.5)
    report = asyncio.run(evolver(world, worker, caps=Caps(rollouts=150)).evolve("ask"))

    assert len(worker.calls) == 150
    assert "150 rollouts" in report.stopped_by
    finished = list(world.ledger.events(kinds=("rollout.finished",)))
    assert len(finished) == 150
    assert replay(world.ledger).problems == ()


def test_spent_confirm_tasks_are_not_used_again(tmp_path):
    """A later run of the same proposer on the same skill gets tasks it has not seen."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    tasks = suite(["ask"], confirm=200)
    worker = PlantedWorker(base=0.5)
    for run, seed in (("run-1", 0), ("run-2", 1)):
        asyncio.run(evolver(world, worker, run=run, seed=seed, tasks=tasks).evolve("ask"))

    unused = {
        event.data["candidate"]: set(event.data["unused"])
        for event in world.ledger.events(kinds=("gate.decided",))
    }
    first, again = {}, 0
    for event in world.ledger.events(run="run-1", kinds=("gate.registered",)):
        bet_on = set(event.data["order"]) - unused[event.data["candidate"]]
        first.setdefault(event.data["lineage"], set()).update(bet_on)
    for event in world.ledger.events(run="run-2", kinds=("gate.registered",)):
        again += event.data["lineage"] in first
        assert not first.get(event.data["lineage"], set()) & set(event.data["order"])
    assert again


def test_infrastructure_failures_void_pairs_and_are_counted(tmp_path):
    """A task that cannot be reached is dropped from the contrast in both arms, not scored 0."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    broken = frozenset(f"ask/confirm/{i}" for i in range(0, 120, 7))
    worker = PlantedWorker(base=0.1, examples=0.8, broken=broken)
    report = asyncio.run(evolver(world, worker).evolve("ask"))

    table = next(c for c in report.candidates if c.result).result.evidence.table
    assert sum(table.dropped.values()) > 0
    assert all("no route" not in str(e.data) for e in world.ledger.events(kinds=("gate.decided",)))


def test_an_endpoint_that_never_answers_is_an_error(tmp_path):
    """When nothing but infrastructure failures come back, nothing is decided."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    broken = frozenset(t.id for t in suite(["ask"]).tasks)
    with pytest.raises(InfraError, match="no route"):
        asyncio.run(evolver(world, PlantedWorker(broken=broken)).evolve("ask"))
    assert not list(world.ledger.events(kinds=("gate.decided", "candidate.proposed")))


def test_an_unknown_skill_gets_a_suggestion(tmp_path):
    """A misspelt name is answered with the near one."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    with pytest.raises(SkillError, match="did you mean ask"):
        asyncio.run(evolver(world, PlantedWorker()).evolve("aks"))


def test_a_hand_edit_during_the_run_is_never_overwritten(tmp_path):
    """If the folder changed meanwhile, the edit becomes a version; nothing is adopted over it."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    run = evolver(world, PlantedWorker(base=0.1, examples=0.8))
    edited = skill("ask", BODY + "\nMine.\n")

    async def both():
        task = asyncio.create_task(run.evolve("ask"))
        await asyncio.sleep(0)
        world.library.write(edited)
        return await task

    report = asyncio.run(both())
    assert report.adopted is None
    assert world.library.read("ask").version == edited.version
    assert world.curator.state.skill("ask").current == edited.version


def test_replicates_are_averaged_before_they_count(tmp_path):
    """With two replicates each pair stands on four rollouts, and a task is still one bet."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    rules = GateRules(max_tasks=40, replicates=2)
    worker = PlantedWorker(base=0.1, examples=0.8)
    report = asyncio.run(evolver(world, worker, rules=rules).evolve("ask"))

    proven = next(c for c in report.candidates if c.decision is Decision.PROBATION)
    confirm = [
        (e.data["task"], e.data["replicate"])
        for e in world.ledger.events(kinds=("rollout.finished",))
        if e.data["purpose"] == "confirm" and e.data["subject"] == proven.package.version
    ]
    assert {replicate for _, replicate in confirm} == {0, 1}
    assert len(confirm) == len(set(confirm)) == 2 * len({task for task, _ in confirm})
    assert proven.result.evidence.table.pairs <= len(confirm) / 2
    assert replay(world.ledger).problems == ()


def test_inference_over_families_bets_once_a_family(tmp_path):
    """Thirty families and more are registered whole, one after the other, and bet once each."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    rules = GateRules(inference="families")
    tasks = suite(["ask"], confirm=120, families=40)
    worker = PlantedWorker(base=0.1, examples=0.8)
    report = asyncio.run(evolver(world, worker, rules=rules, tasks=tasks).evolve("ask"))

    (registered,) = {
        (tuple(e.data["order"]), tuple(e.data["blocks"]))
        for e in world.ledger.events(kinds=("gate.registered",))
    }
    order, blocks = registered
    family = {task.id: task.family for task in tasks.tasks}
    assert blocks == (3,) * 40
    assert [len({family[t] for t in order[i : i + 3]}) for i in range(0, 120, 3)] == [1] * 40
    assert report.adopted
    assert replay(world.ledger).problems == ()


def test_too_few_families_to_infer_over_are_an_error(tmp_path):
    """Three families cannot decide anything: the error says how many are needed and found."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    rules = GateRules(inference="families")
    with pytest.raises(SuiteError, match=r"needs at least 30 families .* found 3"):
        asyncio.run(evolver(world, PlantedWorker(base=0.3), rules=rules).evolve("ask"))


def test_what_was_undone_does_not_come_back_when_the_run_goes_on(tmp_path):
    """A roll-back between a crash and the same command again is not overruled by it."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    worker = PlantedWorker(base=0.1, examples=0.8)
    first = asyncio.run(evolver(world, worker).evolve("ask"))
    assert first.adopted is not None
    world.curator.roll_back("ask", reason="test")
    again = asyncio.run(evolver(world, worker).evolve("ask"))

    assert (again.adopted, again.staged) == (None, None)
    assert world.library.read("ask").version == again.base
    assert len(list(world.ledger.events(kinds=("version.staged",)))) == 1


def test_a_run_that_only_stages_writes_nothing_to_the_folder(tmp_path):
    """What is proven waits on its base; the next run of the same world may still adopt it."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    worker = PlantedWorker(base=0.1, examples=0.8)
    waits = evolver(world, worker)
    waits.settings = replace(waits.settings, stage_only=True)
    report = asyncio.run(waits.evolve("ask"))
    (staged,) = world.curator.state.staged["ask"]

    assert (report.adopted, report.staged) == (None, staged.version)
    assert staged.base == report.base == world.library.read("ask").version
    assert asyncio.run(evolver(world, worker).evolve("ask")).adopted == staged.version
    assert world.library.read("ask").version == staged.version


@pytest.mark.parametrize("split", [Split.PROPOSE, Split.SCREEN, Split.CONFIRM])
def test_an_empty_split_is_an_error(tmp_path, split):
    """Without tasks to diagnose, choose or confirm on, the error names the split and the skill."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    tasks = suite(["ask"])
    tasks = replace(tasks, tasks=tuple(t for t in tasks.tasks if t.split != split))
    with pytest.raises(SuiteError, match=f"has no {split.value} tasks for ask"):
        asyncio.run(evolver(world, PlantedWorker(base=0.3), tasks=tasks).evolve("ask"))


def test_a_finite_pool_is_registered_with_all_fresh_tasks(tmp_path):
    """Betting without replacement names the pool that the order was drawn from, and replays."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    rules = GateRules(max_tasks=40, finite_pool=True, deterministic=True)
    asyncio.run(evolver(world, PlantedWorker(base=0.2, examples=0.6), rules=rules).evolve("ask"))

    registered = [e.data for e in world.ledger.events(kinds=("gate.registered",))]
    assert registered
    assert all((r["pool"], len(r["order"])) == (120, 40) for r in registered)
    assert replay(world.ledger).problems == ()


def test_where_all_confirm_tasks_are_spent_the_candidate_ends_without_evidence(tmp_path):
    """Nothing is bet twice and nothing raised: a night goes on with its other skills."""
    world = make_world(tmp_path, [skill("ask", BODY)])
    rules, tasks = GateRules(max_tasks=60), suite(["ask"], confirm=10)
    asyncio.run(evolver(world, PlantedWorker(base=0.5), rules=rules, tasks=tasks).evolve("ask"))
    second = evolver(world, PlantedWorker(base=0.5), rules=rules, tasks=tasks, run="run-2", seed=1)
    report = asyncio.run(second.evolve("ask"))

    ended = [c for c in report.candidates if "confirm tasks of ask in suite" in "".join(c.reasons)]
    assert ended
    assert {c.decision for c in ended} == {Decision.INSUFFICIENT_EVIDENCE}
    assert report.adopted is None
    assert replay(world.ledger).problems == ()
