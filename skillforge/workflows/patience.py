"""Calls that are made again when a trouble may pass, at the pace that the endpoint can take.

Every attempt goes through the model underneath, and so through the budget that a `MeteredModel`
there checks: a retry is a call like any other.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost
from skillforge.core.pace import Throttle
from skillforge.core.retry import RetryPolicy
from skillforge.ports import ChatModel


@dataclass(slots=True)
class Pace:
    """Lets calls to one endpoint begin when its throttle allows, first come, first served.

    Shared by the models behind the endpoint; used from one event loop only.
    """

    throttle: Throttle
    _door: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pace, (self.throttle,)  # locks stay in their process

    @asynccontextmanager
    async def turn(self, tokens: int) -> AsyncIterator[list[ChatReply]]:
        """Wait for a turn and hold it; the caller puts the reply, if one comes, into the list."""
        clock = asyncio.get_running_loop().time
        async with self._door:
            while (delay := self.throttle.delay(tokens, clock())) != 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._changed.wait()
            call = self.throttle.begin(tokens, clock())
        replies: list[ChatReply] = []
        busy = False
        try:
            yield replies
        except CallFailed as error:
            busy = error.busy
            raise
        finally:
            used = replies[0].prompt_tokens + replies[0].completion_tokens if replies else None
            self.throttle.end(call, tokens=used, busy=busy)
            self._changed.set()

    def close(self, seconds: float) -> None:
        """Let no call begin for some seconds."""
        self.throttle.close(asyncio.get_running_loop().time() + seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientModel:
    """A chat model that is asked again, at the pace of its endpoint, until it answers."""

    model: ChatModel
    pace: Pace
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    free_only: bool = False
    """Whether a call that may have cost something is not made again."""

    @property
    def name(self) -> str:
        """Name of the model underneath."""
        return self.model.name

    @property
    def fingerprint(self) -> str:
        """Identity of the model underneath."""
        return self.model.fingerprint

    def cost_bound(self, request: ChatRequest) -> float:
        """Upper bound of USD for one attempt."""
        return self.model.cost_bound(request)

    def token_bound(self, request: ChatRequest) -> int:
        """Upper bound of tokens for one attempt."""
        return self.model.token_bound(request)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the first answer that comes, with what the attempts before it have lost.

        Raises:
            CallFailed: No attempt brought one; the message says how many were made.
            BudgetSpent: The budget forbade an attempt.
        """
        tokens, lost = self.token_bound(request), Cost()
        for attempt in itertools.count():
            try:
                async with self.pace.turn(tokens) as replies:
                    replies.append(await self.model.complete(request))
                    return replace(replies[0], lost=lost)
            except CallFailed as error:
                lost += error.cost or Cost(self.cost_bound(request), tokens)
                jitter = random.random()  # noqa: S311 - spreads retries, keeps no secret
                wait = self.retry.pause(attempt, error.wait, jitter, busy=error.busy)
                paid = self.free_only and error.cost != Cost()
                if not error.again or paid or wait is None:
                    raise _given_up(error, attempt + 1, lost) from error
                if error.wait:
                    self.pace.close(error.wait)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the loop above ends by returning or raising")


def _given_up(error: CallFailed, attempts: int, lost: Cost) -> CallFailed:
    """Return the last failure with the number of attempts, and what all of them may have cost."""
    failure = error.failure
    if attempts > 1:
        failure = replace(failure, message=f"{failure.message} (after {attempts} attempts)")
    return CallFailed(failure, again=error.again, busy=error.busy, wait=error.wait, cost=lost)
