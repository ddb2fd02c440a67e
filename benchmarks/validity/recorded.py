"""Rollouts as the engine records them, of edits without effect, for what the core does to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from skillforge.core.rollout import Arm, Failure, FailureKind, Pair, Rollout, Void, pair_up

Outcomes = Sequence[Pair | Void]


def rollout(task: str, arm: Arm, score: float | None, replicate: int = 0) -> Rollout:
    """Return a rollout as the engine would have scored it; None is an infrastructure failure."""
    failure = Failure(kind=FailureKind.INFRA, message="gone", where="worker")
    return Rollout(
        key=f"{task}/{arm}/{replicate}",
        task=task,
        family="f",
        arm=arm,
        subject=arm,
        replicate=replicate,
        score=score,
        failure=failure if score is None else None,
        finish_reason="stop",
        prompt_tokens=0,
        completion_tokens=0,
        cost_usd=0.0,
        seconds=0.0,
        output_blob=f"{task}/{arm}/{replicate}",
        purpose="confirm",
    )


def names(count: int) -> list[str]:
    """Return task ids."""
    return [f"t{i}" for i in range(count)]


def scores(
    rng: np.random.Generator, count: int, discordance: float = 0.2
) -> tuple[np.ndarray, np.ndarray]:
    """Draw base and augmented scores of an edit without effect, each of shape (count,)."""
    kind = rng.choice(4, size=count, p=[discordance / 2, discordance / 2, 0.4, 0.6 - discordance])
    return np.isin(kind, (1, 2)).astype(float), np.isin(kind, (0, 2)).astype(float)


def joined(
    order: Iterable[str], tasks: Sequence[str], base: Iterable[float | None],
    augmented: Iterable[float | None],
) -> Outcomes:  # fmt: skip
    """Pair rollouts up along an order; they arrive in the order of ``tasks``."""
    arms: tuple[dict[str, list[Rollout]], dict[str, list[Rollout]]] = ({}, {})
    for task, y0, y1 in zip(tasks, base, augmented, strict=True):
        arms[0][task] = [rollout(task, "base", y0)]
        arms[1][task] = [rollout(task, "augmented", y1)]
    return pair_up(order, *arms)
