"""The command worker: a small program plays the harness, and reads skills where that one does."""

from __future__ import annotations

import asyncio
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from support.programs import DETACH, marker, running
from support.world import make_world, skill

from skillforge.adapters.command_worker import CommandWorker, make_command_worker
from skillforge.adapters.limited import LimitedPrograms
from skillforge.adapters.verifiers import SuiteVerifier
from skillforge.core.arms import shown_in
from skillforge.core.chat import Cost
from skillforge.core.package import Package, PackageFile
from skillforge.core.rollout import Attempt, Cause, FailureKind, Rollout
from skillforge.core.task import Code, Split, Suite, Task, VerifierSpec, WorkerSpec
from skillforge.errors import ConfigError
from skillforge.workflows.trial import Cell

HARNESS = """
import pathlib, sys
home, prompt = sys.argv[1:3]
skills = sorted(pathlib.Path(home).glob("*/SKILL.md"))
loud = any("capitals" in path.read_text() for path in skills)
print(prompt.upper() if loud else prompt)
"""
"""Answers in capitals if a skill in the folder that it reads says so."""

LOOK = """
import os, pathlib, sys
for path in sorted(pathlib.Path("..").rglob("*")):
    if path.is_file():
        print(path, path.read_bytes())
print(dict(os.environ), sys.argv)
"""
"""Prints every byte that it can find around it."""


def task(**fields: Any) -> Task:
    """Return a task that wants capitals."""
    values: dict[str, Any] = {
        "id": "t",
        "family": "f",
        "input": "say this",
        "expected": "SAY THIS",
        "skill": "loud",
        "split": Split.CONFIRM,
        "verifier": VerifierSpec(kind="exact", options={"strip": True}),
    }
    return Task(**values | fields)


def suite(*argv: str, usd: float | None = 0.25, **more: Any) -> Suite:
    """Return a suite whose worker is a program."""
    worker = WorkerSpec(
        kind="command", command=argv, usd_per_attempt=usd, tokens_per_attempt=100, **more
    )
    return Suite(
        name="s",
        version="1",
        license="MIT",
        source="here",
        tasks=(task(),),
        worker=worker,
        digest="d",
    )


def worker(code: str, *argv: str, **more: Any) -> CommandWorker:
    """Return a worker that runs some Python."""
    program = (sys.executable, "-I", "-S", "-c", code, *argv)
    return make_command_worker(suite(*program, **more), LimitedPrograms())


def attempt(code: str, *argv: str, skills: tuple[Package, ...] = (), **more: Any) -> Attempt:
    """Have some Python try the task once."""
    given = more.pop("task", task())
    return asyncio.run(worker(code, *argv, **more).attempt(given, skills, seed=0))


FILLS = "f = open('b', 'wb')\nwhile True: f.write(bytes(10**6))"
LOUD = skill("loud", "Answer in capitals.")


@pytest.mark.parametrize(
    ("harness", "home"),
    [
        ("claude-code", ".claude/skills"),
        ("codex", ".agents/skills"),
        ("gemini-cli", ".gemini/skills"),
        ("openclaw", "skills"),
    ],
)
def test_skills_lie_where_the_harness_reads_them(harness: str, home: str) -> None:
    """With the skill the harness answers in capitals; without it, it has no skill to read."""
    with_it = attempt(HARNESS, home, "{prompt}", skills=(LOUD,), harness=harness)
    without = attempt(HARNESS, home, "{prompt}", harness=harness)

    assert (with_it.output, without.output) == ("SAY THIS\n", "say this\n")
    assert (with_it.failure, with_it.exit_code) == (None, 0)
    assert with_it.files == without.files == {}


def test_the_description_arm_lays_the_description_alone() -> None:
    """The program finds one file of the skill, and in it frontmatter without instructions."""
    package = LOUD.replace_file("references/more.md", b"More")
    seen = attempt(LOOK, skills=tuple(filter(None, [shown_in("description", package)]))).output

    assert "loud/SKILL.md b'---" in seen
    assert "description: Does a thing for a test." in seen
    assert "capitals" not in seen
    assert "more.md" not in seen


def test_whole_packages_are_laid() -> None:
    """Scripts keep their executable bit and references their bytes."""
    script = PackageFile(data=b"#!/bin/sh\necho ran\n", executable=True)
    package = Package(name="loud", files={**LOUD.files, "scripts/go": script})
    code = "import os; os.execv('.claude/skills/loud/scripts/go', ['go'])"

    assert attempt(code, skills=(package,)).output == "ran\n"


