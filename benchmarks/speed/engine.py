"""What the engine and its ledger cost: rates beside peers', memory, size, and time to open.

Run: python benchmarks/speed/engine.py [--quick] [--json] [--only ROW…] [--rollouts N]

Rows, by the name that ``--only`` takes:
- ``instant``: rollouts per second with a worker that answers at once, so that all of the time is
  the engine's own: key, cache look-up, budget, verifier, hash chain, payload, fsync. The best of
  some runs. The budget is that of rollouts and minutes; *each attempt paid* reserves dollars and
  tokens as well, and books them. ``cpu_us`` are microseconds of processor per rollout, both cores
  together, and ``delay_ms`` the longest time from an answer to its being durable and counted.
- ``peers``: the same tasks and answers through ``dspy.Evaluate`` and a gepa adapter loop, which
  keep results in memory; only where they are installed (``pip install '.[bench]'``).
- ``ray``: the instant worker in two processes of a Ray cluster on this machine, started and warmed
  up before; ``overhead_ms`` is what a rollout costs beyond one in this process.
- ``model``: a model in another process that takes 100 ms, 64 calls in flight, over bare sockets;
  ``ratio`` is the share of the ideal rate, 640 a second.
- ``litellm``: the same model asked by the chat worker through litellm, beside litellm alone in a
  loop, which shows how much of the ideal its client leaves; ``ratio`` as above.
- ``ledger``: skills with 1,000 base and 1,000 augmented rollouts each, payloads cut from real agent
  traces where they are at hand: rate, peak memory above the start, size of the payloads against
  their text, time to open the project's ledger, and time to read the paired table of one
  skill, the best of three looks.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from parts import (
    IN_FLIGHT,
    ROOT,
    InstantWorker,
    MakeWorker,
    SocketWorker,
    TraceWorker,
    both_arms,
    make_bench,
    make_skill,
    make_tasks,
    metered,
    through_litellm,
)
from peers import dspy_seconds, gepa_seconds, litellm_seconds
from report import Row, options, show
from slow_model import LATENCY, slow_model

from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.digest import json_digest
from skillforge.core.gate import Basis, GateRules, Registration
from skillforge.core.package import Package
from skillforge.core.rollout import Rollout
from skillforge.core.task import Task
from skillforge.errors import ConfigError
from skillforge.ports import Worker
from skillforge.workflows.confirm import read_result, register
from skillforge.workflows.curate import Curator
from skillforge.workflows.remote import Driver
from skillforge.workflows.runs import open_run

TRACES = ROOT.parent / "shared/corpus/traces/tau_bench/gpt-4o-airline.json"
TASKS_PER_SKILL = 1000
ROWS = ("instant", "peers", "ray", "model", "litellm", "ledger")


def seconds_of(work: Coroutine[Any, Any, Any]) -> float:
    """Run some work and return how long it took."""
    started = time.perf_counter()
    asyncio.run(work)
    return time.perf_counter() - started


def row(name: str, count: int, seconds: float, **more: Any) -> Row:
    """Return one row of the table."""
    rate = {"rollouts": count, "seconds": seconds, "rollouts_per_s": count / seconds}
    return {"name": name, **rate, **more}


def instant(name: str, tasks: Sequence[Task], make_worker: MakeWorker, runs: int) -> Row:
    """Measure the engine alone; the best of some runs, each on a ledger of its own."""
    found = (one_instant(name, tasks, make_worker) for _ in range(runs))
    return min(found, key=lambda r: r["seconds"])


def one_instant(name: str, tasks: Sequence[Task], make_worker: MakeWorker) -> Row:
    """Run both arms of the tasks once."""
    delay = 0.0

    def counted(rollout: Rollout) -> None:
        nonlocal delay
        delay = max(delay, time.perf_counter() - rollout.seconds)

    cells = both_arms(tasks, make_skill(0))
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        bench = replace(make_bench(ledger, make_worker), on_rollout=counted)
        cpu = time.process_time()
        seconds = seconds_of(bench.rollouts(cells))
        cpu = time.process_time() - cpu
        assert bench.meter.spend.rollouts == len(cells)
        ledger.close()
    own = {"cpu_us": 1e6 * cpu / len(cells), "delay_ms": 1000 * delay}
    return row(name, len(cells), seconds, durable=True, **own)


def peers(tasks: Sequence[Task], rate: float, runs: int) -> Iterator[Row]:
    """Measure the peers that are installed, as often; the ratio is to our rate."""
    for name, peer in (("dspy.Evaluate", dspy_seconds), ("gepa adapter loop", gepa_seconds)):
        try:
            seconds = min(peer(tasks) for _ in range(runs))
        except ImportError as error:
            yield {"name": name, "skipped": f"{error}; pip install '.[bench]'"}
        else:
            ratio = len(tasks) / seconds / rate
            yield row(name, len(tasks), seconds, durable=False, ratio=ratio)


def elsewhere(tasks: Sequence[Task], here: float) -> Row:
    """Measure what it costs to perform attempts in other processes.

    Args:
        tasks: Run in both arms.
        here: Seconds that a rollout takes in this process.
    """
    from skillforge.adapters.ray_executor import RayExecutor

    name = "skillforge ray executor"
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        bench = make_bench(ledger, lambda _: InstantWorker())
        driver = Driver(worker=bench.worker, meter=bench.meter)
        try:
            executor = RayExecutor(bench.executor, processes=2, driver=driver)
            bench = replace(bench, executor=executor)
            starting = seconds_of(bench.rollouts(both_arms(tasks[:IN_FLIGHT], make_skill(1))))
        except ConfigError as error:
            ledger.close()
            return {"name": name, "skipped": str(error)}
        with closing(executor):
            cells = both_arms(tasks, make_skill(0))[2 * IN_FLIGHT :]
            before = bench.meter.spend.rollouts
            seconds = seconds_of(bench.rollouts(cells))
            count = bench.meter.spend.rollouts - before
        ledger.close()
    overhead = 1000 * (seconds / count - here)
    return row(name, count, seconds, durable=True, overhead_ms=overhead, start_seconds=starting)


def with_latency(name: str, tasks: Sequence[Task], make_worker: MakeWorker) -> Row:
    """Measure the share of the ideal rate with a model of fixed latency; one call warms up."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        bench = make_bench(ledger, make_worker)

        async def everything() -> float:
            await bench.rollouts(both_arms(tasks[:1], make_skill(1)))
            started = time.perf_counter()
            await bench.rollouts(both_arms(tasks, make_skill(0))[1:])
            return time.perf_counter() - started

        cpu = time.process_time()
        seconds = asyncio.run(everything())
        cpu = time.process_time() - cpu
        ledger.close()
    count = 2 * len(tasks) - 1
    return latency_row(name, count, seconds, durable=True, cpu_us=1e6 * cpu / count)


