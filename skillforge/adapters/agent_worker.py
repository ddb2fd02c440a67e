"""The agent worker: a tool loop with progressive disclosure, as the harnesses do it.

The model sees the catalogue of skills and asks for what it wants to read. Whatever it asks for
wrongly is answered with what to do instead and costs it a step; only a limit, a crash or a call
without an answer ends the loop early. Tools of the suite run in this process, one after another.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from skillforge.adapters.agent_tools import (
    Shelf,
    Tool,
    answer,
    declaration,
    give_state,
    read_arguments,
)
from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost, Message, ToolCall
from skillforge.core.digest import json_digest
from skillforge.core.package import Package
from skillforge.core.prompts import AGENT_TEMPLATE, first_request
from skillforge.core.rollout import Attempt, Cause, Failure, FailureKind
from skillforge.core.task import Task, WorkerSpec
from skillforge.errors import ConfigError
from skillforge.ports import ChatModel

RESULT_CHARACTERS = 32_768
"""Longest answer of a tool; the rest is cut off, and the answer says so."""


class Function(Protocol):
    """A function of the suite."""

    @property
    def call(self) -> Tool:
        """What runs it, with the signature and docstring of the function."""


@dataclass(slots=True, kw_only=True)
class _Talk:
    """The conversation of one attempt, and what it has used."""

    messages: list[Message]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    cost_told: bool = True
    lost: Cost = field(default_factory=Cost)
    """What calls without an answer may have cost; it does not count against the token limit."""
    seconds: float = 0.0
    """Inside the model."""
    tool_seconds: float = 0.0
    finish_reason: str = "stop"
    """Of the last reply; ``length`` stays."""
    output: str = ""
    """The last text that the assistant wrote."""

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def take(self, reply: ChatReply, step: int) -> tuple[ToolCall, ...]:
        """Book a reply and add it; return its calls in a form that any provider accepts back."""
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens
        self.cost_usd += reply.cost_usd
        self.cost_told &= reply.cost_told
        self.lost += reply.lost
        self.seconds += reply.seconds
        if self.finish_reason != "length":
            self.finish_reason = reply.finish_reason
        text = _unicode(reply.text)
        self.output = text if text.strip() else self.output
        calls = tuple(
            _sendable(call, f"call_{step}_{i}") for i, call in enumerate(reply.tool_calls)
        )
        self.messages.append(Message(role="assistant", content=text, tool_calls=calls))
        return calls

    def tell(self, call: ToolCall, text: str) -> None:
        """Add the answer to a call."""
        if len(text) > RESULT_CHARACTERS:
            cut = f"\n(cut off here, after {RESULT_CHARACTERS} of {len(text)} characters)"
            text = text[:RESULT_CHARACTERS] + cut
        self.messages.append(Message(role="tool", content=_unicode(text), tool_call_id=call.id))


class _EndedError(Exception):
    """An attempt is over, and this is why."""

    def __init__(self, cause: Cause, message: str, kind: FailureKind = FailureKind.AGENT) -> None:
        super().__init__(message)
        self.failure = Failure(kind=kind, message=message, where="worker", cause=cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWorker:
    """A loop of completions and tool calls, until the model answers without calling a tool.

    Args:
        model: Must be able to call tools.
        spec: Settings of the suite.
        tools: Functions of the suite by name. One whose first parameter is ``state`` gets the
            state of the attempt there.
        make_state: Makes the state of an attempt from ``{"id", "family", "input"}`` of its task;
            an empty dict where there is none.
        source: Identity of the code of tools and state.

    Raises:
        ConfigError: A tool has a name that is taken, or parameters without a JSON schema.
    """

    model: ChatModel
    spec: WorkerSpec
    tools: Mapping[str, Function] = field(default_factory=dict)
    make_state: Function | None = None
    source: str = ""
    _declared: tuple[Mapping[str, Any], ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        shelf = Shelf(skills={})
        if taken := sorted(shelf.tools.keys() & self.tools):
            raise ConfigError(f"[worker] tools: every agent has a tool {taken[0]!r}; rename yours")
        declared = tuple(declaration(*item) for item in self._every_tool(shelf, None).items())
        object.__setattr__(self, "_declared", declared)

    @property
    def fingerprint(self) -> str:
        """Everything but the task and the skills that can change a result."""
        code = [AGENT_TEMPLATE, list(self._declared), RESULT_CHARACTERS, self.source]
        return json_digest(["agent", self.model.fingerprint, code, self.spec.to_json()])

    def prompt(self, task: Task, skills: Sequence[Package]) -> ChatRequest:
        """Return the first request: every skill is listed, none is shown."""
        return first_request("agent", self.spec, task, skills, self._declared)

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return the most that one attempt can cost: its token limit at the model's prices.

        The bounds of a first request imply the prices of reading and of writing a token.
        """
        one, two = (replace(self.prompt(task, skills), max_tokens=n) for n in (1, 2))
        written = self.model.cost_bound(two) - self.model.cost_bound(one)
        read = (self.model.cost_bound(one) - written) / (self.model.token_bound(one) - 1)
        limit = self.spec.token_limit
        completions = min(self.spec.steps * self.spec.max_tokens, limit)
        return Cost(limit * read + completions * max(written - read, 0.0), limit)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Try the task once; whatever goes wrong on the way is part of the attempt."""
        first = replace(self.prompt(task, skills), seed=seed)
        talk = _Talk(messages=list(first.messages))
        shelf = Shelf(skills={skill.name: skill for skill in skills})
        failure: Failure | None = None
        try:
            await self._loop(first, talk, shelf, await self._state(task))
        except _EndedError as error:
            failure = error.failure
        except CallFailed as error:
            failure = error.failure
            talk.lost += error.cost or Cost()
        return Attempt(
            output=talk.output,
            finish_reason=talk.finish_reason,
            prompt_tokens=talk.prompt_tokens + talk.lost.tokens,
            completion_tokens=talk.completion_tokens,
            cost_usd=talk.cost_usd + talk.lost.usd,
            cost_told=talk.cost_told,
            seconds=talk.seconds,
            failure=failure,
            transcript=tuple(message.to_json() for message in talk.messages),
            uses=tuple(shelf.uses),
        )

    async def _loop(self, first: ChatRequest, talk: _Talk, shelf: Shelf, state: Any) -> None:
        tools = self._every_tool(shelf, state)
        for shelf.step in range(1, self.spec.steps + 1):
            request = replace(first, messages=tuple(talk.messages), timeout=self._left(talk))
            if talk.tokens + self.model.token_bound(request) > self.spec.token_limit:
                raise _EndedError(
                    Cause.TOKENS,
                    f"token limit: with {talk.tokens} tokens used, another call could pass "
                    f"{self.spec.token_limit}",
                )
            reply = await self.model.complete(request)
            calls = talk.take(reply, shelf.step)
            if not calls:
                break
            for asked, call in zip(reply.tool_calls, calls, strict=True):
                talk.tell(call, await self._answer(tools, asked, talk))
        else:
            raise _EndedError(Cause.STEPS, f"step limit: no answer within {self.spec.steps} steps")
        if not talk.output:
            raise _EndedError(Cause.EMPTY, "empty answer")

    def _every_tool(self, shelf: Shelf, state: Any) -> dict[str, Tool]:
        own = {name: give_state(tool.call, state) for name, tool in self.tools.items()}
        return {**shelf.tools, **own}

    def _left(self, talk: _Talk) -> float:
        """Return the seconds that are left of the attempt, waiting for the model not counted."""
        left = self.spec.timeout - talk.seconds - talk.tool_seconds
        if left <= 0:
            raise _EndedError(Cause.TIMEOUT, f"timeout: no answer within {self.spec.timeout:g} s")
        return left

    async def _state(self, task: Task) -> Any:
        """Make the state of an attempt; that it fails is not the agent's fault."""
        if self.make_state is None:
            return {}
        try:
            async with asyncio.timeout(self.spec.timeout):
                seen = {"id": task.id, "family": task.family, "input": task.input}
                return await self.make_state.call(seen)
        except (Exception, SystemExit) as error:
            said = f"state {self.spec.state}: {type(error).__name__}: {error}"
            raise _EndedError(Cause.OTHER, said, FailureKind.INFRA) from error

    async def _answer(self, tools: Mapping[str, Tool], call: ToolCall, talk: _Talk) -> str:
        """Run a tool within the time of the attempt."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._left(talk)):
                return await answer(tools, call)
        except TimeoutError as error:
            raise _EndedError(
                Cause.TIMEOUT, f"timeout: tool {call.name} was still running"
            ) from error
        except SystemExit as error:
            raise _EndedError(
                Cause.CRASH, f"tool {call.name} crashed: SystemExit: {error}"
            ) from error
        finally:
            talk.tool_seconds += time.monotonic() - started


def _sendable(call: ToolCall, fallback: str) -> ToolCall:
    """Return a call as it goes back to the model: some providers refuse its mistakes outright."""
    return ToolCall(
        id=call.id or fallback,
        name=re.sub(r"[^A-Za-z0-9_-]", "_", call.name)[:64] or "unknown",
        arguments="{}" if not read_arguments(call.arguments) else _unicode(call.arguments),
    )


def _unicode(text: str) -> str:
    """Return a text without halves of surrogate pairs, which no request can carry."""
    return text.encode("utf-8", "replace").decode()
