"""A skill gains nothing from tasks that it crashes, and replicates are not tasks: simulation."""

import math

import numpy as np
import pytest

from skillforge.core.gate import Basis, Decision, GateRules, decide
from skillforge.core.paired_tests import mcnemar_exact
from skillforge.core.rollout import Pair, Void

RULES = GateRules()
RUNS = 300
OPEN = (Decision.PROBATION, Decision.ROLLED_BACK)


def ceiling(rate):
    """Return a rate plus two standard errors of its estimate."""
    return rate + 2 * math.sqrt(rate * (1 - rate) / RUNS)


def contrast(rng, n, gain, loss, *, crash=0.0, host=0.0):
    """Draw pairs; a share of the tasks that would be lost crash as infrastructure instead.

    Besides, the host takes a share of the attempts, in either arm.
    """
    outcomes = []
    for i, u in enumerate(rng.random(n)):
        base, augmented = float(gain <= u < gain + loss or u > 0.7), float(u < gain or u > 0.7)
        lost, taken = base > augmented and rng.random() < crash, rng.random(2) < host
        if taken[0]:
            outcomes.append(Void(task=str(i), arm="both" if lost or taken[1] else "base"))
        elif lost or taken[1]:
            outcomes.append(Void(task=str(i), arm="augmented", least=-base))
        else:
            outcomes.append(Pair(task=str(i), family="f", base=base, augmented=augmented))
    return outcomes


def let_through(rng, *, enough=20.0, **shape):
    """Return the share of candidates on probation at the end, or ever before a roll-back."""
    results = [
        decide(contrast(rng, 120, **shape), RULES, Basis.LIFT, enough=enough) for _ in range(RUNS)
    ]
    return np.mean([r.decision in OPEN for r in results])


@pytest.mark.parametrize("crash", [0.5, 1.0])
@pytest.mark.parametrize(
    ("loss", "host"), [(0.12, 0.0), (0.12, 0.05), (0.12, 0.1), (0.12, 0.2), (0.2, 0.0)]
)
def test_a_skill_that_crashes_what_it_would_lose_gains_nothing(crash, loss, host):
    """With crashes of any share of its losses a neutral or harmful edit stays at α.

    Nor does it help to hide them among what the host takes: one attempt in 20, in 10, or in 5.
    """
    rng = np.random.default_rng([50, int(crash * 10), int(loss * 100), int(host * 100)])

    assert let_through(rng, gain=0.12, loss=loss, crash=crash, host=host) <= ceiling(RULES.alpha)


def test_without_the_charge_it_would_gain():
    """The pairs that are left show wins alone: the plain e-value is fooled nearly always."""
    rng = np.random.default_rng(51)
    results = [
        decide(contrast(rng, 120, 0.12, 0.12, crash=1.0), RULES, Basis.LIFT, enough=1e300)
        for _ in range(RUNS)
    ]

    assert np.mean([r.evidence.e_value >= 20 for r in results]) > 0.9


def test_what_even_failures_cost():
    """A lift of 25 points is found nearly as often where the host takes one attempt in a hundred.

    One in twenty costs little, one in ten more; what that does to smaller lifts stands in
    `core.course`.
    """
    power = {}
    for host in (0.0, 0.01, 0.05, 0.1):
        rng = np.random.default_rng([52, int(host * 100)])
        power[host] = let_through(rng, gain=0.30, loss=0.05, enough=1e300, host=host)
    print("power by share of attempts that the host takes:", power)

    assert power[0.0] > 0.95
    assert power[0.01] > 0.92
    assert power[0.05] > 0.85
    assert power[0.1] > 0.65


def test_rollouts_are_not_tasks():
    """Pooling 8 replicates as if independent breaks McNemar's level; bets on task means keep it.

    Tasks have true effects of standard deviation .3 about 0, as in table S.3 (.135 at 50 tasks).
    """
    rng = np.random.default_rng(53)
    pooled = mean = 0
    for _ in range(RUNS):
        effect = rng.normal(0, 0.3, size=50)
        ease = rng.uniform(0.3, 0.7, size=50)
        base = rng.binomial(1, ease[:, None], size=(50, 8))
        augmented = rng.binomial(1, np.clip(ease + effect, 0, 1)[:, None], size=(50, 8))
        d = augmented - base
        pooled += mcnemar_exact(int((d > 0).sum()), int((d < 0).sum())) <= 0.05
        pairs = [
            Pair(task=str(i), family="f", base=b, augmented=a)
            for i, (b, a) in enumerate(zip(base.mean(1), augmented.mean(1), strict=True))
        ]
        mean += decide(pairs, RULES, Basis.LIFT, enough=20.0).decision in OPEN

    assert pooled / RUNS > 0.08
    assert mean / RUNS <= ceiling(0.05)
