"""Rollouts of which only what a test is about is said."""

from __future__ import annotations

from typing import Any

from skillforge.core.rollout import Failure, FailureKind, Rollout

FAILED = Failure(kind=FailureKind.INFRA, message="429", where="model")


def rollout(task: str = "t", score: float | None = 1.0, **fields: Any) -> Rollout:
    """Return a rollout; without a score it failed for reasons of infrastructure."""
    values: dict[str, Any] = {
        "key": "k",
        "task": task,
        "family": "f",
        "arm": "base",
        "subject": "v",
        "replicate": 0,
        "score": score,
        "failure": FAILED if score is None else None,
        "finish_reason": "stop",
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cost_usd": 0.0,
        "seconds": 0.0,
        "output_blob": f"blob-{score}",
        "purpose": "confirm",
    }
    return Rollout(**(values | fields))
