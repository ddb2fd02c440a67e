"""Betting without replacement: when the tasks at hand are all there is, and answers never vary.

A pool of N tasks is drawn in random order, each once. If every task has one fixed difference, the
mean over the pool is the estimand, and what has been drawn says something about what is left: under
the null "the pool's bets sum to at most 0" the next bet has a conditional mean of at most
`m_i = -(x_1 + … + x_{i-1}) / (N - i + 1)`. Betting on `x_i - m_i` is therefore fair, and becomes
more daring as the pool runs out.

**For deterministic workers only.** A stochastic worker draws one of many possible outcomes for each
task, and the pool's mean is then the mean of these draws, not of the worker's chances. It is above
0 for nearly half of all edits that do nothing, and betting without replacement duly certifies it:
an A/A run is let through in 37 to 49 % of the cases if the pool is drawn to its end (pools of 20 to
400 tasks; 9 to 32 % by the bets alone, without `refuted`). `GateRules` refuses the combination.

Source: Waudby-Smith and Ramdas (2020, 2024), arXiv:2010.09686, section 5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skillforge.core._checks import FloatArray, as_floats
from skillforge.core.eprocess import BET_RANGE
from skillforge.errors import StatisticsError


def pool_bets(bets: ArrayLike, left: ArrayLike, *, low: float = -1.0) -> FloatArray:
    """Turn bets that are fair with replacement into bets that are fair without.

    Estimand: the mean bet over the pool; H0: it is at most 0. Assumes one fixed bet per task, drawn
    in random order, and tasks that are void for reasons unrelated to their bet: these leave the
    pool without a bet.

    Args:
        bets: What each task drawn would bet with replacement (`lift_bet` and its like), in order,
            shape (n,) or (paths, n); n ≥ 1, and one bet is enough.
        left: Tasks of the pool not drawn before each bet, its own included, shape (n,); for a pool
            of N without voids `N - np.arange(n)`.
        low: The least that a bet can be, in [-1, 0]; the most is `low + 2`.

    Returns:
        Bets in [-1, 2] for `e_process`, in the shape of `bets`.

    Raises:
        StatisticsError: There is no bet, one is outside its range, or the pool has fewer tasks than
            were drawn from it.

    >>> pool_bets([1.0, 1.0, -1.0], left=[3, 2, 1]).tolist()
    [1.0, 1.5, 0.0]
    """
    x, rest = as_floats(bets, what="bets"), as_floats(left, what="left")
    if x.ndim == 0 or x.shape[-1] == 0 or rest.shape != x.shape[-1:]:
        raise StatisticsError(
            f"left: got shape {rest.shape} for bets of shape {x.shape}, expected at least one bet "
            "and one count for each; count what was left of the pool before each draw"
        )
    if rest.min() < 1 or np.any(np.diff(rest) >= 0):
        raise StatisticsError(
            f"left: got {rest[:1].tolist()} … {rest[-1:].tolist()}, expected counts that fall and "
            "end at 1 or more; a pool cannot give more tasks than it holds"
        )
    outside = (x < low) | (x > low + 2.0 + 1e-12)
    if outside.any():
        raise StatisticsError(
            f"bets: got {x[outside][0]:g} at position {int(np.argwhere(outside)[0][-1])}, expected "
            f"numbers within [{low:g}, {low + 2.0:g}]; scores are fractions in [0, 1]"
        )
    before = np.cumsum(x, axis=-1) - x
    mean = np.clip(-before / rest, low, low + 2.0)
    fair = (x - mean) / np.maximum(1.0, 1.0 + mean)
    return np.clip(fair, *BET_RANGE)


def refuted(bets: ArrayLike, left: ArrayLike, *, low: float = -1.0) -> NDArray[np.bool_]:
    """Tell after which draws the null is impossible, whatever the tasks that are left may bet.

    The process counts as infinite from there on: a pool drawn to its end leaves nothing uncertain.

    Args:
        bets: As in `pool_bets`, 0 for a void task.
        left: As in `pool_bets`.
        low: The least that a bet can be.

    Returns:
        One bool for each draw; once True it stays so.

    >>> refuted([1.0, 1.0, -1.0], left=[3, 2, 1]).tolist()
    [False, True, True]
    """
    worst = low * (np.asarray(left) - 1.0)
    return np.asarray(np.cumsum(bets, axis=-1) + worst > 1e-9)
