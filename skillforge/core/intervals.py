"""Intervals for a lift, for a rate, and the standard error over families.

Which one to use: `betting_interval` beside an e-process, because it may be looked at after every
pair; `tango_interval` or `agresti_min_interval` for a fixed number of binary pairs; `bca_interval`
for graded scores and a fixed number of tasks; `cluster_se` when tasks of a family resemble each
other; `wilson_interval` and `clopper_pearson_interval` for a single rate. None of them gates a
decision: the e-process does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from skillforge.core._checks import (
    FloatArray,
    as_differences,
    check_count,
    check_discordant,
    check_share,
    two_sided_z,
)
from skillforge.core.confidence_sequence import betting_interval
from skillforge.errors import StatisticsError

__all__ = [
    "agresti_min_interval",
    "bca_interval",
    "betting_interval",
    "clopper_pearson_interval",
    "cluster_se",
    "tango_interval",
    "wilson_interval",
]


def agresti_min_interval(
    gains: SupportsIndex, regressions: SupportsIndex, n: SupportsIndex, confidence: float = 0.95
) -> tuple[float, float]:
    """Compute the Agresti-Min interval for the lift of binary pairs.

    A Wald interval after adding half a pair to each of the four outcomes. Asymptotic, and good
    from about 10 pairs on; valid at a fixed n only.

    Args:
        gains: Pairs that went 0 → 1.
        regressions: Pairs that went 1 → 0.
        n: All pairs, retained and residual ones included; at least 2.
        confidence: Two-sided, strictly between 0 and 1.

    Returns:
        (low, high) in units of d, cut at -1 and 1.

    Raises:
        StatisticsError: n < 2, or the counts do not fit into n.

    Source: Agresti and Min (2005), Statistics in Medicine 24(5), 729-740.

    >>> low, high = agresti_min_interval(15, 5, 100)
    >>> round(low, 4), round(high, 4)
    (0.0121, 0.184)
    """
    won, lost, pairs = check_discordant(gains, regressions, n)
    centre = (won - lost) / (pairs + 2)
    variance = (won + lost + 1 - (won - lost) ** 2 / (pairs + 2)) / (pairs + 2) ** 2
    half = two_sided_z(confidence) * math.sqrt(variance)
    return max(-1.0, centre - half), min(1.0, centre + half)


def tango_interval(
    gains: SupportsIndex, regressions: SupportsIndex, n: SupportsIndex, confidence: float = 0.95
) -> tuple[float, float]:
    """Compute Tango's score interval for the lift of binary pairs.

    Inverts the score test of "lift = Δ", whose variance uses the maximum-likelihood regression
    rate under that lift. Asymptotic, with good coverage from about 10 pairs on, also without any
    discordant pair; valid at a fixed n only. At Δ = 0 it agrees with the McNemar statistic.

    Args:
        gains: Pairs that went 0 → 1.
        regressions: Pairs that went 1 → 0.
        n: All pairs, retained and residual ones included; at least 2.
        confidence: Two-sided, strictly between 0 and 1.

    Returns:
        (low, high) in units of d, within [-1, 1].

    Raises:
        StatisticsError: n < 2, or the counts do not fit into n.

    Source: Tango (1998), Statistics in Medicine 17(8), 891-908.

    >>> low, high = tango_interval(15, 5, 100)
    >>> round(low, 4), round(high, 4)
    (0.0134, 0.1924)
    """
    won, lost, pairs = check_discordant(gains, regressions, n)
    z = two_sided_z(confidence)
    return _tango_low(won, lost, pairs, z), -_tango_low(lost, won, pairs, z)


def wilson_interval(
    successes: SupportsIndex, n: SupportsIndex, confidence: float = 0.95
) -> tuple[float, float]:
    """Compute Wilson's score interval for a success rate.

    Args:
        successes: Independent trials that succeeded.
        n: All trials, at least 1.
        confidence: Two-sided, strictly between 0 and 1.

    Returns:
        (low, high), shares within [0, 1].

    Raises:
        StatisticsError: n < 1, or more successes than trials.

    Source: Wilson (1927), Journal of the American Statistical Association 22, 209-212.

    >>> low, high = wilson_interval(22, 22)
    >>> round(low, 4), round(high, 4)
    (0.8513, 1.0)
    """
    hits, trials = _check_rate(successes, n)
    z = two_sided_z(confidence)
    rate, shrink = hits / trials, 1.0 + z * z / trials
    centre = rate + z * z / (2 * trials)
    half = z * math.sqrt(rate * (1.0 - rate) / trials + (z / (2 * trials)) ** 2)
    low = 0.0 if hits == 0 else (centre - half) / shrink
    return low, 1.0 if hits == trials else (centre + half) / shrink


def clopper_pearson_interval(
    successes: SupportsIndex, n: SupportsIndex, confidence: float = 0.95
) -> tuple[float, float]:
    """Compute the exact Clopper-Pearson interval for a success rate.

    Covers with at least the stated probability at every n, and is wide for it: meant for go or
    no-go audits.

    Args:
        successes: Independent trials that succeeded.
        n: All trials, at least 1.
        confidence: Two-sided, strictly between 0 and 1.

    Returns:
        (low, high), shares within [0, 1].

    Raises:
        StatisticsError: n < 1, or more successes than trials.

    Source: Clopper and Pearson (1934), Biometrika 26, 404-413.

    >>> low, high = clopper_pearson_interval(59, 59, confidence=0.90)
    >>> round(low, 4), high
    (0.9505, 1.0)
    """
    from scipy.special import betaincinv

    hits, trials = _check_rate(successes, n)
    tail = (1.0 - check_share("confidence", confidence)) / 2.0
    low = 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, tail))
    high = 1.0 if hits == trials else float(betaincinv(hits + 1, trials - hits, 1.0 - tail))
    return low, high


def bca_interval(
    differences: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 9_999,
) -> tuple[float, float]:
    """Compute the bias-corrected and accelerated bootstrap interval for the mean lift.

    Resamples tasks, so replicates of a task must have been averaged. Assumes independent tasks and
    a fixed n; with fewer than about 20 tasks it is too narrow.

    Args:
        differences: Paired differences in [-1, 1], shape (n,), at least two that differ.
        rng: The source of randomness; the same state gives the same interval.
        confidence: Two-sided, strictly between 0 and 1.
        resamples: Bootstrap resamples, at least 1000.

    Returns:
        (low, high) in units of d.

    Raises:
        StatisticsError: n < 2, or all differences are equal: resampling them shows no spread,
            which is not certainty.

    Complexity: O(n · resamples) time, in batches of bounded memory.

    Source: Efron (1987), Journal of the American Statistical Association 82, 171-185, as
    implemented by `scipy.stats.bootstrap`.

    >>> d = [1.0] * 15 + [-1.0] * 5 + [0.0] * 80
    >>> low, high = bca_interval(d, np.random.default_rng(7))
    >>> 0.0 <= low <= 0.03 and 0.16 <= high <= 0.20
    True
    """
    from scipy.stats import bootstrap

    d = as_differences(differences, what="bootstrap interval", at_least=2)
    check_share("confidence", confidence)
    check_count("resamples", resamples, at_least=1_000)
    if np.ptp(d) == 0.0:
        raise _no_spread("bootstrap interval", d)
    result = bootstrap(
        (d,),
        np.mean,
        confidence_level=confidence,
        n_resamples=resamples,
        batch=max(1, 2_000_000 // d.size),
        method="BCa",
        rng=rng,
    ).confidence_interval
    return float(result.low), float(result.high)


def cluster_se(differences: ArrayLike, clusters: Sequence[object]) -> float:
    """Compute the cluster-robust standard error of the mean lift.

    `SE = (1/n) sqrt( C/(C-1) Σ_c (Σ_{i in c} (d_i - mean))² )` over C clusters. Tasks of one
    cluster may depend on each other, clusters may not. With every task its own cluster it is the
    usual sd/√n. Below about 20 clusters it is too small: use `sign_flip_test` there.

    Args:
        differences: Paired differences in [-1, 1], shape (n,).
        clusters: The cluster (family) of each task, n hashable labels.

    Returns:
        Standard error in units of d, above 0.

    Raises:
        StatisticsError: Fewer than two clusters, a label missing, or no variation between
            clusters: that is no evidence of precision.

    Complexity: O(n).

    Source: Miller (2024), "Adding error bars to evals", arXiv:2411.00640, with the factor
    C/(C-1).

    >>> d = [1.0, 1.0, 0.0, 0.0, 0.0, -1.0]
    >>> round(cluster_se(d, ["a", "a", "b", "b", "c", "c"]), 4)
    0.441
    """
    d = as_differences(differences, what="clustered standard error", at_least=2)
    if len(clusters) != d.size:
        raise StatisticsError(
            f"clusters: got {len(clusters)} labels for {d.size} differences, expected one per "
            "task; pass the family of every task"
        )
    sums: dict[object, float] = {}
    for label, residual in zip(clusters, (d - d.mean()).tolist(), strict=True):
        sums[label] = sums.get(label, 0.0) + residual
    count = check_count("clusters", len(sums), at_least=2)
    scale = count / (count - 1)
    error = math.sqrt(scale * math.fsum(total**2 for total in sums.values())) / d.size
    if error < 1e-12:
        raise _no_spread("clustered standard error", d)
    return error


def _tango_low(won: int, lost: int, n: int, z: float) -> float:
    """Lower end of the score interval, by bisection on the monotone statistic."""
    low, high = -1.0, (won - lost) / n
    while high - low > 1e-12:
        delta = (low + high) / 2.0
        b = (2 * n - won + lost) * delta - won - lost
        c = -lost * delta * (1.0 - delta)
        rate = (math.sqrt(b * b - 8.0 * n * c) - b) / (4.0 * n)
        variance = max(0.0, n * (2.0 * rate + delta * (1.0 - delta)))
        if won - lost - n * delta > z * math.sqrt(variance):
            low = delta
        else:
            high = delta
    return low


def _check_rate(successes: SupportsIndex, n: SupportsIndex) -> tuple[int, int]:
    hits, trials = check_count("successes", successes), check_count("n", n, at_least=1)
    if hits > trials:
        raise StatisticsError(
            f"successes: got {hits} of {trials} trials, expected at most {trials}; "
            "pass successes first, then all trials"
        )
    return hits, trials


def _no_spread(what: str, d: FloatArray) -> StatisticsError:
    return StatisticsError(
        f"{what}: got {d.size} differences without variation, expected some spread; "
        "their observed spread of 0 is not certainty: use betting_interval or tango_interval"
    )
