"""The gate's verdicts, on sequences short enough to check by hand."""

import json
import math

import pytest

from skillforge.core.course import run_course
from skillforge.core.digest import canonical_json
from skillforge.core.gate import (
    Basis,
    CohortMember,
    Decision,
    GateRules,
    Registration,
    basis_of,
    decide,
    promote,
)
from skillforge.core.rollout import Pair, Void
from skillforge.errors import ConfigError

RULES = GateRules()
LIFT, REMOVAL = Basis.LIFT, Basis.NON_INFERIORITY
NEVER = 1e300
"""An `enough` that no sequence of these tests reaches."""

SCORES = {"w": (0.0, 1.0), "l": (1.0, 0.0), "p": (1.0, 1.0), "f": (0.0, 0.0)}


def outcomes(text):
    """Return one outcome per letter: win, loss, both pass, both fail, void (b: base, a: other)."""
    found = []
    for i, letter in enumerate(text):
        if letter in SCORES:
            base, augmented = SCORES[letter]
            found.append(Pair(task=f"t{i}", family="f", base=base, augmented=augmented))
        else:
            found.append(Void(task=f"t{i}", arm={"b": "base", "a": "augmented"}[letter]))
    return found


def judge(text, *, rules=RULES, basis=LIFT, enough=NEVER, stop=True):
    """Run the gate over a sequence spelt in letters."""
    return decide(outcomes(text), rules, basis, enough=enough, stop=stop)


def mixture(bets):
    """Return the mean over the four stakes of the wealth after some bets, multiplied out."""
    total = 0.0
    for stake in (0.2, 0.4, 0.6, 0.8):
        wealth = 1.0
        for x in bets:
            wealth *= 1 + stake * x
        total += wealth
    return total / 4


# --- Probation ----------------------------------------------------------------------------------


def test_nothing_measured_is_insufficient():
    """Without a pair every process is at 1 and nothing is claimed, not even a lift of 0."""
    result = judge("")

    assert result.decision is Decision.INSUFFICIENT_EVIDENCE
    assert (result.used, result.final) == (0, False)
    assert (result.evidence.e_value, result.evidence.e_harm, result.evidence.e_futility) == (
        1.0,
        1.0,
        1.0,
    )
    assert result.evidence.lift is result.evidence.lift_interval is result.evidence.mde is None


@pytest.mark.parametrize(
    ("wins", "e_value", "decision"),
    [
        (6, 15.32624, Decision.INSUFFICIENT_EVIDENCE),
        (7, 25.54752, Decision.PROBATION),
    ],
)
def test_seven_straight_wins_reach_probation(wins, e_value, decision):
    """(1.2⁷ + 1.4⁷ + 1.6⁷ + 1.8⁷) / 4 = 25.5 passes 20, with six wins it is 15.3."""
    result = judge("w" * wins)

    assert result.decision is decision
    assert result.evidence.e_value == pytest.approx(e_value)


def test_ties_and_voids_neither_help_nor_hurt_a_lift():
    """A tie bets nothing and a void is no bet, so seven wins among them are still enough."""
    result = judge("wpwfwbwpwfwpw")

    assert result.decision is Decision.PROBATION
    assert result.evidence.e_value == pytest.approx(25.54752)
    assert result.evidence.table.to_json() == {
        "pairs": 12,
        "gains": 7,
        "regressions": 0,
        "residual": 2,
        "retained": 3,
        "dropped": {"base": 1, "augmented": 0},
        "agent_failures": {"base": {}, "augmented": {}},
    }


def test_probation_stands_when_the_evidence_falls_again():
    """Crossing 1/α once is what counts; the number reported is the current one."""
    result = judge("wwwwwwwlll")

    assert result.decision is Decision.PROBATION
    assert not result.final
    assert result.evidence.e_value == pytest.approx(mixture([1] * 7 + [-1] * 3))
    assert result.evidence.e_value < 20
    assert "reached 1/0.05; now" in result.reasons[0]


def test_a_stricter_alpha_needs_more():
    """At α = .01 seven wins are not enough, ten are (125.5)."""
    rules = GateRules(alpha=0.01)

    assert judge("w" * 7, rules=rules).decision is Decision.INSUFFICIENT_EVIDENCE
    assert judge("w" * 10, rules=rules).decision is Decision.PROBATION


