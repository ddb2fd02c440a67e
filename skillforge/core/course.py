"""The three e-processes of a contrast along its registered order: for the claim, harm, futility.

A task (or, with inference over families, a family) is one bet on the paired difference. A void is
no bet. But if the augmented arm fails more often for infrastructure reasons than the base arm, its
surplus is held against it: beside the claim's process runs a *charged* one in which these tasks
count as lost, and that one must reach 1/α. A skill that crashes the tasks it would lose gains
nothing by it, and an even rate of failures costs a few tasks at most. Exact where the base arm
never fails; where the host takes tasks from both arms there is some room to hide (worst case
simulated at α = .05: .057 if it takes one task in twenty, .087 if one in ten).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skillforge.core._checks import FloatArray
from skillforge.core.eprocess import (
    E_CAP,
    e_process,
    futility_bet,
    harm_bet,
    lift_bet,
    non_inferiority_bet,
)
from skillforge.core.finite_pool import pool_bets, refuted
from skillforge.core.futility import futility_process
from skillforge.core.rollout import Pair, Void, refuse_repeats
from skillforge.core.rules import Basis, GateRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What was bet, and where the processes stood after each bet; all arrays of shape (m,)."""

    used: NDArray[np.int64]
    """Tasks of the order used up by the end of each task or family."""
    stakes: FloatArray
    """Mean difference of each in [-1, 1], NaN where all of it is void."""
    claim: FloatArray
    harm: FloatArray
    futility: FloatArray
    charged: FloatArray
    """The claim's process with the augmented arm's surplus of failures as losses."""


def run_course(
    outcomes: Sequence[Pair | Void],
    rules: GateRules,
    basis: Basis,
    *,
    blocks: Sequence[int] = (),
    pool: int = 0,
) -> Course:
    """Compute the processes over the completed prefix of an order.

    Args:
        outcomes: One entry per task of the order, shape (n,), n ≥ 0.
        rules: The registered rules.
        basis: The registered claim.
        blocks: Sizes of the families along the order, for inference over families: a family bets
            once, when all of it is done. Empty where each task bets for itself.
        pool: Size of the finite pool that the order was drawn from, where the rules bet without
            replacement.

    Returns:
        The course over all complete tasks or families, m ≤ n; empty without any.

    Raises:
        StatisticsError: A task stands twice among the outcomes, or the pool is smaller.

    >>> win = Pair(task="a", family="f", base=0.0, augmented=1.0)
    >>> crash = [Void(task=name, arm="augmented") for name in "bc"]
    >>> course = run_course([win, *crash], GateRules(), Basis.LIFT)
    >>> course.claim.tolist(), course.charged.round(2).tolist()
    ([1.5, 1.5, 1.5], [1.5, 0.7, 0.4])
    """
    refuse_repeats([outcome.task for outcome in outcomes])
    sizes = np.array(blocks, dtype=np.int64) if blocks else np.ones(len(outcomes), dtype=np.int64)
    used = np.cumsum(sizes)
    used = used[used <= len(outcomes)]
    if not used.size:
        none = np.zeros(0)
        return Course(used=used, stakes=none, claim=none, harm=none, futility=none, charged=none)
    starts = used - sizes[: used.size]
    done = outcomes[: used[-1]]
    d = np.array([o.difference if isinstance(o, Pair) else np.nan for o in done])
    void = np.isnan(d)
    pairs = np.add.reduceat((~void).astype(np.float64), starts)
    stakes = np.add.reduceat(np.where(void, 0.0, d), starts) / np.maximum(pairs, 1.0)
    surplus = np.zeros(used.size)
    if void.any():
        failures = np.cumsum([_surplus(outcome) for outcome in done])[used - 1]
        surplus = np.maximum(failures, 0) * (used.size / used[-1])  # in bets: one for a family
    return _course(used, stakes, pairs == 0, surplus, rules, basis, pool - starts)


def _course(
    used: NDArray[np.int64],
    stakes: FloatArray,
    void: NDArray[np.bool_],
    surplus: FloatArray,
    rules: GateRules,
    basis: Basis,
    left: NDArray[np.int64],
) -> Course:
    """Bet the stakes; what is void bets 0, which moves no process."""

    def values(bets: FloatArray, low: float, losses: FloatArray) -> FloatArray:
        x = np.where(void, 0.0, bets)
        if not rules.finite_pool:
            return e_process(x, rules.lambdas, losses=losses)
        fair = np.where(void, 0.0, pool_bets(x, left, low=low))
        known = refuted(x, left, low=low, losses=losses)
        return np.where(known, E_CAP, e_process(fair, rules.lambdas, losses=losses))

    claim, low = lift_bet(stakes), -1.0
    if basis is Basis.NON_INFERIORITY:
        claim, low = non_inferiority_bet(stakes, rules.margin), rules.margin - 1.0
    no = np.zeros(used.size)
    plain = values(claim, low, no)
    if rules.finite_pool:
        futility = values(futility_bet(stakes, rules.min_effect), rules.min_effect - 1.0, no)
    else:
        futility = _futility(stakes, void, rules.min_effect)
    return Course(
        used=used,
        stakes=np.where(void, np.nan, stakes),
        claim=plain,
        harm=values(harm_bet(stakes), -1.0, no),
        futility=futility,
        charged=values(claim, low, surplus) if surplus.any() else plain,
    )


def _futility(stakes: FloatArray, void: NDArray[np.bool_], min_effect: float) -> FloatArray:
    """Return the futility process, which passes over what is void."""
    if void.all():
        return np.ones(void.size)
    values = np.concatenate([[1.0], futility_process(stakes[~void], min_effect)])
    return values[np.cumsum(~void)]


def _surplus(outcome: Pair | Void) -> int:
    """Return 1 for a failure of the augmented arm alone, -1 for one of the base arm alone."""
    if isinstance(outcome, Pair) or len(outcome.arms) > 1:
        return 0
    return -1 if outcome.arms[0] == "base" else 1
