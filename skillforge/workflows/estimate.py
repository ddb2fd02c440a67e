"""What a run would cost, before it spends anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skillforge.core.package import Package
from skillforge.core.task import Task
from skillforge.ports import Worker
from skillforge.workflows.contrast import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Ranges of what a run would use."""

    rollouts: tuple[int, int]
    tokens: tuple[int, int]
    usd: tuple[float, float]

    def to_json(self) -> Report:
        """Return the ranges as a JSON object."""
        return {
            "dry_run": True,
            "rollouts": list(self.rollouts),
            "tokens": list(self.tokens),
            "usd": list(self.usd),
        }

    def __str__(self) -> str:
        """Say the ranges in one line."""
        (r0, r1), (t0, t1), (u0, u1) = self.rollouts, self.tokens, self.usd
        return (
            f"between {r0} and {r1} rollouts, {t0} and {t1} tokens, ${u0:.2f} and ${u1:.2f}; "
            "nothing was spent"
        )


def estimate(
    worker: Worker,
    tasks: Sequence[Task],
    skills: Sequence[Package],
    *,
    fewest: int,
    most: int,
) -> Estimate:
    """Bound a number of rollouts by some of the tasks they would run.

    Args:
        worker: Bounds one attempt.
        tasks: Tasks to sample, at least one.
        skills: What the longer arm shows; the shorter one shows nothing.
        fewest: Rollouts if everything is decided as early as it can be.
        most: Rollouts if everything goes on to the end.

    Raises:
        ConfigError: The price of the model is unknown.
    """
    short = [worker.bound(task, ()) for task in tasks[:20]]
    long = [worker.bound(task, skills) for task in tasks[:20]]
    tokens = min(cost.tokens for cost in short), max(cost.tokens for cost in long)
    usd = min(cost.usd for cost in short), max(cost.usd for cost in long)
    return Estimate(
        rollouts=(fewest, most),
        tokens=(fewest * tokens[0], most * tokens[1]),
        usd=(fewest * usd[0], most * usd[1]),
    )