def test_graded_differences_are_bet_as_they_are():
    """A difference of 0.5 multiplies each wealth by 1 + λ/2."""
    pairs = [Pair(task=f"t{i}", family="f", base=0.25, augmented=0.75) for i in range(3)]
    result = decide(pairs, RULES, LIFT, enough=NEVER)

    assert result.evidence.e_value == pytest.approx((1.1**3 + 1.2**3 + 1.3**3 + 1.4**3) / 4)
    assert result.evidence.lift == 0.5


# --- Harm, futility -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "e_harm", "decision"),
    [(3, 3.6, Decision.INSUFFICIENT_EVIDENCE), (4, 5.7416, Decision.REJECTED_HARM)],
)
def test_four_straight_losses_stop_a_candidate(losses, e_harm, decision):
    """(1.2⁴ + 1.4⁴ + 1.6⁴ + 1.8⁴) / 4 = 5.74 passes 1/.20."""
    result = judge("l" * losses)

    assert result.decision is decision
    assert result.evidence.e_harm == pytest.approx(e_harm)
    assert result.final == (decision is Decision.REJECTED_HARM)


def test_harm_stops_a_removal_too():
    """A removal that breaks tasks is stopped by the same process."""
    assert judge("llll", basis=REMOVAL).decision is Decision.REJECTED_HARM


def test_harm_on_probation_rolls_back_at_the_stricter_rate():
    """On probation the candidate is served: 1/.05 rolls it back, 1/.20 does not yet stop it."""
    losses = next(n for n in range(1, 40) if mixture([-1] * 7 + [1] * n) >= 20)
    before, after = judge("w" * 7 + "l" * (losses - 1)), judge("w" * 7 + "l" * (losses + 5))

    assert 5 < before.evidence.e_harm < 20
    assert before.decision is Decision.PROBATION
    assert after.decision is Decision.ROLLED_BACK
    assert after.used == 7 + losses
    assert after.evidence.e_harm == pytest.approx(mixture([-1] * 7 + [1] * losses))


@pytest.mark.parametrize(
    ("ties", "decision"),
    [(35, Decision.INSUFFICIENT_EVIDENCE), (36, Decision.REJECTED_FUTILE)],
)
def test_thirty_six_ties_are_futile(ties, decision):
    """A tie wins .1 of a stake that grows as the tasks stay quiet: 9.95, then 10.84.

    Before the t-th of them the noise is guessed as 20 · .25 / (20 + t − 1).
    """
    result = judge(("pf" * 21)[:ties])
    noise = [5 / (20 + t) for t in range(ties)]
    stakes = [min(0.9, 0.1 / (q + 0.01)) for q in noise]

    assert result.decision is decision
    assert result.evidence.e_futility == pytest.approx(math.prod(1 + 0.1 * s for s in stakes))
    assert result.evidence.e_value == 1.0


def test_futility_is_no_rule_for_removals():
    """A removal may change nothing and still be right: 50 ties are on its side."""
    result = judge("pf" * 25, basis=REMOVAL)

    assert result.decision is Decision.INSUFFICIENT_EVIDENCE
    assert not result.final
    assert result.evidence.e_futility > 10


def test_futility_is_no_rule_on_probation():
    """What has proven a lift is not dropped because the lift turns out small."""
    result = judge("w" * 7 + "pf" * 90)

    assert result.evidence.e_futility > 10
    assert result.decision is Decision.PROBATION


# --- Non-inferiority ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ties", "decision"),
    [(100, Decision.INSUFFICIENT_EVIDENCE), (101, Decision.PROBATION)],
)
def test_a_removal_that_changes_nothing_needs_101_tasks(ties, decision):
    """Each tie wins the margin of .05: 19.9 after 100 of them, 20.6 after 101."""
    result = judge(("pf" * 51)[:ties], basis=REMOVAL)

    assert result.decision is decision
    assert result.basis is REMOVAL
    assert result.evidence.e_value == pytest.approx(mixture([0.05] * ties))


def test_a_wider_margin_needs_fewer_tasks():
    """With ten points of margin 60 ties are enough."""
    assert mixture([0.1] * 60) > 20

    result = judge("pf" * 30, basis=REMOVAL, rules=GateRules(margin=0.10))
    assert result.decision is Decision.PROBATION


def test_a_loss_weighs_more_than_the_margin():
    """One loss among the ties of a removal bets −.95."""
    result = judge("pfl", basis=REMOVAL)

    assert result.evidence.e_value == pytest.approx(mixture([0.05, 0.05, -0.95]))


@pytest.mark.parametrize(
    ("op", "basis"),
    [
        ("CREATE", LIFT),
        ("UPDATE", LIFT),
        ("NOOP", LIFT),
        ("PRUNE", REMOVAL),
        ("MERGE", REMOVAL),
    ],
)
def test_what_each_operation_claims(op, basis):
    """Removals and merges must only not be worse; everything else must help."""
    assert basis_of(op) is basis


