"""Committees: several verifiers that score the same answer and vote."""

from __future__ import annotations

from collections.abc import Sequence

from skillforge.core.task import VerifierSpec


def members(spec: VerifierSpec) -> tuple[VerifierSpec, ...]:
    """Return the verifiers that vote in a committee; any other verifier is its only one."""
    if spec.kind != "committee":
        return (spec,)
    return tuple(
        VerifierSpec(kind=m["kind"], options={k: v for k, v in m.items() if k != "kind"})
        for m in spec.options["members"]
    )


def combine(spec: VerifierSpec, scores: Sequence[float]) -> float:
    """Return the score of a committee.

    Args:
        spec: The committee; its ``vote`` is ``majority`` (1 if more than half of the members pass,
            at score ≥ 0.5, else 0) or ``mean``.
        scores: One score in [0, 1] per member.

    >>> combine(VerifierSpec(kind="committee", options={"vote": "majority"}), [1.0, 0.0])
    0.0
    """
    if spec.options["vote"] == "mean":
        return sum(scores) / len(scores)
    return float(2 * sum(score >= 0.5 for score in scores) > len(scores))
