"""What a run would cost, before it spends anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from skillforge.core.package import Package
from skillforge.core.task import Task
from skillforge.ports import Worker

SAMPLE = 20
"""Tasks whose attempts are bounded; those of one suite are much alike."""
SLACK = 8
"""How far below its bound the cheapest attempt is taken to end: prose has four or five bytes to a
token, and few answers are as long as they may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Ranges of what a run would use; retries and proposals come on top."""

    rollouts: tuple[int, int]
    tokens: tuple[int, int]
    usd: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """Return the ranges as a JSON object."""
        return {name: list(ends) for name, ends in asdict(self).items()}


def estimate(
    worker: Worker,
    tasks: Sequence[Task],
    skills: Sequence[Package],
    *,
    fewest: int,
    most: int,
) -> Estimate:
    """Bound a number of rollouts by what attempts at some of the tasks may cost.

    Args:
        worker: Knows the most that one attempt can cost.
        tasks: Tasks to sample, at least one.
        skills: What the longer arm shows; the shorter one shows nothing.
        fewest: Rollouts if everything is decided as early as it can be.
        most: Rollouts if everything goes on to the end.

    Raises:
        ConfigError: The price of the model is unknown.
    """
    short = [worker.bound(task, ()) for task in tasks[:SAMPLE]]
    long = [worker.bound(task, skills) for task in tasks[:SAMPLE]]
    tokens = min(c.tokens for c in short) // SLACK, max(c.tokens for c in long)
    usd = min(c.usd for c in short) / SLACK, max(c.usd for c in long)
    return Estimate(
        rollouts=(fewest, most),
        tokens=(fewest * tokens[0], most * tokens[1]),
        usd=(fewest * usd[0], most * usd[1]),
    )
