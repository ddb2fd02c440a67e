"""What the engine and its ledger cost: rates beside two peers', memory, size, and time to open.

Run: python benchmarks/speed/engine.py [--quick] [--json] [--rollouts N] [--traces FILE]

Rows:
- ``skillforge instant worker``: rollouts per second with a worker that answers at once, so that all
  of the time is the engine's own: key, cache look-up, budget, verifier, hash chain, payload, fsync.
- ``dspy.Evaluate``, ``gepa adapter loop``: the same tasks and answers through the peers, which keep
  results in memory; only where they are installed (``pip install '.[bench]'``).
- ``skillforge 100 ms model``: a model behind a loopback socket that takes 100 ms, 64 in flight;
  ``ratio`` is the share of the ideal rate, 640 a second.
- ``skillforge ray executor``: the instant worker in two processes of a Ray cluster on this machine,
  started and warmed up before; ``overhead_ms`` is what a rollout costs beyond one in this process.
- ``skillforge ledger of N rollouts``: skills with 1,000 base and 1,000 augmented rollouts each,
  payloads cut from real agent traces where they are at hand: rate, peak memory above the start,
  size of the payloads against their text, time to open the project's ledger, and time to read the
  paired table of one skill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.ledger import SqliteLedger
from skillforge.adapters.suites import load_suite
from skillforge.core.digest import canonical_json, json_digest
from skillforge.core.gate import Basis, GateRules, Registration
from skillforge.core.package import Package, PackageFile
from skillforge.core.rollout import Attempt
from skillforge.core.task import Split, Task, VerifierSpec
from skillforge.errors import ConfigError
from skillforge.ports import Worker
from skillforge.workflows.confirm import read_result, register
from skillforge.workflows.contrast import Context, arm_cells
from skillforge.workflows.curate import Curator
from skillforge.workflows.meter import Caps, Meter
from skillforge.workflows.runs import open_run
from skillforge.workflows.trial import Bench, Cell

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared/corpus/traces/tau_bench/gpt-4o-airline.json"
IN_FLIGHT, LATENCY = 64, 0.1
TASKS_PER_SKILL = 1000


class WallClock:
    """The system's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


class InstantWorker:
    """Answers with the reference at once."""

    fingerprint = "instant"

    def prompt(self, task: Task, skills: Sequence[Package]) -> Any:
        """Not used here."""
        raise AssertionError(task.id)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Return the reference."""
        return Attempt(output=task.expected or "", transcript=({"content": task.input},))


@dataclass
class TraceWorker(InstantWorker):
    """Answers right or wrong by its seed, with messages cut from agent traces as transcript."""

    traces: Sequence[Sequence[dict[str, Any]]]
    raw: int = 0
    """Bytes of payload so far, as text."""

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Return an answer that no other attempt gives, so that no payload is stored twice."""
        draw = random.Random(seed)
        trace = draw.choice(self.traces)
        at = draw.randrange(max(1, len(trace) - 2))
        answer = task.expected if draw.random() < 0.4 + 0.2 * bool(skills) else "no"
        transcript = (*trace[at : at + 2], {"role": "note", "content": f"{task.id} {seed}"})
        attempt = Attempt(output=answer or "", transcript=transcript, prompt_tokens=400)
        self.raw += len(canonical_json({"output": attempt.output, "messages": transcript}))
        return attempt


@dataclass
class SocketWorker(InstantWorker):
    """Asks a server over kept connections and answers what it says."""

    port: int
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Send the reference and wait for it to come back."""
        if self.idle:
            reader, writer = self.idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(json.dumps(task.expected).encode() + b"\n")
        answer = json.loads(await reader.readline())
        self.idle.append((reader, writer))
        return Attempt(output=answer, transcript=({"content": task.input},), seconds=LATENCY)


class SlowEcho(asyncio.Protocol):
    """Serves one connection: what is sent comes back after the latency."""

    def connection_made(self, transport: Any) -> None:
        """Keep the way back."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Send it back later."""
        asyncio.get_running_loop().call_later(LATENCY, self.transport.write, data)


def make_bench(ledger: SqliteLedger, worker: Worker, run: str = "bench") -> Bench:
    """Return a bench under a budget that is never reached."""
    caps = Caps(usd=1e6, tokens=10**12, rollouts=10**9, minutes=1e6)
    meter = Meter(caps=caps, clock=WallClock())
    meter.start()
    executor = AsyncioExecutor(IN_FLIGHT)
    return Bench(ledger=ledger, worker=worker, executor=executor, meter=meter, run=run, seed=0)


def both_arms(tasks: Sequence[Task], package: Package, purpose: str = "eval") -> list[Cell]:
    """Return a base and an augmented cell for each task."""
    context = Context(skill=package.name)
    cells = arm_cells(tasks, arm="base", package=None, context=context, purpose=purpose)
    return cells + arm_cells(
        tasks, arm="augmented", package=package, context=context, purpose=purpose
    )


