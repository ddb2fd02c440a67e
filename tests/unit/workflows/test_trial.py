"""From cells to rollouts: what is reused, in which order, under which key, and how much is paid."""

import asyncio
import contextlib
import gc
import sys
import threading
from collections import Counter
from dataclasses import fields, replace

import pytest
from support import batch
from support.errands import until
from support.world import PlantedWorker, make_world, skill, suite

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.ledger import SqliteLedger
from skillforge.adapters.workers import ChatWorker
from skillforge.core.events import NewEvent
from skillforge.core.records import ROLLOUTS, read_rollout, write_rollout
from skillforge.core.rollout import (
    Attempt,
    Cause,
    Failure,
    FailureKind,
    condition_digest,
    rollout_key,
    rollout_seed,
)
from skillforge.core.task import VerifierSpec, WorkerSpec
from skillforge.errors import BudgetSpent, InfraError, LedgerError
from skillforge.workflows.contrast import Context, arm_cells
from skillforge.workflows.metered import MeteredWorker
from skillforge.workflows.spend import Caps

SKILL = skill("ask", "effect: x +0.3")
OTHER = skill("ask", "effect: x +0.4")


def cells(count=12, *, replicates=1, package=SKILL):
    """Return the cells of both arms over some tasks."""
    tasks = suite(["ask"]).tasks[:count]
    context = Context(skill="ask")
    shared = {"context": context, "purpose": "eval", "replicates": replicates}
    base = arm_cells(tasks, arm="base", package=None, **shared)
    return base + arm_cells(tasks, arm="augmented", package=package, **shared)


@pytest.fixture
def world(tmp_path):
    """Return an empty world."""
    return make_world(tmp_path, [])


