"""Betting without replacement keeps its level for a deterministic worker, and for no other."""

import math

import numpy as np
import pytest

from skillforge.core.course import run_course
from skillforge.core.gate import Basis, Decision, GateRules, decide
from skillforge.core.rollout import Pair

RULES = GateRules(finite_pool=True, deterministic=True)
PLAIN = GateRules()
RUNS = 300


def pairs(d):
    """Return binary pairs with these differences."""
    return [
        Pair(task=str(i), family="f", base=float(x < 0), augmented=float(x > 0))
        for i, x in enumerate(d)
    ]


def let_through(draw, n, rules):
    """Return the share of runs that ever reach probation."""
    results = [decide(pairs(draw()), rules, Basis.LIFT, enough=1e300, pool=n) for _ in range(RUNS)]
    return np.mean([r.decision in (Decision.PROBATION, Decision.ROLLED_BACK) for r in results])


@pytest.mark.parametrize("n", [40, 120])
def test_a_deterministic_worker_keeps_the_level(n):
    """Every task has one outcome and the pool's mean is 0: α holds, to the last draw."""
    rng = np.random.default_rng([40, n])
    pool = np.array([1.0] * (n // 8) + [-1.0] * (n // 8) + [0.0] * (n - 2 * (n // 8)))
    rate = let_through(lambda: rng.permutation(pool), n, RULES)

    assert rate <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / RUNS)


@pytest.mark.parametrize("n", [40, 120])
def test_a_stochastic_worker_breaks_it(n):
    """An A/A run of a worker that draws its outcomes is certified in 23 to 49 % of the cases.

    The realised mean of such a pool is above 0 nearly half of the time, and that is all that is
    certified. Futility and harm stop some of the runs; the gate still lets several times α through.
    With replacement the same worker stays at α. This is why the rules refuse it.
    """
    rng = np.random.default_rng([41, n])

    def draw():
        return rng.choice([1.0, -1.0, 0.0], p=[0.15, 0.15, 0.7], size=n)

    courses = [run_course(pairs(draw()), RULES, Basis.LIFT, pool=n) for _ in range(RUNS)]
    assert 0.23 <= np.mean([c.claim.max() >= 20 for c in courses]) <= 0.49 + 0.06
    assert let_through(draw, n, RULES) >= 0.12
    assert let_through(draw, n, PLAIN) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / RUNS)


def test_it_is_worth_its_condition():
    """On a whole pool a deterministic lift is found more often, and never missed at the end."""
    rng = np.random.default_rng(42)
    pool = np.array([1.0] * 10 + [-1.0] * 4 + [0.0] * 46)
    finite = let_through(lambda: rng.permutation(pool), 60, RULES)
    plain = let_through(lambda: rng.permutation(pool), 60, PLAIN)

    assert finite > plain + 0.3