# --- When betting ends --------------------------------------------------------------------------


@pytest.mark.parametrize(("enough", "used"), [(20, 7), (30, 8), (400, 13)])
def test_betting_goes_on_during_probation_until_it_is_enough(enough, used):
    """A winner is bet on past 1/α until its evidence passes e-BH whatever the others do."""
    result = judge("w" * 20, enough=enough)

    assert (result.decision, result.final) == (Decision.PROBATION, True)
    assert result.used == used
    assert result.evidence.e_value == pytest.approx(mixture([1] * used))


def test_overshoot_is_not_counted():
    """Pairs and voids after the verdict, in flight when it fell, change nothing."""
    assert judge("llll" + "w" * 30 + "aaa") == judge("llll")
    assert judge("w" * 7 + "l" * 30, enough=20) == judge("w" * 7, enough=20)


def test_used_counts_voids_before_the_verdict():
    """The tasks that are used up are those of pairs and of voids, up to the verdict."""
    result = judge("bbllaallpp")

    assert result.decision is Decision.REJECTED_HARM
    assert result.used == 8
    assert result.evidence.table.dropped == {"base": 2, "augmented": 2}


def test_without_stopping_every_pair_counts_and_the_verdict_stands():
    """A fixed-size study reports all pairs; the verdict is the first one along the order."""
    result = judge("llll" + "w" * 30, stop=False)

    assert result.used == result.evidence.table.pairs == 34
    assert result.decision is Decision.REJECTED_HARM
    assert result.evidence.lift == pytest.approx(26 / 34)
    assert result.evidence.e_value == pytest.approx(mixture([-1] * 4 + [1] * 30))
    assert "reached 1/0.2; now" in result.reasons[0]


def test_a_prefix_gives_the_same_result_when_it_is_asked_again():
    """Deciding is a function of the prefix, down to the JSON that the ledger keeps."""
    text = "wplfwwfaapwbwwpwlwwwwww"
    for cut in range(len(text)):
        once, twice = judge(text[:cut]), judge(text[:cut])
        assert canonical_json(once.to_json()) == canonical_json(twice.to_json())


def test_every_look_is_the_decision_on_its_prefix():
    """The course along the order holds after each task what deciding on that prefix gives."""
    text = "wwpwabalwwfwaw"
    course = run_course(outcomes(text), RULES, LIFT)
    for used in range(1, len(text) + 1):
        evidence = judge(text[:used]).evidence
        assert course.claim[used - 1] == evidence.e_value
        assert course.harm[used - 1] == evidence.e_harm
        assert course.futility[used - 1] == evidence.e_futility


# --- Withheld verdicts --------------------------------------------------------------------------


def test_a_removal_from_a_skill_that_never_works_is_withheld():
    """A hundred failures in both arms say nothing about what was removed."""
    result = judge("f" * 110, basis=REMOVAL)

    assert result.evidence.e_value > 20
    assert result.decision is Decision.INSUFFICIENT_EVIDENCE
    assert result.reasons[-1].startswith("verdict withheld: a skill that never works")


def test_a_removal_from_a_skill_that_always_works_is_not_withheld():
    """All tasks passing in both arms is what a safe removal looks like; it is remarked on."""
    result = judge("p" * 110, basis=REMOVAL)

    assert result.decision is Decision.PROBATION
    assert "every task passes in both arms" in result.reasons[1]


def test_low_graded_scores_that_differ_are_not_constant():
    """Tasks below the pass mark still tell the arms apart where their scores differ."""
    pairs = [
        Pair(task=f"t{i}", family="f", base=0.1, augmented=0.1 + 0.2 * (i % 2)) for i in range(60)
    ]
    result = decide(pairs, RULES, REMOVAL, enough=NEVER)

    assert result.evidence.table.residual == 60
    assert result.decision is Decision.PROBATION
    assert len(result.reasons) == 1


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("w" * 7 + "aa", Decision.INSUFFICIENT_EVIDENCE),
        ("w" * 7 + "bb", Decision.INSUFFICIENT_EVIDENCE),
        ("w" * 7 + "aabb", Decision.PROBATION),
        ("w" * 7 + "pf" * 2 + "a", Decision.PROBATION),
        ("w" * 9 + "a", Decision.INSUFFICIENT_EVIDENCE),
    ],
)
def test_infrastructure_failures_of_one_arm_withhold_probation(text, decision):
    """More than a tenth of the pairs lost on one side only may be the edit's own doing."""
    result = judge(text)

    assert result.evidence.e_value > 20
    assert result.decision is decision
    assert any("voided by infrastructure failures" in reason for reason in result.reasons)
    withheld = "verdict withheld: infrastructure failures differ between the arms"
    assert (withheld in result.reasons) == (decision is not Decision.PROBATION)


