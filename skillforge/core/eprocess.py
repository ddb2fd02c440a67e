"""Evidence that may be looked at after every pair: mixture betting e-processes.

A gambler starts with 1 and stakes the share λ of the wealth on each fresh task, at odds that are
fair or worse if the null hypothesis is true. With `x_i` the bet on the i-th task,

    E_n = mean over λ of  Π_{i ≤ n} (1 + λ x_i),         λ ∈ {0.2, 0.4, 0.6, 0.8}.

If `E[x_i | past] ≤ 0` and `x_i ≥ -1`, every factor is non-negative with conditional mean at most
one, so each product is a non-negative supermartingale that starts at 1, and so is their mean.
Ville's inequality then gives `P(E_n ≥ 1/α for any n) ≤ α`: the gate may stop at any time, for any
reason, and its error rate stays what was promised. The price against a test of fixed size is some
more pairs (see `skillforge.core.power`).

Which hypothesis is tested depends on the bet alone: `lift_bet`, `harm_bet`, `non_inferiority_bet`
and `futility_bet`. The guarantee needs tasks taken in an order fixed beforehand, scored once each,
and not chosen by their outcome; a revised candidate starts again at 1.

Sources: Waudby-Smith and Ramdas (2020, 2024), "Estimating means of bounded random variables by
betting", arXiv:2010.09686, for betting on bounded means; Ville (1939) for the inequality. PACE
(arXiv:2606.08106) is the case of a single fixed λ. Nothing here needs d to be binary: graded
scores and averages over replicates are bounded differences as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from skillforge.core._checks import FloatArray, as_floats, check_share
from skillforge.errors import StatisticsError

DEFAULT_LAMBDAS: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8)
"""The stakes that are mixed: small ones for small effects, large ones for large effects."""

BET_RANGE: tuple[float, float] = (-1.0, 2.0)
"""The range of a bet: below -1 wealth could turn negative; 2 is a difference plus a full margin."""

_LOG_CAP = 709.0
E_CAP = math.exp(_LOG_CAP)
"""Values stay below e^709, about 8e307, so that they remain finite; a lower E is still valid."""

Difference = TypeVar("Difference", float, FloatArray)
"""One paired difference, or an array of them."""


def lift_bet(d: Difference) -> Difference:
    """Bet that the candidate helps; H0 "no lift": E[d | past] ≤ 0.

    Args:
        d: Paired difference augmented - base of one task in [-1, 1], or an array of them.

    Returns:
        The bet d itself, in [-1, 1]; a tie bets nothing.

    Raises:
        StatisticsError: A difference is NaN or outside [-1, 1].

    >>> lift_bet(1.0)
    1.0
    """
    _check_range(d)
    return d


def harm_bet(d: Difference) -> Difference:
    """Bet that the candidate harms; H0 "no harm": E[d | past] ≥ 0.

    Args:
        d: Paired difference augmented - base of one task in [-1, 1], or an array of them.

    Returns:
        The bet -d, in [-1, 1]; a tie bets nothing.

    Raises:
        StatisticsError: A difference is NaN or outside [-1, 1].

    >>> harm_bet(-1.0)
    1.0
    """
    _check_range(d)
    return -d


def non_inferiority_bet(d: Difference, margin: float) -> Difference:
    """Bet that nothing beyond a margin is lost; H0 "inferior": E[d | past] ≤ -margin.

    Here a tie wins `margin`: a removal that changes no outcome becomes acceptable with enough
    pairs.

    Args:
        d: Paired difference augmented - base of one task in [-1, 1], or an array of them.
        margin: Loss that is tolerated, strictly between 0 and 1 (0.05 is 5 points).

    Returns:
        The bet d + margin, in [-1 + margin, 1 + margin].

    Raises:
        StatisticsError: A difference or the margin is outside its range.

    >>> non_inferiority_bet(0.0, margin=0.05)
    0.05
    """
    _check_range(d)
    check_share("margin", margin)
    return d + margin


def futility_bet(d: Difference, min_effect: float) -> Difference:
    """Bet that the lift is too small to matter; H0 "worth it": E[d | past] ≥ min_effect.

    Args:
        d: Paired difference augmented - base of one task in [-1, 1], or an array of them.
        min_effect: Smallest lift worth having, strictly between 0 and 1 (0.10 is 10 points).

    Returns:
        The bet min_effect - d, in [min_effect - 1, min_effect + 1].

    Raises:
        StatisticsError: A difference or the effect is outside its range.

    >>> futility_bet(0.0, min_effect=0.10)
    0.1
    """
    _check_range(d)
    check_share("min_effect", min_effect)
    return min_effect - d


@dataclass(frozen=True, slots=True, kw_only=True)
class EProcess:
    """The state of a mixture e-process after some bets; immutable, so every state can be stored.

    >>> process = EProcess.start()
    >>> for d in (1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0):
    ...     process = process.bet(lift_bet(d))
    >>> round(process.value, 2)
    25.55
    """

    lambdas: tuple[float, ...]
    """Stakes, each strictly between 0 and 1."""
    log_wealths: tuple[float, ...]
    """Natural logarithm of the wealth won with each stake, in the order of `lambdas`."""

    def __post_init__(self) -> None:
        _check_lambdas(self.lambdas)
        if len(self.log_wealths) != len(self.lambdas):
            raise StatisticsError(
                f"log_wealths: got {len(self.log_wealths)} values for {len(self.lambdas)} stakes, "
                "expected one per stake; restore both from the same record"
            )
        if not all(math.isfinite(wealth) for wealth in self.log_wealths):
            raise StatisticsError(
                f"log_wealths: got {self.log_wealths}, expected finite numbers; "
                "restore the process from its last stored state, or start it again"
            )

    @classmethod
    def start(cls, lambdas: tuple[float, ...] = DEFAULT_LAMBDAS) -> Self:
        """Return the process before its first bet, with a value of exactly 1.

        Raises:
            StatisticsError: There is no stake, or one is not strictly between 0 and 1.
        """
        return cls(lambdas=tuple(lambdas), log_wealths=(0.0,) * len(lambdas))

    def bet(self, x: float) -> Self:
        """Return the process after one more bet, in time proportional to the number of stakes.

        Args:
            x: The bet of one fresh task, in [-1, 2]; under the null its conditional mean is ≤ 0.

        Raises:
            StatisticsError: The bet is NaN or outside [-1, 2].
        """
        _check_range(x, *BET_RANGE, what="bet")
        pairs = zip(self.lambdas, self.log_wealths, strict=True)
        grown = tuple(wealth + math.log1p(stake * x) for stake, wealth in pairs)
        return type(self)(lambdas=self.lambdas, log_wealths=grown)

    @property
    def log_value(self) -> float:
        """Natural logarithm of `value`, without its cap."""
        top = max(self.log_wealths)
        total = math.fsum(math.exp(wealth - top) for wealth in self.log_wealths)
        return top + math.log(total / len(self.log_wealths))

    @property
    def value(self) -> float:
        """The e-value: mean wealth over the stakes, capped at e^709 so that it stays finite."""
        return math.exp(min(self.log_value, _LOG_CAP))


def e_process(bets: ArrayLike, lambdas: tuple[float, ...] = DEFAULT_LAMBDAS) -> FloatArray:
    """Compute the running values of the mixture e-process.

    Args:
        bets: Bets in [-1, 2], one per task in the order fixed beforehand, shape (n,); or
            (paths, n) for many independent processes. Paired differences are lift bets.
        lambdas: Stakes, each strictly between 0 and 1.

    Returns:
        E_1 … E_n along the last axis, in the shape of `bets`; each capped at e^709.

    Raises:
        StatisticsError: A bet is outside its range, or there is none (before the first bet the
            value is 1: use `EProcess.start`). One bet is enough.

    >>> e_process([1.0, 1.0, 0.0, -1.0]).round(3).tolist()
    [1.5, 2.3, 2.3, 1.0]
    """
    _check_lambdas(lambdas)
    array = as_floats(bets, what="bets")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise StatisticsError(
            f"bets: got an array of shape {array.shape}, expected at least one bet; "
            "before the first pair use EProcess.start(), whose value is 1"
        )
    _check_range(array, *BET_RANGE, what="bets")
    log_wealths = [np.cumsum(np.log1p(stake * array), axis=-1) for stake in lambdas]
    top = np.maximum.reduce(log_wealths)
    total = np.zeros_like(top)
    for log_wealth in log_wealths:
        total += np.exp(log_wealth - top)
    capped = np.minimum(top + np.log(total / len(lambdas)), _LOG_CAP)
    return np.asarray(np.exp(capped), dtype=np.float64)


def _check_range(
    x: float | FloatArray, low: float = -1.0, high: float = 1.0, *, what: str = "difference"
) -> None:
    if isinstance(x, float):  # numpy on scalars would cost ten times the bet itself
        inside = low <= x <= high
    else:
        inside = bool(np.all((x >= np.float64(low)) & (x <= np.float64(high))))
    if not inside:
        shown = x if np.ndim(x) == 0 else "an array with values outside"
        raise StatisticsError(
            f"{what}: got {shown}, expected numbers within [{low:g}, {high:g}]; "
            "scores are fractions in [0, 1], and a pair without a score is left out"
        )


def _check_lambdas(lambdas: tuple[float, ...]) -> None:
    if not lambdas or not all(0.0 < stake < 1.0 for stake in lambdas):
        raise StatisticsError(
            f"lambdas: got {lambdas}, expected at least one stake, each strictly between 0 and 1; "
            f"the default is {DEFAULT_LAMBDAS}"
        )
