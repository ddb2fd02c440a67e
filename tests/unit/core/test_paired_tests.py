"""Exact McNemar and sign flipping."""

import numpy as np
import pytest

from skillforge.core.paired_tests import mcnemar_exact, sign_flip_test
from skillforge.errors import StatisticsError


def rng() -> np.random.Generator:
    """Return a fresh seeded generator."""
    return np.random.default_rng(20)


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_no_discordant_pair(alternative):
    """Without discordant pairs, or with ties only, p is 1."""
    assert mcnemar_exact(0, 0, alternative) == 1.0
    assert sign_flip_test([0.0, 0.0], rng=rng(), alternative=alternative) == 1.0


def test_mcnemar_tails():
    """The tails are mirror images and the two-sided p is twice the smaller one."""
    assert mcnemar_exact(9, 2, "greater") == mcnemar_exact(2, 9, "less")
    assert mcnemar_exact(9, 2, "two-sided") == pytest.approx(2 * mcnemar_exact(9, 2))
    assert mcnemar_exact(4, 4, "two-sided") == 1.0


@pytest.mark.parametrize(
    ("won", "lost", "alternative"), [(-1, 0, "greater"), (0.5, 1, "less"), (1, 1, "both")]
)
def test_mcnemar_refuses(won, lost, alternative):
    """Negative counts, shares and unknown alternatives are refused."""
    with pytest.raises(StatisticsError):
        mcnemar_exact(won, lost, alternative)


def test_sign_flip_on_binary_pairs_is_mcnemar():
    """On binary pairs the enumerated test is the exact McNemar test."""
    d = [1.0] * 9 + [-1.0] * 3 + [0.0] * 30

    assert sign_flip_test(d, rng=rng()) == pytest.approx(mcnemar_exact(9, 3))


def test_sign_flip_monte_carlo_is_near_the_exact_value():
    """With many tasks the random patterns come close to the exact p and never give 0."""
    d = [1.0] * 40 + [-1.0] * 25

    assert sign_flip_test(d, rng=rng()) == pytest.approx(mcnemar_exact(40, 25), abs=0.008)
    assert sign_flip_test([1.0] * 60, rng=rng()) == 1 / 10_000


def test_sign_flip_by_cluster_counts_clusters():
    """Four families of ten equal wins are four wins, not forty."""
    d = [1.0] * 40

    assert sign_flip_test(d, rng=rng(), clusters=[i // 10 for i in range(40)]) == 1 / 16


def test_sign_flip_alternatives():
    """The lift and the harm test mirror each other, and the two-sided one doubles."""
    d = [1.0, 0.5, 0.25, 0.5, -0.25]
    mirrored = [-x for x in d]

    assert sign_flip_test(d, rng=rng()) == sign_flip_test(mirrored, rng=rng(), alternative="less")
    assert sign_flip_test(d, rng=rng(), alternative="two-sided") == 2 * sign_flip_test(d, rng=rng())


@pytest.mark.parametrize(
    "options",
    [{"clusters": ["a"]}, {"alternative": "both"}, {"resamples": 10}],
)
def test_sign_flip_refuses(options):
    """Missing labels, unknown alternatives and too few resamples are refused."""
    with pytest.raises(StatisticsError):
        sign_flip_test([1.0, 0.0], rng=rng(), **options)
    with pytest.raises(StatisticsError):
        sign_flip_test([], rng=rng())
