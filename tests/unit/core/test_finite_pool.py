"""Betting without replacement: what is refused, and how the gate uses it."""

import numpy as np
import pytest

from skillforge.core.finite_pool import pool_bets, refuted
from skillforge.core.gate import Basis, Decision, GateRules, Registration, decide
from skillforge.core.rollout import Pair, Void
from skillforge.errors import ConfigError, StatisticsError

POOL = GateRules(finite_pool=True, deterministic=True)
SCORES = {"w": (0.0, 1.0), "l": (1.0, 0.0), "p": (1.0, 1.0)}


def outcomes(text):
    """Return one outcome per letter: win, loss, both pass, void of the augmented arm."""
    return [
        Void(task=f"t{i}", arm="augmented")
        if letter == "a"
        else Pair(task=f"t{i}", family="f", base=SCORES[letter][0], augmented=SCORES[letter][1])
        for i, letter in enumerate(text)
    ]


def judge(text, pool, *, basis=Basis.LIFT):
    """Run the gate over a sequence spelt in letters, drawn from a pool."""
    return decide(outcomes(text), POOL, basis, enough=1e300, pool=pool)


def test_the_first_bet_is_the_ordinary_one():
    """Before anything is drawn the null says the same with and without replacement."""
    assert pool_bets([0.3], [50]).tolist() == [0.3]


def test_a_win_makes_the_next_bet_bolder_and_a_loss_more_timid():
    """What is left must make up for what was drawn, if the null is true."""
    after_win, after_loss = pool_bets([[1.0, 1.0], [-1.0, 1.0]], [11, 10])[:, 1]

    assert after_win == pytest.approx(1.1)
    assert after_loss == pytest.approx(0.9 / 1.1)


def test_bets_stay_bets_when_the_null_is_impossible_or_certain():
    """However one-sided the draws, every bet stays in [-1, 2]."""
    for sign in (1.0, -1.0):
        bets = pool_bets(np.full(20, sign), 20 - np.arange(20))
        assert -1.0 <= bets.min() <= bets.max() <= 2.0


@pytest.mark.parametrize(
    ("bets", "left", "said"),
    [
        ([], [], "at least one bet"),
        ([0.0, 0.0], [2], "one count for each"),
        ([0.0, 0.0], [1, 0], "cannot give more tasks than it holds"),
        ([0.0, 0.0], [2, 2], "counts that fall"),
        ([0.0, 1.5], [2, 1], r"got 1.5 at position 1"),
        ([float("nan")], [1], "NaN"),
    ],
)
def test_bad_input_is_an_error(bets, left, said):
    """A pool that is too small and a bet outside its range are named, and give no number."""
    with pytest.raises(StatisticsError, match=said):
        pool_bets(bets, left)


def test_a_pool_drawn_to_its_end_leaves_nothing_uncertain():
    """Two wins and eight ties of ten tasks are a lift of that pool; of twelve they are not yet."""
    assert judge("wwpppppppp", pool=10).decision is Decision.PROBATION
    assert judge("wwpppppppp", pool=11).decision is Decision.PROBATION
    assert judge("wwpppppppp", pool=12).decision is Decision.INSUFFICIENT_EVIDENCE
    assert refuted([1.0, -1.0], [2, 1]).tolist() == [False, False]


def test_voids_leave_the_pool():
    """A task that failed is not among those that are left; its surplus counts as lost."""
    assert judge("awwppppppp", pool=10).decision is Decision.INSUFFICIENT_EVIDENCE
    text = "awww" + "p" * 16
    assert judge(text, pool=20).evidence.table.dropped == {"base": 0, "augmented": 1}
    assert judge(text, pool=20).decision is Decision.PROBATION


@pytest.mark.parametrize("basis", list(Basis))
def test_the_pool_of_a_removal_and_of_a_lift(basis):
    """Ties prove a removal harmless once what is left cannot undo it, and never prove a lift."""
    result = judge("p" * 40, pool=40, basis=basis)
    removal = basis is Basis.NON_INFERIORITY

    assert (result.decision is Decision.PROBATION) == removal


def test_a_worker_that_is_not_declared_deterministic_is_refused():
    """The error says what would go wrong, and which settings to change."""
    with pytest.raises(ConfigError, match=r"finite_pool.*not declared deterministic.*\[model\]"):
        GateRules(finite_pool=True)
    with pytest.raises(ConfigError, match="'families'; expected 'tasks'"):
        GateRules(finite_pool=True, deterministic=True, inference="families")


def test_a_pool_smaller_than_the_order_is_refused():
    """A registration names the pool that its order was drawn from."""
    fields = {"candidate": "c", "skill": "s", "base": "v1", "version": "v2", "lineage": "s/x"}
    with pytest.raises(StatisticsError, match="'c': a pool of 1 tasks for an order of 2"):
        Registration(**fields, basis=Basis.LIFT, rules=POOL, order=("a", "b"), enough=10.0, pool=1)
    with pytest.raises(StatisticsError, match="cannot give more tasks"):
        judge("wwww", pool=3)
