"""An interval for the lift that may be read after every pair: a betting confidence sequence.

It is the companion of the e-process for reporting. The e-process decides, because a one-sided bet
on the question asked is more powerful than asking whether the interval excludes a value.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from skillforge.core._checks import FloatArray, as_differences, check_share

_GRID = 9
"""Candidate means examined in one round of the search for a limit."""
_ROUNDS = 7
"""Rounds of that search; each narrows the bracket 8-fold, in the end to 5e-7."""


def betting_interval(
    differences: ArrayLike, alpha: float = 0.05, *, left: ArrayLike | None = None
) -> tuple[float, float]:
    """Compute the hedged-capital betting confidence sequence for the mean lift.

    Estimand: the mean of d, the same for every task given the past. The interval holds at all
    sample sizes at once with probability 1 - alpha, so it may be read after every pair.

    With `x = (d + 1) / 2`, a candidate mean m is dropped once a bettor against it has made 1/alpha
    out of half a unit: `½ Π(1 + λ⁺(x_i - m))` or `½ Π(1 - λ⁻(x_i - m))`, with predictable
    plug-in stakes truncated at 1/(2m) and 1/(2(1 - m)). Both are monotone in m, so the set that is
    left is an interval, whose two ends are searched for apart and rounded outward (by at most
    2e-6). Means dropped once stay dropped (running intersection). If the data drift so far that
    nothing is left, the set of the last step alone is returned; it holds at the same level.

    Args:
        differences: Paired differences in [-1, 1] in the order of measurement, shape (n,).
        alpha: Error probability, strictly between 0 and 1.
        left: Where the tasks are drawn from a finite pool, each once: those not drawn before each
            of them, its own included, shape (n,). The estimand is then the mean over the pool; the
            interval narrows to it as the pool runs out. For deterministic workers only, see
            `skillforge.core.finite_pool`.

    Returns:
        (low, high) in units of d, within [-1, 1]. One pair is enough: it leaves nearly all of
        [-1, 1].

    Raises:
        StatisticsError: There is no difference, or one is outside [-1, 1].

    Complexity: O(n), about 110 n logarithms.

    Source: Waudby-Smith and Ramdas (2020, 2024), arXiv:2010.09686, theorem 3; for pools section 5.

    >>> low, high = betting_interval([1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0] * 10)
    >>> round(low, 3), round(high, 3)
    (0.027, 0.392)
    """
    d = as_differences(differences, what="betting interval")
    check_share("alpha", alpha)
    x = (d + 1.0) / 2.0
    rest = None if left is None else np.asarray(left, dtype=np.float64)
    low, high = _limits(x, alpha, rest, running=True)
    if low > high:
        low, high = sorted(_limits(x, alpha, rest, running=False))
    return 2.0 * low - 1.0, 2.0 * high - 1.0


def _limits(
    x: FloatArray, alpha: float, left: FloatArray | None, *, running: bool
) -> tuple[float, float]:
    """Both ends in units of x; the upper one is the lower one of the mirrored data."""
    stakes = _plug_in_stakes(x, alpha)
    low = _lower_limit(x, stakes, alpha, left, running=running)
    return low, 1.0 - _lower_limit(1.0 - x, stakes, alpha, left, running=running)


def _plug_in_stakes(x: FloatArray, alpha: float) -> FloatArray:
    """Untruncated stake for each observation, from the ones before it; shape (n,)."""
    step = np.arange(1, x.size + 1, dtype=np.float64)
    mean = (0.5 + np.cumsum(x)) / (step + 1.0)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (step + 1.0)
    before = np.concatenate(([0.25], variance[:-1]))
    stakes: FloatArray = np.sqrt(2.0 * math.log(2.0 / alpha) / (before * step * np.log1p(step)))
    return stakes


def _lower_limit(
    x: FloatArray, stakes: FloatArray, alpha: float, left: FloatArray | None, *, running: bool
) -> float:
    """Largest mean that the upward bettor has ruled out, 0 if there is none."""
    ruined = math.log(2.0 / alpha)
    low, high = 0.0, 1.0
    if left is not None:  # what is left of the pool can add 0 at least
        low = float(x.sum() / (x.size + left[-1] - 1.0))
    for _ in range(_ROUNDS):
        means = np.linspace(low, high, _GRID)[1:]
        if left is None:
            expected = means[:, None]
        else:
            drawn = np.arange(x.size)
            expected = (means[:, None] * (left + drawn) - (np.cumsum(x) - x)) / left
        bets = np.minimum(stakes, 0.5 / np.maximum(expected, 1e-12)) * (x - expected)
        wealth = np.cumsum(np.log1p(bets), axis=1)
        excluded = (wealth.max(axis=1) if running else wealth[:, -1]) >= ruined
        first_kept = int(np.argmin(excluded))  # the last mean, 1 or the last `high`, is always kept
        low = low if first_kept == 0 else float(means[first_kept - 1])
        high = float(means[first_kept])
    return low
