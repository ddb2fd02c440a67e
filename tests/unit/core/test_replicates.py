"""Variance models and designs: what is refused, and how the parts relate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skillforge.core.replicates import (
    VarianceModel,
    design_for,
    designs,
    estimate_variance,
    mde_of_mean,
)
from skillforge.errors import StatisticsError

MODEL = VarianceModel(effect=0.01, base=0.16, augmented=0.16)


@pytest.mark.parametrize(
    "parts", [(0.0, 0.0, 0.0), (-0.01, 0.1, 0.1), (0.1, math.nan, 0.1), (0.1, 0.1, math.inf)]
)
def test_what_is_no_variance_is_refused(parts: tuple[float, float, float]) -> None:
    """Negative, missing and vanishing variances plan nothing."""
    with pytest.raises(StatisticsError, match="variance model"):
        VarianceModel(effect=parts[0], base=parts[1], augmented=parts[2])


def test_replicates_shrink_the_noise_alone() -> None:
    """With endless replicates the spread between tasks is what is left."""
    assert MODEL.of_task(1) == pytest.approx(0.33)
    assert MODEL.of_task(10**9) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("base", "augmented", "said"),
    [
        ([[0, 1]], [[0, 1]], "at least 2 of each"),
        ([[0], [1]], [[0], [1]], "at least 2 of each"),
        ([[0, 1], [0, 1]], [[0, 1]], "one shape"),
        ([0, 1], [0, 1], "one shape"),
        ([[0, 1], [0, 1]], [[0, 1], [0, 25]], "got 25 for task 1, augmented arm, replicate 1"),
        ([[0, math.nan], [0, 1]], [[0, 1], [0, 1]], "NaN"),
        ([[1, 1], [1, 1]], [[1, 1], [1, 1]], "not all 0"),
    ],
)
def test_scores_that_define_no_variance(base: list, augmented: list, said: str) -> None:
    """One task, one replicate, unequal shapes and scores outside [0, 1] are named."""
    with pytest.raises(StatisticsError, match=said):
        estimate_variance(base, augmented)


def test_designs_need_sensible_questions() -> None:
    """Percentages, no replicate, and less power than error probability are refused."""
    with pytest.raises(StatisticsError, match="effect"):
        design_for(5, MODEL, 1)
    with pytest.raises(StatisticsError, match="replicates"):
        design_for(0.05, MODEL, 0)
    with pytest.raises(StatisticsError, match="more power"):
        design_for(0.05, MODEL, 1, alpha=0.5, power=0.4)
    for options in ({"alpha": 0.0}, {"alpha": 5}, {"power": 80}):
        with pytest.raises(StatisticsError):
            design_for(0.05, MODEL, 1, **options)


def test_one_task_has_no_detectable_effect() -> None:
    """N < 2, and a spread of 0 that is no certainty, are errors."""
    with pytest.raises(StatisticsError, match="n: got 1"):
        mde_of_mean(1, 0.4)
    for options in ({"sd": 0.0}, {"sd": 0.4, "icc": 1.5}, {"sd": 0.4, "cluster_size": 0.5}):
        with pytest.raises(StatisticsError, match="sd, cluster_size, icc"):
            mde_of_mean(100, **options)


def test_replicates_save_what_flips_and_no_more():
    """Without noise they save nothing; where all is noise, tasks times replicates stay the same."""
    quiet, half, noisy = (designs(0.1, 0.3, flips) for flips in (0.0, 0.15, 0.29))

    assert len({design.tasks for design in quiet}) == 1
    assert quiet[0].tasks == half[0].tasks == noisy[0].tasks
    assert quiet[3].tasks > half[3].tasks > noisy[3].tasks
    assert noisy[3].tasks == pytest.approx(noisy[0].tasks / 8, abs=1)
    assert [d.rollouts for d in half] == sorted(d.rollouts for d in half)
    assert designs(0.1, 0.3, 0.9) == noisy


def test_a_design_has_the_power_it_promises():
    """Simulated pass or fail: a z test over tasks finds the lift in about 80 % of the studies."""
    rng, effect = np.random.default_rng(5), 0.15
    # every task passes with chance p, and with chance p + effect under the skill
    p, n_runs = 0.425, 2_000
    q = p * (1 - p - effect) + (1 - p) * (p + effect)
    flips = p * (1 - p) + (p + effect) * (1 - p - effect)
    (design,) = designs(effect, q, flips, replicates=(4,))
    base = rng.binomial(4, p, size=(n_runs, design.tasks)) / 4
    augmented = rng.binomial(4, p + effect, size=(n_runs, design.tasks)) / 4
    d = augmented - base
    z = d.mean(axis=1) / (d.std(axis=1, ddof=1) / design.tasks**0.5)

    assert (z > 1.645).mean() == pytest.approx(0.80, abs=0.04)


@pytest.mark.parametrize(
    ("effect", "q", "flips"), [(0.6, 0.3, 0.1), (0.1, 0.3, 1.5), (0.1, 1.5, 0.1)]
)
def test_a_flip_rate_is_a_share(effect, q, flips):
    """Shares outside [0, 1], and a lift that the discordance does not allow, are errors."""
    with pytest.raises(StatisticsError, match="discordance, flips"):
        designs(effect, q, flips)