def test_the_prompt_is_one_argument() -> None:
    """No shell, placeholder or option parsing looks at the prompt."""
    hostile = "$(touch x); `id` {workspace} \"q\" 'r'\nsecond line \0"
    code = "import sys; sys.stdout.write(repr(sys.argv[1:]))"

    got = attempt(code, "--p={prompt}", "{prompt}", task=task(input=hostile))

    shown = hostile.replace("\0", "\N{REPLACEMENT CHARACTER}")
    assert got.output == repr([f"--p={shown}", shown])
    assert got.files == {}


def test_the_base_arm_holds_nothing_of_the_candidate() -> None:
    """No byte of a candidate that ran just before is found around the base arm's workspace."""
    secret = marker()
    candidate = skill("loud", f"The candidate says {secret}.")
    mine = worker(LOOK, "{prompt}")

    augmented = asyncio.run(mine.attempt(task(), (candidate,), seed=0))
    base = asyncio.run(mine.attempt(task(), (LOUD,), seed=0))

    assert secret in augmented.output
    assert secret not in base.output
    assert "capitals" in base.output


def test_files_of_the_task_and_of_the_answer() -> None:
    """The task's files are there; what is made or changed comes back, the skill folder does not."""
    code = """
import os
data = open("data/in.bin", "rb").read()
os.makedirs("out"); open("out/answer.txt", "wb").write(data[::-1])
open(".claude/skills/loud/note", "w").write("mine")
"""
    given = task(files={"data/in.bin": b"\x00\xff"})

    got = attempt(code, task=given, skills=(LOUD,), answer_file="out/answer.txt")
    unnamed = attempt(code, task=given, skills=(LOUD,))

    assert got.files == {"data/in.bin": b"\x00\xff", "out/answer.txt": b"\xff\x00"}
    assert got.output == b"\xff\x00".decode(errors="replace")
    assert (got.failure, unnamed.output, unnamed.failure) == (None, "", None)


@pytest.mark.parametrize(
    ("code", "limits", "why", "cause"),
    [
        ("import time; time.sleep(3600)", {"timeout": 0.5}, "longer than 0.5 s", "timeout"),
        ("import sys; sys.exit('gave up')", {}, "exit code 1: gave up", "crash"),
        ("print('SAY THIS'); exit(1)", {}, "exit code 1", "crash"),
        ("import os; os.abort()", {}, "ended by signal 6", "crash"),
        ("while True: print('y' * 999)", {"output_kib": 16}, "more than 16 KiB", "output_limit"),
        ("pass", {}, "empty answer", "empty_answer"),
        (FILLS, {"disk_mib": 2}, "2 MiB|large", "output_limit|crash"),
    ],
    ids=["hangs", "fails", "answers and fails", "crashes", "floods", "silent", "fills the disk"],
)
def test_failures_of_the_agent(code: str, limits: dict[str, Any], why: str, cause: str) -> None:
    """What the program does wrong is its own failure, which scores 0, and names the program.

    Public report covered: assafkip/kipi-system#238 (a command that only fails earns no credit).
    """
    got = attempt(code, **limits)

    assert got.failure is not None
    assert (got.failure.kind, got.failure.where) == (FailureKind.AGENT, "worker")
    assert got.failure.message.startswith(sys.executable)
    assert any(word in got.failure.message for word in why.split("|"))
    assert got.failure.cause in cause.split("|")


def test_a_model_that_is_away_is_no_failure_of_the_agent() -> None:
    """A program that fails with the suite's words for it voids the attempt; any other scores 0."""
    answered = "print('API Error: 529')"
    away = f"{answered}; raise SystemExit(1)"

    void, told, own, quoted = (
        attempt(code, outage="API Error")
        for code in (
            away,
            answered,
            "raise SystemExit('bad plan')",
            f"{answered}; print('is what the log says'); raise SystemExit(1)",
        )
    )
    unnamed = attempt(away)

    assert void.failure is not None
    assert own.failure is not None
    assert unnamed.failure is not None
    assert (void.failure.kind, void.failure.cause) == (FailureKind.INFRA, Cause.OUTAGE)
    assert told.failure is None
    assert quoted.failure is not None
    assert quoted.failure.kind is FailureKind.AGENT
    assert (own.failure.kind, unnamed.failure.kind) == (FailureKind.AGENT,) * 2
    assert "exit code 1: API Error: 529" in unnamed.failure.message


def test_a_missing_answer_file() -> None:
    """A program that talks but leaves no answer has failed."""
    got = attempt("print('done!')", answer_file="answer.txt")

    assert got.failure is not None
    assert "no answer.txt" in got.failure.message


def test_a_prompt_that_no_argument_can_hold() -> None:
    """What the system cannot start for its size says nothing about the skill."""
    got = attempt("", "{prompt}", task=task(input="x" * 10**6))

    assert got.failure is not None
    assert got.failure.kind is FailureKind.INFRA
    assert (got.cost_usd, got.completion_tokens, got.cost_told) == (0.0, 0, True)


