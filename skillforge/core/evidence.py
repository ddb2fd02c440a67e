"""The numbers behind a decision: counts, interval, e-values, and the effect that could be found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    e_charged: float
    """The claim's e-value with a score of 0 where infrastructure failed the augmented arm alone;
    the one that must reach 1/α, and that false-discovery control is about."""
    all_pass: float
    """Share of the pairs with full marks in both arms, in [0, 1]; 0 without pairs."""
    all_fail: float
    """Share of the pairs with a score of 0 in both arms."""
    truncated: Mapping[str, int] = field(hash=False)
    """Tasks with an answer cut at the token limit, by arm."""
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
            "e_charged": self.e_charged,
            "mde": self.mde,
            "all_pass": self.all_pass,
            "all_fail": self.all_fail,
            "truncated": dict(self.truncated),
        }


def weigh(
    pairs: Sequence[Pair],
    stakes: FloatArray,
    *,
    voids: Iterable[Void],
    e_values: Sequence[float],
    alpha: float,
) -> Evidence:
    """Put the numbers of some pairs together.

    Args:
        pairs: What was bet on, in order, shape (n,), n ≥ 0.
        stakes: What was bet: the difference of each pair, or the mean of each family, shape
            (m,), 0 ≤ m ≤ n. Lift, interval and MDE are of these.
        voids: What infrastructure failures took away.
        e_values: Current values of the processes for claim, harm, futility and charged claim, in
            this order.
        alpha: Error rate at which the MDE is computed.
    """
    dropped = {"base": 0, "augmented": 0}
    for void in voids:
        for arm in void.arms:
            dropped[arm] = dropped.get(arm, 0) + 1
    claim, harm, futility, charged = e_values
    return Evidence(
        table=tabulate(pairs, dropped),
        lift=float(stakes.mean()) if stakes.size else None,
        lift_interval=betting_interval(stakes, alpha=0.05) if stakes.size >= 2 else None,
        e_value=claim,
        e_harm=harm,
        e_futility=futility,
        e_charged=charged,
        all_pass=_share(pairs, 1.0),
        all_fail=_share(pairs, 0.0),
        truncated={
            arm: sum(1 for pair in pairs if pair.truncated[i] > 0)
            for i, arm in enumerate(("base", "augmented"))
        },
        mde=_detectable(stakes, alpha),
    )


def _share(pairs: Sequence[Pair], score: float) -> float:
    """Return the share of the pairs that have this score in both arms."""
    count = sum(1 for pair in pairs if pair.base == score == pair.augmented)
    return count / len(pairs) if pairs else 0.0


def _detectable(differences: FloatArray, alpha: float) -> float | None:
    """Return the MDE, or None where the pairs are too few to detect any effect."""
    if len(differences) <= 2:
        return None
    discordance = (np.count_nonzero(differences) + 1) / (len(differences) + 2)
    try:
        return mde(len(differences), discordance, alpha=alpha)
    except StatisticsError:
        return None
