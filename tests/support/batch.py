"""One batch of rollouts at full speed, as a process of its own that tests may kill.

    processes.start_call("batch", "ledger.db", "1000", "acknowledged.txt", cwd=folder)

What has been counted is written down, so that a test can tell whether it was durable before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt, Rollout
from skillforge.core.task import Split, Task, VerifierSpec
from skillforge.workflows.meter import Meter
from skillforge.workflows.spend import Caps
from skillforge.workflows.trial import Bench, Cell


class Still:
    """A clock that stands."""

    def now(self) -> float:
        """Zero."""
        return 0.0


class Instant:
    """Answers at once; right or wrong by the seed, with words that no other attempt has."""

    fingerprint = "instant"

    def prompt(self, task: Task, skills: Sequence[Package]) -> Any:
        """Not used here."""
        raise AssertionError(task.id)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Return an answer."""
        output = "yes" if seed % 3 else "no"
        words = {"role": "user", "content": f"{task.input}, said {seed} times\u2028\u0085 over."}
        return Attempt(output=output, transcript=(words,), prompt_tokens=seed % 100)


def cells(count: int) -> list[Cell]:
    """Return cells of as many tasks."""
    return [
        Cell(
            task=Task(
                id=f"t{i}",
                family=f"f{i % 7}",
                input=f"Is {i} a number",
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
        for i in range(count)
    ]


def bench(ledger: SqliteLedger, **settings: Any) -> Bench:
    """Return a bench with 16 attempts in flight."""
    meter = Meter(caps=Caps(), clock=Still())
    fixed = {"worker": Instant(), "executor": AsyncioExecutor(16), "run": "batch", "seed": 0}
    return Bench(**{"ledger": ledger, "meter": meter, **fixed, **settings})


def run(path: Path, count: int, **settings: Any) -> list[Rollout]:
    """Run the batch to its end on a ledger."""
    ledger = SqliteLedger(path, patience=60)
    try:
        return asyncio.run(bench(ledger, **settings).rollouts(cells(count)))
    finally:
        ledger.close()


def main(arguments: Sequence[str]) -> int:
    """Run the batch; write the key of each rollout down once it has been counted."""
    path, count, counted = arguments
    log = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def on_rollout(rollout: Rollout) -> None:
        os.write(log, f"{rollout.key}\n".encode())

    run(Path(path), int(count), on_rollout=on_rollout)
    return 0
