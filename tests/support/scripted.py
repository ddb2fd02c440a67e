"""A chat model that says what it was told to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest
from skillforge.core.rollout import Failure, FailureKind


@dataclass(slots=True)
class ScriptedModel:
    """A model that gives fixed answers in turn, the last one for ever."""

    answers: Sequence[str | FailureKind]
    requests: list[ChatRequest] = field(default_factory=list)
    name: str = "scripted"
    fingerprint: str = "scripted"

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the next answer, or fail as scripted."""
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(answer, FailureKind):
            raise CallFailed(Failure(kind=answer, message="HTTP 502", where="model"))
        return ChatReply(
            text=answer,
            finish_reason="stop",
            prompt_tokens=1,
            completion_tokens=1,
            cost_usd=0.0,
            seconds=0.0,
        )

    def cost_bound(self, request: ChatRequest) -> float:
        """Nothing is paid."""
        return 0.0

    def token_bound(self, request: ChatRequest) -> int:
        """One in, one out."""
        return 2
