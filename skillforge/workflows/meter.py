"""The budget, checked before every paid attempt with everything in flight reserved.

A call reserves the most that it can cost before it begins and is booked at what it did cost when it
ends, so that no cap is passed by what was spent and what may still come together. A call that would
fit if those in flight cost less than their bounds waits for them to land; it is refused only where
it would not fit with nothing in flight. Calls are let in first come, first served.

A call that failed is booked at what it may have cost (`skillforge.core.retry` says when that is
nothing); one that was called off, or of which nobody can tell, at its bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt
from skillforge.core.task import Task
from skillforge.errors import BudgetSpent, ConfigError, SkillforgeError
from skillforge.ports import ChatModel, Clock, Worker

Amount = TypeVar("Amount", int, float)
Bills = dict[str, dict[str, Any]]
"""By role (``worker``, ``proposer`` …) its ``usd``, ``tokens`` and ``calls``, as JSON objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a run may spend; None is no cap."""

    usd: float | None = None
    tokens: int | None = None
    rollouts: int | None = None
    minutes: float | None = None

    def less(self, spend: Spend) -> Caps:
        """Return what is left of the caps; never below 0."""

        def left(cap: Amount | None, used: Amount) -> Amount | None:
            return None if cap is None else max(cap - used, cap * 0)

        return Caps(
            usd=left(self.usd, spend.usd),
            tokens=left(self.tokens, spend.tokens),
            rollouts=left(self.rollouts, spend.rollouts),
            minutes=left(self.minutes, spend.seconds / 60),
        )


@dataclass(slots=True)
class Bill:
    """What the calls of one role have cost."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    """Attempts, those that failed included."""

    def add(self, *, usd: float, tokens: int, calls: int) -> None:
        """Add to the bill."""
        self.usd += usd
        self.tokens += tokens
        self.calls += calls

    def to_json(self) -> dict[str, Any]:
        """Return the bill under the names that events carry."""
        return {"usd": self.usd, "tokens": self.tokens, "calls": self.calls}


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
    roles: dict[str, Bill] = field(default_factory=dict)
    """``usd`` and ``tokens`` split by what they were spent for."""

    def to_json(self) -> dict[str, Any]:
        """Return the spend under the names that the commands print."""
        return asdict(self)

    def book(self, role: str, *, usd: float, tokens: int, calls: int = 1) -> None:
        """Add the cost of calls."""
        self.usd += usd
        self.tokens += tokens
        self.roles.setdefault(role, Bill()).add(usd=usd, tokens=tokens, calls=calls)


@dataclass(slots=True)
class Reservation:
    """A call in flight."""

    bound: Cost
    """The most that it can cost."""
    cost: Cost | None = None
    """What it did cost; as long as nobody says so, its bound."""


@dataclass(slots=True, kw_only=True)
class Meter:
    """Counts spend against caps. One per run; used from one event loop only.

    A call must not reserve while one that it is part of holds a reservation: the inner one could
    wait for the outer one for ever.
    """

    caps: Caps
    clock: Clock
    spend: Spend = field(default_factory=Spend)
    _in_flight: list[Reservation] = field(default_factory=list)
    _unrecorded: Spend = field(default_factory=Spend)
    _started: float | None = None
    _busy_since: float = 0.0
    _phase_since: float | None = None
    _door: asyncio.Lock = field(default_factory=asyncio.Lock)
    _landed: asyncio.Event = field(default_factory=asyncio.Event)

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

    def carry(self, bills: Mapping[str, Mapping[str, Any]], *, rollouts: int = 0) -> None:
        """Count what an interrupted run had spent before it went on: caps are for whole runs."""
        for role, bill in bills.items():
            self.spend.book(role, **bill)
        self.spend.rollouts += rollouts

    def unrecorded(self) -> Bills:
        """Return what was booked since this was asked last, for a record that outlives a crash."""
        bills = {role: bill.to_json() for role, bill in self._unrecorded.roles.items()}
        if bills:
            self._unrecorded = Spend()
        return bills

    @asynccontextmanager
    async def reserve(self, role: str, bound: Cost) -> AsyncIterator[Reservation]:
        """Hold the most that a call can cost while it is in flight, then book its true cost.

        The caller writes the cost into the reservation; without one, the bound is booked.

        Raises:
            BudgetSpent: With this call, the caps could be passed.
        """
        async with self._door:  # waiting callers are served in the order of their coming
            while not self._fits(bound):
                self._landed.clear()
                await self._landed.wait()
            reservation = Reservation(bound)
            self._take_off(reservation)
        try:
            yield reservation
        finally:
            self._land(role, reservation)

    def _fits(self, bound: Cost) -> bool:
        """Whether a call fits beside those in flight.

        Raises:
            BudgetSpent: It would not fit if there were none, or the minutes are over.
        """
        usd, tokens = self.spend.usd + bound.usd, self.spend.tokens + bound.tokens
        self._check("usd", self.caps.usd, usd)
        self._check("tokens", self.caps.tokens, tokens)
        self._check_minutes()
        usd += sum(r.bound.usd for r in self._in_flight)
        tokens += sum(r.bound.tokens for r in self._in_flight)
        return not (_passes(self.caps.usd, usd) or _passes(self.caps.tokens, tokens))

    def _take_off(self, reservation: Reservation) -> None:
        if not self._in_flight:
            self._busy_since = self.clock.now()
        self._in_flight.append(reservation)

    def _land(self, role: str, reservation: Reservation) -> None:
        self._in_flight = [r for r in self._in_flight if r is not reservation]
        cost = reservation.bound if reservation.cost is None else reservation.cost
        for book in (self.spend, self._unrecorded):
            book.book(role, usd=cost.usd, tokens=cost.tokens)
        if not self._in_flight and self._phase_since is not None:
            self.spend.model_seconds += self.clock.now() - self._busy_since
        self._landed.set()

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
        if cap is not None and _passes(cap, would_be):
            raise BudgetSpent(
                f"the budget of {cap:,.10g} {what} is spent; what was measured is kept: raise "
                f"--max-{what} and run the same command again"
            )

    def _check_minutes(self) -> None:
        if self.caps.minutes is None or self._started is None:
            return
        minutes = (self.clock.now() - self._started) / 60
        self._check("minutes", self.caps.minutes, minutes)


def _passes(cap: float | None, amount: float) -> bool:
    return cap is not None and amount > cap


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredModel:
    """A chat model whose every call passes the budget first."""

    model: ChatModel
    meter: Meter
    role: str = "worker"
    """What the calls are for: ``worker``, ``proposer``, ``judge``."""

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
        bound = Cost(usd=self.cost_bound(request), tokens=self.token_bound(request))
        async with self.meter.reserve(self.role, bound) as call:
            try:
                reply = await self.model.complete(request)
            except CallFailed as error:
                call.cost = error.cost
                raise
            except SkillforgeError:  # a wrong key or name: nothing was served
                call.cost = Cost()
                raise
            call.cost = Cost(reply.cost_usd, reply.prompt_tokens + reply.completion_tokens)
            return reply


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredWorker:
    """A worker whose every attempt passes the budget first, as one call.

    For workers whose model calls cannot be seen from here (`command`, `python`) and for attempts
    that run on other machines; its calls must then not pass the same meter once more.
    """

    worker: Worker
    meter: Meter

    @property
    def fingerprint(self) -> str:
        """Identity of the worker underneath."""
        return self.worker.fingerprint

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """The most that one attempt can cost."""
        return self.worker.bound(task, skills)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Reserve, try, book; an attempt that tells of no cost is booked at its bound.

        Raises:
            BudgetSpent: With this attempt, the caps could be passed.
            ConfigError: It cost more than its bound, so that no cap could hold.
        """
        most = self.bound(task, skills)
        async with self.meter.reserve("worker", most) as call:
            attempt = await self.worker.attempt(task, skills, seed=seed)
            told = Cost(attempt.cost_usd, attempt.prompt_tokens + attempt.completion_tokens)
            if told != Cost():
                call.cost = told
        if told.usd > most.usd or told.tokens > most.tokens:
            raise ConfigError(
                f"an attempt at task {task.id} cost ${told.usd:g} and {told.tokens} tokens; the "
                f"suite says at most ${most.usd:g} and {most.tokens}: correct usd_per_attempt and "
                "tokens_per_attempt in [worker]; what it cost is booked"
            )
        return attempt
