"""Designs checked against published tables, simulation and other software."""

import itertools
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

from skillforge.core.detectable import sequential_mde
from skillforge.core.halving import sequential_halving
from skillforge.core.intervals import bca_interval, betting_interval
from skillforge.core.multiplicity import bonferroni_threshold, e_bh, spending_alpha
from skillforge.core.paired_tests import mcnemar_exact, sign_flip_test
from skillforge.core.power import mde, pairs_needed, power_of, sequential_pairs
from skillforge.core.replicates import (
    VarianceModel,
    design_for,
    estimate_variance,
    mde_of_mean,
)


# Table S.4, "tasks or repeats": 5 points, noise variance .16 in either arm.
@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        (0.1, {1: (817, 1634), 4: (223, 1784), 8: (124, 1984)}),
        (0.2, {1: (891, 1782), 4: (297, 2376), 8: (198, 3168)}),
    ],
)
def test_tasks_or_replicates_table(spread, expected):
    """Tasks and rollouts needed are those of the table: more tasks beat more replicates."""
    model = VarianceModel(effect=spread**2, base=0.16, augmented=0.16)
    designs = {k: design_for(0.05, model, k) for k in expected}

    assert {k: (d.tasks, d.rollouts) for k, d in designs.items()} == expected


def test_a_design_has_the_power_it_promises():
    """Simulated with its own variance model, 80 % of the z tests find the effect."""
    rng = np.random.default_rng(60)
    model = VarianceModel(effect=0.04, base=0.05, augmented=0.05)
    design = design_for(0.10, model, 4)
    effects = rng.normal(0.10, 0.2, size=(4_000, design.tasks))
    d = effects + rng.normal(0, math.sqrt(0.10 / 4), size=effects.shape)
    z = d.mean(axis=1) / (math.sqrt(model.of_task(4)) / math.sqrt(design.tasks))

    assert np.mean(z >= scipy.stats.norm.ppf(0.95)) == pytest.approx(0.80, abs=0.02)


def test_the_variance_model_is_recovered():
    """From 4,000 tasks with 5 replicates the three parts come back."""
    rng = np.random.default_rng(61)
    ease = rng.uniform(0.2, 0.5, size=4_000)
    effect = rng.choice([0.0, 0.3], size=4_000)
    base = rng.binomial(1, ease[:, None], size=(4_000, 5))
    augmented = rng.binomial(1, (ease + effect)[:, None], size=(4_000, 5))
    model = estimate_variance(base, augmented)

    assert model.effect == pytest.approx(effect.var(), abs=0.004)
    assert model.base == pytest.approx((ease * (1 - ease)).mean(), abs=0.006)
    p = ease + effect
    assert model.augmented == pytest.approx((p * (1 - p)).mean(), abs=0.006)


def test_the_task_mean_variance_is_that_of_the_model():
    """Var(d̄) over repeated studies is (ω² + (σ₀² + σ₁²)/K)/n."""
    rng = np.random.default_rng(62)
    effect = rng.normal(0, 0.15, size=(3_000, 30))
    noise = rng.normal(0, 0.4, size=(2, 3_000, 30, 4)).mean(axis=3)
    model = VarianceModel(effect=0.0225, base=0.16, augmented=0.16)

    lifts = (effect + noise[0] - noise[1]).mean(axis=1)
    assert lifts.var() == pytest.approx(model.of_task(4) / 30, rel=0.08)


def test_mde_of_a_mean_is_that_of_binary_pairs_with_that_spread():
    """With sd² = q - Δ² and no families both formulas nearly agree; families divide n."""
    effect = mde(400, 0.2)
    assert mde_of_mean(400, math.sqrt(0.2 - effect**2)) == pytest.approx(effect, abs=0.003)
    assert mde_of_mean(400, 0.4, cluster_size=4, icc=1.0) == pytest.approx(mde_of_mean(100, 0.4))


@pytest.mark.parametrize(("effect", "q"), [(0.05, 0.1), (0.1, 0.3), (0.2, 0.4)])
def test_power_inverts_the_pairs_needed(effect, q):
    """At the needed pairs the power is the one asked for, and one pair less has less."""
    n = pairs_needed(effect, q)

    assert power_of(n - 1, effect, q) < 0.80 <= power_of(n, effect, q) + 1e-9


def test_power_against_the_exact_test():
    """The approximation is within a few points of the exact power of the McNemar test."""
    n, q, effect = 184, 0.3, 0.10
    share, power = (q + effect) / 2 / q, 0.0
    for k in range(n + 1):
        won = next((w for w in range(k + 1) if mcnemar_exact(w, k - w) <= 0.05), k + 1)
        power += scipy.stats.binom.pmf(k, n, q) * scipy.stats.binom.sf(won - 1, k, share)

    assert power_of(n, effect, q) == pytest.approx(power, abs=0.04)


@pytest.mark.parametrize(("n", "q"), [(60, 0.4), (150, 0.25), (400, 0.1)])
def test_the_sequential_mde_is_what_the_process_finds(n, q):
    """At that lift the process crosses within n pairs in the share of runs asked for."""
    effect = sequential_mde(n, q)
    found = sequential_pairs(
        effect, q, rng=np.random.default_rng(64), max_pairs=n, simulations=4_000
    )

    assert found.crossed == pytest.approx(0.80, abs=0.02)
    assert 1.05 < effect / mde(n, q) < 1.4


