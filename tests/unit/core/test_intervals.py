"""Intervals: shapes, limits and refusals; their numbers are checked under tests/reference."""

import time

import numpy as np
import pytest

from skillforge.core.intervals import (
    agresti_min_interval,
    bca_interval,
    betting_interval,
    clopper_pearson_interval,
    cluster_se,
    tango_interval,
    wilson_interval,
)
from skillforge.errors import StatisticsError

EXAMPLE = [1.0] * 15 + [-1.0] * 5 + [0.0] * 80


def test_betting_interval_of_one_pair_says_nothing():
    """After one pair every lift is still possible."""
    assert betting_interval([1.0]) == (-1.0, 1.0)


def test_betting_interval_without_discordance_is_not_certain():
    """Fifty ties leave an interval around 0 that is far from empty."""
    low, high = betting_interval([0.0] * 50)

    assert -0.2 < low < -0.05
    assert high == pytest.approx(-low, abs=1e-5)


def test_betting_interval_under_drift_is_still_an_interval():
    """Data that contradict a constant mean do not produce crossed limits."""
    low, high = betting_interval([1.0] * 100 + [-1.0] * 100)

    assert -1.0 <= low < high <= 1.0


def test_betting_interval_is_fast():
    """An interval for 200 pairs takes less than 20 ms."""
    d = np.random.default_rng(0).choice([1.0, -1.0, 0.0], p=[0.15, 0.05, 0.8], size=200)
    took = []
    for _ in range(5):
        start = time.perf_counter()
        betting_interval(d)
        took.append(time.perf_counter() - start)

    assert min(took) < 0.020


@pytest.mark.parametrize("interval", [agresti_min_interval, tango_interval])
def test_binary_intervals(interval):
    """Intervals of binary pairs hold the estimate, grow with confidence and stay in range."""
    low, high = interval(15, 5, 100)
    wide_low, wide_high = interval(15, 5, 100, confidence=0.99)

    assert wide_low < low < 0.10 < high < wide_high
    assert interval(20, 0, 20)[1] <= 1.0
    assert interval(0, 20, 20)[0] >= -1.0


@pytest.mark.parametrize("interval", [agresti_min_interval, tango_interval])
def test_binary_intervals_without_discordance(interval):
    """No discordant pair among 30 still leaves lifts of several points possible."""
    low, high = interval(0, 0, 30)

    assert low == pytest.approx(-high)
    assert high > 0.05


@pytest.mark.parametrize("interval", [agresti_min_interval, tango_interval])
@pytest.mark.parametrize("counts", [(0, 0, 1), (0, 0, 0), (6, 5, 10), (-1, 0, 10), (0.5, 0, 10)])
def test_binary_intervals_refuse(interval, counts):
    """Too few pairs, impossible counts and shares are refused."""
    with pytest.raises(StatisticsError):
        interval(*counts)


@pytest.mark.parametrize("interval", [wilson_interval, clopper_pearson_interval])
def test_rate_intervals(interval):
    """A rate of 0 or 1 has an interval that ends there and has a width."""
    assert interval(0, 10)[0] == 0.0
    assert interval(0, 10)[1] > 0.2
    assert interval(10, 10)[1] == 1.0
    assert interval(10, 10)[0] < 0.8
    assert interval(1, 1)[0] < 0.3


@pytest.mark.parametrize("interval", [wilson_interval, clopper_pearson_interval])
@pytest.mark.parametrize("bad", [(0, 0, 0.95), (3, 2, 0.95), (1, 2, 95), (1, 2, 1.0)])
def test_rate_intervals_refuse(interval, bad):
    """No trials, more successes than trials, and a confidence in percent are refused."""
    with pytest.raises(StatisticsError):
        interval(*bad)


def test_bca_is_reproducible():
    """The same generator state gives the same interval, another one nearly the same."""
    first = bca_interval(EXAMPLE, np.random.default_rng(3))
    again = bca_interval(EXAMPLE, np.random.default_rng(3))
    other = bca_interval(EXAMPLE, np.random.default_rng(4))

    assert first == again
    assert first == pytest.approx(other, abs=0.015)


@pytest.mark.parametrize("bad", [[], [1.0], [0.0] * 50, [1.0, np.nan], [1.0, 2.0]])
def test_bca_refuses(bad):
    """Too few pairs, no variation and scores out of range are refused."""
    with pytest.raises(StatisticsError):
        bca_interval(bad, np.random.default_rng(0))


def test_cluster_se_of_single_tasks():
    """With every task a cluster of its own it is sd/√n."""
    d = np.array(EXAMPLE)

    assert cluster_se(d, list(range(100))) == pytest.approx(d.std(ddof=1) / 10.0)


def test_cluster_se_grows_with_dependence():
    """Families whose tasks move together carry less information."""
    together = cluster_se(EXAMPLE, [i // 5 for i in range(100)])
    apart = cluster_se(EXAMPLE, [i % 20 for i in range(100)])

    assert together > 2 * apart


@pytest.mark.parametrize(
    ("d", "clusters"),
    [
        ([1.0, 0.0], ["a", "a"]),
        ([1.0], ["a"]),
        ([1.0, 0.0], ["a"]),
        ([0.1] * 7, list("abcdefg")),
        ([1.0, -1.0, 1.0, -1.0], list("aabb")),
    ],
)
def test_cluster_se_refuses(d, clusters):
    """One cluster, missing labels and no variation between clusters are refused, never 0."""
    with pytest.raises(StatisticsError):
        cluster_se(d, clusters)


@pytest.mark.parametrize("bad", [[], [[0.0, 1.0]], [2.0], [np.nan], ["x"], [[1.0], [1.0, 2.0]]])
def test_betting_interval_refuses(bad):
    """No data, wrong shapes, scores out of range and text are refused."""
    with pytest.raises(StatisticsError, match="betting interval"):
        betting_interval(bad)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 5.0, float("nan")])
def test_betting_interval_refuses_alpha(alpha):
    """An error probability is a share."""
    with pytest.raises(StatisticsError, match="alpha"):
        betting_interval([0.0, 1.0], alpha)