def seconds_of(work: Coroutine[Any, Any, Any]) -> float:
    """Run some work and return how long it took."""
    started = time.perf_counter()
    asyncio.run(work)
    return time.perf_counter() - started


def make_skill(number: int) -> Package:
    """Return a package of one file."""
    text = f"---\nname: skill-{number}\ndescription: Number {number}.\n---\n\nBe number {number}.\n"
    return Package(name=f"skill-{number}", files={"SKILL.md": PackageFile(data=text.encode())})


def make_tasks(count: int) -> list[Task]:
    """Return the shipped tasks, over and over under names of their own."""
    shipped = load_suite(ROOT / "benchmarks/suites/desk").tasks
    return [
        Task(
            id=f"{i // len(shipped)}/{task.id}",
            family=task.family,
            input=task.input,
            expected=task.expected,
            skill=None,
            split=Split.CONFIRM,
            verifier=VerifierSpec(kind="exact"),
        )
        for i, task in ((i, shipped[i % len(shipped)]) for i in range(count))
    ]


def row(name: str, count: int, seconds: float, **more: Any) -> dict[str, Any]:
    """Return one row of the table."""
    return {
        "name": name,
        "rollouts": count,
        "seconds": seconds,
        "rollouts_per_s": count / seconds,
    } | more


