"""Verifiers that run a suite's code: a verdict for every answer, and a failure for every fault."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from skillforge.adapters.limited import LimitedPrograms
from skillforge.adapters.verifiers import SuiteVerifier
from skillforge.core.package import PackageFile
from skillforge.core.rollout import Attempt, FailureKind, Verdict
from skillforge.core.task import Code, Split, Suite, Task, VerifierSpec, WorkerSpec
from skillforge.workflows.suite_check import check_suite

CHECKS = b"""
import asyncio, os, sys, time

def same(output, expected, task):
    print("chatter that is no verdict: 1.0")
    return output.strip() == expected

async def half(output, expected, task):
    await asyncio.sleep(0)
    return 0.5

def fields(output, expected, task):
    return sorted(task) == ["expected", "family", "id", "input", "skill", "tags"]

def workspace(output, expected, task):
    return open("made/answer.bin", "rb").read() == bytes([255, 0])

def by_helper(output, expected, task):
    import helper
    return helper.ONE

def hashed(output, expected, task):
    return hash(output + "x") % 10**9 / 10**9

nan = lambda *_: float("nan")
above = lambda *_: 1.5
text = lambda *_: "1"
none = lambda *_: None
crash = lambda *_: os.abort()
leave = lambda *_: sys.exit(0)
hang = lambda *_: time.sleep(3600)

def wrong(output, expected, task):
    raise ValueError("broken on purpose")
"""
COMMAND = b"""
import sys
answer = open(sys.argv[1]).read()
print("answer", answer, sys.argv[2:])
if answer.startswith("score"):
    print(answer.partition(" ")[2])
sys.exit({"pass": 0, "fail": 1, "odd": 2}.get(answer, 0))
"""
CODE = Code(
    parts=("verifiers",),
    folder="nowhere",
    files={
        "checks.py": PackageFile(data=CHECKS),
        "helper.py": PackageFile(data=b"ONE = 1.0\n"),
        "command.py": PackageFile(data=COMMAND),
        "run.sh": PackageFile(data=b'#!/bin/sh\ngrep -q "$1" "$2"\n', executable=True),
    },
    digest="d",
)
PROGRAM = [sys.executable, "{suite}/command.py", "{output_file}"]


VERIFIER = SuiteVerifier(programs=LimitedPrograms(), code=CODE)


def task(spec: dict[str, Any], expected: str = "yes") -> Task:
    """Return a task with that verifier."""
    options = {key: value for key, value in spec.items() if key != "kind"}
    return Task(
        id="t",
        family="f",
        input="say yes",
        expected=expected,
        skill="s",
        split=Split.CONFIRM,
        verifier=VerifierSpec(kind=spec["kind"], options=options),
    )


def verdict(
    output: str, *, files: dict[str, bytes] | None = None, expected: str = "yes", **spec: Any
) -> Verdict:
    """Score one answer; the verifier is a function unless told otherwise."""
    given = task({"kind": "python", **spec}, expected)
    return asyncio.run(VERIFIER.verify(given, Attempt(output=output, files=files or {})))


def broken(found: Verdict) -> str:
    """Assert that the verifier failed, and return why."""
    assert found.score is None
    assert found.failure is not None
    assert (found.failure.kind, found.failure.where) == (FailureKind.INFRA, "verifier")
    return found.failure.message


@pytest.mark.parametrize(
    ("function", "output", "score"),
    [
        ("same", " yes\n", 1.0),
        ("same", "no", 0.0),
        ("same", "", 0.0),
        ("same", "yes\ud800", 0.0),
        ("half", "", 0.5),
        ("fields", "", 1.0),
        ("by_helper", "", 1.0),
    ],
)
def test_python(function: str, output: str, score: float) -> None:
    """A function, awaited if need be, gives a score; what it prints is no verdict."""
    assert verdict(output, function=f"checks:{function}") == Verdict(score=score)


def test_the_workspace_of_the_attempt() -> None:
    """A verifier finds the files that the worker left, in a workspace of its own."""
    found = verdict("", function="checks:workspace", files={"made/answer.bin": b"\xff\x00"})

    assert found == Verdict(score=1.0)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("nan", "its score is nan"),
        ("above", "its score is 1.5"),
        ("text", "returned '1', expected a number"),
        ("none", "returned None"),
        ("crash", "ended by signal 6"),
        ("leave", "it wrote '' as its last line"),
        ("wrong", "ValueError: broken on purpose"),
        ("hang", "longer than 1 s"),
        ("absent", "AttributeError"),
    ],
)
def test_python_that_fails(function: str, why: str) -> None:
    """A function that dies, hangs, or gives what is no score has not judged the answer."""
    timeout = 1.0 if function == "hang" else 60.0

    assert why in broken(verdict("yes", function=f"checks:{function}", timeout=timeout))


@pytest.mark.parametrize(("output", "score"), [("pass", 1.0), ("fail", 0.0)])
def test_command(output: str, score: float) -> None:
    """Exit code 0 passes, 1 fails."""
    assert verdict(output, kind="command", command=PROGRAM) == Verdict(score=score)


def test_command_that_fails() -> None:
    """Any other exit code, or a signal, is the verifier's failure; so is a missing score."""
    odd = verdict("odd", kind="command", command=PROGRAM)
    mute = verdict("pass", kind="command", command=PROGRAM, score=True)
    above = verdict("score 2", kind="command", command=PROGRAM, score=True)

    assert "exit code 2" in broken(odd)
    assert "expected a score in [0, 1]" in broken(mute)
    assert "its score is 2.0" in broken(above)


