"""Many candidates at once: which of them may be called discoveries, and at what price.

A gate that errs with probability α per candidate lets several useless candidates of a cohort
through. The e-BH procedure bounds the expected share of useless ones among those promoted, whatever
the dependence between candidates; that matters here, because candidates share base rollouts and
tasks. Each e-value must be the current one (or the value at which the candidate was stopped), never
the maximum it once had: a running maximum is not an e-value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

from skillforge.core._checks import check_count, check_share
from skillforge.errors import StatisticsError

_LOG_CAP = 709.0
"""Calibrated e-values stay below e^709, about 8e307, unless the p-value is exactly 0."""


def e_bh(e_values: Sequence[float], fdr: float, m: SupportsIndex | None = None) -> tuple[int, ...]:
    """Select discoveries by e-BH.

    Sorts the e-values in descending order, finds the largest k with `k e_(k) / m ≥ 1 / fdr`, and
    rejects the k hypotheses with the largest e-values. Equal e-values are rejected together or
    not at all.

    Controls: the false discovery rate at `fdr` (more exactly at fdr × true nulls / m), for
    e-values with any dependence between them.

    Args:
        e_values: One e-value per candidate, each ≥ 0, infinity allowed; shape (candidates,).
        fdr: False discovery rate, strictly between 0 and 1.
        m: Size of the whole family, at least `len(e_values)`; candidates that were started but
            are not listed count as e = 0. Default: `len(e_values)`.

    Returns:
        Indices into `e_values` of the rejected hypotheses, ascending. No e-values, no discoveries.

    Raises:
        StatisticsError: An e-value is negative or NaN, or `m` is smaller than the list.

    Complexity: O(m log m).

    Source: Wang and Ramdas (2022), "False discovery rate control with e-values",
    arXiv:2009.02824.

    >>> e_bh([55.0, 3.0, 1.2, 70.0, 0.4], fdr=0.10)
    (0, 3)
    >>> e_bh([55.0, 3.0, 1.2, 70.0, 0.4], fdr=0.10, m=20)
    ()
    """
    check_share("fdr", fdr)
    values = np.asarray(e_values, dtype=np.float64)
    wrong = np.flatnonzero(~(values >= 0.0))
    if wrong.size:
        _check_e_value(float(values[wrong[0]]), f"e-value {wrong[0]}")
    family = len(e_values) if m is None else check_count("m", m)
    if family < len(e_values):
        raise StatisticsError(
            f"m: got {family} for {len(e_values)} e-values, expected at least as many; "
            "m counts every candidate that was ever started in the cohort"
        )
    descending = np.sort(values)[::-1]
    passing = np.flatnonzero(np.arange(1, values.size + 1) * descending >= family / fdr)
    if not passing.size:
        return ()
    return tuple(np.flatnonzero(values >= descending[passing[-1]]).tolist())


def bonferroni_threshold(alpha: float, m: SupportsIndex) -> float:
    """Return the e-value that each of `m` candidates must reach, m / alpha.

    Bounds the probability of even one false promotion in the cohort by `alpha`, at any time and
    under any dependence. Much stricter than e-BH: meant for cohorts of a few candidates.

    Args:
        alpha: Error probability for the whole cohort, strictly between 0 and 1.
        m: Number of candidates, at least 1.

    Raises:
        StatisticsError: An argument is outside its range.

    >>> bonferroni_threshold(0.05, 4)
    80.0
    """
    return check_count("m", m, at_least=1) / check_share("alpha", alpha)


def betting_limit(m: SupportsIndex, fdr: float) -> float:
    """Return the e-value at which a candidate of a cohort may stop betting, 10 m / fdr.

    e-BH takes a lone discovery at m / fdr. Stopped at that very value, a candidate would enter
    with its running maximum: each cohort still holds its rate, but five cohorts of 40 edits
    without effect would promote one of them 21 % of the time in place of 6 %. Betting on to ten
    times as much costs about 6 % more pairs (benchmarks/validity/stream.py).

    Args:
        m: Most candidates that the cohort can start, at least 1.
        fdr: False discovery rate, strictly between 0 and 1.

    Raises:
        StatisticsError: An argument is outside its range.

    >>> betting_limit(4, 0.10)
    400.0
    """
    return 10 * check_count("m", m, at_least=1) / check_share("fdr", fdr)


def spending_alpha(k: SupportsIndex, alpha: float) -> float:
    """Return the error probability spent on the k-th candidate, 6 alpha / (pi² k²).

    Over an endless stream of candidates the shares add up to `alpha`, so the probability of even
    one false promotion stays below it.

    Args:
        k: Position of the candidate in the stream, counted from 1.
        alpha: Error probability for the whole stream, strictly between 0 and 1.

    Raises:
        StatisticsError: An argument is outside its range.

    >>> round(spending_alpha(1, 0.05), 5), round(spending_alpha(10, 0.05), 6)
    (0.0304, 0.000304)
    """
    position = check_count("k", k, at_least=1)
    return 6.0 * check_share("alpha", alpha) / (math.pi * position) ** 2


def average_e(e_values: Sequence[float]) -> float:
    """Return the mean of several e-values, an e-value for "all of these nulls hold".

    Valid under any dependence, unlike the product.

    Args:
        e_values: At least one e-value, each ≥ 0.

    Raises:
        StatisticsError: There is no e-value, or one is negative or NaN.

    Source: Vovk and Wang (2021), "E-values: calibration, combination and applications",
    Annals of Statistics 49(3), proposition 3.1.

    >>> average_e([30.0, 0.0, 1.5])
    10.5
    """
    if len(e_values) == 0:
        raise StatisticsError(
            "e_values: got none, expected at least one; without a measured process there is "
            "nothing to average"
        )
    return math.fsum(_check_e_value(e) for e in e_values) / len(e_values)


def e_to_p(e: float) -> float:
    """Turn an e-value into a p-value, min(1, 1/e).

    Applied to the largest value of an e-process so far it gives a p-value that is valid at any
    time (Ville); no better calibrator of single e-values exists (Vovk and Wang 2021).

    Args:
        e: An e-value ≥ 0.

    Raises:
        StatisticsError: The e-value is negative or NaN.

    >>> e_to_p(20.0), e_to_p(0.3)
    (0.05, 1.0)
    """
    return 1.0 if _check_e_value(e) <= 1.0 else 1.0 / e


def p_to_e(p: float, kappa: float = 0.5) -> float:
    """Turn a p-value into an e-value by the power calibrator, kappa p^(kappa - 1).

    Args:
        p: A p-value in [0, 1]; 0 gives infinity.
        kappa: Strictly between 0 and 1; small values reward small p-values. Fix it beforehand.

    Raises:
        StatisticsError: An argument is outside its range.

    Source: Vovk and Wang (2021), section 2.

    >>> round(p_to_e(0.0025), 6)
    10.0
    """
    check_share("kappa", kappa)
    if _check_p_value(p) == 0.0:
        return math.inf
    return math.exp(min(math.log(kappa) + (kappa - 1.0) * math.log(p), _LOG_CAP))


def p_to_e_mixture(p: float) -> float:
    """Turn a p-value into an e-value by averaging the power calibrator over kappa in (0, 1).

    The value is `(1 - p + p ln p) / (p (ln p)²)`, and 1/2 at p = 1. Needs no choice of kappa.

    Args:
        p: A p-value in [0, 1]; 0 gives infinity.

    Raises:
        StatisticsError: The p-value is outside [0, 1].

    Source: Vovk and Wang (2021), section 2.

    >>> round(p_to_e_mixture(0.0025), 3)
    10.948
    """
    if _check_p_value(p) == 0.0:
        return math.inf
    depth = -math.log(p)
    if depth < 1e-3:  # the formula is 0/0 at p = 1: use its Taylor series there
        return 0.5 + depth / 6.0 + depth**2 / 24.0 + depth**3 / 120.0
    if depth > 700.0:  # exp(depth) may overflow, and next to it the other terms vanish
        return math.exp(min(depth - 2.0 * math.log(depth), _LOG_CAP))
    return (math.expm1(depth) - depth) / depth**2


def _check_e_value(e: float, what: str = "e-value") -> float:
    if not e >= 0.0:
        raise StatisticsError(
            f"{what}: got {e!r}, expected a number of at least 0; "
            "a candidate without measured pairs has e = 1"
        )
    return e


def _check_p_value(p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise StatisticsError(
            f"p-value: got {p!r}, expected a number within [0, 1]; pass 5 % as 0.05"
        )
    return p
