"""What may bias a contrast is named in the reasons, and withholds a verdict that it could fake."""

from __future__ import annotations

import pytest

from skillforge.core.gate import Basis, Decision, GateResult, GateRules, decide
from skillforge.core.rollout import Cause, Pair, Void

SCORES = {"w": (0.0, 1.0), "l": (1.0, 0.0), "p": (1.0, 1.0), "f": (0.0, 0.0)}
VOIDS = {"b": "base", "a": "augmented", "2": "both"}


def judge(text: str, *, basis: Basis = Basis.LIFT, **fields: object) -> GateResult:
    """Run the gate over letters: win, loss, both pass, both fail, void b(ase), a(ugmented), 2."""
    outcomes: list[Pair | Void] = []
    for i, letter in enumerate(text):
        if letter in VOIDS:
            outcomes.append(Void(task=f"t{i}", arm=VOIDS[letter]))
        else:
            base, augmented = SCORES[letter]
            pair = {"task": f"t{i}", "family": "f", "base": base, "augmented": augmented}
            outcomes.append(Pair(**pair, **fields))  # type: ignore[arg-type]
    return decide(outcomes, GateRules(), basis, enough=1e300)


def withheld(result: GateResult) -> list[str]:
    """Return the reasons for which a verdict is withheld."""
    return [r for r in result.reasons if r.startswith("verdict withheld")]


def test_uneven_failures_are_found_by_an_exact_test() -> None:
    """Eight failures of one arm are no chance, even where they are few beside the pairs."""
    result = judge("w" * 12 + "p" * 90 + "a" * 8)

    assert result.evidence.e_value > 20
    assert result.decision is Decision.INSUFFICIENT_EVIDENCE
    assert "{'base': 0, 'augmented': 8} (exact p 0.0078)" in result.reasons[1]
    assert result.reasons[1].endswith(": t102, t103, t104, t105, t106, t107, t108, t109")
    assert withheld(result) == ["verdict withheld: infrastructure failures differ between the arms"]


def test_the_pairs_that_failed_are_named() -> None:
    """In the order of the tasks; where there are many, the last ones are counted."""
    few, many = judge("pwb2p"), judge("p" + "2" * 11)

    assert few.evidence.voided == ("t2", "t3")
    assert any(reason.endswith(": t2, t3") for reason in few.reasons)
    assert any(reason.endswith(" t7, t8 and 3 more") for reason in many.reasons)


def test_even_failures_withhold_nothing() -> None:
    """Failures on both sides evenly, or of both arms at once, are no reason to doubt the inputs."""
    assert judge("2" * 10 + "w" * 7).decision is Decision.PROBATION
    even = judge("ba" * 3 + "w" * 20)
    assert even.decision is Decision.PROBATION
    assert withheld(even) == []


def test_failures_of_the_augmented_arm_alone_are_held_against_it() -> None:
    """Each counts as the loss that it may hide, also where the base arm fails as often."""
    alone, even = judge("aa" + "p" * 20 + "w" * 7), judge("aabb" + "p" * 20 + "w" * 7)

    for short in (alone, even):
        assert short.evidence.e_value > 20
        assert short.decision is Decision.INSUFFICIENT_EVIDENCE
        assert short.evidence.e_charged == judge("ll" + "p" * 20 + "w" * 7).evidence.e_value
        assert "a score of 0 where infrastructure failed the augmented arm" in short.reasons[0]
    assert judge("aa" + "p" * 20 + "w" * 12).decision is Decision.PROBATION


def test_failures_of_the_base_arm_are_no_bets() -> None:
    """A skill cannot cause them; whether both fail or one, nothing is held against anybody."""
    for text in ("b" + "p" * 20 + "w" * 7, "22" + "p" * 20 + "w" * 7):
        assert judge(text).evidence.e_charged == judge(text).evidence.e_value > 20


def test_a_base_arm_that_is_cut_off_withholds_a_lift() -> None:
    """A base answer that ran into the token limit may be a pass that nobody saw."""
    result = judge("w" * 10, truncated=(1.0, 0.0))

    assert result.decision is Decision.INSUFFICIENT_EVIDENCE
    assert any("10 of 10 in the base arm, 0 in the augmented arm" in r for r in result.reasons)
    assert withheld(result) == ["verdict withheld: the base arm's answers are cut off more often"]
    assert result.evidence.to_json()["truncated"] == {"base": 10, "augmented": 0}


