"""The gate errs as rarely as it says, and still finds what is there: seeded simulation.

Every bound is the promised rate plus two Monte Carlo standard errors.
"""

import numpy as np
import pytest

from skillforge.core.eprocess import (
    e_process,
    harm_bet,
    lift_bet,
    non_inferiority_bet,
)
from skillforge.core.futility import futility_process
from skillforge.core.intervals import betting_interval, tango_interval
from skillforge.core.multiplicity import e_bh
from skillforge.core.paired_tests import sign_flip_test

RUNS = 3_000
PAIRS = 200


def binary(rng, p_gain, p_regression, *, runs=RUNS, n=PAIRS):
    """Draw paired differences of binary scores, one row per run."""
    draws = rng.random((runs, n))
    return (draws < p_gain).astype(float) - (draws >= 1.0 - p_regression)


def graded(rng, shift, *, runs=RUNS, n=PAIRS, replicates=3):
    """Draw differences of scores averaged over replicates, with tasks of unequal difficulty."""
    ease = rng.uniform(0.2, 0.8, size=(runs, n))
    base = rng.binomial(replicates, ease) / replicates
    return rng.binomial(replicates, ease + shift) / replicates - base


def crossing_rate(bets, alpha):
    """Return the share of runs whose mixture e-process ever reaches 1/alpha."""
    return ever(e_process(bets), alpha)


def ever(values, alpha):
    """Return the share of runs that ever reach 1/alpha, from their running values."""
    return float((values.max(axis=1) >= 1.0 / alpha).mean())


def ceiling(alpha, runs=RUNS):
    """Return alpha plus two standard errors of a simulated rate."""
    return alpha + 2.0 * np.sqrt(alpha * (1.0 - alpha) / runs)


@pytest.mark.parametrize("alpha", [0.05, 0.20])
@pytest.mark.parametrize("share", [0.05, 0.10, 0.20, 0.45])
def test_neutral_edits_show_no_lift_and_no_harm(share, alpha):
    """Looking after every pair, a neutral edit is called better, or worse, with rate α at most."""
    d = binary(np.random.default_rng(101), share, share)

    assert crossing_rate(lift_bet(d), alpha) <= ceiling(alpha)
    assert crossing_rate(harm_bet(d), alpha) <= ceiling(alpha)


def test_graded_scores_and_unequal_tasks():
    """Averaged replicates and tasks of unequal difficulty do not inflate the error."""
    d = graded(np.random.default_rng(102), 0.0)

    assert crossing_rate(lift_bet(d), 0.05) <= ceiling(0.05)
    assert crossing_rate(harm_bet(d), 0.05) <= ceiling(0.05)


@pytest.mark.parametrize(("gain", "loss", "margin"), [(0.05, 0.10, 0.05), (0.10, 0.20, 0.10)])
def test_loss_of_the_margin_is_not_called_harmless(gain, loss, margin):
    """An edit that loses exactly the margin passes as non-inferior with rate α at most."""
    d = binary(np.random.default_rng(103), gain, loss)

    assert crossing_rate(non_inferiority_bet(d, margin), 0.05) <= ceiling(0.05)


@pytest.mark.parametrize(("gain", "loss"), [(0.10, 0.0), (0.15, 0.05), (0.30, 0.20)])
def test_worthwhile_edits_are_not_called_futile(gain, loss):
    """An edit of exactly the smallest effect worth having is stopped with rate β at most."""
    d = binary(np.random.default_rng(104), gain, loss)
    uneven = graded(np.random.default_rng(113), 0.10)

    assert ever(futility_process(d, 0.10), 0.10) <= ceiling(0.10)
    assert ever(futility_process(uneven, 0.10), 0.10) <= ceiling(0.10)


def test_an_edit_that_helps_early_and_harms_later_stays_below_alpha():
    """A mean that drifts below zero is still inside the null, whatever the past looked like."""
    rng = np.random.default_rng(105)
    d = binary(rng, 0.10, 0.10)
    losing = binary(rng, 0.05, 0.15)
    ahead = np.cumsum(d, axis=1)[:, :-1] > 2
    d[:, 1:] = np.where(ahead, losing[:, 1:], d[:, 1:])

    assert crossing_rate(lift_bet(d), 0.05) <= ceiling(0.05)