def latency_row(name: str, count: int, seconds: float, **more: Any) -> Row:
    """Return a row with the share of the ideal rate."""
    ratio = count / IN_FLIGHT * LATENCY / seconds
    return row(name, count, seconds, in_flight=IN_FLIGHT, ratio=ratio, **more)


def behind_litellm(tasks: Sequence[Task]) -> Iterator[Row]:
    """Measure the chat worker with a model of fixed latency, and litellm's client alone."""
    with slow_model() as port:
        url = f"http://127.0.0.1:{port}/v1"
        yield with_latency("skillforge 100 ms model, litellm", tasks, through_litellm(url))
        seconds = litellm_seconds(tasks, url, IN_FLIGHT)
    yield latency_row("litellm.acompletion loop", len(tasks), seconds, durable=False)


def large(count: int, traces: Path) -> Row:
    """Fill one ledger with rollouts of many skills, then open it and read one skill's table."""
    worker = TraceWorker(read_traces(traces))
    tasks = make_tasks(TASKS_PER_SKILL)
    skills = [make_skill(n) for n in range(max(1, count // (2 * len(tasks))))]
    start = peak_mb()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".skillforge" / "ledger.db"
        (Path(folder) / "skills").mkdir()
        library = FolderLibrary(Path(folder) / "skills")
        for package in skills:
            library.write(package)
        with closing(SqliteLedger(path)) as ledger:
            curator = Curator(ledger=ledger, library=library)
            curator.sync()
            began = time.perf_counter()
            registrations = asyncio.run(fill(ledger, curator, worker, skills, tasks))
            seconds = time.perf_counter() - began
            memory = peak_mb() - start
            curator.sync()
        stored = payload_bytes(path)
        opening, ledger = timed(lambda: opened(path, library))
        run, registration = registrations[len(registrations) // 2]
        looks = [timed(lambda: read_result(ledger, run, registration)) for _ in range(3)]
        reading, result = min(looks, key=lambda look: look[0])
        ledger.close()
        size = path.stat().st_size
    assert result.evidence.table.pairs == len(tasks)
    total = len(skills) * 2 * len(tasks)
    return row(
        f"skillforge ledger of {total:,} rollouts", total, seconds, durable=True,
        mb=memory, ratio=stored / worker.raw, raw_mb=worker.raw / 1e6, file_mb=size / 1e6,
        open_seconds=opening, table_seconds=reading, real_traces=traces.is_file(),
    )  # fmt: skip


def read_traces(traces: Path) -> list[list[dict[str, Any]]]:
    """Return the messages of agent traces, or else paragraphs of the shipped skills."""
    if traces.is_file():
        return [trace["traj"] for trace in json.loads(traces.read_bytes())]
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "skills").rglob("*.md"))]
    return [[{"role": "tool", "content": p} for p in text.split("\n\n")] for text in texts]


async def fill(
    ledger: SqliteLedger,
    curator: Curator,
    worker: Worker,
    skills: Sequence[Package],
    tasks: Sequence[Task],
) -> list[tuple[str, Registration]]:
    """Run both arms of every skill in a run of its own; return the registrations."""
    done = []
    rules = GateRules(max_tasks=len(tasks), alpha=1e-9, harm_stop=1e-9, beta=1e-9)
    for package in skills:
        run = open_run(ledger, curator.state, "eval", {"skill": package.name}).id
        bench = make_bench(ledger, metered(worker), run)
        registration = Registration(
            candidate=json_digest(package.name)[:12],
            skill=package.name,
            base="",
            version=package.version,
            basis=Basis.LIFT,
            rules=rules,
            order=tuple(task.id for task in tasks),
            enough=1e300,
            lineage=package.name,
        )
        register(bench, [registration])
        cells = both_arms(tasks, package, purpose="confirm")
        await bench.rollouts([replace(cell, scope=run) for cell in cells])
        done.append((run, registration))
    return done


def opened(path: Path, library: FolderLibrary) -> SqliteLedger:
    """Open a ledger and read the library's state, as every command does first."""
    ledger = SqliteLedger(path)
    assert Curator(ledger=ledger, library=library).state.served
    return ledger


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that some work took, and its result."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def payload_bytes(path: Path) -> int:
    """Return what payloads and their dictionaries take in the ledger."""
    db = sqlite3.connect(path)
    (size,) = db.execute(
        "SELECT (SELECT total(length(data)) FROM blobs)"
        " + (SELECT total(length(data)) FROM dictionaries)"
    ).fetchone()
    db.close()
    return int(size)


def peak_mb() -> float:
    """Return the most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(quick: bool, only: Sequence[str], rollouts: int | None, traces: Path) -> Iterator[Row]:
    """Measure the rows that are asked for."""
    many, some, most, runs = (3_000, 640, 20_000, 2) if quick else (20_000, 3_200, 100_000, 5)
    tasks = make_tasks(many)
    if not {"instant", "peers", "ray"}.isdisjoint(only):
        ours = instant("skillforge instant worker", tasks, lambda _: InstantWorker(), runs)
        yield ours
    if "instant" in only:
        paid = metered(InstantWorker())
        yield instant("skillforge instant worker, each attempt paid", tasks, paid, runs)
    if "peers" in only:
        yield from peers(tasks, ours["rollouts_per_s"], runs)
    if "ray" in only:
        yield elsewhere(tasks[:some], 1 / ours["rollouts_per_s"])
    if "model" in only:
        with slow_model() as port:
            worker = SocketWorker(port)
            yield with_latency("skillforge 100 ms model", tasks[:some], metered(worker))
    if "litellm" in only:
        yield from behind_litellm(tasks[:some])
    if "ledger" in only:
        yield large(rollouts or most, traces)


def line(row: Row) -> str:
    """Return a row as the lines of the table."""
    numbers = (
        f"{k}={v:,.4g}" if isinstance(v, float) else f"{k}={v}"
        for k, v in row.items()
        if k != "name"
    )
    return f"{row['name']}\n    {'  '.join(numbers)}"


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--rollouts", type=int, help="rollouts of the large ledger")
    parser.add_argument("--traces", type=Path, default=TRACES, help="tau-bench trajectories")
    told = parser.parse_args()
    rows = list(measure(told.quick, told.only, told.rollouts, told.traces))
    show(rows, as_json=told.json, line=line)