def test_rejections_are_not_withheld():
    """Uneven failures do not save a candidate that does harm."""
    assert judge("aaallll").decision is Decision.REJECTED_HARM


def test_nothing_but_voids_is_insufficient():
    """Without a single pair there is no verdict, and the voids are counted."""
    result = judge("aab")

    assert result.decision is Decision.INSUFFICIENT_EVIDENCE
    assert (result.used, result.evidence.table.pairs) == (3, 0)
    assert result.evidence.table.dropped == {"base": 1, "augmented": 2}


# --- Numbers ------------------------------------------------------------------------------------


def test_the_interval_needs_two_pairs_and_covers_the_mean():
    """One pair has no interval; with more, it lies around the observed lift."""
    assert judge("w").evidence.lift_interval is None
    low, high = judge("wpwlwf").evidence.lift_interval

    assert -1 <= low < 2 / 6 < high <= 1


def test_the_effect_that_could_be_found_follows_alpha():
    """The MDE needs seven pairs, shrinks with more, and grows as α gets stricter."""
    few, many = judge("wpfppff"), judge("wpf" * 12)
    strict = judge("wpf" * 12, rules=GateRules(alpha=0.01))

    assert judge("wpfppf").evidence.mde is None
    assert few.evidence.mde > many.evidence.mde
    assert strict.evidence.mde > many.evidence.mde


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.4999, 0.5, 0.9])
def test_no_alpha_makes_few_pairs_an_error(alpha):
    """Where no effect could be found at that α, there is no MDE, and the decision is still made."""
    result = judge("wpf", rules=GateRules(alpha=alpha))

    assert result.evidence.mde is None or 0 < result.evidence.mde <= 1


def test_the_result_as_json():
    """The ledger keeps the decision under the names that the commands print."""
    data = json.loads(canonical_json(judge("wlpf").to_json()))

    assert set(data) == {"decision", "basis", "used", "reasons", "confirm"}
    assert set(data["confirm"]) == {
        *("pairs", "gains", "regressions", "residual", "retained", "dropped"),
        *("lift", "lift_interval", "e_value", "e_harm", "e_futility", "mde"),
        *("e_charged", "all_pass", "all_fail", "truncated", "agent_failures"),
    }
    assert (data["decision"], data["basis"]) == ("insufficient_evidence", "lift")


# --- Rules and registration ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["alpha", "beta", "min_effect", "margin", "harm_stop", "harm_retire", "fdr"]
)
@pytest.mark.parametrize("value", [0, 1, -0.1, 5, float("nan"), float("inf")])
def test_rates_lie_between_zero_and_one(name, value):
    """A rate in per cent, a NaN or a negative one is refused by name."""
    with pytest.raises(ConfigError, match=rf"\[gate\] {name} is .*between 0 and 1"):
        GateRules(**{name: value})


def test_the_horizon_is_at_least_one_task():
    """No task at all is no gate."""
    with pytest.raises(ConfigError, match="max_tasks is 0; expected at least 1"):
        GateRules(max_tasks=0)
    assert GateRules(max_tasks=1).max_tasks == 1


@pytest.mark.parametrize("lambdas", [(), (0.0,), (1.0,), (0.2, 1.5), (float("nan"),)])
def test_stakes_lie_between_zero_and_one(lambdas):
    """A stake of everything could be ruined by one loss."""
    with pytest.raises(ConfigError, match="lambdas"):
        GateRules(lambdas=lambdas)


def test_rules_come_back_from_json():
    """What the registration event holds gives the same rules, floats included."""
    rules = GateRules(alpha=1 / 30, max_tasks=77, lambdas=(0.1, 1 / 3))

    assert GateRules.from_json(json.loads(canonical_json(rules.to_json()))) == rules


def test_a_registration_comes_back_from_json():
    """Claim, rules and order are read back as they were fixed."""
    registration = Registration(
        candidate="c1",
        skill="ask",
        base="v1",
        version="v2",
        basis=REMOVAL,
        rules=GateRules(margin=0.07),
        order=("t3", "t1", "t2"),
        enough=30.0,
        lineage="ask/prune",
    )
    data = json.loads(canonical_json(registration.to_json()))

    assert Registration.from_json(data) == registration
    assert data["estimand"].startswith("mean paired difference")


