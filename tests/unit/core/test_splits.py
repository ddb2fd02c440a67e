"""Splits: dealt by hash, and proved disjoint.

Public reports covered: davidberenstein1957/dspydantic#23 (validation equal to training),
gepa-ai/gepa#308 and #133 (one set used for search and for the final choice).
"""

from __future__ import annotations

from collections import Counter

import pytest

from skillforge.core.splits import (
    DEFAULT_FRACTIONS,
    Placement,
    assign_splits,
    check_splits,
    dealt_splits,
    listed_splits,
    normalise_input,
    own_splits,
)
from skillforge.core.task import Split, Task, VerifierSpec
from skillforge.errors import SuiteError

HALVES = {Split.SCREEN: 0.5, Split.CONFIRM: 0.5}


def task(
    id_: str, *, text: str | None = None, family: str = "f", split: Split = Split.CONFIRM
) -> Task:
    """Build a task."""
    return Task(
        id=id_,
        family=family,
        input=text or id_,
        expected="x",
        skill="s",
        split=split,
        verifier=VerifierSpec(kind="exact"),
    )


def families(n: int, size: int = 5) -> dict[str, list[str]]:
    """Name the tasks of some families."""
    return {f"f{i}": [f"f{i}-{j}" for j in range(size)] for i in range(n)}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a  b\n", " A\tb"),
        ("caf\u00e9", "cafe\u0301"),
        ("a\u00a0b", "a b"),
        ("a\u200bb\ufeff", "ab"),
        ("ｆｕｌｌ", "full"),
        ("a\u2028b", "a b"),
    ],
)
def test_normalised_inputs_are_equal(left: str, right: str) -> None:
    """Case, white space, invisible characters and compatibility forms make no difference."""
    assert normalise_input(left) == normalise_input(right)


def test_other_inputs_stay_apart() -> None:
    """Digits, signs and word order make a difference."""
    assert len({normalise_input(text) for text in ("2+2", "2-2", "2+3", "b a", "a b")}) == 5


def test_families_stay_whole_from_eight_on() -> None:
    """With eight families no family is cut, and each of the four splits gets one."""
    splits = assign_splits(families(8), DEFAULT_FRACTIONS)

    assert all(len({splits[id_] for id_ in ids}) == 1 for ids in families(8).values())
    assert set(splits.values()) == set(Split)


def test_fewer_families_are_dealt_by_task() -> None:
    """With seven families tasks are dealt one by one, in exact shares."""
    splits = assign_splits(families(7, 10), HALVES)

    assert Counter(splits.values()) == {Split.SCREEN: 35, Split.CONFIRM: 35}


def test_by_task_cuts_families() -> None:
    """Asked to deal tasks, it deals tasks however many families there are."""
    splits = assign_splits(families(20, 2), HALVES, by="task")

    assert any(len({splits[id_] for id_ in ids}) == 2 for ids in families(20, 2).values())


def test_assignment_depends_on_names_and_seed_only() -> None:
    """The order of the input changes nothing; another seed changes the assignment."""
    forward, backward = families(30), dict(reversed(families(30).items()))

    assert assign_splits(forward) == assign_splits(backward)
    assert assign_splits(forward) != assign_splits(forward, seed=1)


@pytest.mark.parametrize("n", range(12))
def test_every_task_gets_one_split(n: int) -> None:
    """All tasks are dealt, and no split with a share starves where there are enough."""
    splits = assign_splits({"f": [str(i) for i in range(n)]})

    assert len(splits) == n
    assert len(set(splits.values())) == min(n, 4) or n < 4


@pytest.mark.parametrize(
    "fractions",
    [
        {},
        {Split.SCREEN: 0.5},
        {Split.SCREEN: 1.5, Split.CONFIRM: -0.5},
        {Split.SCREEN: float("nan")},
        {Split.SCREEN: float("inf")},
    ],
)
def test_fractions_must_share_out_the_whole(fractions: dict[Split, float]) -> None:
    """Fractions that are negative, no number, or do not sum to 1 are refused."""
    with pytest.raises(SuiteError, match="sum to 1"):
        assign_splits(families(2), fractions)


def test_disjoint_splits_have_no_problem() -> None:
    """Different inputs, and one input twice in one split, are fine."""
    tasks = [task("a"), task("b", split=Split.SEALED), task("c", text="a")]

    assert check_splits(tasks) == ()


def test_one_input_in_two_splits() -> None:
    """The same normalised input in two splits is a problem that names both tasks."""
    tasks = [task("a", text="What?"), task("b", text=" what? ", split=Split.PROPOSE)]

    (problem,) = check_splits(tasks)

    assert "'a' (confirm), 'b' (propose)" in problem


def test_one_family_in_two_splits() -> None:
    """A family in two splits is a problem only where families are promised to stay whole."""
    tasks = [task("a"), task("b", split=Split.PROPOSE)]

    (problem,) = check_splits(tasks, by="family")

    assert "family 'f' of skill 's' stands in 2 splits (propose, confirm)" in problem
    assert check_splits(tasks, by="task") == ()


def placements(n: int, split: Split | None = None) -> list[Placement]:
    """Place three tasks in each of n families."""
    return [
        Placement(id=f"{i}-{j}", family=f"f{i}", skill="s", split=split)
        for i in range(n)
        for j in range(3)
    ]


@pytest.mark.parametrize(("n", "by"), [(8, "family"), (3, "task")])
def test_dealt_plan_tells_what_was_kept_whole(n: int, by: str) -> None:
    """The plan says whether families were kept whole for every skill."""
    assert dealt_splits(placements(n), HALVES).by == by


def test_listed_plan_reports_unlisted_double_and_absent_families() -> None:
    """Families listed twice, listed without a task, or not listed are told."""
    plan = listed_splits(placements(2), {Split.SCREEN: ["f0", "nowhere"], Split.CONFIRM: ["f0"]})

    messages = [message for _, message in plan.problems]
    assert "listed under screen and confirm" in messages[1]
    assert "'nowhere' of screen has no task" in messages[0]
    assert [id_ for id_, message in plan.problems if "'f1' has no split" in message] == [
        "1-0",
        "1-1",
        "1-2",
    ]


def test_own_plan_reports_tasks_without_split() -> None:
    """A task that names no split is told by its id."""
    plan = own_splits([*placements(1, Split.SEALED), *placements(1)][:4])

    assert set(plan.splits.values()) == {Split.SEALED}
    assert [id_ for id_, _ in plan.problems] == ["0-0"]


def test_a_task_that_is_listed_twice_cannot_be_dealt() -> None:
    """The same id in two families could land in two splits; it is named instead."""
    with pytest.raises(SuiteError, match="task 'a' is listed 2 times"):
        assign_splits({"f": ["a", "b"], "g": ["a"]}, HALVES)


def test_one_id_in_two_splits_is_named() -> None:
    """Two tasks of one id in different splits are a leak, whatever their inputs say."""
    tasks = [task("a"), task("a", text="another", split=Split.PROPOSE)]
    (problem,) = check_splits(tasks)

    assert problem.startswith("task 'a' stands in 2 splits (propose, confirm), expected one")
