"""What is said to a chat model and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from skillforge.core.rollout import Failure

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs, or may cost at most."""

    usd: float = 0.0
    tokens: int = 0
    """Prompt plus completion tokens."""

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both."""
        return Cost(self.usd + other.usd, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool that the model asks to have run."""

    id: str
    """What the tool's answer refers to; some endpoints leave it empty."""
    name: str
    arguments: str
    """One JSON object, as the model wrote it: it need not be valid."""

    def to_json(self) -> dict[str, Any]:
        """Return the call in the OpenAI form."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant's turn asks to have run."""
    tool_call_id: str = ""
    """Of a tool's turn: the call that it answers."""

    def to_json(self) -> dict[str, Any]:
        """Return the turn in the OpenAI form."""
        turn: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            turn["content"] = self.content or None
            turn["tool_calls"] = [call.to_json() for call in self.tool_calls]
        if self.tool_call_id:
            turn["tool_call_id"] = self.tool_call_id
        return turn


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
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    """Functions that the model may ask to have run, each declared in the OpenAI form."""
    affinity: str = ""
    """Requests with equal affinity share a prompt prefix; a hint for prefix caches only."""
    timeout: float = 120.0
    """Seconds, wall clock, for this attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """One completion, with what it cost."""

    text: str
    finish_reason: str
    """``stop``, ``length`` (cut by max_tokens), ``tool_calls`` or what else the model reports."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    """USD; 0.0 for a local model. An unknown price is an error before the call, never 0."""
    seconds: float
    """Seconds, wall clock, spent inside the model call."""
    tool_calls: tuple[ToolCall, ...] = ()
    cost_told: bool = True
    """Whether the endpoint counted; else tokens and cost are the most that they can be."""
    lost: Cost = field(default_factory=Cost)
    """What attempts of the same call before this one may have cost; it comes on top."""

    @property
    def cost(self) -> Cost:
        """What this attempt alone has cost."""
        return Cost(self.cost_usd, self.prompt_tokens + self.completion_tokens)


class CallFailed(Exception):  # noqa: N818 - reads as what happened
    """A model call brought no answer; the failure says whose fault it is and why.

    Args:
        failure: What goes into the attempt's record.
        again: Whether the trouble may pass, so that another attempt is worth making.
        busy: Whether the endpoint refused because it has too much to do.
        wait: Seconds that the endpoint asked to be left alone, or None if it did not say.
        cost: What the call may have cost at most; None if unknown, which is then its bound.
    """

    def __init__(
        self,
        failure: Failure,
        *,
        again: bool = False,
        busy: bool = False,
        wait: float | None = None,
        cost: Cost | None = None,
    ) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.again = again
        self.busy = busy
        self.wait = wait
        self.cost = cost
