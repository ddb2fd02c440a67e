"""The budget, checked before every paid attempt with everything in flight reserved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from skillforge.core.chat import ChatReply, ChatRequest, Cost
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt
from skillforge.core.task import Task
from skillforge.errors import BudgetSpent
from skillforge.ports import ChatModel, Clock, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a run may spend; None is no cap."""

    usd: float | None = None
    tokens: int | None = None
    rollouts: int | None = None
    minutes: float | None = None


@dataclass(slots=True, kw_only=True)
class Spend:
    """What a run has spent."""

    usd: float = 0.0
    tokens: int = 0
    rollouts: int = 0
    """Attempts made in this run; reused ones are counted in ``cached``."""
    cached: int = 0
    seconds: float = 0.0
    """Seconds, wall clock, of the run."""
    model_seconds: float = 0.0
    """Seconds of the rollout phases during which at least one model call was in flight."""
    rollout_seconds: float = 0.0
    """Seconds, wall clock, of the phases that ran rollouts."""

    def to_json(self) -> dict[str, float | int]:
        """Return the spend under the names that the commands print."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(slots=True, kw_only=True)
class Meter:
    """Counts spend against caps. One per run; used from one event loop only."""

    caps: Caps
    clock: Clock
    spend: Spend = field(default_factory=Spend)
    _reserved_usd: float = 0.0
    _reserved_tokens: int = 0
    _started: float | None = None
    _in_flight: int = 0
    _busy_since: float = 0.0
    _phase_since: float | None = None

    def start(self) -> None:
        """Start the minutes running."""
        self._started = self.clock.now()

    def stop(self) -> None:
        """Write the wall-clock seconds down."""
        if self._started is not None:
            self.spend.seconds = self.clock.now() - self._started

    def admit_rollout(self) -> None:
        """Count one more rollout.

        Raises:
            BudgetSpent: It would pass the cap of rollouts, or the minutes are over.
        """
        self._check("rollouts", self.caps.rollouts, self.spend.rollouts + 1)
        self._check_minutes()
        self.spend.rollouts += 1

    def forget_rollout(self) -> None:
        """Take back a rollout that was admitted but whose call the budget refused."""
        self.spend.rollouts -= 1

    def carry(self, *, usd: float, tokens: int, rollouts: int) -> None:
        """Count what an interrupted run had spent before it went on: caps are for whole runs."""
        self.spend.usd += usd
        self.spend.tokens += tokens
        self.spend.rollouts += rollouts

    @contextmanager
    def reserve(self, *, usd: float, tokens: int) -> Iterator[list[ChatReply]]:
        """Hold the most that a call can cost while it is in flight, then book its true cost.

        Yields an empty list; the caller puts the reply into it. A call that brings none is booked
        at nothing.

        Raises:
            BudgetSpent: With this call, the caps could be passed.
        """
        self._check("usd", self.caps.usd, self.spend.usd + self._reserved_usd + usd)
        self._check("tokens", self.caps.tokens, self.spend.tokens + self._reserved_tokens + tokens)
        self._check_minutes()
        self._reserved_usd += usd
        self._reserved_tokens += tokens
        self._enter()
        replies: list[ChatReply] = []
        try:
            yield replies
        finally:
            self._leave()
            self._reserved_usd -= usd
            self._reserved_tokens -= tokens
            for reply in replies:
                self.spend.usd += reply.cost_usd
                self.spend.tokens += reply.prompt_tokens + reply.completion_tokens

    def recheck(self, request: ChatRequest) -> None:
        """Check the caps again before a call is retried; its reservation is held already.

        Raises:
            BudgetSpent: The minutes are over, or a cap has been reached meanwhile.
        """
        del request
        self._check("usd", self.caps.usd, self.spend.usd + self._reserved_usd)
        self._check("tokens", self.caps.tokens, self.spend.tokens + self._reserved_tokens)
        self._check_minutes()

    def _enter(self) -> None:
        if self._in_flight == 0:
            self._busy_since = self.clock.now()
        self._in_flight += 1

    def _leave(self) -> None:
        self._in_flight -= 1
        if self._in_flight == 0 and self._phase_since is not None:
            self.spend.model_seconds += self.clock.now() - self._busy_since

    @contextmanager
    def rollout_phase(self) -> Iterator[None]:
        """Time a phase that runs rollouts, and within it the time that the model is busy."""
        self._phase_since = self.clock.now()
        try:
            yield
        finally:
            self.spend.rollout_seconds += self.clock.now() - self._phase_since
            self._phase_since = None

    def _check(self, what: str, cap: float | None, would_be: float) -> None:
        if cap is not None and would_be > cap:
            raise BudgetSpent(
                f"the budget of {cap:,.10g} {what} is spent; what was measured is kept: raise "
                f"--max-{what} and run the same command again"
            )

    def _check_minutes(self) -> None:
        if self.caps.minutes is None or self._started is None:
            return
        minutes = (self.clock.now() - self._started) / 60
        self._check("minutes", self.caps.minutes, minutes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredModel:
    """A chat model whose every call passes the budget first."""

    model: ChatModel
    meter: Meter

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
        """Reserve, call, book.

        Raises:
            BudgetSpent: With this call, the caps could be passed.
        """
        bounds = {"usd": self.cost_bound(request), "tokens": self.token_bound(request)}
        with self.meter.reserve(usd=bounds["usd"], tokens=int(bounds["tokens"])) as replies:
            reply = await self.model.complete(request)
            replies.append(reply)
            return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredWorker:
    """A worker whose every attempt passes the budget first, as one call.

    For workers whose model calls cannot be seen from here: `command` and `python`.
    """

    worker: Worker
    meter: Meter

    @property
    def fingerprint(self) -> str:
        """Identity of the worker underneath."""
        return self.worker.fingerprint

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return the bound of the worker underneath."""
        return self.worker.bound(task, skills)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Reserve, try, book.

        Raises:
            BudgetSpent: With this attempt, the caps could be passed.
            ConfigError: Nobody says what an attempt costs.
        """
        most = self.bound(task, skills)
        with self.meter.reserve(usd=most.usd, tokens=most.tokens) as spent:
            attempt = await self.worker.attempt(task, skills, seed=seed)
            spent.append(
                ChatReply(
                    text="",
                    finish_reason=attempt.finish_reason,
                    prompt_tokens=attempt.prompt_tokens,
                    completion_tokens=attempt.completion_tokens,
                    cost_usd=attempt.cost_usd,
                    seconds=attempt.seconds,
                )
            )
            return attempt
