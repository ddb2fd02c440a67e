"""Futility: evidence that a lift is too small to matter, with stakes that follow the noise.

Against "the lift is at least m" each task bets m − d. A fixed mixture of stakes fits the claim,
whose effect is unknown; here the alternative is known (no lift), so the stake that makes wealth
grow fastest is known too, up to the noise E[d²]: about m / E[d²]. The noise is estimated from the
tasks before:

    λ_t = min(0.9, m / (q̂_{t−1} + m²)),     q̂_{t−1} = (20 · 0.25 + Σ_{i<t} d_i²) / (20 + t − 1).

As λ_t depends on earlier tasks only, `E[1 + λ_t (m − d_t) | past] ≤ 1` wherever
`E[d_t | past] ≥ m`, and `1 + λ_t (m − d_t) ≥ 1 − 0.9 (1 − m) > 0`: the wealth is a non-negative
supermartingale from 1, and an edit worth m is ever called futile with probability β at most.

Source: Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting",
JRSS B 86(1), arXiv:2010.09686: predictable plug-in stakes and their approximation to the
growth-optimal one (aGRAPA), here with the mean under the alternative, 0, in place of an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from skillforge.core._checks import FloatArray, as_floats, check_share
from skillforge.core.eprocess import futility_bet
from skillforge.errors import StatisticsError

MAX_STAKE = 0.9
"""Share of the wealth that is staked at most: one lost bet leaves a tenth."""

PRIOR_TASKS, PRIOR_NOISE = 20, 0.25
"""Tasks that the first guess of E[d²] counts for, and that guess. Any values are valid."""

_LOG_CAP = 709.0
"""Values stay below e^709 so that they remain finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FutilityProcess:
    """The state of the futility e-process after some tasks; a fold over them in order.

    >>> process = FutilityProcess(min_effect=0.10)
    >>> for _ in range(36):
    ...     process = process.bet(0.0)
    >>> round(process.value, 1)
    10.8
    """

    min_effect: float
    """Smallest lift worth having, strictly between 0 and 1."""
    log_wealth: float = 0.0
    tasks: int = 0
    squares: float = 0.0
    """Sum of d² over the tasks so far."""

    def bet(self, d: float) -> Self:
        """Return the process after one more task.

        Args:
            d: Paired difference augmented − base, in [-1, 1].

        Raises:
            StatisticsError: The difference or the effect is outside its range.
        """
        won = futility_bet(d, self.min_effect)
        noise = (PRIOR_TASKS * PRIOR_NOISE + self.squares) / (PRIOR_TASKS + self.tasks)
        stake = min(MAX_STAKE, self.min_effect / (noise + self.min_effect**2))
        return replace(
            self,
            log_wealth=self.log_wealth + math.log1p(stake * won),
            tasks=self.tasks + 1,
            squares=self.squares + d * d,
        )

    @property
    def value(self) -> float:
        """The e-value against "the lift is at least min_effect", capped at e^709."""
        return math.exp(min(self.log_wealth, _LOG_CAP))


def futility_process(d: ArrayLike, min_effect: float) -> FloatArray:
    """Compute the running values of the futility e-process.

    Args:
        d: Paired differences in [-1, 1] in betting order, shape (n,), or (paths, n) for many
            independent processes.
        min_effect: Smallest lift worth having, strictly between 0 and 1.

    Returns:
        The values after 1 … n tasks, in the shape of `d`; each capped at e^709.

    Raises:
        StatisticsError: A difference or the effect is outside its range, or there is no task.

    >>> futility_process([0.0, 1.0], 0.10).round(3).tolist()
    [1.038, 0.662]
    """
    check_share("min_effect", min_effect)
    array = as_floats(d, what="differences")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise StatisticsError(
            f"differences: got an array of shape {array.shape}, expected at least one task; "
            "before the first use FutilityProcess, whose value is 1"
        )
    squares = np.square(array)
    before = np.cumsum(squares, axis=-1) - squares
    tasks = np.arange(array.shape[-1])
    noise = (PRIOR_TASKS * PRIOR_NOISE + before) / (PRIOR_TASKS + tasks)
    stakes = np.minimum(MAX_STAKE, min_effect / (noise + min_effect**2))
    log_wealth = np.cumsum(np.log1p(stakes * futility_bet(array, min_effect)), axis=-1)
    return np.asarray(np.exp(np.minimum(log_wealth, _LOG_CAP)), dtype=np.float64)
