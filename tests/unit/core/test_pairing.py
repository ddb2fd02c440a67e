"""Joining rollouts into pairs: what is no evidence is refused by name and gives no number."""

from __future__ import annotations

import math

import pytest
from support.rollouts import rollout

from skillforge.core.gate import Basis, GateRules, Registration, decide
from skillforge.core.rollout import Pair, Rollout, Void, pair_up
from skillforge.errors import StatisticsError


def both(*rollouts: Rollout) -> tuple[dict[str, list[Rollout]], dict[str, list[Rollout]]]:
    """Return one sound base rollout of task t, and the given augmented ones."""
    return {"t": [rollout()]}, {"t": list(rollouts)}


@pytest.mark.parametrize("score", [math.nan, -0.01, 1.01, 25.0, math.inf])
def test_a_score_that_is_none_names_task_arm_and_replicate(score: float) -> None:
    """A NaN and points in place of fractions stop at the door, also where their mean looks fine."""
    with pytest.raises(StatisticsError, match=r"task 't', augmented arm, replicate 0: score"):
        pair_up(["t"], *both(rollout(score=score)))
    with pytest.raises(StatisticsError, match=r"task 't', base arm: score"):
        Pair(task="t", family="f", base=score, augmented=0.0)
    arms = {"t": [rollout(score=2.0), rollout(score=0.0, replicate=1)]}
    with pytest.raises(StatisticsError, match=r"score 2\.0, expected a number within"):
        pair_up(["t"], arms, {"t": [rollout(), rollout(replicate=1)]}, replicates=2)


def test_a_task_that_stands_twice_is_refused_with_both_places() -> None:
    """The same task twice is not two pieces of evidence: not in an order, not among outcomes."""
    said = "task 'b' stands at places 2 and 4"
    with pytest.raises(StatisticsError, match=said):
        pair_up(["a", "b", "c", "b"], {}, {})
    pairs = [Pair(task=t, family="f", base=0.0, augmented=1.0) for t in "abcb"]
    with pytest.raises(StatisticsError, match=said):
        decide(pairs, GateRules(), Basis.LIFT, enough=20.0)
    with pytest.raises(StatisticsError, match=said):
        decide([*pairs[:3], Void(task="b", arm="base")], GateRules(), Basis.LIFT, enough=20.0)
    with pytest.raises(StatisticsError, match=said):
        Registration(
            candidate="c",
            skill="s",
            base="v1",
            version="v2",
            basis=Basis.LIFT,
            rules=GateRules(),
            order=("a", "b", "c", "b"),
            enough=20.0,
            lineage="s/x",
        )


def test_unequal_replicates_are_refused() -> None:
    """Three rollouts against one would give the arms different weight and noise."""
    with pytest.raises(StatisticsError, match="task 't' has 1 base and 2 augmented rollouts"):
        pair_up(["t"], *both(rollout(), rollout(replicate=1)))


def test_a_rollout_that_is_counted_twice_is_refused() -> None:
    """The same replicate twice in one arm is one rollout."""
    arms = {"t": [rollout(), rollout()]}
    with pytest.raises(StatisticsError, match=r"task 't', augmented arm: replicates \[0, 0\]"):
        pair_up(["t"], {"t": [rollout(), rollout(replicate=1)]}, arms)


def test_a_task_short_of_replicates_ends_the_prefix() -> None:
    """A task that is still running is no error: evidence ends before it."""
    base = {name: [rollout(name), rollout(name, replicate=1)] for name in "abc"}
    augmented = base | {"b": [rollout("b")]}

    assert [o.task for o in pair_up("abc", base, augmented, replicates=2)] == ["a"]


def test_failures_are_laid_at_the_arm_that_failed() -> None:
    """The side of the contrast counts, whatever the rollout was first run as; both may fail."""
    good, bad = {"t": [rollout()]}, {"t": [rollout(score=None)]}

    assert pair_up(["t"], bad, good) == [Void(task="t", arm="base")]
    assert pair_up(["t"], good, bad) == [Void(task="t", arm="augmented")]
    (void,) = pair_up(["t"], bad, bad)
    assert (void.arm, void.arms) == ("both", ("base", "augmented"))


def test_pairs_carry_what_may_bias_them() -> None:
    """Cut answers and seconds are kept per arm."""
    base = {"t": [rollout(seconds=1.0), rollout(replicate=1, seconds=3.0)]}
    cut = rollout(finish_reason="length", score=0.0, seconds=4.0)
    augmented = {"t": [cut, rollout(replicate=1, seconds=4.0)]}
    (pair,) = pair_up(["t"], base, augmented, replicates=2)

    assert (pair.truncated, pair.seconds, pair.wavering) == ((0.0, 0.5), (2.0, 4.0), False)


def test_a_verifier_that_disagrees_with_itself_is_seen() -> None:
    """The same words with two scores: the verifier wavers, and the pair says so."""
    twice = [rollout(output_blob="x"), rollout(output_blob="x", replicate=1, score=0.0)]
    (pair,) = pair_up(["t"], {"t": [rollout(), rollout(replicate=1)]}, {"t": twice}, replicates=2)

    assert pair.wavering


@pytest.mark.parametrize(
    ("base", "augmented", "least"),
    [
        ((1.0,), (None,), -1.0),
        ((0.4,), (None,), -0.4),
        ((0.0,), (None,), 0.0),
        ((1.0, 0.5), (1.0, None), -0.25),
        ((0.0, 0.0), (1.0, None), 0.0),
    ],
)
def test_a_void_keeps_the_least_that_the_difference_can_have_been(
    base: tuple[float, ...], augmented: tuple[float | None, ...], least: float
) -> None:
    """What failed counts as 0 against the base's score; a difference above 0 is not credited."""
    arms = ([rollout(score=s, replicate=i) for i, s in enumerate(arm)] for arm in (base, augmented))
    left, right = ({"t": arm} for arm in arms)
    (void,) = pair_up(["t"], left, right, replicates=len(base))

    assert void == Void(task="t", arm="augmented", least=pytest.approx(least))
