"""Sample sizes and minimum detectable effects."""

import numpy as np
import pytest

from skillforge.core.power import (
    mde,
    pairs_needed,
    power_of,
    sequential_pairs,
)
from skillforge.errors import StatisticsError


@pytest.mark.parametrize(("effect", "discordance"), [(0.05, 0.25), (0.1, 0.2), (0.2, 0.2)])
def test_mde_inverts_pairs_needed(effect, discordance):
    """The effect that the needed pairs can detect is the effect, and one pair less is too few."""
    n = pairs_needed(effect, discordance)

    assert mde(n, discordance) <= effect + 1e-9
    assert mde(n - 1, discordance) > effect


def test_mde_never_exceeds_what_the_discordance_allows():
    """Where q is too small for the effect, the effect is solved with a discordance as large."""
    effect = mde(20, 0.1)

    assert effect == pytest.approx(mde(20, effect))
    assert pairs_needed(effect, effect) == 20


def test_mde_shrinks_with_pairs_and_grows_with_noise():
    """More pairs detect less, more discordance detects less well."""
    assert mde(50, 0.2) > mde(100, 0.2) > mde(400, 0.2)
    assert mde(200, 0.4) > mde(200, 0.2)
    assert mde(200, 0.2, power=0.9) > mde(200, 0.2)
    assert mde(200, 0.2, alpha=0.005) > mde(200, 0.2)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_mde_of_too_few_pairs(n):
    """Too few pairs detect nothing, which is an error and not a number."""
    with pytest.raises(StatisticsError):
        mde(n, 0.2)


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.1, float("nan")])
def test_discordance_range(bad):
    """A discordance is a share above 0."""
    with pytest.raises(StatisticsError, match="discordance"):
        mde(100, bad)
    with pytest.raises(StatisticsError, match="discordance"):
        pairs_needed(0.05, bad)


@pytest.mark.parametrize("effect", [0.0, -0.1, 0.21, 10, float("nan")])
def test_effect_range(effect):
    """A lift above the discordance cannot be."""
    with pytest.raises(StatisticsError, match="effect"):
        pairs_needed(effect, 0.2)
    with pytest.raises(StatisticsError, match="effect"):
        sequential_pairs(effect, 0.2, rng=np.random.default_rng(0))


@pytest.mark.parametrize("options", [{"alpha": 0.5}, {"alpha": 5}, {"power": 0.4}, {"power": 80}])
def test_alpha_and_power_range(options):
    """Percentages in place of shares are refused."""
    with pytest.raises(StatisticsError):
        pairs_needed(0.1, 0.2, **options)


def test_sequential_pairs_are_reproducible_and_ordered():
    """The same generator state gives the same answer, and the quantiles are ordered."""
    first = sequential_pairs(0.2, 0.3, power=0.9, rng=np.random.default_rng(5))
    again = sequential_pairs(0.2, 0.3, power=0.9, rng=np.random.default_rng(5))

    assert first == again
    assert first.median < first.p80 < first.at_power
    assert 7 <= first.median < first.mean < first.p80
    assert first.crossed == 1.0


def test_sequential_pairs_beyond_the_cap_are_unknown():
    """A quantile beyond the cap is None, and the mean counts the cap."""
    found = sequential_pairs(0.02, 0.3, rng=np.random.default_rng(5), max_pairs=50)

    assert (found.median, found.p80, found.at_power) == (None, None, None)
    assert found.crossed < 0.2
    assert 40 < found.mean <= 50
    assert found.max_pairs == 50


def test_sequential_pairs_depend_on_the_level():
    """A stricter level takes more pairs."""
    loose = sequential_pairs(0.2, 0.3, alpha=0.2, rng=np.random.default_rng(5))
    strict = sequential_pairs(0.2, 0.3, alpha=0.005, rng=np.random.default_rng(5))

    assert loose.median < strict.median


def test_sure_wins_take_seven_pairs():
    """If every pair is a gain the process crosses 20 at the seventh."""
    found = sequential_pairs(1.0, 1.0, rng=np.random.default_rng(0))

    assert (found.median, found.p80, found.mean) == (7, 7, 7.0)


def test_power_grows_with_pairs_and_effect():
    """More pairs and larger lifts are found more often; sure wins are found or not."""
    assert power_of(50, 0.1, 0.2) < power_of(200, 0.1, 0.2) < power_of(200, 0.15, 0.2)
    assert (power_of(2, 1.0, 1.0), power_of(3, 1.0, 1.0)) == (0.0, 1.0)
    with pytest.raises(StatisticsError, match="n: got 1"):
        power_of(1, 0.1, 0.2)
    with pytest.raises(StatisticsError, match="effect"):
        power_of(100, 0.3, 0.2)


def test_a_tiny_alpha_is_a_large_quantile():
    """The quantile of 1 - alpha is finite also where 1 - alpha rounds to 1."""
    assert pairs_needed(0.1, 0.3, alpha=1e-300) > pairs_needed(0.1, 0.3, alpha=1e-12) > 1000
