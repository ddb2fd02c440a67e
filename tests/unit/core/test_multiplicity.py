"""e-BH, thresholds for a family of candidates, and calibrators."""

import math

import pytest

from skillforge.core.multiplicity import (
    average_e,
    betting_limit,
    bonferroni_threshold,
    e_bh,
    e_to_p,
    p_to_e,
    p_to_e_mixture,
    spending_alpha,
)
from skillforge.errors import StatisticsError


def test_e_bh_single_candidate():
    """A family of one needs 1 / fdr."""
    assert e_bh([10.0], fdr=0.10) == (0,)
    assert e_bh([9.99], fdr=0.10) == ()


def test_e_bh_weaker_candidates_pass_together():
    """Two candidates at half the single threshold are rejected together."""
    assert e_bh([20.0, 20.0, 0.0, 0.0], fdr=0.10) == (0, 1)
    assert e_bh([20.0, 19.0, 0.0, 0.0], fdr=0.10) == ()


def test_e_bh_needs_what_the_whole_cohort_demands():
    """With 40 candidates at 10 % the first needs 400, and eight together need 50."""
    assert e_bh([400.0], fdr=0.10, m=40) == (0,)
    assert e_bh([399.0], fdr=0.10, m=40) == ()
    assert e_bh([50.0] * 8, fdr=0.10, m=40) == tuple(range(8))
    assert e_bh([49.0] * 8, fdr=0.10, m=40) == ()


def test_e_bh_step_up():
    """A candidate that fails at its own rank passes if a later rank does."""
    assert e_bh([25.0, 14.0, 15.0], fdr=0.10) == (0, 1, 2)


def test_e_bh_indices_are_ascending_positions():
    """The answer names positions in the list that was given."""
    assert e_bh([0.1, 70.0, 0.0, 90.0], fdr=0.10) == (1, 3)


def test_e_bh_edge_values():
    """Infinity and zero are e-values, and an empty cohort has no discoveries."""
    assert e_bh([math.inf, 0.0], fdr=0.05) == (0,)
    assert e_bh([], fdr=0.05) == ()
    assert e_bh([], fdr=0.05, m=7) == ()


@pytest.mark.parametrize(
    ("e_values", "fdr", "m"),
    [([-1.0], 0.1, None), ([math.nan], 0.1, None), ([1.0, 1.0], 0.1, 1), ([1.0], 0.0, None)],
)
def test_e_bh_refuses(e_values, fdr, m):
    """Values that are no e-values, a family that is too small and a rate of 0 are refused."""
    with pytest.raises(StatisticsError):
        e_bh(e_values, fdr, m)


def test_bonferroni_threshold():
    """Four candidates at 5 % need 80 each."""
    assert bonferroni_threshold(0.05, 4) == pytest.approx(80.0)
    with pytest.raises(StatisticsError):
        bonferroni_threshold(0.05, 0)


def test_betting_goes_beyond_what_one_discovery_needs():
    """At its limit a candidate passes e-BH alone, and would at a tenth of it."""
    limit = betting_limit(40, 0.10)

    assert limit == pytest.approx(4_000.0)
    assert e_bh([limit / 10], 0.10, m=40) == (0,)
    with pytest.raises(StatisticsError, match="m: "):
        betting_limit(0, 0.10)
    with pytest.raises(StatisticsError, match="fdr"):
        betting_limit(40, 1.0)


def test_spending_adds_up():
    """The spent error of a long stream approaches alpha from below."""
    spent = math.fsum(spending_alpha(k, 0.05) for k in range(1, 20_001))

    assert 0.0499 < spent < 0.05
    with pytest.raises(StatisticsError):
        spending_alpha(0, 0.05)


def test_average():
    """The mean of e-values is one, and the mean of none is undefined."""
    assert average_e([4.0, 0.0]) == 2.0
    with pytest.raises(StatisticsError):
        average_e([])
    with pytest.raises(StatisticsError):
        average_e([math.nan])


def test_e_to_p():
    """The p-value is the inverse, at most 1."""
    assert e_to_p(20.0) == 0.05
    assert e_to_p(0.0) == 1.0
    assert e_to_p(math.inf) == 0.0


def test_p_to_e_edges():
    """Both calibrators are finite for tiny p-values, infinite at 0, and below 1 at 1."""
    for calibrate, at_one in ((p_to_e, 0.5), (p_to_e_mixture, 0.5)):
        assert calibrate(1.0) == pytest.approx(at_one)
        assert calibrate(0.0) == math.inf
        assert 1e100 < calibrate(5e-324) < math.inf
        with pytest.raises(StatisticsError):
            calibrate(1.5)
        with pytest.raises(StatisticsError):
            calibrate(math.nan)


def test_p_to_e_extreme_kappa():
    """The smallest p-value with a tiny kappa stays finite."""
    assert math.isfinite(p_to_e(5e-324, kappa=0.001))


def test_mixture_is_smooth_at_one():
    """The series near p = 1 meets the closed form."""
    left, right = p_to_e_mixture(math.exp(-0.00099999)), p_to_e_mixture(math.exp(-0.00100001))

    assert left == pytest.approx(right, rel=1e-8)


def test_a_bad_e_value_is_named_by_its_place():
    """Among many candidates the one without a number is named."""
    with pytest.raises(StatisticsError, match="e-value 2: got nan"):
        e_bh([1.0, 2.0, float("nan"), 3.0], 0.10)
