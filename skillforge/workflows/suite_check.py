"""Prove a suite: every verifier accepts its reference, refuses silence, and never wavers."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from skillforge.core.rollout import Attempt, Verdict
from skillforge.core.splits import MIN_FAMILIES, check_splits
from skillforge.core.task import Split, Suite, Task
from skillforge.ports import Verifier

PARALLEL = 4
"""Tasks that are checked at once; a verifier may be a program."""

_WRONG = "⁂"
"""An answer that no task asks for: a lone ornament."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteProblem:
    """Something that makes a suite unfit to decide on."""

    code: str
    """``reference``, ``empty``, ``wrong``, ``unstable``, ``verifier``, ``split`` or ``worker``."""
    message: str
    """What is wrong, where, what was expected, and what to do."""
    task: str | None = None
    """The id of the task, if it is one task's problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCheck:
    """What a check of a suite found."""

    suite: str
    digest: str
    """The digest of the files that were checked."""
    problems: tuple[SuiteProblem, ...]
    warnings: tuple[str, ...]
    """What limits the suite without making it wrong."""
    tasks: int
    families: int
    splits: Mapping[str, int] = field(hash=False)
    """Tasks in each split, all four named."""
    skills: Mapping[str, int] = field(hash=False)
    """Tasks of each oracle skill."""

    @property
    def ok(self) -> bool:
        """Whether no problem was found; warnings do not count."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return the check as one JSON object."""
        return {
            "schema": 1,
            "suite": self.suite,
            "digest": self.digest,
            "ok": self.ok,
            "problems": [asdict(problem) for problem in self.problems],
            "warnings": list(self.warnings),
            "tasks": self.tasks,
            "families": self.families,
            "splits": dict(self.splits),
            "skills": dict(self.skills),
        }


async def check_suite(suite: Suite, verifier: Verifier) -> SuiteCheck:
    """Check that each task of a suite can be passed, can be failed, and stands in one split.

    Args:
        suite: A loaded suite.
        verifier: What scores an answer.
    """
    seats = asyncio.Semaphore(PARALLEL)

    async def check(task: Task) -> list[SuiteProblem]:
        async with seats:
            return await _check_task(suite, task, verifier)

    found = await asyncio.gather(*map(check, suite.tasks))
    problems = [problem for of_task in found for problem in of_task]
    problems += [
        SuiteProblem(code="split", message=message)
        for message in check_splits(suite.tasks, by=suite.split_by)
    ]
    splits = Counter(task.split for task in suite.tasks)
    skills = Counter(task.skill for task in suite.tasks if task.skill)
    return SuiteCheck(
        suite=suite.name,
        digest=suite.digest,
        problems=tuple(problems),
        warnings=tuple(_warnings(suite)),
        tasks=len(suite.tasks),
        families=len({task.family for task in suite.tasks}),
        splits={split.value: splits[split] for split in Split},
        skills=dict(sorted(skills.items())),
    )


async def _check_task(suite: Suite, task: Task, verifier: Verifier) -> list[SuiteProblem]:
    """Have the empty, a wrong and the reference answer scored, each of them twice."""
    found: list[tuple[str, str]] = []
    answers = {"empty": "", "wrong": _WRONG}
    if task.expected is None:
        lacks = "has no reference answer, so nothing proves that it can be passed; add `expected`"
        found.append(("reference", lacks))
    else:
        answers["reference"] = task.expected
    for code, answer in answers.items():
        attempt = _answered(suite, task, answer)
        first, again = [await verifier.verify(task, attempt) for _ in range(2)]
        what = f"the {code} answer {answer[:60]!r}" if answer else "the empty answer"
        found += _compare(task, code, what, first, again)
    return [
        SuiteProblem(code=code, message=f"task {task.id!r}: {message}", task=task.id)
        for code, message in found
    ]


def _answered(suite: Suite, task: Task, answer: str) -> Attempt:
    """Return the attempt of a worker that gave this answer, in the file that it belongs in."""
    named = suite.worker.answer_file
    written = {named: answer.encode()} if named else {}
    return Attempt(output=answer, files={**task.files, **written})


def _compare(
    task: Task, code: str, what: str, first: Verdict, again: Verdict
) -> Iterator[tuple[str, str]]:
    """Yield code and message of what is wrong with two verdicts on one answer."""
    failure = first.failure or again.failure
    if failure is not None or first.score is None or again.score is None:
        why = failure.message if failure is not None else "no score"
        yield "verifier", f"{what} could not be scored: {why}; mend the verifier"
    elif first.score != again.score:
        scores = f"{first.score:g} and {again.score:g}"
        twice = f"two runs of verifier {task.verifier.kind!r} gave {what} {scores}"
        yield "unstable", f"{twice}, expected the same; make it deterministic"
    elif code == "reference" and first.score != 1:
        yield code, f"{what} scored {first.score:g}, expected 1; mend it or the verifier"
    elif code != "reference" and first.score != 0:
        yield code, f"{what} scored {first.score:g}, expected 0; tighten the verifier"


def _warnings(suite: Suite) -> Iterator[str]:
    if suite.worker.usd_per_attempt and not suite.worker.tokens_per_attempt:
        yield (
            "[worker] says what an attempt can cost, but not how many tokens it can take, so that "
            "--max-tokens cannot hold; add `tokens_per_attempt`"
        )
    families: dict[str, set[str]] = defaultdict(set)
    confirmed: Counter[str] = Counter()
    for task in suite.tasks:
        if task.skill:
            families[task.skill].add(task.family)
            confirmed[task.skill] += task.split == Split.CONFIRM
    for skill, names in sorted(families.items()):
        if len(names) < MIN_FAMILIES:
            count = "1 family" if len(names) == 1 else f"{len(names)} families"
            yield (
                f"skill {skill!r} has {count}, fewer than {MIN_FAMILIES}: gains may not carry "
                "over to new families; add some"
            )
        if not confirmed[skill]:
            yield (
                f"skill {skill!r} has no task in split 'confirm': no decision on it can be made; "
                "add some"
            )
