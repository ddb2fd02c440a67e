"""The chat worker: one completion per task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from skillforge.core.chat import CallFailed, ChatRequest, Cost
from skillforge.core.digest import json_digest
from skillforge.core.package import Package
from skillforge.core.prompts import CHAT_TEMPLATE, first_request
from skillforge.core.rollout import Attempt, Cause, Failure, FailureKind
from skillforge.core.task import Task, WorkerSpec
from skillforge.ports import ChatModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatWorker:
    """One completion per task: the skills' bodies as system message, the task as user message."""

    model: ChatModel
    spec: WorkerSpec

    @property
    def fingerprint(self) -> str:
        """Everything but the task and the skills that can change a result."""
        return json_digest(["chat", self.model.fingerprint, CHAT_TEMPLATE, self.spec.to_json()])

    def prompt(self, task: Task, skills: Sequence[Package]) -> ChatRequest:
        """Return the request for a task; skills enter without their frontmatter."""
        return first_request("chat", self.spec, task, skills)

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return the most that the one call of an attempt can cost."""
        request = self.prompt(task, skills)
        return Cost(usd=self.model.cost_bound(request), tokens=self.model.token_bound(request))

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Try the task once; a failed call is part of the attempt."""
        request = replace(self.prompt(task, skills), seed=seed)
        sent = tuple(message.to_json() for message in request.messages)
        try:
            reply = await self.model.complete(request)
        except CallFailed as error:
            lost = error.cost or Cost()
            return Attempt(
                output="",
                failure=error.failure,
                prompt_tokens=lost.tokens,
                cost_usd=lost.usd,
                transcript=sent,
            )
        empty = Failure(
            kind=FailureKind.AGENT, message="empty answer", where="worker", cause=Cause.EMPTY
        )
        return Attempt(
            output=reply.text,
            finish_reason=reply.finish_reason,
            prompt_tokens=reply.prompt_tokens + reply.lost.tokens,
            completion_tokens=reply.completion_tokens,
            cost_usd=reply.cost_usd + reply.lost.usd,
            cost_told=reply.cost_told,
            seconds=reply.seconds,
            failure=None if reply.text.strip() else empty,
            transcript=sent,
        )