def instant(tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
    """Measure the engine alone, and the peers that are installed, on the same tasks."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        bench = make_bench(ledger, InstantWorker())
        cells = both_arms(tasks, make_skill(0))
        seconds = seconds_of(bench.rollouts(cells))
        assert bench.meter.spend.rollouts == len(cells)
        ledger.close()
    rate = len(cells) / seconds
    yield row("skillforge instant worker", len(cells), seconds, durable=True, ratio=1.0)
    for name, peer in (("dspy.Evaluate", dspy_seconds), ("gepa adapter loop", gepa_seconds)):
        try:
            seconds = peer(tasks)
        except ImportError as error:
            yield {"name": name, "skipped": f"{error}; pip install '.[bench]'"}
        else:
            ratio = len(tasks) / seconds / rate
            yield row(name, len(tasks), seconds, durable=False, ratio=ratio)


def elsewhere(tasks: Sequence[Task], here: float) -> dict[str, Any]:
    """Measure what it costs to perform attempts in other processes.

    Args:
        tasks: Run in both arms.
        here: Seconds that a rollout takes in this process.
    """
    from skillforge.adapters.ray_executor import RayExecutor

    name = "skillforge ray executor"
    try:
        executor = RayExecutor(AsyncioExecutor(IN_FLIGHT), processes=2)
    except ConfigError as error:
        return {"name": name, "skipped": str(error)}
    with closing(executor), tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        bench = replace(make_bench(ledger, InstantWorker()), executor=executor)
        starting = seconds_of(bench.rollouts(both_arms(tasks[:IN_FLIGHT], make_skill(1))))
        cells = both_arms(tasks, make_skill(0))[2 * IN_FLIGHT :]
        before = bench.meter.spend.rollouts
        seconds = seconds_of(bench.rollouts(cells))
        count = bench.meter.spend.rollouts - before
        ledger.close()
    overhead = 1000 * (seconds / count - here)
    return row(name, count, seconds, durable=True, overhead_ms=overhead, start_seconds=starting)


def dspy_seconds(tasks: Sequence[Task]) -> float:
    """Run dspy.Evaluate over the tasks with a program that answers at once."""
    import dspy

    class Program(dspy.Module):
        def forward(self, question: str, answer: str) -> Any:
            return dspy.Prediction(answer=answer)

    examples = [
        dspy.Example(question=t.input, answer=t.expected).with_inputs("question", "answer")
        for t in tasks
    ]
    evaluate = dspy.Evaluate(
        devset=examples,
        metric=lambda example, prediction, trace=None: float(example.answer == prediction.answer),
        num_threads=os.cpu_count(),
    )
    started = time.perf_counter()
    result = evaluate(Program())
    assert result.score == 100
    return time.perf_counter() - started


def gepa_seconds(tasks: Sequence[Task]) -> float:
    """Run an adapter of gepa over the tasks in its minibatches, with trajectories."""
    from gepa.core.adapter import EvaluationBatch

    def evaluate(batch: Sequence[Task], candidate: dict[str, str]) -> Any:
        outputs = [{"answer": task.expected} for task in batch]
        scores = [float(o["answer"] == t.expected) for o, t in zip(outputs, batch, strict=True)]
        trajectories = [
            {"messages": [candidate["instruction"], t.input], "output": o}
            for o, t in zip(outputs, batch, strict=True)
        ]
        return EvaluationBatch(outputs=outputs, scores=scores, trajectories=trajectories)

    started = time.perf_counter()
    scores: list[float] = []
    for at in range(0, len(tasks), 64):
        scores += evaluate(tasks[at : at + 64], {"instruction": "Answer."}).scores
    assert sum(scores) == len(tasks)
    return time.perf_counter() - started


def latency(tasks: Sequence[Task]) -> dict[str, Any]:
    """Measure the share of the ideal rate with a model of fixed latency."""

    async def everything() -> float:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(SlowEcho, "127.0.0.1", 0)
        worker = SocketWorker(server.sockets[0].getsockname()[1])
        bench = make_bench(ledger, worker)
        started = time.perf_counter()
        await bench.rollouts(both_arms(tasks, make_skill(0)))
        seconds = time.perf_counter() - started
        for _, writer in worker.idle:
            writer.close()
        server.close()
        return seconds

    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        seconds = asyncio.run(everything())
        ledger.close()
    count = 2 * len(tasks)
    ideal = count / IN_FLIGHT * LATENCY
    return row(
        "skillforge 100 ms model", count, seconds, durable=True, in_flight=IN_FLIGHT,
        ratio=ideal / seconds,
    )  # fmt: skip


def large(count: int, traces: Path) -> dict[str, Any]:
    """Fill one ledger with rollouts of many skills, then open it and read one skill's table."""
    if traces.is_file():
        found = json.loads(traces.read_bytes())
        worker = TraceWorker([trace["traj"] for trace in found])
    else:
        shipped = sorted((ROOT / "skills").rglob("*.md"))
        texts = [path.read_text(encoding="utf-8") for path in shipped]
        worker = TraceWorker(
            [[{"role": "tool", "content": p} for p in t.split("\n\n")] for t in texts]
        )
    tasks = make_tasks(TASKS_PER_SKILL)
    start = peak_mb()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".skillforge" / "ledger.db"
        (Path(folder) / "skills").mkdir()
        library = FolderLibrary(Path(folder) / "skills")
        skills = [make_skill(n) for n in range(max(1, count // (2 * len(tasks))))]
        for package in skills:
            library.write(package)
        ledger = SqliteLedger(path)
        curator = Curator(ledger=ledger, library=library)
        curator.sync()
        began = time.perf_counter()
        registrations = asyncio.run(fill(ledger, curator, worker, skills, tasks))
        seconds = time.perf_counter() - began
        memory = peak_mb() - start
        curator.sync()
        ledger.close()
        stored = payload_bytes(path)
        opening, ledger = timed(lambda: opened(path, library))
        run, registration = registrations[len(registrations) // 2]
        reading, result = timed(lambda: read_result(ledger, run, registration))
        ledger.close()
        size = path.stat().st_size
    assert result.evidence.table.pairs == len(tasks)
    total = len(skills) * 2 * len(tasks)
    return row(
        f"skillforge ledger of {total:,} rollouts", total, seconds, durable=True,
        mb=memory, ratio=stored / worker.raw, raw_mb=worker.raw / 1e6, file_mb=size / 1e6,
        open_seconds=opening, table_seconds=reading, real_traces=traces.is_file(),
    )  # fmt: skip


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
        bench = make_bench(ledger, worker, run)
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
        await bench.rollouts([in_scope(cell, run) for cell in cells])
        done.append((run, registration))
    return done


def in_scope(cell: Cell, run: str) -> Cell:
    """Return a cell whose rollout no other run reuses."""
    from dataclasses import replace

    return replace(cell, scope=run)


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


def measure(quick: bool, rollouts: int | None, traces: Path) -> list[dict[str, Any]]:
    """Measure every row."""
    many, some, most = (3_000, 640, 20_000) if quick else (20_000, 3_200, 100_000)
    rows = list(instant(make_tasks(many)))
    rows.append(elsewhere(make_tasks(some), 1 / rows[0]["rollouts_per_s"]))
    rows.append(latency(make_tasks(some)))
    rows.append(large(rollouts or most, traces))
    return rows


def main(show: Callable[[str], None] = print) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rollouts", type=int, help="rollouts of the large ledger")
    parser.add_argument("--traces", type=Path, default=TRACES, help="tau-bench trajectories")
    arguments = parser.parse_args()
    rows = measure(arguments.quick, arguments.rollouts, arguments.traces)
    machine = {"cores": str(os.cpu_count()), "python": platform.python_version()}
    if arguments.json:
        show(json.dumps({"schema": 1, "machine": machine, "rows": rows}))
        return
    for r in rows:
        name = r.pop("name")
        numbers = (f"{k}={v:,.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in r.items())
        show(f"{name}\n    {'  '.join(numbers)}")


if __name__ == "__main__":
    main()
