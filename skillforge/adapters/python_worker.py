"""The python worker: a function of the suite, whatever it does inside."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exception_only
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skillforge.core.chat import Cost
from skillforge.core.digest import json_digest
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt, Cause, Failure, FailureKind
from skillforge.core.shown import body_text, readable_files
from skillforge.core.task import Task, WorkerSpec
from skillforge.errors import ConfigError, InfraError

_INFRA = (InfraError, ConnectionError, MemoryError)
"""What a function raises where nothing was learnt about the task."""
_MOST = 2**53
"""Tokens of one attempt: what JSON can hold, and sums of them."""


class Function(Protocol):
    """The function of the suite."""

    @property
    def call(self) -> Callable[..., Awaitable[Any]]:
        """What runs it."""

    @property
    def source(self) -> str:
        """Identity of its code."""


class _Answer(BaseModel):
    """What the function may return instead of a text."""

    model_config = ConfigDict(extra="forbid", strict=True)
    output: str
    prompt_tokens: int = Field(0, ge=0, le=_MOST)
    completion_tokens: int | None = Field(None, ge=0, le=_MOST)
    cost_usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonWorker:
    """Calls ``function(input, skills, seed)`` once per task.

    ``skills`` is a list of ``{"name", "description", "body", "folder"}``; the folder holds the
    skill's files for as long as the call takes. The function returns the answer as text, or a
    mapping with ``output`` and any of ``prompt_tokens``, ``completion_tokens``, ``cost_usd`` and
    ``finish_reason``; what it says is booked, also 0, and what it does not say as the suite states
    it. What it raises is the agent's failure, but for `InfraError`, lost connections and a host
    without memory or disk.

    Args:
        function: The function with its source.
        spec: Settings of the suite.
    """

    function: Function
    spec: WorkerSpec

    @property
    def fingerprint(self) -> str:
        """Everything but the task and the skills that can change a result."""
        return json_digest(["python", self.function.source, self.spec.to_json()])

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return what the suite states.

        Raises:
            ConfigError: It states no price.
        """
        del task, skills
        if self.spec.usd_per_attempt is None:
            raise ConfigError(
                f"[worker] function {self.spec.function!r}: nobody says what an attempt costs, so "
                "no budget could hold; add usd_per_attempt = USD to [worker] (0 if it is free)"
            )
        return Cost(self.spec.usd_per_attempt, self.spec.tokens_per_attempt)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Try the task once; what the function raises is part of the attempt."""
        started = time.monotonic()
        failure, answer = None, _Answer(output="")
        limit = asyncio.timeout(self.spec.timeout)
        try:
            with _folders(skills) as shown:
                async with limit:
                    answer = _read(await self.function.call(task.input, shown, seed))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it may raise
            over = limit.expired() and isinstance(error, TimeoutError)
            failure = self._failure(error, Cause.TIMEOUT if over else Cause.CRASH)
        if failure is None and not answer.output.strip():
            failure = self._failure(ValueError("empty answer"), Cause.EMPTY)
        usd, tokens, told = self._cost(answer, self.bound(task, skills))
        return Attempt(
            output=answer.output,
            finish_reason=answer.finish_reason,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=tokens,
            cost_usd=usd,
            cost_told=told,
            seconds=time.monotonic() - started,
            failure=failure,
            transcript=({"role": "user", "content": task.input},),
        )

    def _cost(self, answer: _Answer, stated: Cost) -> tuple[float, int, bool]:
        """Return USD and completion tokens to book, and whether the function told them all."""
        usd, tokens = answer.cost_usd, answer.completion_tokens
        told = (usd is not None or not stated.usd) and (tokens is not None or not stated.tokens)
        unsaid = max(stated.tokens - answer.prompt_tokens, 0)
        return stated.usd if usd is None else usd, unsaid if tokens is None else tokens, told

    def _failure(self, error: BaseException, cause: Cause) -> Failure:
        infra = isinstance(error, _INFRA) or getattr(error, "errno", None) == errno.ENOSPC
        message = "".join(format_exception_only(error)).strip().rpartition("\n")[2]
        if cause is Cause.TIMEOUT:
            message = f"timeout: no answer within {self.spec.timeout:g} s"
        return Failure(
            kind=FailureKind.INFRA if infra else FailureKind.AGENT,
            message=f"{self.spec.function}: {message}",
            where="worker",
            cause=cause,
        )


def _read(returned: Any) -> _Answer:
    """Check what the function returned."""
    if isinstance(returned, str):
        return _Answer(output=returned)
    try:
        return _Answer.model_validate(dict(returned) if isinstance(returned, Mapping) else returned)
    except ValidationError as error:
        raise TypeError(
            f"it returned {str(returned)[:80]!r}; expected a text, or a mapping with "
            f"{', '.join(_Answer.model_fields)}"
        ) from error


@contextmanager
def _folders(skills: Sequence[Package]) -> Iterator[list[dict[str, str]]]:
    """Write the files of some skills into a folder of their own, for a while."""
    if not skills:
        yield []
        return
    with TemporaryDirectory(prefix="skillforge-", ignore_cleanup_errors=True) as root:
        yield [_written(skill, Path(root) / skill.name) for skill in skills]


def _written(skill: Package, folder: Path) -> dict[str, str]:
    for path, file in readable_files(skill).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file.data)
        if file.executable:
            (folder / path).chmod(0o755)
    return {
        "name": skill.name,
        "description": skill.description,
        "body": body_text(skill),
        "folder": str(folder),
    }
