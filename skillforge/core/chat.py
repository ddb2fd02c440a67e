"""What is said to a chat model and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from skillforge.core.rollout import Failure

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One completion to ask for."""

    messages: tuple[Message, ...]
    max_tokens: int
    """Upper bound of tokens to generate, ≥ 1."""
    temperature: float | None = None
    """None leaves the model's own default; 0.0 asks for greedy decoding. They are different."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    """A JSON schema that the answer must follow, where the model supports it."""
    affinity: str = ""
    """Requests with equal affinity share a prompt prefix; a hint for prefix caches only."""
    timeout: float = 120.0
    """Seconds, wall clock, for this attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """One completion, with what it cost."""

    text: str
    finish_reason: str
    """``stop``, ``length`` (cut by max_tokens) or what else the model reports."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    """USD; 0.0 for a local model. An unknown price is an error before the call, never 0."""
    seconds: float
    """Seconds, wall clock, spent inside the model call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something costs, or at most can cost."""

    usd: float = 0.0
    tokens: int = 0


class CallFailed(Exception):  # noqa: N818 - reads as what happened
    """A model call brought no answer; the failure says whose fault it is and why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
