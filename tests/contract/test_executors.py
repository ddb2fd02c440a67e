"""One contract for every executor, and what holds where attempts are in other processes."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.errands import FragileWorker, make_errands, until
from support.light_ray import light_path
from support.loopback import LoopbackServer
from support.small_project import answer, event_counts, write_project
from support.world import TickingClock

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.ledger import SqliteLedger
from skillforge.adapters.limited import LimitedPrograms
from skillforge.adapters.ray_executor import RayExecutor, connect, only_send
from skillforge.adapters.verifiers import SuiteVerifier
from skillforge.core.package import PackageFile
from skillforge.core.rollout import FailureKind
from skillforge.core.task import Code, Split, Task, VerifierSpec
from skillforge.core.verify import DataOnlyVerifier
from skillforge.errors import BudgetSpent
from skillforge.workflows.meter import Meter
from skillforge.workflows.remote import Driver
from skillforge.workflows.spend import Caps
from skillforge.workflows.trial import Bench, Cell

LIMIT = 3
TESTS = Path(__file__).parents[1]
pytestmark = [
    # Ray closes neither its log files nor the handles of processes that it has ended.
    pytest.mark.filterwarnings("ignore:unclosed file.*ray:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A real cluster on this machine, whose processes find the tests' support; its address."""
    import ray

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = light_path(tmp_path_factory.mktemp("light"), TESTS)
    connect(None, processes=2)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


class Current:
    """What the driver does in the test that is running; by default it only sends."""

    does = staticmethod(only_send)

    async def __call__(self, item, send):
        """Do it."""
        return await self.does(item, send)


@pytest.fixture(scope="module")
def current():
    """What the one Ray executor of these tests calls in the driver."""
    return Current()


@pytest.fixture(scope="module")
def elsewhere(cluster, current):
    """Three attempts at once in two processes of the cluster."""
    executor = RayExecutor(AsyncioExecutor(LIMIT), processes=2, driver=current)
    yield executor
    executor.close()


@pytest.fixture(params=["asyncio", "ray"])
def executor(request):
    """An executor of each kind, for three attempts at once."""
    if request.param == "asyncio":
        return AsyncioExecutor(LIMIT)
    request.getfixturevalue("current").does = only_send
    return request.getfixturevalue("elsewhere")


@pytest.fixture
def errands(tmp_path):
    """Attempts that end when they are told to."""
    return make_errands(tmp_path)


async def collect(executor, attempt, items, into):
    """Append every result, with the place of its item, to a list as it comes."""
    async for batch in executor.run(attempt, iter(items), lambda at, result: (at, result)):
        into.extend(batch)


async def end_one_by_one(errands, names, got):
    """Let attempts end in an order, each after the one before has arrived."""
    for name in names:
        before = len(got)
        errands.end(name)
        await until(lambda before=before: len(got) > before)


def test_results_come_in_order_of_completion(executor, errands):
    """What ends first is yielded first, with its place in the list of items."""

    async def scene():
        got = []
        run = asyncio.create_task(collect(executor, errands, ["a", "b", "c"], got))
        await end_one_by_one(errands, "cab", got)
        await run
        return got

    assert asyncio.run(scene()) == [(2, "C"), (0, "A"), (1, "B")]


def test_an_item_is_pulled_when_there_is_room_for_it(executor, errands):
    """Never more than the limit are in flight, and the iterator is asked no earlier."""

    async def scene():
        pulled, got = [], []

        def items():
            for item in "abcde":
                pulled.append(item)
                yield item

        run = asyncio.create_task(collect(executor, errands, items(), got))
        await until(lambda: errands.those("begun") == set("abc"))
        assert pulled == list("abc")
        errands.end("b")
        await until(lambda: "d" in errands.those("begun"))
        assert pulled == list("abcd")
        errands.end("a", "c", "d", "e")
        await run
        return got

    assert sorted(asyncio.run(scene())) == list(enumerate("ABCDE"))


