"""The futility process: its stakes, its fold over tasks, and its vector form."""

import math

import numpy as np
import pytest

from skillforge.core.futility import FutilityProcess, futility_process
from skillforge.errors import StatisticsError


def folded(differences, min_effect=0.1):
    """Return the process after some differences."""
    process = FutilityProcess(min_effect=min_effect)
    for d in differences:
        process = process.bet(d)
    return process


def test_the_stake_follows_the_noise_of_the_tasks_before():
    """A task is staked on what came before it: m / (q̂ + m²), with 20 tasks of .25 at first."""
    first, second = 0.1 / (0.25 + 0.01), 0.1 / ((20 * 0.25 + 1) / 21 + 0.01)

    assert folded([1.0]).value == pytest.approx(1 - 0.9 * first)
    assert folded([1.0, 0.0]).value == pytest.approx((1 - 0.9 * first) * (1 + 0.1 * second))


def test_the_stake_is_capped():
    """However quiet the tasks, a lost bet leaves a tenth of the wealth."""
    quiet = folded([0.0] * 400, min_effect=0.5)
    lost = quiet.bet(1.0)

    assert lost.log_wealth - quiet.log_wealth == pytest.approx(math.log(1 - 0.9 * 0.5))


def test_a_restored_state_goes_on():
    """Four plain numbers are the whole state."""
    first = folded([1.0, -0.25])
    fields = ("min_effect", "log_wealth", "tasks", "squares")
    again = FutilityProcess(**{name: getattr(first, name) for name in fields})

    assert again.bet(-0.5) == folded([1.0, -0.25, -0.5])


def test_values_stay_finite():
    """Thousands of losses of the candidate do not overflow."""
    assert math.isfinite(futility_process(-np.ones(20_000), 0.1)[-1])
    assert math.isfinite(FutilityProcess(min_effect=0.1, log_wealth=5_000.0).value)


@pytest.mark.parametrize("bad", [1.01, -1.01, math.nan, math.inf])
def test_differences_outside_their_range(bad):
    """A difference that is no fraction is refused, alone and in an array."""
    with pytest.raises(StatisticsError):
        folded([bad])
    with pytest.raises(StatisticsError):
        futility_process([0.0, bad], 0.1)


@pytest.mark.parametrize("bad", [0.0, 1.0, 5.0, math.nan])
def test_effects_outside_their_range(bad):
    """The smallest effect must be a share strictly between 0 and 1."""
    with pytest.raises(StatisticsError, match="min_effect"):
        folded([0.0], min_effect=bad)
    with pytest.raises(StatisticsError, match="min_effect"):
        futility_process([0.0], bad)


def test_no_task_has_no_running_value():
    """Before the first task there is nothing to run over."""
    with pytest.raises(StatisticsError, match="at least one"):
        futility_process([], 0.1)
