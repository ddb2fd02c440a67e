"""How much the engine adds to the model: the same tasks through the engine and through a bare loop.

Run: python benchmarks/speed/rollouts.py [--quick] [--json]

Rows:
- ``skillforge instant worker``: rollouts per second with a worker that answers at once, so that all
  of the time is the engine's own: key, verifier, blob, hash chain, one fsync per rollout.
- ``bare loop instant worker``: the same worker called in a loop, scored, and kept in a list.
- ``skillforge embedded model`` and ``bare loop embedded model``: the same with the embedded model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from skillforge.adapters import local_model
from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.ledger import SqliteLedger
from skillforge.adapters.models import LitellmModel
from skillforge.adapters.shipped import shipped_suites
from skillforge.adapters.suites import load_suite
from skillforge.adapters.workers import ChatWorker
from skillforge.cli.engine import WallClock
from skillforge.core.chat import Cost
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt
from skillforge.core.task import Suite, Task
from skillforge.core.verify import verify
from skillforge.ports import Worker
from skillforge.workflows.meter import Caps, Meter, MeteredModel
from skillforge.workflows.trial import Bench, Cell

PARALLEL = 4


class InstantWorker:
    """Answers with the reference at once."""

    fingerprint = "instant"

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Cost nothing."""
        return Cost()

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Return the reference."""
        return Attempt(output=task.expected or "", transcript=({"content": task.input},))


def engine_seconds(worker: Worker, tasks: Sequence[Task], meter: Meter) -> float:
    """Run the tasks through the engine, durably, and return the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = SqliteLedger(Path(folder) / "ledger.db")
        bench = Bench(
            ledger=ledger,
            worker=worker,
            executor=AsyncioExecutor(PARALLEL),
            meter=meter,
            run="bench",
            seed=0,
        )
        cells = [Cell(task=t, arm="base", skills=(), subject="", purpose="eval") for t in tasks]
        started = time.perf_counter()
        asyncio.run(_discard(bench.rollouts(cells)))
        seconds = time.perf_counter() - started
        ledger.close()
    return seconds


async def _discard(work: Awaitable[Any]) -> None:
    await work


def loop_seconds(worker: Worker, tasks: Sequence[Task]) -> float:
    """Call the worker for every task, score, keep the scores in a list; nothing is stored."""

    async def everything() -> list[float]:
        gate = asyncio.Semaphore(PARALLEL)

        async def one(task: Task) -> float:
            async with gate:
                attempt = await worker.attempt(task, (), seed=0)
            return verify(task.verifier, task.expected, attempt.output)

        return await asyncio.gather(*map(one, tasks))

    started = time.perf_counter()
    asyncio.run(everything())
    return time.perf_counter() - started


def row(name: str, count: int, seconds: float, *, durable: bool, **more: Any) -> dict[str, Any]:
    """Return one row of the table."""
    return {
        "name": name,
        "rollouts": count,
        "seconds": seconds,
        "rollouts_per_s": count / seconds,
        "durable": durable,
        "in_flight": PARALLEL,
        **more,
    }


def compare(name: str, worker: Worker, tasks: Sequence[Task], meter: Meter) -> list[dict[str, Any]]:
    """Measure both ways and give the ratio of their rates.

    Each gets every other task: the same families, and no prompt that the other has warmed up.
    """
    for_loop, for_engine = tasks[0::2], tasks[1::2]
    bare = loop_seconds(worker, for_loop)
    ours = engine_seconds(worker, for_engine, meter)
    return [
        row(f"skillforge {name}", len(for_engine), ours, durable=True, ratio=bare / ours),
        row(f"bare loop {name}", len(for_loop), bare, durable=False, ratio=1.0),
    ]


def measure(quick: bool) -> list[dict[str, Any]]:
    """Measure every row."""
    suite: Suite = load_suite(shipped_suites() / "desk")
    instant, real = (600, 48) if quick else (6000, 240)
    meter = Meter(caps=Caps(), clock=WallClock())
    rows = compare("instant worker", InstantWorker(), suite.tasks[:instant], meter)
    local_model.register(local_model.LocalSettings(slots=8, context=2048))
    meter = Meter(caps=Caps(), clock=WallClock())
    model = MeteredModel(model=LitellmModel("local/smollm2"), meter=meter)
    worker = ChatWorker(model=model, spec=suite.worker)
    loop_seconds(worker, suite.tasks[-PARALLEL:])
    return rows + compare("embedded model", worker, suite.tasks[:real], meter)


def main(show: Callable[[str], None] = print) -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(arguments.quick)
    machine = {"cores": str(os.cpu_count()), "python": platform.python_version()}
    if arguments.json:
        show(json.dumps({"schema": 1, "machine": machine, "rows": rows}))
        return
    show(f"{'ratio':>6} {'rollouts/s':>11} {'durable':>8}  what")
    for r in rows:
        durable = "yes" if r["durable"] else "no"
        show(f"{r['ratio']:6.2f} {r['rollouts_per_s']:11.1f} {durable:>8}  {r['name']}")


if __name__ == "__main__":
    main()