@pytest.mark.parametrize("truncated", [(1.0, 1.0), (0.0, 1.0)])
def test_other_truncation_is_named_and_withholds_nothing(truncated: tuple[float, float]) -> None:
    """Cut in both arms alike, or in the augmented one, it cannot make a skill look better."""
    result = judge("w" * 10, truncated=truncated)

    assert result.decision is Decision.PROBATION
    assert any("token limit" in reason for reason in result.reasons)


def test_agent_failures_are_counted_by_arm_and_cause() -> None:
    """They score 0 and are named, the few of both arms alike without a further word."""
    result = judge("w" * 10, failed=((Cause.TIMEOUT,), (Cause.EMPTY, Cause.TIMEOUT)))
    even = judge("w" * 10, failed=((Cause.CRASH,), (Cause.CRASH,)))

    assert result.evidence.to_json()["agent_failures"] == {
        "base": {"timeout": 10},
        "augmented": {"empty_answer": 10, "timeout": 10},
    }
    said = "10 (timeout 10) in the base arm, 20 (empty answer 10, timeout 10) in the augmented arm"
    assert any(said in reason for reason in result.reasons)
    assert not any("the agent fails more often" in reason for reason in even.reasons)
    assert judge("w" * 10).evidence.to_json()["agent_failures"] == {"base": {}, "augmented": {}}


@pytest.mark.parametrize(
    ("letters", "failed", "said"),
    [
        ("w", ((Cause.TIMEOUT,), ()), "in the base arm: 10 of 10 gains are that"),
        ("l", ((), (Cause.STEPS,)), "in the augmented arm: 4 of 4 regressions are that"),
        ("f", ((), (Cause.STEPS,)), "in the augmented arm"),
    ],
)
def test_what_a_lift_owes_to_agent_failures_is_said(
    letters: str, failed: tuple[tuple[Cause, ...], ...], said: str
) -> None:
    """A gain where the other arm ran out of time is no better answer; nothing is withheld."""
    result = judge(letters * 10, failed=failed)

    assert any(f"the agent fails more often {said}" in reason for reason in result.reasons)
    assert withheld(result) == []


def test_a_wavering_verifier_withholds_and_is_named_by_task() -> None:
    """Scores that the verifier itself does not stand by prove nothing."""
    result = judge("w" * 10, wavering=True)

    assert result.decision is Decision.INSUFFICIENT_EVIDENCE
    assert "different scores on 10 tasks (t0, t1, t2 …)" in withheld(result)[0]


@pytest.mark.parametrize(
    ("seconds", "slow"), [((1.0, 4.0), "augmented"), ((4.0, 1.0), "base"), ((1.0, 2.0), None)]
)
def test_a_slow_arm_is_named(seconds: tuple[float, float], slow: str | None) -> None:
    """An arm that takes three times as long is named; it biases nothing, so nothing is withheld."""
    result = judge("w" * 10, seconds=seconds)
    named = [r for r in result.reasons if "times as long" in r]

    assert named == [f"the {slow} arm takes at least 3 times as long as the other"] * bool(slow)
    assert result.decision is Decision.PROBATION


def test_idle_tasks_are_counted() -> None:
    """The shares of tasks that pass, or fail, in both arms are told: they show no difference."""
    result = judge("w" * 20 + "p" * 60 + "f" * 20)

    assert (result.evidence.all_pass, result.evidence.all_fail) == (0.6, 0.2)
    assert any("60% of the tasks pass in both arms and 20% fail" in r for r in result.reasons)
    assert result.evidence.to_json()["all_pass"] == 0.6


def test_too_few_tasks_are_told() -> None:
    """Six tasks cannot prove a lift, whatever they say; the reason names the least number."""
    assert "takes 7 straight wins; 6 pairs cannot" in judge("w" * 6).reasons[0]
    assert GateRules(alpha=0.01).fewest_tasks == 10
