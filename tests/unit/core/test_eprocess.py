"""Bets, the incremental e-process and its vector form."""

import dataclasses
import math

import numpy as np
import pytest

from skillforge.core.eprocess import (
    DEFAULT_LAMBDAS,
    EProcess,
    e_process,
    futility_bet,
    harm_bet,
    lift_bet,
    non_inferiority_bet,
)
from skillforge.errors import StatisticsError


def test_default_stakes():
    """The stakes of the gate are the four that the design names."""
    assert DEFAULT_LAMBDAS == (0.2, 0.4, 0.6, 0.8)


def test_start_is_one():
    """Before the first pair the e-value is exactly 1."""
    assert EProcess.start().value == 1.0
    assert EProcess.start().log_value == 0.0


def test_one_win_and_one_loss():
    """A single win multiplies by the mean of 1 + λ, a single loss by the mean of 1 - λ."""
    start = EProcess.start()

    assert start.bet(1.0).value == pytest.approx(1.5)
    assert start.bet(-1.0).value == pytest.approx(0.5)


def test_tie_moves_nothing():
    """A tie leaves the state of a lift process as it is."""
    process = EProcess.start().bet(1.0)

    assert process.bet(lift_bet(0.0)) == process


def test_state_is_immutable():
    """A bet returns a new state, and the old one cannot be changed."""
    process = EProcess.start()
    process.bet(1.0)

    assert process.value == 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        process.lambdas = (0.5,)  # type: ignore[misc]


def test_state_restores_from_its_fields():
    """A process stored as plain numbers continues where it stopped."""
    first = EProcess.start().bet(1.0).bet(0.25)
    again = EProcess(lambdas=first.lambdas, log_wealths=first.log_wealths)

    assert again.bet(-0.5) == first.bet(-0.5)


def test_vector_form_agrees_with_steps():
    """The running values are those of the incremental process."""
    bets = [1.0, 0.0, -1.0, 0.3, -0.7, 2.0]
    process, values = EProcess.start(), []
    for x in bets:
        process = process.bet(x)
        values.append(process.value)

    assert e_process(bets).tolist() == pytest.approx(values, rel=1e-12)


def test_vector_form_takes_many_paths():
    """Each row of a matrix is a process of its own."""
    rows = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 1.0]])
    values = e_process(rows)

    assert values.shape == (2, 3)
    assert values[1].tolist() == e_process(rows[1]).tolist()


def test_long_runs_stay_finite():
    """Thousands of wins or losses neither overflow nor underflow to an error."""
    assert math.isfinite(e_process(np.ones(20_000))[-1])
    assert e_process(-np.ones(20_000))[-1] == 0.0
    process = EProcess(lambdas=(0.5,), log_wealths=(5_000.0,))
    assert math.isfinite(process.value)
    assert process.log_value == 5_000.0


def test_single_stake_is_the_fixed_process():
    """With λ = 0.5 a win is worth 1.5 and a loss 0.5."""
    process = EProcess.start((0.5,)).bet(1.0).bet(1.0).bet(-1.0)

    assert process.value == pytest.approx(1.5 * 1.5 * 0.5)


def test_named_bets():
    """Each named bet is the stated function of the difference."""
    assert lift_bet(0.25) == 0.25
    assert harm_bet(0.25) == -0.25
    assert non_inferiority_bet(-0.25, 0.05) == pytest.approx(-0.2)
    assert futility_bet(0.25, 0.1) == pytest.approx(-0.15)


def test_named_bets_on_arrays():
    """A bet of an array is the array of the bets."""
    d = np.array([1.0, 0.0, -1.0])

    assert harm_bet(d).tolist() == [-1.0, 0.0, 1.0]
    assert non_inferiority_bet(d, 0.1).tolist() == [1.1, 0.1, -0.9]
    assert futility_bet(d, 0.1).tolist() == [-0.9, 0.1, 1.1]


@pytest.mark.parametrize("bad", [1.01, -1.01, 5.0, math.nan, math.inf])
def test_differences_outside_their_range(bad):
    """A difference that is no fraction is refused by every bet, alone and in an array."""
    for d in (bad, np.array([0.0, bad])):
        with pytest.raises(StatisticsError, match="within"):
            lift_bet(d)
        with pytest.raises(StatisticsError, match="within"):
            harm_bet(d)
        with pytest.raises(StatisticsError, match="within"):
            non_inferiority_bet(d, 0.05)
        with pytest.raises(StatisticsError, match="within"):
            futility_bet(d, 0.1)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.05, 5.0, math.nan])
def test_margins_outside_their_range(bad):
    """A margin or smallest effect must be a share strictly between 0 and 1."""
    with pytest.raises(StatisticsError, match="margin"):
        non_inferiority_bet(0.0, bad)
    with pytest.raises(StatisticsError, match="min_effect"):
        futility_bet(0.0, bad)


@pytest.mark.parametrize("bad", [-1.01, 2.01, math.nan, math.inf, -math.inf])
def test_bets_outside_their_range(bad):
    """A bet that could turn wealth negative, or is no number, is refused."""
    with pytest.raises(StatisticsError):
        EProcess.start().bet(bad)
    with pytest.raises(StatisticsError):
        e_process([0.0, bad])


@pytest.mark.parametrize("bad", [(), (0.0,), (1.0,), (0.5, -0.1), (math.nan,)])
def test_stakes_outside_their_range(bad):
    """Stakes are at least one, each strictly between 0 and 1."""
    with pytest.raises(StatisticsError, match="lambdas"):
        EProcess.start(bad)
    with pytest.raises(StatisticsError, match="lambdas"):
        e_process([1.0], bad)


@pytest.mark.parametrize("bad", [(0.0,), (0.0, math.nan), (0.0, -math.inf)])
def test_damaged_state(bad):
    """A stored state with a missing or impossible wealth is refused."""
    with pytest.raises(StatisticsError, match="log_wealths"):
        EProcess(lambdas=(0.2, 0.4), log_wealths=bad)


@pytest.mark.parametrize("bad", [[], np.zeros((3, 0)), 1.0, ["a"]])
def test_no_bets(bad):
    """Without bets there are no running values to return."""
    with pytest.raises(StatisticsError, match="bets"):
        e_process(bad)
