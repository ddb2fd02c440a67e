"""Betting without replacement, checked over every order in which a small pool can be drawn."""

import itertools

import numpy as np
import pytest

from skillforge.core.confidence_sequence import betting_interval
from skillforge.core.eprocess import DEFAULT_LAMBDAS, e_process
from skillforge.core.finite_pool import pool_bets, refuted

POOLS = {
    "even": [1, 1, -1, -1, 0, 0, 0],
    "graded": [0.5, 0.25, -0.75, 0.0, 0.5, -0.5, 0.0],
    "one loss against many small wins": [-1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.0],
    "harmful": [1, 0, 0, -1, -1, -1, 0],
}


def orders(pool):
    """Return every order of a pool, shape (n!, n)."""
    return np.array(list(itertools.permutations(pool)), dtype=float)


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_no_order_pays_on_average_under_the_null(pool):
    """Over all orders the expected e-value is at most 1 after every draw, exactly 1 if even."""
    d = orders(pool)
    mean = e_process(pool_bets(d, len(pool) - np.arange(len(pool)))).mean(axis=0)

    assert np.all(mean <= 1 + 1e-9)
    if sum(pool) == 0:
        assert mean[:3] == pytest.approx(1.0)


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("alpha", [0.05, 0.20, 0.5])
def test_crossings_over_all_orders_keep_the_level(pool, alpha):
    """The share of orders in which 1/α is ever reached is at most α, certainty included."""
    left = len(pool) - np.arange(len(pool))
    d = orders(pool)
    crossed = (e_process(pool_bets(d, left)) >= 1 / alpha) | refuted(d, left)

    assert crossed.any(axis=1).mean() <= alpha


def test_every_order_of_a_pool_with_a_lift_ends_in_certainty():
    """A pool whose mean is above 0 is recognised by its last draw, in every order."""
    d = orders([1, 1, -1, 0, 0, 0, 0])
    assert refuted(d, 7 - np.arange(7))[:, -1].all()


def test_the_null_mean_is_that_of_the_source():
    """The bets are those of Waudby-Smith and Ramdas §5: x - (N m₀ - Σ x) / (N - i + 1)."""
    rng = np.random.default_rng(1)
    d = rng.permutation([1.0] * 5 + [-1.0] * 4 + [0.0] * 31)
    wealth, total = np.ones(4), 0.0
    for i, x in enumerate(d):
        m = (0.0 - total) / (len(d) - i)
        scale = 1 / max(1.0, 1.0 + m)  # keeps every stake below ruin, as their truncation does
        wealth = wealth * (1 + np.array(DEFAULT_LAMBDAS) * (x - m) * scale)
        total += x

    assert e_process(pool_bets(d, 40 - np.arange(40)))[-1] == pytest.approx(wealth.mean())


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_the_interval_covers_the_pool_in_every_order_but_few(pool):
    """Of all orders at most α ever have an interval without the pool's mean, at any draw."""
    alpha, mean = 0.2, float(np.mean(pool))
    every = orders(pool)[:: 7 if len(set(pool)) > 3 else 21]
    missed = 0
    for d in every:
        left = len(pool) - np.arange(len(pool))
        missed += any(
            not low - 1e-9 <= mean <= high + 1e-9
            for n in range(2, len(pool) + 1)
            for low, high in [betting_interval(d[:n], alpha, left=left[:n])]
        )

    assert missed / len(every) <= alpha