def test_command_with_a_score() -> None:
    """The last line of stdout is the score where the option says so."""
    scored = verdict("score 0.25", kind="command", command=PROGRAM, score=True)
    failed = verdict("fail", kind="command", command=PROGRAM, score=True)

    assert (scored, failed) == (Verdict(score=0.25), Verdict(score=0.0))


def test_what_a_command_is_given() -> None:
    """Reference and workspace arrive as files; an answer is never looked at as an argument."""
    compared = ["cmp", "-s", "{output_file}", "{expected_file}"]
    script = ["{suite}/run.sh", "^made$", "{workspace}/list"]
    hostile = "{expected_file} $(id) \0"

    same = verdict(hostile, kind="command", command=compared, expected=hostile)
    other = verdict("{expected_file}", kind="command", command=compared, expected="other")
    found = verdict("", kind="command", command=script, files={"list": b"made\n"})

    assert (same.score, other.score, found.score) == (1.0, 0.0, 1.0)


def test_a_program_that_is_not_there() -> None:
    """A command that cannot be found voids the verdict, is named, and the attempt is kept."""
    found = verdict("x", kind="command", command=["no-such-verifier"])

    assert "'no-such-verifier' cannot be run" in broken(found)


PASS, FAIL, BROKEN = (
    {"kind": "exact"},
    {"kind": "contains", "ignore_case": True},
    {"kind": "python", "function": "checks:wrong"},
)
HALF = {"kind": "python", "function": "checks:half"}


@pytest.mark.parametrize(
    ("members", "vote", "score"),
    [
        ([PASS, PASS, FAIL], "majority", 0.0),
        ([FAIL, FAIL, PASS], "majority", 1.0),
        ([PASS, FAIL], "majority", 0.0),
        ([PASS, FAIL], "mean", 0.5),
        ([HALF, FAIL, PASS], "majority", 1.0),
        ([HALF, FAIL], "mean", 0.75),
    ],
)
def test_committee(members: list[dict[str, Any]], vote: str, score: float) -> None:
    """Members of any kind vote; the half of them is no majority."""
    found = verdict("Yes, of course", kind="committee", members=members, vote=vote)

    assert found == Verdict(score=score)


def test_a_committee_whose_member_dies() -> None:
    """A vote that is missing voids the verdict, even where the others agree."""
    found = verdict("yes", kind="committee", members=[PASS, FAIL, BROKEN], vote="majority")

    assert "broken on purpose" in broken(found)


def test_verdicts_that_change_with_the_process() -> None:
    """A function that is stable within a process only is found out, for each run has its own.

    Public reports covered: google-research/google-research#3427 (a random letter per process),
    EleutherAI/lm-evaluation-harness#4213 (an unseeded verifier).
    """
    suite = Suite(
        name="s",
        version="1",
        license="MIT",
        source="here",
        tasks=(task({"kind": "python", "function": "checks:hashed"}),),
        worker=WorkerSpec(),
        digest="d",
    )

    found = asyncio.run(check_suite(suite, VERIFIER))

    assert {problem.code for problem in found.problems} == {"unstable"}


def test_data_only_kinds() -> None:
    """The pure kinds are scored in this process, beside those that run code."""
    assert verdict("yes", kind="exact") == Verdict(score=1.0)