def test_an_error_lets_those_in_flight_land_and_is_raised_then(executor, errands):
    """After an error nothing new begins; what is under way is finished, and the error is itself."""

    async def scene():
        got = []
        items = ["a", "bad", "c", "never"]
        run = asyncio.create_task(collect(executor, errands, items, got))
        await until(lambda: len(errands.those("begun")) == 3)
        lanes = len(asyncio.all_tasks())
        errands.end("bad")
        await until(lambda: len(asyncio.all_tasks()) < lanes)  # the error has arrived
        await end_one_by_one(errands, "ca", got)
        with pytest.raises(ValueError, match=r"^bad$"):
            await run
        return got

    assert asyncio.run(scene()) == [(2, "C"), (0, "A")]
    assert "never" not in errands.those("begun")


def test_an_error_of_the_iterator_lets_those_in_flight_land(executor, errands):
    """A budget that is spent between two items throws nothing away that is under way."""

    async def scene():
        got = []

        def items():
            yield from "ab"
            raise BudgetSpent("spent")

        run = asyncio.create_task(collect(executor, errands, items(), got))
        await end_one_by_one(errands, "ba", got)
        with pytest.raises(BudgetSpent, match="spent"):
            await run
        return got

    assert asyncio.run(scene()) == [(1, "B"), (0, "A")]


def test_a_run_that_is_cancelled_drops_what_is_in_flight(executor, errands):
    """What has arrived was yielded; what has not is stopped, wherever it runs."""

    async def scene():
        got = []
        run = asyncio.create_task(collect(executor, errands, "abcd", got))
        await until(lambda: errands.those("begun") == set("abc"))
        errands.end("b")
        await until(lambda: got == [(1, "B")] and "d" in errands.those("begun"))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until(lambda: errands.those("cancelled") == {"a", "c", "d"})

    asyncio.run(scene())


def cells(*texts):
    """Return a cell for each task text."""
    return [
        Cell(
            task=Task(
                id=f"t/{i}",
                family="f",
                input=text,
                expected="yes",
                skill=None,
                split=Split.CONFIRM,
                verifier=VerifierSpec(kind="exact"),
            ),
            arm="base",
            skills=(),
            subject="",
            purpose="eval",
        )
        for i, text in enumerate(texts)
    ]


@pytest.fixture
def perform(request, current, tmp_path):
    """Runs cells on a ledger of their own, in this process or elsewhere.

    Returns rollouts, the meter, and what the attempts tell of their processes.
    """

    def perform(name, work, *, remote, caps=None, verifier=None):
        (tmp_path / name).mkdir()
        worker, executor = FragileWorker(tmp_path / name), AsyncioExecutor(LIMIT)
        meter = Meter(caps=caps or Caps(), clock=TickingClock())
        meter.start()
        if remote:
            executor = request.getfixturevalue("elsewhere")
            current.does = Driver(worker=worker, meter=meter)
        ledger = SqliteLedger(tmp_path / name / "ledger.db")
        parts = {"ledger": ledger, "worker": worker, "executor": executor, "meter": meter}
        bench = Bench(**parts, run="run-1", seed=0, verifier=verifier or DataOnlyVerifier())
        with closing(ledger):
            rollouts = asyncio.run(bench.rollouts(work))
            blobs = [json.loads(ledger.get_blob(r.output_blob)) for r in rollouts]
        return rollouts, meter, [process for blob in blobs for process in blob["messages"]]

    return perform


def without_traces(rollouts):
    """Return rollouts without the hash of what tells of their processes."""
    return [rollout._replace(output_blob="") for rollout in rollouts]


