"""The three e-processes of a contrast along its registered order: for the claim, harm, futility.

A task (or, with inference over families, a family) is one bet on the paired difference d; a void
is no bet. Beside the claim's process runs a *charged* one, which must reach 1/α: in it, a task on
which the augmented arm alone failed for infrastructure reasons bets the least that d can have been,
the failed attempt at a score of 0. So a skill gains nothing by crashing the tasks it would lose.

The error is at most α, whichever tasks and outcomes the failures of the augmented arm pick out.
Whether a task is bet on depends on the base arm alone. Where that was scored, the charged bet is at
most d, and E[d | past] ≤ 0 under the null; where it was not, nothing is bet. A bet at most as large
never makes more wealth, so the charged process stays below a supermartingale that starts at 1, and
Ville's inequality holds. The base arm never sees the skill, so no skill can make it fail: the claim
is about the tasks on which the base can be measured, the same ones for every skill. Should the host
take from the base arm just what a skill would lose, that mean is not the one over all tasks;
`core.validity` withholds the verdict where the arms differ.

Where the host fails both arms evenly there is a price: the lift that is bet on falls by the rate of
failures times the base's score. Simulated power with up to 200 tasks at α = .05, discordance .3, a
base that passes half of them (benchmarks/validity/attacks.py has the attacks):

    failures of each arm    0      .01    .05    .10
    lift of 15 points      .90    .90    .69    .33
    lift of 25 points     1.00   1.00   1.00    .98
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

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
    """The claim's process with failures of the augmented arm alone at the least they can be."""


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
    measured = [o.difference if isinstance(o, Pair) else np.nan for o in done]
    stakes = _stakes(measured, starts)
    charged = _stakes(list(map(_least, done)), starts)
    return _course(used, stakes, charged, rules, basis, pool - starts)


def _least(outcome: Pair | Void) -> float:
    """Return the least that a difference can have been; NaN where the base arm has no score."""
    if isinstance(outcome, Pair):
        return outcome.difference
    return np.nan if "base" in outcome.arms else outcome.least


def _stakes(differences: Sequence[float], starts: NDArray[np.int64]) -> FloatArray:
    """Return the mean difference of each task or family, NaN where all of it is void."""
    d = np.array(differences)
    void = np.isnan(d)
    known = np.add.reduceat((~void).astype(np.float64), starts)
    total = np.add.reduceat(np.where(void, 0.0, d), starts)
    return np.where(known > 0, total / np.maximum(known, 1.0), np.nan)


def _course(
    used: NDArray[np.int64],
    stakes: FloatArray,
    charged: FloatArray,
    rules: GateRules,
    basis: Basis,
    left: NDArray[np.int64],
) -> Course:
    """Bet the stakes; what is void bets 0, which moves no process."""

    def values(
        bet: Callable[[FloatArray], FloatArray], stakes: FloatArray, low: float
    ) -> FloatArray:
        void = np.isnan(stakes)
        x = np.where(void, 0.0, bet(np.where(void, 0.0, stakes)))
        if not rules.finite_pool:
            return e_process(x, rules.lambdas)
        fair = np.where(void, 0.0, pool_bets(x, left, low=low))
        return np.where(refuted(x, left, low=low), E_CAP, e_process(fair, rules.lambdas))

    claim, low = lift_bet, -1.0
    if basis is Basis.NON_INFERIORITY:
        claim, low = partial(non_inferiority_bet, margin=rules.margin), rules.margin - 1.0
    if rules.finite_pool:
        too_little = partial(futility_bet, min_effect=rules.min_effect)
        futility = values(too_little, stakes, rules.min_effect - 1.0)
    else:
        futility = _futility(stakes, rules.min_effect)
    plain = values(claim, stakes, low)
    same = np.array_equal(stakes, charged, equal_nan=True)
    return Course(
        used=used,
        stakes=stakes,
        claim=plain,
        harm=values(harm_bet, stakes, -1.0),
        futility=futility,
        charged=plain if same else values(claim, charged, low),
    )


def _futility(stakes: FloatArray, min_effect: float) -> FloatArray:
    """Return the futility process, which passes over what is void."""
    void: NDArray[np.bool_] = np.isnan(stakes)
    if void.all():
        return np.ones(void.size)
    values = np.concatenate([[1.0], futility_process(stakes[~void], min_effect)])
    return values[np.cumsum(~void)]
