"""Verifiers that run a suite's code, each time in a limited subprocess of its own.

A fresh process for each answer costs some 0.1 s and keeps nothing from one answer to the next: a
verifier that crashes, hangs or remembers spoils no other verdict.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skillforge.core.committee import combine, members
from skillforge.core.package import PackageFile
from skillforge.core.program import SCRATCH, WORKSPACE, Finished, Program
from skillforge.core.rollout import Attempt, Failure, FailureKind, Verdict
from skillforge.core.task import Code, Task, VerifierSpec
from skillforge.core.verify import limits_of, verify
from skillforge.errors import ConfigError
from skillforge.ports import Programs

_CALL = Path(__file__).with_name("call_verifier.py")
_PLACES = {
    "{output_file}": f"{SCRATCH}/case/output",
    "{expected_file}": f"{SCRATCH}/case/expected",
    "{workspace}": f"{SCRATCH}/{WORKSPACE}",
    "{suite}": f"{SCRATCH}/suite",
}
"""What stands in the arguments of a ``command`` verifier, and for what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteVerifier:
    """Scores the tasks of one suite, as the `Verifier` port."""

    programs: Programs
    code: Code | None = None
    """The suite's code, which must be trusted; None where the suite is data only."""

    async def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Score one attempt; a committee's members vote, and one that fails voids the vote."""
        votes = await asyncio.gather(
            *(self._vote(member, task, attempt) for member in members(task.verifier))
        )
        scores = [vote.score for vote in votes if vote.score is not None]
        if len(scores) < len(votes):
            return next(vote for vote in votes if vote.score is None)
        score = combine(task.verifier, scores) if len(votes) > 1 else scores[0]
        return Verdict(score=score)

    async def _vote(self, spec: VerifierSpec, task: Task, attempt: Attempt) -> Verdict:
        try:
            if spec.kind == "python":
                return await self._call(spec, task, attempt)
            if spec.kind == "command":
                return await self._command(spec, task, attempt)
        except ConfigError as error:  # the attempt is paid for, and is kept
            return _broken(spec, str(error))
        return Verdict(score=verify(spec, task.expected, attempt.output))

    async def _call(self, spec: VerifierSpec, task: Task, attempt: Attempt) -> Verdict:
        """Call ``module:function`` with output, expected answer and task."""
        case = {"output": attempt.output, "expected": task.expected, "task": _task_json(task)}
        arguments = (f"{SCRATCH}/suite", spec.options["function"], f"{SCRATCH}/case/call.json")
        argv = (sys.executable, "-I", str(_CALL), *arguments)
        done = await self._run(spec, argv, attempt, {"call.json": json.dumps(case)})
        return _failed(spec, done) or _score(spec, done)

    async def _command(self, spec: VerifierSpec, task: Task, attempt: Attempt) -> Verdict:
        """Run a program: exit code 0 passes, 1 fails; its last line may be the score."""
        argv = tuple(_fill(part) for part in spec.options["command"])
        case = {"output": attempt.output, "expected": task.expected or ""}
        done = await self._run(spec, argv, attempt, case)
        if done.exit_code == 1 and not done.host and not done.stopped:
            return Verdict(score=0.0)
        failed = _failed(spec, done)
        if failed or not spec.options.get("score"):
            return failed or Verdict(score=1.0)
        return _score(spec, done)

    async def _run(
        self, spec: VerifierSpec, argv: tuple[str, ...], attempt: Attempt, case: Mapping[str, str]
    ) -> Finished:
        """Run a program beside the suite's code, what it is to score, and the workspace."""
        code = self.code.files if self.code is not None else {}
        files = {f"suite/{path}": file for path, file in code.items()}
        for path, data in attempt.files.items():
            files[f"{WORKSPACE}/{path}"] = PackageFile(data=data)
        for path, text in case.items():
            files[f"case/{path}"] = PackageFile(data=text.encode(errors="surrogatepass"))
        return await self.programs.run(
            Program(argv=argv, files=files, limits=limits_of(spec.options))
        )


def _fill(part: str) -> str:
    for name, place in _PLACES.items():
        part = part.replace(name, place)
    return part


def _task_json(task: Task) -> dict[str, object]:
    """Return what a ``python`` verifier is told of a task."""
    return {
        "id": task.id,
        "family": task.family,
        "input": task.input,
        "expected": task.expected,
        "skill": task.skill,
        "tags": list(task.tags),
    }


def _failed(spec: VerifierSpec, done: Finished) -> Verdict | None:
    """Return the verdict of a verifier that has not ended well, or None."""
    complaint = done.complaint(limits_of(spec.options))
    return _broken(spec, complaint) if complaint else None


def _score(spec: VerifierSpec, done: Finished) -> Verdict:
    """Read the score from the last line of stdout."""
    lines = done.stdout.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    try:
        score = float(last)
    except ValueError:
        return _broken(spec, f"it wrote {last[:60]!r} as its last line, expected a score in [0, 1]")
    if not 0 <= score <= 1:
        return _broken(spec, f"its score is {score}, expected a number in [0, 1]")
    return Verdict(score=score)


def _broken(spec: VerifierSpec, why: str) -> Verdict:
    message = f"verifier {spec.kind!r} failed: {why}"
    failure = Failure(kind=FailureKind.INFRA, message=message, where="verifier")
    return Verdict(score=None, failure=failure)