def test_a_program_that_is_not_there() -> None:
    """It is an error that names the program before anything is run, or when it is gone later."""
    absent = make_command_worker(suite("{suite}/absent"), LimitedPrograms())

    with pytest.raises(ConfigError, match="no program 'no-such-harness' on PATH"):
        make_command_worker(suite("no-such-harness", "{prompt}"), LimitedPrograms())
    with pytest.raises(ConfigError, match=r"suite/absent' cannot be run \(No such file"):
        asyncio.run(absent.attempt(task(), (), seed=0))


def test_what_an_attempt_can_cost() -> None:
    """The suite must state it, for nobody else knows; what it states is what is booked."""
    with pytest.raises(ConfigError, match="add `usd_per_attempt`"):
        worker("", usd=None)
    free = worker("print(1)", usd=0.0)

    assert worker("").bound(task(), ()) == Cost(usd=0.25, tokens=100)
    assert free.bound(task(), ()).usd == 0
    got = attempt("print(1)")
    assert (got.cost_usd, got.completion_tokens, got.cost_told) == (0.25, 100, False)


def test_the_fingerprint() -> None:
    """Whatever can change a result changes the fingerprint, and nothing else does."""
    same = [worker("1").fingerprint, worker("1").fingerprint, worker("1", usd=0.0).fingerprint]
    others = [
        worker("2").fingerprint,
        worker("1", harness="codex").fingerprint,
        worker("1", answer_file="a").fingerprint,
        worker("1", network=False).fingerprint,
        worker("1", outage="away").fingerprint,
    ]

    assert len(set(same)) == 1
    assert len({*same, *others}) == 6


def test_a_new_version_of_the_harness(tmp_path: Path) -> None:
    """A harness that was updated is another worker, whose old rollouts are not reused.

    Public report covered: EvolvingLMMs-Lab/lmms-eval#1217 (the tool's version missing in a key).
    """
    harness = tmp_path / "harness"
    seen = []
    for version in ("1", "2", "1"):
        harness.write_text(f"#!/bin/sh\necho {version}\n")
        harness.chmod(0o755)
        mine = make_command_worker(suite(str(harness)), LimitedPrograms())
        seen.append((mine.fingerprint, asyncio.run(mine.attempt(task(), (), seed=0)).output))

    assert seen[0] == seen[2]
    assert seen[0][0] != seen[1][0]
    assert [output for _, output in seen] == ["1\n", "2\n", "1\n"]


def test_it_can_be_sent_to_another_process() -> None:
    """Worker and verifier survive pickling, as executors of several processes need it."""
    mine = worker(HARNESS, ".claude/skills", "{prompt}")
    verifier = SuiteVerifier(programs=LimitedPrograms(), code=None)

    sent, scores = pickle.loads(pickle.dumps((mine, verifier)))
    got = asyncio.run(sent.attempt(task(), (LOUD,), seed=0))

    assert sent.fingerprint == mine.fingerprint
    assert asyncio.run(scores.verify(task(), got)).score == 1.0


def test_nothing_is_left() -> None:
    """A harness that detaches a helper leaves neither the helper nor a folder."""
    mark = marker()
    code = DETACH + "print(os.getcwd())"

    got = attempt(code, mark)

    assert got.failure is None
    assert running(mark) == []
    assert not Path(got.output.splitlines()[-1]).exists()


def test_rollouts(tmp_path: Path) -> None:
    """Through a bench: both arms are run, scored by the suite's code, and kept with their files."""
    checks = b"def loud(output, expected, task): return output.strip() == expected\n"
    code = Code(parts=(), folder="", files={"checks.py": PackageFile(data=checks)}, digest="d")
    verifier = VerifierSpec(kind="python", options={"function": "checks:loud"}, code="d")
    writes = HARNESS + "open('made', 'wb').write(bytes([255]))"
    world = make_world(tmp_path, [LOUD])
    bench = world.bench(worker(writes, ".claude/skills", "{prompt}"))
    bench.verifier = SuiteVerifier(programs=LimitedPrograms(), code=code)
    cells = [
        Cell(task=task(verifier=verifier), arm=arm, skills=skills, subject="", purpose="eval")
        for arm, skills in (("base", ()), ("augmented", (LOUD,)))
    ]

    base, augmented = asyncio.run(bench.rollouts(cells))

    assert (base.score, augmented.score) == (0.0, 1.0)
    kept: Rollout = augmented
    blob = world.ledger.get_blob(kept.output_blob).decode()
    assert '"exit_code":0' in blob
    assert '"files":{"made":{"base64":"/w=="}}' in blob
    assert asyncio.run(bench.rollouts(cells)) == [base, augmented]
    world.ledger.close()
