"""Prove a suite: every verifier accepts its reference, refuses silence, and never wavers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from skillforge.core.splits import MIN_FAMILIES, check_splits
from skillforge.core.task import Split, Suite, Task, VerifierSpec
from skillforge.core.verify import verify as verify_data_only

Verify = Callable[[VerifierSpec, str | None, str], float]

_WRONG = "⁂"
"""An answer that no task asks for: a lone ornament."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteProblem:
    """Something that makes a suite unfit to decide on."""

    code: str
    """``reference``, ``empty``, ``wrong``, ``unstable`` or ``split``."""
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


def check_suite(suite: Suite, *, verify: Verify = verify_data_only) -> SuiteCheck:
    """Check that each task of a suite can be passed, can be failed, and stands in one split.

    Args:
        suite: A loaded suite.
        verify: What scores an answer: ``(verifier, reference, answer) → [0, 1]``.
    """
    problems = [problem for task in suite.tasks for problem in _check_task(task, verify)]
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


def _check_task(task: Task, verify: Verify) -> Iterator[SuiteProblem]:
    def problem(code: str, message: str) -> SuiteProblem:
        return SuiteProblem(code=code, message=f"task {task.id!r}: {message}", task=task.id)

    answers = {"empty": "", "wrong": _WRONG}
    if task.expected is None:
        yield problem(
            "reference",
            "has no reference answer, so nothing proves that it can be passed; add `expected`",
        )
    else:
        answers["reference"] = task.expected
    for code, answer in answers.items():
        score, again = (verify(task.verifier, task.expected, answer) for _ in range(2))
        what = f"the {code} answer {answer[:60]!r}" if answer else "the empty answer"
        if score != again:
            yield problem(
                "unstable",
                f"two runs of verifier {task.verifier.kind!r} gave {what} {score:g} and {again:g},"
                " expected the same; make it deterministic",
            )
        elif code == "reference" and score != 1:
            yield problem(code, f"{what} scored {score:g}, expected 1; mend it or the verifier")
        elif code != "reference" and score != 0:
            yield problem(code, f"{what} scored {score:g}, expected 0; tighten the verifier")


def _warnings(suite: Suite) -> Iterator[str]:
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
