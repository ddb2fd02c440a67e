"""The numbers behind a decision: counts, interval, e-values, and the effect that could be found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skillforge.core._checks import FloatArray
from skillforge.core.intervals import betting_interval
from skillforge.core.power import mde
from skillforge.core.rollout import Pair, PairedTable, Void, tabulate
from skillforge.errors import StatisticsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The numbers behind a decision."""

    table: PairedTable
    """Outcomes of the pairs that were bet on."""
    lift: float | None
    """Mean paired difference in [-1, 1]; None without pairs."""
    lift_interval: tuple[float, float] | None
    """95 % betting confidence sequence of the lift, valid at any stopping time."""
    e_value: float
    """Current value of the claim's process."""
    e_harm: float
    e_futility: float
    mde: float | None
    """Lift that this many pairs find with power .8 at α; None with too few pairs to find any."""

    def to_json(self) -> dict[str, Any]:
        """Return the numbers under the names that the commands print."""
        interval = None if self.lift_interval is None else list(self.lift_interval)
        return self.table.to_json() | {
            "lift": self.lift,
            "lift_interval": interval,
            "e_value": self.e_value,
            "e_harm": self.e_harm,
            "e_futility": self.e_futility,
            "mde": self.mde,
        }


def weigh(
    pairs: Sequence[Pair],
    stakes: FloatArray,
    *,
    voids: Iterable[Void],
    e_values: tuple[float, float, float],
    alpha: float,
) -> Evidence:
    """Put the numbers of some pairs together.

    Args:
        pairs: What was bet on, in order, shape (n,), n ≥ 0.
        stakes: What was bet: the difference of each pair, or the mean of each family, shape
            (m,), 0 ≤ m ≤ n. Lift, interval and MDE are of these.
        voids: What infrastructure failures took away.
        e_values: Current values of the processes for claim, harm and futility.
        alpha: Error rate at which the MDE is computed.
    """
    dropped = {"base": 0, "augmented": 0}
    for void in voids:
        dropped[void.arm] = dropped.get(void.arm, 0) + 1
    claim, harm, futility = e_values
    return Evidence(
        table=tabulate(pairs, dropped),
        lift=float(stakes.mean()) if len(stakes) else None,
        lift_interval=betting_interval(stakes, alpha=0.05) if len(stakes) >= 2 else None,
        e_value=claim,
        e_harm=harm,
        e_futility=futility,
        mde=_detectable(stakes, alpha),
    )


def constant_score(pairs: Sequence[Pair]) -> float | None:
    """Return the score that all pairs have in both arms, if there is one."""
    scores = {score for pair in pairs for score in (pair.base, pair.augmented)}
    return scores.pop() if len(scores) == 1 else None


def _detectable(differences: FloatArray, alpha: float) -> float | None:
    """Return the MDE, or None where the pairs are too few to detect any effect."""
    if len(differences) <= 2:
        return None
    discordance = (np.count_nonzero(differences) + 1) / (len(differences) + 2)
    try:
        return mde(len(differences), discordance, alpha=alpha)
    except StatisticsError:
        return None
