"""Variance models and designs: what is refused, and how the parts relate."""

from __future__ import annotations

import math

import pytest

from skillforge.core.replicates import VarianceModel, design_for, estimate_variance, mde_of_mean
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
