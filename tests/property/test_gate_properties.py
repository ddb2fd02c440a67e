"""What must hold of the gate's course along an order, for any outcomes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from skillforge.core.course import run_course
from skillforge.core.finite_pool import pool_bets, refuted
from skillforge.core.gate import Basis, Decision, GateRules, decide
from skillforge.core.rollout import Pair, Void

quick = settings(deadline=None, max_examples=60)

SCORE = st.sampled_from([0.0, 0.25, 0.5, 1.0])
OUTCOME = st.one_of(
    st.tuples(SCORE, SCORE), st.tuples(SCORE, SCORE), st.sampled_from(["base", "augmented", "both"])
)
ORDERS = st.lists(OUTCOME, max_size=40).map(
    lambda rows: [
        Void(task=f"t{i}", arm=row)
        if isinstance(row, str)
        else Pair(task=f"t{i}", family="f", base=row[0], augmented=row[1])
        for i, row in enumerate(rows)
    ]
)
RULES = st.sampled_from([GateRules(), GateRules(finite_pool=True, deterministic=True)])
PATHS = ("claim", "harm", "futility", "charged")


@quick
@given(ORDERS, RULES, st.sampled_from(Basis), st.integers(0, 40), st.integers(0, 5))
def test_what_comes_later_changes_nothing_before(outcomes, rules, basis, cut, spare):
    """The course of a prefix is the prefix of the course, voids and finite pools included."""
    pool = len(outcomes) + spare
    whole = run_course(outcomes, rules, basis, pool=pool)
    part = run_course(outcomes[:cut], rules, basis, pool=pool)

    for name in PATHS:
        np.testing.assert_allclose(getattr(part, name), getattr(whole, name)[:cut], rtol=1e-12)


@quick
@given(ORDERS, RULES, st.sampled_from(Basis))
def test_the_charge_never_helps(outcomes, rules, basis):
    """Failures of the augmented arm alone only lower the evidence; without any it is the same."""
    course = run_course(outcomes, rules, basis, pool=len(outcomes))

    assert np.all(course.charged <= course.claim)
    if not any(isinstance(o, Void) and o.arm == "augmented" for o in outcomes):
        assert np.array_equal(course.charged, course.claim)


@quick
@given(ORDERS, st.sets(st.integers(0, 39)), RULES, st.sampled_from(Basis))
def test_no_choice_of_crashes_beats_honesty(outcomes, crashes, rules, basis):
    """Whichever tasks a skill crashes, its charged evidence is at most what it had without.

    The base arm may fail wherever it does, and the crash may look at every score.
    """
    crashed = [
        Void(task=o.task, arm="augmented", least=-o.base)
        if i in crashes and isinstance(o, Pair)
        else Void(task=o.task, arm="both")
        if i in crashes and o.arm == "base"
        else o
        for i, o in enumerate(outcomes)
    ]
    honest = run_course(outcomes, rules, basis, pool=len(outcomes))
    evasive = run_course(crashed, rules, basis, pool=len(outcomes))

    assert np.all(evasive.charged <= honest.charged * (1 + 1e-9))


@quick
@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=40), st.integers(0, 10))
def test_pool_bets_are_bets(d, spare):
    """However the draws fall, every bet can be paid, and a refuted null stays refuted."""
    left = len(d) + spare - np.arange(len(d))
    bets = pool_bets(d, left)
    known = refuted(d, left)

    assert np.all((bets >= -1.0) & (bets <= 2.0))
    assert np.all(np.diff(known.astype(int)) >= 0)
    if spare == 0:
        assert known[-1] == (sum(d) > 1e-9) or abs(sum(d)) < 1e-6


@quick
@given(ORDERS)
def test_a_withheld_verdict_says_so(outcomes):
    """Evidence that reached the bar and is no probation has a reason that explains it."""
    result = decide(outcomes, GateRules(), Basis.LIFT, enough=20.0)
    if result.evidence.e_charged >= 20 and result.decision is Decision.INSUFFICIENT_EVIDENCE:
        assert any(reason.startswith("verdict withheld") for reason in result.reasons)