# Table S.7: P(best of m found) with one candidate at +10 points, others at 0 (15/5 and 10/10).
@pytest.mark.parametrize(
    ("m", "budget", "expected"), [(4, 120, 0.64), (8, 240, 0.52), (8, 480, 0.69), (16, 480, 0.44)]
)
def test_sequential_halving_table(m, budget, expected):
    """The best candidate is found as often as published."""
    runs, rng = 1_000, np.random.default_rng([65, m, budget])
    found = 0
    for run in range(runs):
        gain = np.where(np.arange(m) == run % m, 0.15, 0.10)
        loss = np.where(np.arange(m) == run % m, 0.05, 0.10)

        def measure(chosen, k, gain=gain, loss=loss):
            u, i = rng.random((len(chosen), k)), list(chosen)
            return (u < gain[i, None]).astype(float) - (u >= 1 - loss[i, None])

        found += sequential_halving(m, budget, measure) == run % m

    assert found / runs == pytest.approx(expected, abs=0.05)


def test_halving_keeps_to_its_budget_and_to_common_tasks():
    """Rounds and shares are those of the source: ⌈log2 m⌉ rounds of ⌊B / (|S| L)⌋ pairs each."""
    calls = []

    def measure(chosen, k):
        calls.append((chosen, k))
        return np.repeat(np.array(chosen, dtype=float)[:, None] / 10, k, axis=1)

    assert sequential_halving(6, 90, measure) == 5
    assert calls == [((0, 1, 2, 3, 4, 5), 5), ((3, 4, 5), 10), ((4, 5), 15)]
    assert sum(len(chosen) * k for chosen, k in calls) <= 90


def test_alpha_spending_spends_alpha_and_no_more():
    """The shares of the first 20,000 candidates and the rest of the series sum to α."""
    spent = math.fsum(spending_alpha(k, 0.05) for k in range(1, 20_001))
    rest = 0.05 * 6 / math.pi**2 * scipy.special.zeta(2, 20_001)

    assert spent + rest == pytest.approx(0.05, rel=1e-12)
    assert spent < 0.05


def test_bonferroni_is_the_union_bound():
    """M candidates at level α/m cross 1/(α/m) = m/α: the first rank of e-BH asks the same."""
    for m in (1, 4, 40):
        threshold = bonferroni_threshold(0.05, m)
        assert threshold == pytest.approx(m / 0.05)
        assert e_bh([threshold * 1.001], 0.05, m=m) == (0,)
        assert e_bh([threshold * 0.999], 0.05, m=m) == ()


def test_e_bh_against_its_definition_by_enumeration():
    """For every small cohort the discoveries are the largest self-consistent set."""
    values = (0.0, 1.0, 7.0, 15.0, 25.0, 60.0, math.inf)
    for e in itertools.product(values, repeat=4):
        best = ()
        for k in range(1, 5):
            chosen = tuple(i for i in range(4) if e[i] >= 4 / (0.10 * k))
            if len(chosen) >= k:
                best = chosen
        assert e_bh(e, 0.10) == best


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_sign_flip_by_cluster_against_scipy(alternative):
    """Flipping families is the permutation test of their sums."""
    rng = np.random.default_rng(67)
    family = np.repeat(np.arange(9), 5)
    d = (rng.normal(0.1, 0.3, 9)[family] + rng.normal(0, 0.2, 45)).clip(-1, 1)
    sums = np.bincount(family, weights=d)
    theirs = scipy.stats.permutation_test(
        (sums,), np.sum, permutation_type="samples", alternative=alternative, n_resamples=np.inf
    ).pvalue
    ours = sign_flip_test(d, rng=rng, clusters=family.tolist(), alternative=alternative)

    assert ours == pytest.approx(theirs)


def test_sign_flip_by_sampling_against_enumeration():
    """With 16 tasks the sampled p-value is that of all 65,536 sign patterns, up to its noise."""
    d = np.random.default_rng(68).normal(0.12, 0.3, 16).clip(-1, 1)
    signs = np.array(list(itertools.product([1, -1], repeat=16)))
    exact = np.mean(signs @ d >= d.sum() - 1e-12)

    assert sign_flip_test(d, rng=np.random.default_rng(69)) == pytest.approx(exact, abs=0.01)


def test_bca_against_all_resamples():
    """With six tasks the interval is that of all 46,656 resamples by Efron's formulas."""
    d = np.array([0.5, 0.25, -0.25, 1.0, 0.0, 0.75])
    draws = np.array(list(itertools.product(range(6), repeat=6)))
    means = np.sort(d[draws].mean(axis=1))
    below = (np.mean(means < d.mean() - 1e-12) + np.mean(means <= d.mean() + 1e-12)) / 2
    z0 = scipy.stats.norm.ppf(below)
    left_out = (d.sum() - d) / 5
    u = left_out.mean() - left_out
    a = (u**3).sum() / (6 * (u**2).sum() ** 1.5)
    z = z0 + scipy.stats.norm.ppf([0.025, 0.975])
    levels = scipy.stats.norm.cdf(z0 + z / (1 - a * z))
    low, high = np.quantile(means, levels)

    found = bca_interval(d, np.random.default_rng(70), resamples=50_000)
    assert found == pytest.approx((low, high), abs=0.03)


@pytest.mark.parametrize("alpha", [0.2, 0.5])
def test_the_betting_interval_covers_exactly(alpha):
    """Over all outcomes of six pairs the interval misses the mean with probability α at most."""
    outcomes = np.array(list(itertools.product([1.0, -1.0, 0.0], repeat=6)))
    limits = np.array([betting_interval(row, alpha) for row in outcomes])
    for gain, loss in [(0.4, 0.1), (0.2, 0.2), (0.05, 0.6), (0.5, 0.5)]:
        shares = np.select([outcomes == 1, outcomes == -1], [gain, loss], 1 - gain - loss)
        missed = (limits[:, 0] > gain - loss + 1e-9) | (limits[:, 1] < gain - loss - 1e-9)
        assert shares.prod(axis=1) @ missed <= alpha
