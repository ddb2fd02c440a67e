"""Tasks from public sources: which are usable, and how their answers are scored.

Public data is not clean, and a suite must be. Left out, and told, are: a second task of the same
normalised input; all tasks of one input whose answers contradict each other; and references that
are none of the answers that the task offers (``Monsters, Inc`` where the choices are ``(A)`` to
``(E)``).

A choice is read from the last letter in brackets, as a number is from the last number, so that
``The answer is (B).`` counts and a sentence that ends in another letter does not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skillforge.core.splits import normalise_input
from skillforge.core.task import VerifierSpec
from skillforge.core.verify import check_options, verify
from skillforge.errors import SuiteError

_CHOICE = re.compile(r"\([A-Z]\)")
_INTEGER = re.compile(r"-?[0-9]+")
_MOST = 0.9

EXACT = VerifierSpec(kind="exact", options={"strip": True, "first_line": True, "ignore_case": True})
"""For short answers in words."""

CHOICE = VerifierSpec(kind="regex", options={"pattern": f"(?P<answer>{_CHOICE.pattern})"})
"""For a letter in brackets, wherever it stands."""

NUMBER = VerifierSpec(kind="number")
"""For the last number of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTask:
    """One task as a source gives it."""

    id: str
    family: str
    where: str
    """File, and line or number of the example in it, from 1."""
    input: str
    expected: str
    verifier: VerifierSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTask:
    """A file or a task that was left out."""

    where: str
    """File, and line or number of the example in it, from 1."""
    reason: str


def choose_verifier(references: Sequence[str]) -> VerifierSpec:
    """Choose the verifier of a family by what its references look like.

    Nearly all being choices is enough: the few others are faults of the source.

    >>> choose_verifier(["-50", "7"]).kind, choose_verifier(["Yes", "No"]).kind
    ('number', 'exact')
    """
    choices = sum(bool(_CHOICE.fullmatch(reference)) for reference in references)
    if choices and choices >= _MOST * len(references):
        return CHOICE
    if all(_INTEGER.fullmatch(reference) for reference in references):
        return NUMBER
    return EXACT


def usable_tasks(tasks: Iterable[SourceTask]) -> tuple[list[SourceTask], list[SkippedTask]]:
    """Return the tasks that can be passed and stand once, and why the others are left out."""
    groups: dict[str, list[SourceTask]] = defaultdict(list)
    skipped: list[SkippedTask] = []
    for task in tasks:
        if reason := _unfit(task):
            skipped.append(SkippedTask(where=task.where, reason=reason))
        else:
            groups[normalise_input(task.input)].append(task)
    taken: list[SourceTask] = []
    for group in groups.values():
        first, *others = group
        if all(verify(first.verifier, first.expected, other.expected) == 1 for other in others):
            taken.append(first)
            reason, left = f"has the same input as {first.where}", others
        else:
            answers = ", ".join(repr(task.expected) for task in group)
            reason, left = f"the same input has contradicting answers: {answers}", group
        skipped += [SkippedTask(where=task.where, reason=reason) for task in left]
    return taken, skipped


def _unfit(task: SourceTask) -> str:
    if any("\ud800" <= char <= "\udfff" for char in task.input + task.expected):
        return "holds a lone surrogate, which is no Unicode text"
    try:
        check_options(task.verifier, task.expected)
    except SuiteError as error:
        return str(error)
    if verify(task.verifier, task.expected, task.expected) == 1:
        return ""
    return f"the reference {task.expected!r} is none of the answers that its family asks for"