# --- The cohort ---------------------------------------------------------------------------------


def cohort(**members):
    """Return members by candidate: (decision, e-value)."""
    return [
        CohortMember(candidate=name, decision=decision, e_value=e)
        for name, (decision, e) in members.items()
    ]


P, I, F = Decision.PROBATION, Decision.INSUFFICIENT_EVIDENCE, Decision.REJECTED_FUTILE  # noqa: E741


def test_an_empty_cohort_promotes_nothing():
    """No candidate, no discovery."""
    assert promote([], 0.10) == ()


@pytest.mark.parametrize(
    ("members", "promoted"),
    [
        ({"a": (P, 25.0)}, ("a",)),
        ({"a": (P, 25.0), "b": (F, 0.1), "c": (F, 0.1)}, ()),
        ({"a": (P, 30.0), "b": (F, 0.1), "c": (I, 1.0)}, ("a",)),
        ({"a": (P, 20.0), "b": (P, 20.0), "c": (F, 0.1), "d": (I, 2.0)}, ("a", "b")),
        ({"a": (P, 20.0), "b": (P, 19.0), "c": (F, 0.1), "d": (I, 2.0)}, ()),
    ],
)
def test_every_candidate_that_started_counts(members, promoted):
    """The k-th largest of m must reach m / (k · .10)."""
    assert promote(cohort(**members), 0.10) == promoted


def test_the_current_evidence_counts_not_the_highest():
    """A candidate that is on probation but whose evidence has fallen is not promoted."""
    assert promote(cohort(a=(P, 9.9)), 0.10) == ()


@pytest.mark.parametrize(
    "decision", [Decision.ROLLED_BACK, Decision.REJECTED_HARM, Decision.INSUFFICIENT_EVIDENCE]
)
def test_what_is_not_kept_is_not_promoted_and_helps_nobody(decision):
    """A rolled back or withheld member with high evidence lets no other member through."""
    assert promote(cohort(a=(decision, 1e6)), 0.10) == ()
    assert promote(cohort(a=(decision, 1e6), b=(P, 19.0)), 0.10) == ()
    assert promote(cohort(a=(decision, 1e6), b=(P, 20.0)), 0.10) == ("b",)


def test_what_was_promoted_before_stays_a_discovery():
    """A member promoted earlier counts at its frozen value and is not promoted again."""
    assert promote(cohort(a=(Decision.PROMOTED, 40.0), b=(P, 10.0)), 0.10) == ("b",)


def test_the_order_of_members_does_not_matter():
    """The same members in another order give the same promotions."""
    members = cohort(a=(P, 50.0), b=(F, 0.2), c=(P, 25.0), d=(P, 11.0), e=(I, 3.0))

    assert set(promote(members, 0.10)) == set(promote(members[::-1], 0.10)) == {"a", "c"}


# --- Families and replicates ----------------------------------------------------------------------


def test_a_family_bets_once_by_its_mean():
    """Six tasks in three families are three bets; counts stay counts of tasks."""
    result = decide(outcomes("wwwlpp"), RULES, LIFT, enough=NEVER, blocks=(2, 2, 2))
    assert result.evidence.e_value == pytest.approx(mixture([1.0, 0.0, 0.0]))
    assert result.evidence.lift == pytest.approx(1 / 3)
    assert result.evidence.table.pairs == result.used == 6


def test_an_unfinished_family_is_not_bet_on():
    """The completed prefix ends at the last family all of whose tasks are done."""
    result = decide(outcomes("wwlw"), RULES, LIFT, enough=NEVER, blocks=(3, 2))
    assert result.used == 3
    assert result.evidence.e_value == pytest.approx(mixture([1 / 3]))


def test_a_family_that_is_void_altogether_bets_nothing():
    """Voided tasks are left out of a family's mean; a family of voids alone moves no process."""
    result = decide(outcomes("bwba"), RULES, LIFT, enough=NEVER, blocks=(2, 2))
    assert result.used == 4
    assert result.evidence.e_value == pytest.approx(mixture([1.0]))
    assert dict(result.evidence.table.dropped) == {"base": 2, "augmented": 1}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("replicates", 0, "at least 1"), ("inference", "rollouts", "'tasks' or 'families'")],
)
def test_rules_without_meaning_are_refused(field, value, said):
    """No replicate and an unknown unit of inference name the field and what was expected."""
    with pytest.raises(ConfigError, match=rf"\[gate\] {field} is .*{said}"):
        GateRules(**{field: value})
