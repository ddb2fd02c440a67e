"""The average harm of several neighbours, round by round."""

import numpy as np
import pytest

from skillforge.core.course import run_course
from skillforge.core.gate import Basis, GateRules
from skillforge.core.multiplicity import average_e
from skillforge.core.rollout import Pair, Void
from skillforge.core.shadowing import average_harm

RULES = GateRules()
SCORES = {"h": (0.0, 1.0), "g": (1.0, 0.0), "t": (1.0, 1.0)}


def course(text):
    """Return the course of letters: h(arm), g(ain) and t(ie) by the edit, v(oid)."""
    outcomes = [
        Void(task=f"t{i}", arm="base")
        if letter == "v"
        else Pair(task=f"t{i}", family="f", base=SCORES[letter][0], augmented=SCORES[letter][1])
        for i, letter in enumerate(text)
    ]
    return run_course(outcomes, RULES, Basis.LIFT)


def standing(*texts, totals=None):
    """Return where neighbours stand that registered as many tasks as they have, or more."""
    return average_harm([course(t) for t in texts], totals or [len(t) for t in texts], RULES)


def test_the_average_is_that_of_the_current_values():
    """Each neighbour's evidence is its own process, and their mean is the e-value of all."""
    found = standing("hhtg", "tttt", "ghhh")

    values = [course(text).claim[-1] for text in ("hhtg", "tttt", "ghhh")]
    assert found.e_values == pytest.approx(values)
    assert found.average == pytest.approx(average_e(values))
    assert found.final
    assert not found.harmful


def test_one_neighbour_that_loses_everything_carries_the_average():
    """Five times the bar of one is what one of five must bring; the verdict is final at once."""
    found = standing("h" * 12, *["t" * 12] * 4)

    assert found.harmful
    assert found.final
    assert found.average >= 5
    assert found.e_values[0] >= 25 - 4
    assert set(found.bets) == {int(np.argmax(course("h" * 12).claim >= 21)) + 1}


def test_what_comes_after_the_verdict_does_not_take_it_back():
    """Losses turned into wins later leave the verdict and its numbers as they were."""
    assert standing("h" * 7 + "g" * 30) == standing("h" * 7, totals=[37])


def test_only_rounds_that_all_have_finished_count():
    """A neighbour that is ahead waits for the others, so that the order of arrival is nothing."""
    ahead = standing("hhhhhh", "tt", totals=[6, 6])

    assert ahead.bets == (2, 2)
    assert ahead.active == (False, True)
    assert ahead.e_values == standing("hh", "tt").e_values
    assert not ahead.final


def test_a_neighbour_with_fewer_tasks_keeps_its_value():
    """Who has no task left stays in the average with what it has won or lost."""
    found = standing("gg", "hhhhhh")

    assert found.bets == (2, 6)
    assert found.average == pytest.approx((course("gg").claim[-1] + course("hhhhhh").claim[-1]) / 2)


def test_a_neighbour_for_which_harm_is_refuted_bets_no_more():
    """Ties refute a harm of ten points after 36 tasks; later losses are not looked at."""
    found = standing("t" * 36 + "h" * 20, "t" * 20, totals=[56, 20])

    assert found.futile == (True, False)
    assert found.bets == (36, 20)
    assert found.final
    assert found.average == 1.0


def test_voids_are_no_bets():
    """A task that infrastructure took leaves the evidence of its neighbour where it was."""
    assert standing("hvvh").e_values == pytest.approx([course("hh").claim[-1]])


def test_nobody_to_ask_is_a_verdict():
    """Without neighbours the average is 1, and there is nothing to wait for."""
    found = average_harm([], [], RULES)

    assert (found.average, found.harmful, found.final) == (1.0, False, True)


def test_nothing_done_yet_is_none():
    """Before the first round every neighbour is at 1, and all are active."""
    found = standing("", "", totals=[3, 3])

    assert (found.average, found.bets, found.final) == (1.0, (0, 0), False)