def test_a_process_killed_in_the_middle_of_a_batch_changes_no_result(perform):
    """What it had in flight is tried again elsewhere, and all is as in the driver's process.

    The seeds are part of the work; the driver alone has a ledger; the lost tries are paid for.
    """
    dying = cells(*["kill once" if i in (3, 11) else "live" for i in range(16)])
    calm = [replace(c, task=replace(c.task, input="live")) for c in dying]

    here, _, _ = perform("here", calm, remote=False)
    calm_there, _, processes = perform("calm", calm, remote=True)
    assert without_traces(calm_there) == without_traces(here)
    pids = {process["pid"] for process in processes}
    assert os.getpid() not in pids
    assert len(pids) == 2
    assert not any(process["ledger"] for process in processes)

    there, meter, _ = perform("there", dying, remote=True)
    assert {r.task: r.score is not None for r in there} == {c.task.id: True for c in dying}
    living = {r.task: r for r in without_traces(here)}
    for rollout in without_traces(there):
        if rollout.task not in ("t/3", "t/11"):
            assert rollout == living[rollout.task]
    assert meter.spend.rollouts == 16
    lost = meter.spend.tokens - sum(r.prompt_tokens for r in there)
    assert lost >= 2 * 100
    assert lost % 100 == 0


def test_a_task_that_always_kills_is_a_failure_of_its_own_alone(perform):
    """It voids its own pair, is no zero, and takes no other attempt with it."""
    work = cells(*["kill always" if i == 2 else "live" for i in range(12)])

    rollouts, meter, _ = perform("run", work, remote=True)

    lost = [r for r in rollouts if r.score is None]
    assert [r.task for r in lost] == ["t/2"]
    assert lost[0].failure.kind is FailureKind.INFRA
    assert lost[0].failure.message.startswith("lost twice; the process that performed it was lost")
    assert lost[0].prompt_tokens == 2 * 100
    assert meter.spend.tokens >= sum(r.prompt_tokens for r in rollouts)


def test_no_cap_is_passed_by_attempts_elsewhere(perform, tmp_path):
    """Each try reserves its bound, so that what is in flight and what was spent stay below."""
    with pytest.raises(BudgetSpent, match="1,000 tokens"):
        perform("run", cells(*["live"] * 200), remote=True, caps=Caps(tokens=1000))

    ledger = SqliteLedger(tmp_path / "run" / "ledger.db")
    spent = [e.data["prompt_tokens"] for e in ledger.events(kinds=["rollout.finished"])]
    ledger.close()
    assert 850 <= sum(spent) <= 1000


def test_code_that_scores_runs_limited_in_the_other_processes(perform, tmp_path):
    """A suite's verifier runs in its subprocess there as it does here."""
    data = b"def score(output, expected, task):\n    return 0.25 if output == expected else 0.5\n"
    code = Code(parts=(), folder=str(tmp_path), files={"v.py": PackageFile(data=data)}, digest="")
    verifier = SuiteVerifier(programs=LimitedPrograms(), code=code)
    spec = VerifierSpec(kind="python", options={"function": "v:score"})
    work = [replace(c, task=replace(c.task, verifier=spec)) for c in cells(*["live"] * 4)]

    here, _, _ = perform("here", work, remote=False, verifier=verifier)
    there, _, _ = perform("there", work, remote=True, verifier=verifier)

    assert {r.score for r in here} <= {0.25, 0.5}
    assert without_traces(there) == without_traces(here)


def test_a_command_at_an_address_leaves_the_cluster_standing(cluster, tmp_path):
    """`eval --executor ray --address` uses what stands there, and ends nothing but its own."""
    import ray

    with LoopbackServer(answer) as server:
        root = write_project(tmp_path / "project", server.url)
        command = ("eval", "shout", "--suite", "small", "--tasks", "4", "--json")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "skillforge",
                *command,
                "--executor",
                "ray",
                "--address",
                cluster,
            ],
            cwd=root,
            env=os.environ | {"OPENAI_API_KEY": "test", "SKILLFORGE_EXECUTOR_PROCESSES": "1"},
            capture_output=True,
            text=True,
        )

    assert done.returncode == 3, done.stderr
    assert event_counts(root)["rollout.finished"] == 8
    assert ray.is_initialized()
