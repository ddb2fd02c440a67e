"""Tests of fixed size for paired outcomes: exact McNemar and sign flipping.

Both are reported beside the e-process and are valid once, at a number of tasks fixed beforehand.
Looking at them after every pair inflates their error; the e-process exists for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from skillforge.core._checks import FloatArray, as_differences, check_count
from skillforge.errors import StatisticsError

Alternative = Literal["greater", "less", "two-sided"]
"""What the test looks for: a lift, a harm, or either."""

_EXACT_FLIPS = 14
"""Up to this many non-zero cluster sums all sign patterns (16384) are enumerated."""
_CHUNK = 4_000_000
"""Signs drawn at a time in the Monte Carlo case, to bound memory."""


def mcnemar_exact(
    gains: SupportsIndex, regressions: SupportsIndex, alternative: Alternative = "greater"
) -> float:
    """Compute the exact McNemar p-value of binary pairs (a sign test on the discordant ones).

    Estimand: whether a discordant pair is as likely a gain as a regression. Assumes one pair per
    task and independent tasks; replicates treated as tasks inflate the error to two or three times
    its level.

    Args:
        gains: Pairs that went 0 → 1.
        regressions: Pairs that went 1 → 0.
        alternative: "greater" for a lift, "less" for a harm, "two-sided" for either (twice the
            smaller tail, at most 1).

    Returns:
        p in (0, 1]: `P(Bin(gains + regressions, ½) ≥ gains)` for "greater". Without discordant
        pairs p = 1: there is no evidence, which is a defined answer.

    Raises:
        StatisticsError: A count is negative or not whole, or the alternative is unknown.

    Source: McNemar (1947), Psychometrika 12, 153-157; exact form as in
    `scipy.stats.binomtest(gains, gains + regressions)`.

    >>> round(mcnemar_exact(15, 5), 5)
    0.02069
    >>> mcnemar_exact(5, 0) < 0.05 < mcnemar_exact(4, 0)
    True
    """
    from scipy.special import bdtr

    _check_alternative(alternative)
    won, lost = check_count("gains", gains), check_count("regressions", regressions)
    discordant = won + lost
    if discordant == 0:
        return 1.0
    greater, less = (float(bdtr(count, discordant, 0.5)) for count in (lost, won))
    if alternative == "greater":
        return greater
    return less if alternative == "less" else min(1.0, 2.0 * min(greater, less))


def sign_flip_test(
    differences: ArrayLike,
    *,
    rng: np.random.Generator,
    clusters: Sequence[object] | None = None,
    alternative: Alternative = "greater",
    resamples: int = 9_999,
) -> float:
    """Compute the p-value of the mean lift by flipping signs.

    H0: swapping the arms of a cluster changes nothing, that is, each cluster's sum of differences
    is distributed symmetrically about 0. Exact under H0 for any number of tasks and any scores,
    and with few clusters, where the clustered standard error is not.

    With at most 14 non-zero cluster sums all sign patterns are enumerated and `rng` is not used;
    otherwise `p = (1 + #{T* ≥ T}) / (resamples + 1)` over random patterns.

    Args:
        differences: Paired differences in [-1, 1], shape (n,). With n = 1 the smallest possible p
            is 0.5.
        rng: The source of randomness.
        clusters: The cluster (family) of each task, n hashable labels; default: each task its own.
        alternative: "greater" for a lift, "less" for a harm, "two-sided" for either.
        resamples: Random sign patterns, at least 100.

    Returns:
        p in (0, 1]; 1 if all differences are ties.

    Raises:
        StatisticsError: There is no difference, a label is missing, or an argument is unknown.

    Complexity: O(n + C · min(2^C, resamples)) for C clusters, in bounded memory.

    Source: Fisher (1935); Phipson and Smyth (2010), arXiv:1603.05766, for the added one.

    >>> sign_flip_test([1.0, 0.5, 0.5, 0.25, 0.0], rng=np.random.default_rng(0))
    0.0625
    """
    _check_alternative(alternative)
    check_count("resamples", resamples, at_least=100)
    d = as_differences(differences, what="sign-flip test")
    sums = _cluster_sums(d, clusters)
    sums = sums[np.abs(sums) > 1e-12]
    if alternative == "less":
        sums = -sums
    two_sided = alternative == "two-sided"
    if sums.size <= _EXACT_FLIPS:
        patterns = (np.arange(2**sums.size)[:, None] >> np.arange(sums.size)) & 1
        return _count_extreme(patterns, sums, two_sided=two_sided) / len(patterns)
    extreme, left = 0, resamples
    while left > 0:
        rows = min(left, max(1, _CHUNK // sums.size))
        patterns = rng.integers(0, 2, size=(rows, sums.size), dtype=np.int8)
        extreme += _count_extreme(patterns, sums, two_sided=two_sided)
        left -= rows
    return (1 + extreme) / (resamples + 1)


def _cluster_sums(d: FloatArray, clusters: Sequence[object] | None) -> FloatArray:
    """Sum of the differences of each cluster, in order of first appearance; shape (C,)."""
    if clusters is None:
        return d
    if len(clusters) != d.size:
        raise StatisticsError(
            f"clusters: got {len(clusters)} labels for {d.size} differences, expected one per "
            "task; pass the family of every task"
        )
    sums: dict[object, float] = {}
    for label, value in zip(clusters, d.tolist(), strict=True):
        sums[label] = sums.get(label, 0.0) + value
    return np.array(list(sums.values()), dtype=np.float64)


def _count_extreme(
    patterns: np.ndarray[tuple[int, ...], np.dtype[np.integer]],
    sums: FloatArray,
    *,
    two_sided: bool,
) -> int:
    """Count the 0/1 sign patterns whose total reaches the observed one, up to rounding."""
    totals = (2.0 * patterns - 1.0) @ sums
    observed = float(sums.sum())
    if two_sided:
        totals, observed = np.abs(totals), abs(observed)
    tolerance = 1e-12 * float(np.abs(sums).sum())
    return int(np.count_nonzero(totals >= observed - tolerance))


def _check_alternative(alternative: str) -> None:
    if alternative not in ("greater", "less", "two-sided"):
        raise StatisticsError(
            f"alternative: got {alternative!r}, expected 'greater', 'less' or 'two-sided'; "
            "'greater' looks for a lift"
        )