class Recording(PlantedWorker):
    """Keeps the seed of every attempt."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.seeds = []

    async def attempt(self, task, skills, *, seed):
        """Note the seed."""
        self.seeds.append((task.id, bool(skills), seed))
        return await super().attempt(task, skills, seed=seed)


def run(world, worker, wanted, **settings):
    """Return the rollouts of some cells, and the bench they went through."""
    bench = world.bench(worker, **settings)
    return asyncio.run(bench.rollouts(wanted)), bench


# --- reuse ---


def test_a_rollout_that_is_reused_is_the_whole_rollout(world):
    """The second call asks nothing and returns what the first one did, field by field."""
    worker = PlantedWorker()
    first, _ = run(world, worker, cells())
    again, bench = run(world, worker, cells(), run="run-2")

    assert again == first
    assert len(worker.calls) == 24
    assert (bench.meter.spend.rollouts, bench.meter.spend.cached) == (0, 24)
    assert {rollout.parallel for rollout in first} == {4}


def test_what_is_reused_and_what_is_new_never_mix(world):
    """Each cell gets the rollout of its own task, arm and replicate, whichever way it came.

    Report: PrimeIntellect-ai/verifiers#747.
    """
    everything = cells(replicates=2)
    whole, _ = run(make_world(world.root / "other", []), PlantedWorker(), everything)
    run(world, PlantedWorker(), everything[1::3])
    mixed, bench = run(world, PlantedWorker(), everything)

    assert mixed == whole
    assert 0 < bench.meter.spend.cached < len(everything)
    for cell, rollout in zip(everything, mixed, strict=True):
        wanted = (cell.task.id, cell.arm, cell.subject, cell.replicate)
        assert (rollout.task, rollout.arm, rollout.subject, rollout.replicate) == wanted


def test_a_failure_of_the_infrastructure_is_not_reused(world):
    """The failed rollout is tried again; the others are not."""
    wanted = cells()
    broken = wanted[0].task.id
    run(world, PlantedWorker(broken=frozenset({broken})), wanted)
    worker = PlantedWorker()
    rollouts, _ = run(world, worker, wanted)

    assert [task for task, _ in worker.calls] == [broken, broken]
    assert None not in [rollout.score for rollout in rollouts]


@pytest.mark.parametrize("cause", [Cause.OUTAGE, Cause.OTHER])
def test_an_outage_that_the_program_tells_of_is_not_drawn_again(world, cause):
    """Else a skill that makes it say so where it would lose had every loss drawn again."""

    class Excused(PlantedWorker):
        async def attempt(self, task, skills, *, seed):
            made[bool(skills)] += 1
            if excuses and seed % 3 == 0:
                return Attempt(output="", failure=away)
            return await super().attempt(task, skills, seed=seed)

    away = Failure(kind=FailureKind.INFRA, message="away", where="worker", cause=cause)
    made, excuses = Counter(), [True]
    first, _ = run(world, Excused(), cells())
    failed = Counter(r.arm for r in first if r.score is None)
    excuses.clear()
    again, _ = run(world, Excused(), cells())
    left = Counter(r.arm for r in again if r.score is None)

    stands = failed["augmented"] if cause is Cause.OUTAGE else 0
    assert len(failed) == 2
    assert (made[False], made[True]) == (12 + failed["base"], 12 + failed["augmented"] - stands)
    assert (left["base"], left["augmented"]) == (0, stands)


def test_words_of_any_kind_come_back_after_a_restart(tmp_path):
    """Line separators inside an answer split no record (PrimeIntellect-ai/verifiers#1644)."""
    first = batch.run(tmp_path / "ledger.db", 20)
    ledger = SqliteLedger(tmp_path / "ledger.db")
    again = asyncio.run(batch.bench(ledger).rollouts(batch.cells(20)))

    assert again == first
    assert all("\u2028\u0085" in ledger.get_blob(r.output_blob).decode() for r in again)
    ledger.close()


def test_a_run_that_goes_on_draws_what_it_would_have_drawn(world):
    """Seeds belong to the rollout and not to the moment (gepa-ai/gepa#227)."""
    undisturbed = Recording()
    whole, _ = run(make_world(world.root / "other", []), undisturbed, cells())
    first, second = Recording(), Recording()
    with pytest.raises(BudgetSpent):
        run(world, first, cells(), caps=Caps(rollouts=9))
    resumed, _ = run(world, second, cells())

    assert len(first.seeds) == 9
    assert sorted(first.seeds + second.seeds) == sorted(undisturbed.seeds)
    assert resumed == whole


# --- keys ---


def test_replicates_are_independent(world):
    """Each has a key and a seed of its own, so that none is answered by another one's answer.

    Report: stanfordnlp/dspy#8745 / #8747.
    """
    worker = Recording()
    rollouts, _ = run(world, worker, cells(6, replicates=5))

    assert len({rollout.key for rollout in rollouts}) == len(rollouts) == 60
    assert len({seed for *_, seed in worker.seeds}) == 60
    scores = Counter((r.task, r.arm, r.score) for r in rollouts)
    assert any(0 < scores[task, arm, 1.0] < 5 for task, arm, _ in scores)


def test_arms_are_interleaved_in_a_seeded_order(world):
    """Neither arm runs first, and the same seed gives the same order."""
    orders = []
    for name in "ab":
        worker = Recording()
        run(make_world(world.root / name, []), worker, cells(60))
        orders.append([augmented for _, augmented, _ in worker.seeds])

    assert orders[0] == orders[1]
    assert 15 < sum(orders[0][:60]) < 45


KEY = {"worker": "w", "shown": ("v1", "v2"), "scope": "", "seed": 0}


@pytest.mark.parametrize(
    "change",
    [{"worker": "x"}, {"shown": ("v2", "v1")}, {"shown": ("v1",)}, {"scope": "run"}, {"seed": 1}],
)
def test_the_key_covers_the_condition(change):
    """Worker, packages in their order, scope and seed each make another rollout."""
    plain, other = (condition_digest(**KEY | c) for c in ({}, change))

    assert rollout_key(plain, "t", 0) != rollout_key(other, "t", 0)
    assert rollout_seed(rollout_key(plain, "t", 0)) != rollout_seed(rollout_key(other, "t", 0))


@pytest.mark.parametrize(
    "change",
    [
        {"id": "other"},
        {"input": "other"},
        {"expected": "other"},
        {"verifier": VerifierSpec(kind="contains")},
        {"verifier": VerifierSpec(kind="exact", options={"strip": False})},
    ],
)
def test_the_key_covers_the_task_and_its_verifier(world, change):
    """Whatever can change a score makes another rollout."""
    (cell,) = cells(1)[:1]
    worker = PlantedWorker()
    run(world, worker, [cell])
    run(world, worker, [replace(cell, task=replace(cell.task, **change))])

    assert len(worker.calls) == 2


def test_the_key_covers_every_byte_of_what_is_shown(world):
    """Another version of the skill is another rollout, another name for the arm is not."""
    worker = PlantedWorker()
    run(world, worker, cells(1))
    run(world, worker, cells(1, package=OTHER))
    renamed = [replace(cell, arm="full", purpose="audit") for cell in cells(1)]
    rollouts, _ = run(world, worker, renamed)

    assert len(worker.calls) == 3
    assert {rollout.arm for rollout in rollouts} == {"full"}


class Model:
    """A model of which only the identity is asked for."""

    def __init__(self, fingerprint="m"):
        self.fingerprint = fingerprint


def test_the_key_covers_model_template_and_every_sampling_setting():
    """Each of them makes another worker, and with it another rollout."""
    spec = WorkerSpec()
    others = {
        "kind": "agent",
        "max_tokens": 65,
        "temperature": 0.5,
        "stop": ("\n",),
        "preamble": "Hello.",
        "timeout": 1.0,
        "template": "{{ preamble }}!",
        "steps": 3,
        "token_limit": 9,
        "tools": ("mine:add",),
        "state": "mine:fresh",
        "function": "mine:work",
        "usd_per_attempt": 0.5,
        "tokens_per_attempt": 7,
        "command": ("answer",),
        "harness": "codex",
        "answer_file": "answer.txt",
        "outage": "offline",
        "environment": ("HTTP_PROXY",),
        "network": False,
        "memory_mib": 100,
        "disk_mib": 1,
        "output_kib": 1,
    }
    assert {field.name for field in fields(WorkerSpec)} <= others.keys()
    workers = [
        ChatWorker(model=Model(), spec=spec),
        ChatWorker(model=Model("n"), spec=spec),
        *(ChatWorker(model=Model(), spec=replace(spec, **{k: v})) for k, v in others.items()),
    ]
    assert len({worker.fingerprint for worker in workers}) == len(workers)


# --- records ---


def test_an_older_record_without_newer_fields_can_be_read(world):
    """What it does not hold has its default; what a later one holds besides is passed over."""
    (rollout, *_), _ = run(world, PlantedWorker(), cells(1))
    old = {k: v for k, v in write_rollout(rollout).items() if k != "parallel"} | {"later": 1}
    (event,) = world.ledger.append([NewEvent(kind="rollout.finished", data=old)])

    assert read_rollout(event) == rollout._replace(parallel=0)


def test_a_failure_is_read_back_as_it_was_written(world):
    """Also what the agent failed by; an older record does not say."""
    (rollout, *_), _ = run(world, PlantedWorker(), cells(1))
    late = Failure(kind=FailureKind.AGENT, message="no answer", where="worker", cause=Cause.TIMEOUT)
    failed = rollout._replace(score=0.0, failure=late)
    record = write_rollout(failed)
    old = record | {"failure": {k: v for k, v in record["failure"].items() if k != "cause"}}
    stored = world.ledger.append([NewEvent(kind="rollout.failed", data=d) for d in (record, old)])

    assert read_rollout(stored[0]) == failed
    assert read_rollout(stored[1]) == failed._replace(failure=replace(late, cause=Cause.OTHER))


# --- budget and failures ---


def test_a_cap_is_reached_exactly_and_what_was_run_is_kept(world):
    """Not one attempt more than was paid for; the rest runs once the cap is raised."""
    worker = PlantedWorker()
    bench = world.bench(worker, caps=Caps(rollouts=7))
    with pytest.raises(BudgetSpent):
        asyncio.run(bench.rollouts(cells()))

    stored = list(world.ledger.events(kinds=ROLLOUTS))
    assert len(worker.calls) == len(stored) == bench.meter.spend.rollouts == 7


def test_a_rollout_whose_call_the_budget_refused_is_not_counted(world):
    """Admitted and never run, it leaves no trace in the spend."""

    class Refusing(PlantedWorker):
        async def attempt(self, task, skills, *, seed):
            if len(self.calls) == 3:
                raise BudgetSpent("no USD left")
            return await super().attempt(task, skills, seed=seed)

    bench = world.bench(Refusing())
    with pytest.raises(BudgetSpent):
        asyncio.run(bench.rollouts(cells()))

    assert bench.meter.spend.rollouts == len(list(world.ledger.events(kinds=ROLLOUTS))) == 3


def test_a_run_in_which_everything_fails_is_called_off(world):
    """Nothing that could be scored is an error that names the failure."""
    wanted = cells()
    broken = PlantedWorker(broken=frozenset(cell.task.id for cell in wanted))
    with pytest.raises(InfraError, match="no route"):
        run(world, broken, wanted)


def test_a_dead_endpoint_stops_the_next_attempts(world):
    """After six failures in a row nothing more is begun, in this call or the next."""
    wanted = cells(120)
    worker = PlantedWorker(broken=frozenset(cell.task.id for cell in wanted))
    bench = replace(world.bench(worker), executor=AsyncioExecutor(1))
    for _ in range(2):
        with pytest.raises(InfraError, match="doctor"):
            asyncio.run(bench.rollouts([*wanted, *cells(12, replicates=60)]))

    assert len(worker.calls) == 6


# --- cancelled, and written by a thread ---


class Held(PlantedWorker):
    """Answers when it is told to."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.begun, self.go = [], asyncio.Event()

    async def attempt(self, task, skills, *, seed):
        """Wait first."""
        self.begun.append(task.id)
        await self.go.wait()
        return await super().attempt(task, skills, seed=seed)


async def started(world, worker, **settings):
    """Return a task in which four attempts are in flight, and its bench."""
    bench = world.bench(worker, **settings)
    run = asyncio.create_task(bench.rollouts(cells()))
    await until(lambda: len(worker.begun) == 4)
    return run, bench


def test_cancelled_once_what_is_in_flight_lands(world):
    """Nothing new begins; what was under way is stored and counted, and the run ends cancelled."""

    async def scene():
        worker = Held()
        run, bench = await started(world, worker)
        run.cancel()
        await until(lambda: run.cancelling())
        worker.go.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return worker, bench

    worker, bench = asyncio.run(scene())
    assert len(worker.begun) == len(worker.calls) == 4
    assert bench.meter.spend.rollouts == len(list(world.ledger.events(kinds=ROLLOUTS))) == 4


def test_cancelled_twice_what_is_in_flight_is_dropped(world):
    """The second time it ends at once; what was dropped was begun, and counts as an attempt."""

    async def scene():
        run, bench = await started(world, Held())
        run.cancel()
        await asyncio.sleep(0)  # the run learns of it
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return bench

    assert asyncio.run(scene()).meter.spend.rollouts == 4
    assert list(world.ledger.events(kinds=ROLLOUTS)) == []


class SlowLedger:
    """A ledger on a slow disk: each write waits for a word."""

    def __init__(self, ledger):
        self.ledger, self.sizes, self.go = ledger, [], threading.Event()

    def find_rollouts(self, keys):
        """Find them at once."""
        return self.ledger.find_rollouts(keys)

    def record(self, events, *, blobs):
        """Write in its own time."""
        self.sizes.append(len(events))
        assert self.go.wait(60)
        self.ledger.record(events, blobs=blobs)


def test_attempts_go_on_while_the_ledger_is_written(world):
    """A slow disk holds up what is counted, but no attempt."""

    class Polite(PlantedWorker):
        async def attempt(self, task, skills, *, seed):
            """Let others have a turn."""
            await asyncio.sleep(0)
            return await super().attempt(task, skills, seed=seed)

    async def scene():
        ledger, worker, counted = SlowLedger(world.ledger), Polite(), []
        bench = replace(world.bench(worker), ledger=ledger, on_rollout=counted.append)
        run = asyncio.create_task(bench.rollouts(cells()))
        await until(lambda: ledger.sizes and len(worker.calls) == 24)
        assert ledger.sizes[0] < 24
        assert counted == []
        ledger.go.set()
        assert len(await run) == len(counted) == 24

    asyncio.run(scene())


@pytest.mark.parametrize("cap", [100, 3])
def test_the_process_is_as_it_was_once_a_phase_is_over(world, cap):
    """How often threads take turns and garbage is looked for is set for the phase alone."""

    class Looking(PlantedWorker):
        async def attempt(self, task, skills, *, seed):
            seen.add((sys.getswitchinterval(), gc.get_threshold()))
            return await super().attempt(task, skills, seed=seed)

    seen, before = set(), (sys.getswitchinterval(), gc.get_threshold())
    with contextlib.suppress(BudgetSpent):
        run(world, Looking(), cells(), caps=Caps(rollouts=cap))
    (during,) = seen
    assert during[0] < before[0]
    assert during[1][0] > before[1][0]
    assert (sys.getswitchinterval(), gc.get_threshold()) == before


def test_cancelled_during_a_write_the_batch_is_counted(world):
    """A write cannot be called off, and what it makes durable is not lost to the run."""

    async def scene():
        ledger, worker = SlowLedger(world.ledger), Held()
        bench = replace(world.bench(worker), ledger=ledger)
        run = asyncio.create_task(bench.rollouts(cells()))
        await until(lambda: len(worker.begun) == 4)
        worker.go.set()
        await until(lambda: ledger.sizes)
        run.cancel()
        ledger.go.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        return bench

    bench = asyncio.run(scene())
    assert bench.meter.spend.rollouts == len(list(world.ledger.events(kinds=ROLLOUTS))) > 0


def test_a_disk_that_refuses_ends_the_run_and_counts_nothing(world):
    """What could not be written is an error of the run; that it was paid for stays in the spend."""

    class Full(SlowLedger):
        def record(self, events, *, blobs):
            """Refuse."""
            raise LedgerError("full")

    bench = replace(world.bench(PlantedWorker()), ledger=Full(world.ledger))
    paying = MeteredWorker(worker=bench.worker, meter=bench.meter)
    with pytest.raises(LedgerError, match="full"):
        asyncio.run(replace(bench, worker=paying).rollouts(cells()))

    spend = bench.meter.spend
    assert spend.rollouts == spend.roles["worker"].calls == len(bench.worker.calls) > 0
    with bench.meter.record() as account:
        assert account["bill"] == spend.to_json()["roles"], "it is still owed a record"