@pytest.mark.parametrize(
    ("gain", "loss", "n", "floor"),
    [(0.25, 0.05, 50, 0.60), (0.15, 0.05, 200, 0.75), (0.35, 0.05, 40, 0.75)],
)
def test_power_floor(gain, loss, n, floor):
    """Planted lifts are found, and the same effects with the sign turned are found as harm."""
    rng = np.random.default_rng(106)

    assert crossing_rate(lift_bet(binary(rng, gain, loss, n=n)), 0.05) >= floor
    assert crossing_rate(harm_bet(binary(rng, loss, gain, n=n)), 0.05) >= floor


def test_power_floor_of_futility_and_non_inferiority():
    """Useless edits are given up and harmless removals confirmed within the usual budget."""
    d = binary(np.random.default_rng(107), 0.05, 0.05)

    assert ever(futility_process(d, 0.10), 0.10) >= 0.85
    assert crossing_rate(non_inferiority_bet(d, 0.10), 0.05) >= 0.90


def cohorts(rng, runs, n):
    """Draw cohorts of 40: 8 good (+15), 8 harmful (-10) and 24 neutral candidates."""
    shapes = [(0.20, 0.05)] * 8 + [(0.05, 0.15)] * 8 + [(0.10, 0.10)] * 24
    ends = [e_process(binary(rng, *shape, runs=runs, n=n))[:, -1] for shape in shapes]
    return np.stack(ends, axis=1)


def test_false_discovery_rate_of_a_cohort():
    """e-BH keeps the share of false promotions below 10 % and finds most of the good ones."""
    false_share, found = [], []
    for e_values in cohorts(np.random.default_rng(108), runs=200, n=160):
        promoted = np.array(e_bh(e_values.tolist(), fdr=0.10), dtype=int)
        false_share.append(np.count_nonzero(promoted >= 8) / max(1, promoted.size))
        found.append(np.count_nonzero(promoted < 8) / 8)

    assert np.mean(false_share) <= 0.10
    assert np.mean(found) >= 0.65


def test_false_discovery_rate_with_shared_base_rollouts():
    """Candidates measured against the same base rollouts keep the rate as well."""
    rng = np.random.default_rng(109)
    false_share = []
    for _ in range(200):
        ease = rng.uniform(0.2, 0.8, size=120)
        base = rng.random(120) < ease
        lifts = np.repeat([0.25, 0.0], [4, 16])[:, None]
        augmented = rng.random((20, 120)) < np.clip(ease + lifts, 0.0, 1.0)
        e_values = e_process(augmented.astype(float) - base)[:, -1]
        promoted = np.array(e_bh(e_values.tolist(), fdr=0.10), dtype=int)
        false_share.append(np.count_nonzero(promoted >= 4) / max(1, promoted.size))

    assert np.mean(false_share) <= 0.10


def test_betting_interval_covers_at_every_look():
    """The interval after all pairs, which intersects all earlier ones, covers the true lift."""
    d = binary(np.random.default_rng(110), 0.15, 0.05, runs=400, n=100)
    missed = [not low <= 0.10 <= high for low, high in map(betting_interval, d)]

    assert np.mean(missed) <= ceiling(0.05, runs=400)


@pytest.mark.parametrize(("gain", "loss", "n"), [(0.15, 0.05, 50), (0.02, 0.02, 100)])
def test_tango_interval_covers(gain, loss, n):
    """The score interval misses the true lift about as rarely as it says."""
    d = binary(np.random.default_rng(111), gain, loss, n=n)
    counts = zip((d > 0).sum(axis=1).tolist(), (d < 0).sum(axis=1).tolist(), strict=True)
    limits = [tango_interval(won, lost, n) for won, lost in counts]
    missed = np.mean([not low <= gain - loss <= high for low, high in limits])

    assert missed <= 0.065


def test_sign_flip_by_family_keeps_its_level():
    """With tasks that move together, flipping whole families keeps the error at α."""
    rng = np.random.default_rng(112)
    families = np.repeat(np.arange(10), 4)
    rejected = []
    for _ in range(500):
        effect = rng.normal(0.0, 0.3, size=10)[families]
        d = np.clip(effect + rng.normal(0.0, 0.2, size=40), -1.0, 1.0)
        rejected.append(sign_flip_test(d, rng=rng, clusters=families.tolist()) <= 0.05)

    assert np.mean(rejected) <= ceiling(0.05, runs=500)
