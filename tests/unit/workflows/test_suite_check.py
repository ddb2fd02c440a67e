"""Suite checks: gold passes, silence and nonsense fail, and the verifier never wavers.

Public reports covered: heypinchy/pinchy#808 (gold passes, wrong fails), sibson/redbeat#326 (the
empty answer passes), EleutherAI/lm-evaluation-harness#4213 and google-research#3427 (a verifier
whose verdict flips), davidberenstein1957/dspydantic#23 (splits that overlap),
ShishirPatil/gorilla#1133 (a wrong gold answer).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from skillforge.core.rollout import Attempt, Failure, FailureKind, Verdict
from skillforge.core.task import Split, Suite, Task, VerifierSpec, WorkerSpec
from skillforge.core.verify import DataOnlyVerifier
from skillforge.ports import Verifier
from skillforge.workflows.suite_check import SuiteCheck, check_suite

EXACT = VerifierSpec(kind="exact")


def task(id_: str, **fields: Any) -> Task:
    """Build a task."""
    values: dict[str, Any] = {
        "family": f"f-{id_}",
        "input": f"say {id_}",
        "expected": id_,
        "skill": "s",
        "split": Split.CONFIRM,
        "verifier": EXACT,
    }
    return Task(id=id_, **(values | fields))


def suite(*tasks: Task, split_by: Any = "task") -> Suite:
    """Build a suite."""
    return Suite(
        name="tiny",
        version="1",
        license="MIT",
        source="here",
        tasks=tasks,
        worker=WorkerSpec(),
        digest="d",
        split_by=split_by,
    )


class Scores:
    """A verifier that gives one score after the other, whatever the answer."""

    def __init__(self, scores: Iterable[float]) -> None:
        """Take the scores."""
        self.scores = iter(scores)

    async def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Give the next score."""
        return Verdict(score=next(self.scores))


def run_check(checked: Suite, verifier: Verifier | None = None) -> SuiteCheck:
    """Check a suite with a verifier, the data-only one by default."""
    return asyncio.run(check_suite(checked, verifier or DataOnlyVerifier()))


def test_a_clean_suite() -> None:
    """A suite without fault has neither problems nor warnings, and is counted."""
    tasks = [task(str(i), split=list(Split)[i % 4]) for i in range(8)]

    check = run_check(suite(*tasks))

    assert check.ok
    assert check.warnings == ()
    assert (check.tasks, check.families) == (8, 8)
    assert check.splits == {"propose": 2, "screen": 2, "confirm": 2, "sealed": 2}
    assert check.skills == {"s": 8}


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        (
            {"verifier": VerifierSpec(kind="regex", options={"pattern": "z"})},
            "reference",
            "scored 0",
        ),
        (
            {"verifier": VerifierSpec(kind="regex", options={"pattern": "."}), "expected": None},
            "reference",
            "no reference",
        ),
        ({"verifier": VerifierSpec(kind="regex", options={"pattern": "."})}, "wrong", "scored 1"),
    ],
)
def test_unfit_tasks(fields: dict[str, Any], code: str, message: str) -> None:
    """A reference that fails or lacks, and a verifier that passes nonsense, are problems."""
    check = run_check(suite(task("a", **fields)))

    assert not check.ok
    assert check.problems[0].code == code
    assert check.problems[0].task == "a"
    assert message in check.problems[0].message


def test_a_verifier_that_passes_silence() -> None:
    """A verifier that gives the empty answer a score is a problem."""
    check = run_check(suite(task("a")), Scores(itertools.repeat(1.0)))

    assert [problem.code for problem in check.problems] == ["empty", "wrong"]


def test_a_verifier_that_wavers() -> None:
    """Two runs of a verifier that disagree are a problem for each answer tried."""
    flips = itertools.cycle([0.0, 1.0])

    check = run_check(suite(task("a")), Scores(flips))

    assert {problem.code for problem in check.problems} == {"unstable"}
    assert len(check.problems) == 3


def test_a_verifier_that_fails() -> None:
    """A verifier that cannot score an answer is a problem of its own, and says why."""

    class Broken:
        """A verifier that dies each time."""

        async def verify(self, task: Task, attempt: Attempt) -> Verdict:
            """Die."""
            failure = Failure(kind=FailureKind.INFRA, message="it died", where="verifier")
            return Verdict(score=None, failure=failure)

    check = run_check(suite(task("a")), Broken())

    assert {problem.code for problem in check.problems} == {"verifier"}
    assert "it died" in check.problems[0].message


def test_answers_stand_where_the_worker_leaves_them() -> None:
    """The verifier finds each answer also in the file that the suite's worker would write."""

    class InFile:
        """A verifier that looks at one file."""

        async def verify(self, task: Task, attempt: Attempt) -> Verdict:
            """Compare the file."""
            found = attempt.files["answer.txt"].decode()
            return Verdict(score=float(found == task.expected and "given" in attempt.files))

    worker = WorkerSpec(kind="command", command=("x",), answer_file="answer.txt")

    assert run_check(replace(suite(task("a", files={"given": b""})), worker=worker), InFile()).ok


def test_overlapping_splits() -> None:
    """One input in two splits, or one family where families are kept whole, is a problem."""
    tasks = [
        task("a", input="x", family="f"),
        task("b", input="X ", family="f", split=Split.SEALED),
    ]

    by_task, by_family = run_check(suite(*tasks)), run_check(suite(*tasks, split_by="family"))

    assert [problem.code for problem in by_task.problems] == ["split"]
    assert [problem.code for problem in by_family.problems] == ["split", "split"]


def test_warnings() -> None:
    """Few families, and no confirm task, limit a skill without making the suite wrong."""
    check = run_check(suite(task("a", split=Split.SCREEN)))

    assert check.ok
    assert "skill 's' has 1 family, fewer than 8" in check.warnings[0]
    assert "no task in split 'confirm'" in check.warnings[1]


def test_json_form() -> None:
    """The JSON form carries the schema, the verdict, and every problem."""
    check = run_check(suite(task("a", expected=None)))

    value = json.loads(json.dumps(check.to_json()))

    assert (value["schema"], value["ok"], value["suite"]) == (1, False, "tiny")
    assert value["problems"][0]["task"] == "a"
    assert value["splits"]["confirm"] == 1
