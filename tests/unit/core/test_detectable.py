"""The effect that the gate could have detected, against enumeration and its own limits."""

import itertools

import numpy as np
import pytest

from skillforge.core.detectable import crossing_law, sequential_mde
from skillforge.core.eprocess import DEFAULT_LAMBDAS, e_process
from skillforge.core.evidence import weigh
from skillforge.core.rollout import Pair
from skillforge.core.rules import GateRules
from skillforge.errors import StatisticsError

POOL = GateRules(finite_pool=True, deterministic=True)


def crossed_by_enumeration(n, p_gain, p_regression, threshold):
    """Return the probability that the process crosses, summed over every sequence of outcomes."""
    outcomes = np.array(list(itertools.product([1.0, -1.0, 0.0], repeat=n)))
    chances = np.select(
        [outcomes > 0, outcomes < 0], [p_gain, p_regression], 1 - p_gain - p_regression
    ).prod(axis=1)
    return chances[(e_process(outcomes) >= threshold).any(axis=1)].sum()


@pytest.mark.parametrize(("n", "q"), [(9, 0.6), (9, 1.0), (8, 0.9)])
def test_at_the_mde_the_power_is_what_was_asked_for(n, q):
    """Every one of the 3^n sequences adds its chance; together they make 80 %."""
    effect = sequential_mde(n, q, alpha=0.3)
    share = max(q, effect)
    found = crossed_by_enumeration(n, (share + effect) / 2, (share - effect) / 2, 1 / 0.3)

    assert found == pytest.approx(0.80, abs=0.005)


def test_the_law_of_crossing_keeps_ville_s_promise():
    """Without a bias the process crosses 1/α with probability α at most, and wins alone cross."""
    law = crossing_law(20.0, DEFAULT_LAMBDAS, 512)

    assert 0.02 < law[0, -1] <= 0.05
    assert np.all(np.diff(law, axis=1) >= 0)
    assert (law[-1, 6], law[-1, 7]) == (0.0, 1.0)


def test_it_falls_with_pairs_and_rises_with_noise_and_strictness():
    """More pairs find less; more discordance and a stricter α ask for more."""
    assert sequential_mde(50, 0.2) > sequential_mde(100, 0.2) > sequential_mde(1_000, 0.2)
    assert sequential_mde(200, 0.4) > sequential_mde(200, 0.2)
    assert sequential_mde(200, 0.2, alpha=0.005) > sequential_mde(200, 0.2)
    assert sequential_mde(200, 0.2, power=0.9) > sequential_mde(200, 0.2)


def test_six_wins_find_nothing_and_seven_find_a_certainty():
    """With fewer pairs than straight wins are needed there is no effect that would be found."""
    assert sequential_mde(6, 1.0) is None
    assert sequential_mde(7, 0.1) == pytest.approx(0.8 ** (1 / 7), abs=2e-4)


def test_more_pairs_than_the_law_is_followed_for():
    """The MDE stays where it is beyond the cap: above a tenth of the discordance."""
    assert 0.1 < sequential_mde(10**6, 0.5) / 0.5 < 0.12


@pytest.mark.parametrize(
    ("n", "q", "how", "said"),
    [
        (0, 0.2, {}, "n: got 0"),
        (50, 0.0, {}, "discordance"),
        (50, 1.5, {}, "discordance"),
        (50, 0.2, {"alpha": 0.0}, "alpha"),
        (50, 0.2, {"power": 80}, "power"),
    ],
)
def test_what_it_refuses(n, q, how, said):
    """Counts and shares outside their range are errors."""
    with pytest.raises(StatisticsError, match=said):
        sequential_mde(n, q, **how)


def found(differences, pool=None):
    """Return the evidence of some differences, drawn from a pool if one is given."""
    d = np.array(differences, dtype=float)
    pairs = [
        Pair(task=f"t{i}", family="f", base=float(x < 0), augmented=float(x > 0))
        for i, x in enumerate(d)
    ]
    left = None if pool is None else pool - np.arange(d.size)
    rules = GateRules() if pool is None else POOL
    return weigh(pairs, d, voids=[], e_values=[1.0] * 4, rules=rules, left=left)


def test_a_pool_that_runs_out_leaves_nothing_uncertain():
    """MDE and interval narrow as the pool is drawn; at its end the lift is known."""
    d = [1, 0, 0, -1, 0, 1, 0, 0, 0, 0] * 4
    whole, half, without = found(d, 40), found(d, 80), found(d)

    assert whole.mde == 1 / 40
    assert whole.lift_interval == pytest.approx((whole.lift, whole.lift), abs=1e-5)
    assert whole.mde < half.mde < without.mde
    assert half.lift_interval[1] - half.lift_interval[0] < (
        without.lift_interval[1] - without.lift_interval[0]
    )


def test_a_much_larger_pool_is_as_good_as_none():
    """Where little was drawn, the correction changes next to nothing."""
    d = [1, 0, 0, -1, 0, 1, 0, 0, 0, 0] * 4

    assert found(d, 10**7).mde == pytest.approx(found(d).mde, rel=0.01)
    assert found(d, 10**7).lift_interval == pytest.approx(found(d).lift_interval, abs=1e-4)


def test_graded_scores_count_by_their_size():
    """Differences of a quarter are a sixteenth of the noise of pass and fail."""
    binary = weigh([], np.array([1.0, -1.0] * 50), voids=[], e_values=[1.0] * 4, rules=GateRules())
    graded = weigh(
        [], np.array([0.25, -0.25] * 50), voids=[], e_values=[1.0] * 4, rules=GateRules()
    )

    assert graded.mde == pytest.approx(binary.mde / 4, rel=0.15)
