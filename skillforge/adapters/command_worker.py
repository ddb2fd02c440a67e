"""The command worker: an agent harness, or any program, started anew for each attempt.

It gets a fresh workspace with the task's files and the arm's skills, laid where that harness reads
them, and the task's input as one argument. What it brings back is its answer, its exit code and
the files of the workspace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skillforge.core.chat import Cost
from skillforge.core.digest import json_digest
from skillforge.core.package import Package, PackageFile
from skillforge.core.packs import SKILL_FOLDERS
from skillforge.core.patterns import MAX_TEXT, safe_pattern
from skillforge.core.program import SCRATCH, WORKSPACE, Finished, Program
from skillforge.core.rollout import Attempt, Cause, Failure, FailureKind
from skillforge.core.task import Code, Suite, Task, WorkerSpec
from skillforge.errors import ConfigError
from skillforge.ports import Programs

_PLACEHOLDER = re.compile(r"\{(prompt|workspace|suite)\}")
_CAUSES = {
    "": Cause.CRASH,
    "timeout": Cause.TIMEOUT,
    "memory": Cause.CRASH,
    "output": Cause.OUTPUT,
    "disk": Cause.OUTPUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWorker:
    """Performs a task with a program, as the `Worker` port; see `make_command_worker`."""

    programs: Programs
    spec: WorkerSpec
    cost: Cost
    """The most that one attempt can cost, as the suite states it; booked for each, for nobody can
    say what it did cost."""
    program: str
    """Digest of the program, so that a new version of a harness is a new worker."""
    code: Code | None
    """The suite's code, of which the program gets a copy where the command names ``{suite}``."""

    @property
    def fingerprint(self) -> str:
        """Everything but the task and the skills that can change a result."""
        spec = self.spec
        code = self.code.digest if self._shows_code and self.code is not None else ""
        asked = [spec.command, spec.harness, spec.answer_file, spec.limits.to_json()]
        outage = [spec.outage] if spec.outage else []
        return json_digest(["command", *asked, self.program, code, *outage])

    @property
    def _shows_code(self) -> bool:
        return any("{suite}" in part for part in self.spec.command)

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return the most that one attempt can cost."""
        return self.cost

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Try the task once; the program itself decides what to make of chance.

        Raises:
            ConfigError: The program cannot be found.
        """
        laid = self._files(task, skills)
        argv = tuple(_fill(part, task.input) for part in self.spec.command)
        done = await self.programs.run(Program(argv=argv, files=laid, limits=self.spec.limits))
        home = f"{SKILL_FOLDERS[self.spec.harness]}/"
        files = {p: data for p, data in done.files.items() if not p.startswith(home)}
        output = self._answer(done)
        cost = Cost() if done.exit_code is None else self.cost  # None where it never ran
        unchanged = files == task.files
        return Attempt(
            output=output,
            seconds=done.seconds,
            cost_usd=cost.usd,
            completion_tokens=cost.tokens,
            cost_told=cost == Cost(),
            failure=self._failure(done, silent=unchanged and not output.strip()),
            transcript=({"role": "user", "content": task.input},),
            exit_code=done.exit_code,
            files=files,
        )

    def _files(self, task: Task, skills: Sequence[Package]) -> dict[str, PackageFile]:
        """Return what the program's folder holds at the start: nothing but this arm's."""
        home = f"{WORKSPACE}/{SKILL_FOLDERS[self.spec.harness]}"
        files = {f"{WORKSPACE}/{p}": PackageFile(data=data) for p, data in task.files.items()}
        for skill in skills:
            for path, file in skill.files.items():
                files[f"{home}/{skill.name}/{path}"] = file
        code: Mapping[str, PackageFile] = {}
        if self._shows_code and self.code is not None:
            code = self.code.files
        return files | {f"suite/{path}": file for path, file in code.items()}

    def _answer(self, done: Finished) -> str:
        named = self.spec.answer_file
        data = done.files.get(named, b"") if named else done.stdout
        return data.decode(errors="replace")

    def _failure(self, done: Finished, *, silent: bool) -> Failure | None:
        complaint, cause = done.complaint(self.spec.limits), _CAUSES[done.stopped]
        if not complaint and silent:
            named = self.spec.answer_file
            complaint = f"no {named} in the workspace" if named else "empty answer"
            cause = Cause.EMPTY
        if not complaint:
            return None
        kind = FailureKind.INFRA if done.host else FailureKind.AGENT
        if self._is_outage(done):
            kind, cause = FailureKind.INFRA, Cause.OUTAGE
        message = f"{self.spec.command[0]}: {complaint}"
        return Failure(kind=kind, message=message, where="worker", cause=cause)

    def _is_outage(self, done: Finished) -> bool:
        """Whether it ended by itself and said, with the suite's words, that its model is away."""
        if not self.spec.outage or done.host or done.stopped or not done.exit_code:
            return False
        answer = done.stdout.decode(errors="replace").splitlines() or [""]
        lines = [*done.stderr.splitlines(), answer[-1]]  # what stands above is its work
        outage = safe_pattern(self.spec.outage)
        return any(outage.search(line[:MAX_TEXT]) for line in lines)


def _fill(part: str, prompt: str) -> str:
    """Put the prompt and the places into one argument; the prompt is not looked at again."""
    places = {
        "prompt": prompt.replace(SCRATCH, "\N{REPLACEMENT CHARACTER}"),
        "workspace": f"{SCRATCH}/{WORKSPACE}",
        "suite": f"{SCRATCH}/suite",
    }
    return _PLACEHOLDER.sub(lambda found: places[found[1]], part)


def make_command_worker(suite: Suite, programs: Programs) -> CommandWorker:
    """Return the worker that a suite's ``[worker]`` of kind ``command`` describes.

    Args:
        suite: A suite that is trusted.
        programs: What runs its program.

    Raises:
        ConfigError: There is no such program, or the suite does not say what an attempt can cost.
    """
    spec = suite.worker
    if not spec.command:
        raise ConfigError(f"suite {suite.name}: [worker] has no `command`; add the program to run")
    if spec.usd_per_attempt is None:
        raise ConfigError(
            f"suite {suite.name}: nobody but you knows what an attempt of "
            f"{spec.command[0]!r} can cost; add `usd_per_attempt` (USD, 0 if it is free) to "
            "[worker]"
        )
    program = programs.identity(spec.command[0])
    if not program and "{suite}" not in spec.command[0]:
        raise ConfigError(
            f"suite {suite.name}: there is no program {spec.command[0]!r} on PATH; install it, or "
            "correct `command` in [worker]"
        )
    return CommandWorker(
        programs=programs,
        spec=spec,
        cost=Cost(usd=spec.usd_per_attempt, tokens=spec.tokens_per_attempt),
        program=program,
        code=suite.code,
    )
