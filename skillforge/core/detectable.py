"""The lift that the gate could have detected: exact for pass or fail, and quick to ask for.

Ties do not move the e-process, so only the discordant pairs count: with a lift Δ and a discordance
q each of them is won with probability (1 + θ)/2, θ = Δ/q. How likely the process has crossed 1/α
after so many of them follows by adding up paths, step by step; the number of discordant pairs among
n is binomial. The minimum detectable effect (MDE) is the lift at which both together give the power
that is asked for.

It is above the MDE of a test of fixed size (`skillforge.core.power.mde`), which looks once: about
1.2 times at 100 pairs, more with fewer. It does not fall below q/10, however many pairs there are:
a mixture whose smallest stake is .2 loses money on a smaller share of wins.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import SupportsIndex

import numpy as np

from skillforge.core._checks import FloatArray, check_count, check_share
from skillforge.core.eprocess import DEFAULT_LAMBDAS
from skillforge.errors import StatisticsError

_BIASES: FloatArray = np.linspace(0.0, 1.0, 65) ** 2
"""The θ between which is interpolated, closer together where they are small."""
_MOST = 2048
"""Discordant pairs beyond which the law is not followed; the MDE hardly falls from there on."""


def sequential_mde(
    n: SupportsIndex,
    discordance: float,
    *,
    alpha: float = 0.05,
    power: float = 0.80,
    lambdas: tuple[float, ...] = DEFAULT_LAMBDAS,
) -> float | None:
    """Return the lift that the mixture e-process finds within n pairs, looking after each.

    Where not even wins alone would be found at this discordance, it is the lift at which every
    discordant pair is won and there are enough of them.

    Args:
        n: Most pairs, at least 1.
        discordance: Share q of pairs that are gains or regressions, in (0, 1]. For graded scores
            the mean of d², which is what the growth of the process depends on.
        alpha: Error probability of the gate, in (0, 1).
        power: Probability of having crossed 1/alpha within n pairs, in (0, 1).
        lambdas: The stakes of the mixture.

    Returns:
        Lift in units of d, in (0, 1], to about a hundredth of itself; None where not even n wins
        would be enough.

    Raises:
        StatisticsError: An argument is outside its range.

    Complexity: O(1) after the first call of its size, which takes about 30 ms for 500 discordant
        pairs.

    >>> round(sequential_mde(100, 0.2), 2), round(sequential_mde(20, 0.1), 2), sequential_mde(6, 1)
    (0.14, 0.42, None)
    """
    pairs = check_count("n", n, at_least=1)
    check_share("alpha", alpha)
    check_share("power", power)
    if not 0.0 < discordance <= 1.0:
        raise StatisticsError(
            f"discordance: got {discordance!r}, expected a share above 0 and at most 1; "
            "with no discordant pair seen use (0 + 1) / (n + 2)"
        )
    expected = pairs * discordance
    wanted = min(_MOST, pairs, math.ceil(expected + 6 * math.sqrt(expected)))
    law = crossing_law(1 / alpha, lambdas, max(64, 1 << (wanted - 1).bit_length()))
    found = law @ _binomial(pairs, discordance, law.shape[1])
    if found[-1] >= power:
        return float(np.interp(power, found, _BIASES)) * discordance
    low, high = discordance, 1.0
    if law[-1] @ _binomial(pairs, high, law.shape[1]) < power:
        return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        enough = law[-1] @ _binomial(pairs, middle, law.shape[1]) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _binomial(n: int, share: float, size: int) -> FloatArray:
    """Return the probabilities of 0 … size - 1 among n; the last one is that of all the rest."""
    odds = math.log(min(share, 1 - 1e-15)) - math.log(max(1 - share, 1e-15))
    counts = np.arange(1, min(n, size - 1) + 1)
    ratios = np.log((n + 1 - counts) / counts) + odds
    logs = np.concatenate(([0.0], np.cumsum(ratios))) + n * math.log(max(1 - share, 1e-15))
    chances = np.zeros(size)
    chances[: logs.size] = np.exp(logs)
    chances[-1] += max(0.0, 1.0 - chances.sum())
    return chances


@lru_cache(maxsize=16)
def crossing_law(threshold: float, lambdas: tuple[float, ...], steps: int) -> FloatArray:
    """Return how likely the e-process has reached a threshold after so many discordant pairs.

    Args:
        threshold: The e-value to reach, above 1.
        lambdas: The stakes of the mixture.
        steps: Discordant pairs to follow, at least 1.

    Returns:
        Probabilities, shape (biases, steps + 1): one row for each θ of a grid from 0 to 1.

    Complexity: O(steps^1.5).
    """
    win = (1.0 + _BIASES[:, None]) / 2.0
    crossed = np.zeros((_BIASES.size, steps + 1))
    needed = _fewest_wins(threshold, lambdas, steps)
    # Column w holds the paths with w wins that have not crossed; those that fall far behind, by
    # 6 standard deviations of fair bets, hardly ever will.
    alive = np.zeros((_BIASES.size, steps + 2))
    alive[:, 0] = 1.0
    for step in range(1, steps + 1):
        low = max(0, int(step / 2 - 3 * math.sqrt(step)))
        high = min(step, needed[step - 1])
        part = alive[:, low : high + 1]
        moved = part * win
        part -= moved
        part[:, 1:] += moved[:, :-1]
        crossed[:, step] = crossed[:, step - 1]
        if needed[step - 1] <= step:
            crossed[:, step] += part[:, -1]
            part[:, -1] = 0.0
    return crossed


def _fewest_wins(threshold: float, lambdas: tuple[float, ...], steps: int) -> list[int]:
    """Return for each number of discordant pairs from 1 on how many wins reach the threshold."""
    needed, wins = [], 0
    for step in range(1, steps + 1):
        while wins <= step and _value(lambdas, wins, step - wins) < threshold:
            wins += 1  # at most once: one more win with as many losses crosses again
        needed.append(wins)
    return needed


def _value(lambdas: tuple[float, ...], wins: int, losses: int) -> float:
    return sum(math.exp(wins * math.log1p(x) + losses * math.log1p(-x)) for x in lambdas) / len(
        lambdas
    )
