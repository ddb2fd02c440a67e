"""Which task may be used for what: assigning splits, and proving them disjoint."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from skillforge.core.digest import json_digest
from skillforge.core.task import Split, Task
from skillforge.errors import SuiteError

SplitBy = Literal["family", "task"]

MIN_FAMILIES = 8
"""A skill with at least so many families has them split as wholes."""

DEFAULT_FRACTIONS: Mapping[Split, float] = {
    Split.PROPOSE: 0.15,
    Split.SCREEN: 0.15,
    Split.CONFIRM: 0.5,
    Split.SEALED: 0.2,
}
"""The confirm split is the largest: the gate spends each of its tasks once per lineage."""

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")


def normalise_input(text: str) -> str:
    r"""Return the form in which two inputs count as the same task.

    Compatibility forms are unified, invisible characters dropped, case folded, and white space
    collapsed.

    >>> normalise_input("  What is\u00a0 2+2?\n") == normalise_input("what is 2+2?")
    True
    """
    return " ".join(_INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).casefold().split())


def assign_splits(
    tasks_by_family: Mapping[str, Sequence[str]],
    fractions: Mapping[Split, float] = DEFAULT_FRACTIONS,
    *,
    by: SplitBy = "family",
    seed: int = 0,
) -> dict[str, Split]:
    """Assign the tasks of one skill to splits by hash.

    Families stay whole where ``by`` is ``"family"`` and there are at least eight of them;
    otherwise tasks are dealt one by one. The order of the input changes nothing. Shares are exact
    to one unit, and every split with a share gets a unit where there are enough.

    Args:
        tasks_by_family: The task ids of each family.
        fractions: The share of each split, each ≥ 0, in sum 1; a missing one is 0.
        by: What is dealt out.
        seed: Another seed gives another assignment.

    Returns:
        The split of each task id.

    Raises:
        SuiteError: The fractions are negative or do not sum to 1, or a task is listed twice.

    >>> sorted(assign_splits({"f": ["a", "b"]}, {Split.CONFIRM: 1.0}).items())
    [('a', <Split.CONFIRM: 'confirm'>), ('b', <Split.CONFIRM: 'confirm'>)]
    """
    check_fractions(fractions)
    for id_, count in Counter(id_ for ids in tasks_by_family.values() for id_ in ids).items():
        if count > 1:
            raise SuiteError(
                f"task {id_!r} is listed {count} times, expected once: it could be dealt into two "
                "splits; give each task its own id"
            )
    if by == "family" and len(tasks_by_family) >= MIN_FAMILIES:
        units: Mapping[str, Sequence[str]] = tasks_by_family
    else:
        units = {id_: [id_] for ids in tasks_by_family.values() for id_ in ids}
    order = sorted(units, key=lambda unit: json_digest([seed, unit]))
    counts = _counts(len(order), fractions)
    dealt = (split for split in Split for _ in range(counts[split]))
    return {id_: split for unit, split in zip(order, dealt, strict=True) for id_ in units[unit]}


def check_fractions(fractions: Mapping[Split, float]) -> None:
    """Check that fractions share out the whole.

    Raises:
        SuiteError: One is negative or no number, or they do not sum to 1.
    """
    shown = ", ".join(f"{split.value} {share:g}" for split, share in fractions.items()) or "none"
    total = sum(fractions.values())
    if not all(share >= 0 for share in fractions.values()) or not abs(total - 1) <= 1e-6:
        raise SuiteError(
            f"the fractions of the splits are {shown} (sum {total:g}), expected numbers ≥ 0 that "
            "sum to 1; correct them"
        )


def _counts(n: int, fractions: Mapping[Split, float]) -> dict[Split, int]:
    """Share n units out by largest remainders, then give each starved split one unit."""
    shares = {split: fractions.get(split, 0.0) * n for split in Split}
    counts = {split: int(share + 1e-9) for split, share in shares.items()}
    by_remainder = sorted(Split, key=lambda split: counts[split] - shares[split])
    for split in by_remainder[: n - sum(counts.values())]:
        counts[split] += 1
    for split in Split:
        richest = max(Split, key=lambda other: counts[other])
        if shares[split] > 0 and counts[split] == 0 and counts[richest] > 1:
            counts[richest] -= 1
            counts[split] += 1
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What decides the split of one task."""

    id: str
    family: str
    skill: str | None
    split: Split | None
    """The split that the task itself names, if it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """The splits of the tasks of a suite, as far as they could be told."""

    splits: Mapping[str, Split]
    """The split of each task id."""
    by: SplitBy
    """``family`` where no family of a skill may stand in two splits."""
    problems: tuple[tuple[str | None, str], ...] = ()
    """Task id (None: the suite) and what is wrong."""


def own_splits(tasks: Sequence[Placement], *, by: SplitBy = "task") -> SplitPlan:
    """Take the split that each task names."""
    return SplitPlan(
        splits={task.id: task.split for task in tasks if task.split},
        by=by,
        problems=tuple(
            (task.id, f"task {task.id!r} has no split; add `split`, or fractions under [splits]")
            for task in tasks
            if task.split is None
        ),
    )


def listed_splits(tasks: Sequence[Placement], families: Mapping[Split, Sequence[str]]) -> SplitPlan:
    """Take the split under which the family of each task is listed."""
    problems: list[tuple[str | None, str]] = []
    split_of: dict[str, Split] = {}
    present = {task.family for task in tasks}
    for split, members in families.items():
        for family in members:
            if family in split_of:
                both = f"{split_of[family].value} and {split.value}"
                problems.append((None, f"family {family!r} is listed under {both}; keep one"))
            elif family not in present:
                message = f"family {family!r} of {split.value} has no task; correct its name or "
                problems.append((None, message + "remove it"))
            split_of[family] = split
    problems += [
        (task.id, f"family {task.family!r} has no split; list it under [splits.families]")
        for task in tasks
        if task.family not in split_of
    ]
    splits = {task.id: split_of[task.family] for task in tasks if task.family in split_of}
    return SplitPlan(splits=splits, by="family", problems=tuple(problems))


def dealt_splits(
    tasks: Sequence[Placement], fractions: Mapping[Split, float], *, by: SplitBy = "family"
) -> SplitPlan:
    """Deal out the tasks of each skill by `assign_splits`.

    Raises:
        SuiteError: The fractions are negative or do not sum to 1.
    """
    skills: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for task in tasks:
        skills[task.skill or ""][task.family].append(task.id)
    splits: dict[str, Split] = {}
    for families in skills.values():
        splits |= assign_splits(families, fractions, by=by)
    whole = by == "family" and all(len(names) >= MIN_FAMILIES for names in skills.values())
    return SplitPlan(splits=splits, by="family" if whole else "task")


def check_splits(tasks: Iterable[Task], *, by: SplitBy = "task") -> tuple[str, ...]:
    """Return what is wrong with the splits of tasks; nothing if they are disjoint.

    Args:
        tasks: The tasks of one suite.
        by: ``"family"`` also asks that, within each skill, no family stands in two splits.
    """
    ids: dict[str, list[Task]] = defaultdict(list)
    inputs: dict[str, list[Task]] = defaultdict(list)
    families: dict[tuple[str, str], list[Task]] = defaultdict(list)
    for task in tasks:
        ids[task.id].append(task)
        inputs[normalise_input(task.input)].append(task)
        families[task.skill or "", task.family].append(task)
    problems = [
        f"task {id_!r} stands in {_splits(group)} splits ({', '.join(_names(group))}), expected "
        "one; give each task its own id"
        for id_, group in ids.items()
        if _splits(group) > 1
    ]
    problems += [
        f"tasks {_places(group)} have the same input but stand in different splits; "
        "remove all but one, or put them into one split"
        for group in inputs.values()
        if _splits(group) > 1
    ]
    if by == "family":
        problems += [
            f"family {family!r}" + (f" of skill {skill!r}" if skill else "") + " stands in "
            f"{_splits(group)} splits ({', '.join(_names(group))}), expected one; "
            "move its tasks into one split, or split by task"
            for (skill, family), group in families.items()
            if _splits(group) > 1
        ]
    return tuple(problems)


def _names(tasks: Iterable[Task]) -> list[str]:
    present = {task.split for task in tasks}
    return [split.value for split in Split if split in present]


def _splits(tasks: Iterable[Task]) -> int:
    return len(_names(tasks))


def _places(tasks: Sequence[Task]) -> str:
    shown = [f"{task.id!r} ({task.split.value})" for task in tasks[:4]]
    more = [f"{len(tasks) - 4} more"] if len(tasks) > 4 else []
    return ", ".join(shown + more)
