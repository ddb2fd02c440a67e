"""Workers: what performs a task with given skills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from skillforge.core.chat import CallFailed, ChatRequest, Cost, Message
from skillforge.core.digest import json_digest
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt, Failure, FailureKind
from skillforge.core.task import Task, WorkerSpec
from skillforge.ports import ChatModel

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE = "{{ preamble }}{% for skill in skills %}\n\n{{ skill }}{% endfor %}"
"""System message of the chat worker: the same words in both arms, then the skills' bodies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatWorker:
    """One completion per task: the skills' bodies as system message, the task as user message."""

    model: ChatModel
    spec: WorkerSpec
    template: str = TEMPLATE

    @property
    def fingerprint(self) -> str:
        """Everything but the task and the skills that can change a result."""
        settings = {name: getattr(self.spec, name) for name in self.spec.__dataclass_fields__}
        return json_digest(["chat", self.model.fingerprint, self.template, settings])

    def prompt(self, task: Task, skills: Sequence[Package]) -> ChatRequest:
        """Return the request for a task; skills enter without their frontmatter."""
        system = _compiled(self.template).render(
            preamble=self.spec.preamble, skills=[skill.body.strip() for skill in skills]
        )
        return ChatRequest(
            messages=(
                Message(role="system", content=system),
                Message(role="user", content=task.input),
            ),
            max_tokens=self.spec.max_tokens,
            temperature=self.spec.temperature,
            stop=self.spec.stop,
            timeout=self.spec.timeout,
            affinity=json_digest([skill.version for skill in skills])[:16],
        )

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return the most that the one call of an attempt can cost."""
        request = self.prompt(task, skills)
        return Cost(usd=self.model.cost_bound(request), tokens=self.model.token_bound(request))

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Try the task once; a failed call is part of the attempt."""
        request = replace(self.prompt(task, skills), seed=seed)
        sent = tuple({"role": m.role, "content": m.content} for m in request.messages)
        try:
            reply = await self.model.complete(request)
        except CallFailed as error:
            return Attempt(output="", failure=error.failure, transcript=sent)
        empty = Failure(kind=FailureKind.AGENT, message="empty answer", where="worker")
        return Attempt(
            output=reply.text,
            finish_reason=reply.finish_reason,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cost_usd=reply.cost_usd,
            seconds=reply.seconds,
            failure=None if reply.text.strip() else empty,
            transcript=sent,
        )


@lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    return environment.from_string(template)
