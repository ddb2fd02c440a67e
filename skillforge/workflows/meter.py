"""The budget, checked before every paid attempt with everything in flight reserved.

A call reserves the most that it can cost before it begins and is booked at what it did cost when it
ends, so that no cap is passed by what was spent and what may still come together. A call that would
fit if those in flight cost less than their bounds waits for them to land; it is refused only where
it would not fit with nothing in flight. Calls are let in first come, first served.

A call that failed is booked at what it may have cost (`skillforge.core.retry` says when that is
nothing); one that was called off, or of which nobody can tell, at its bound. One that turns out
dearer than its bound is an error where there is a cap, for no cap could hold.

Caps of USD, tokens and rollouts are for a run, however often it is gone on with; minutes are those
of one start, as for a window that a team has each night.
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
"""By role (``worker``, ``proposer`` …) its `Bill`, as JSON objects."""
ROUNDING = 1e-9
"""Share by which a sum of prices may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a run may spend; None is no cap."""

    usd: float | None = None
    tokens: int | None = None
    rollouts: int | None = None
    minutes: float | None = None
    """Of one start: a run that is gone on with has them anew."""

    def __post_init__(self) -> None:
        """Check the caps: nothing passes one that is no number.

        Raises:
            ConfigError: One is below 0, or no number.
        """
        for name, cap in asdict(self).items():
            if cap is not None and not cap >= 0:
                raise ConfigError(
                    f"the cap of {name} is {cap}; expected a number of at least 0, or none at all"
                )

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
    at_bound: int = 0
    """Those of them that were booked at the most that they could cost, for nobody told."""

    def add(self, *, usd: float, tokens: int, calls: int, at_bound: int = 0) -> None:
        """Add to the bill."""
        self.usd += usd
        self.tokens += tokens
        self.calls += calls
        self.at_bound += at_bound

    def to_json(self) -> dict[str, Any]:
        """Return the bill under the names that events carry."""
        return {
            "usd": self.usd,
            "tokens": self.tokens,
            "calls": self.calls,
            "at_bound": self.at_bound,
        }


@dataclass(slots=True, kw_only=True)
class Spend:
    """What a run has spent."""

    usd: float = 0.0
    tokens: int = 0
    rollouts: int = 0
    """Attempts made in this run; reused ones are counted in ``cached``."""
    cached: int = 0
    seconds: float = 0.0
    """Seconds, wall clock, since the run was started or gone on with."""
    model_seconds: float = 0.0
    """Seconds of the rollout phases during which at least one model call was in flight."""
    rollout_seconds: float = 0.0
    """Seconds, wall clock, of the phases that ran rollouts."""
    roles: dict[str, Bill] = field(default_factory=dict)
    """``usd``, ``tokens``, ``calls`` and ``at_bound`` (see `Bill`) by what they were spent for."""

    def to_json(self) -> dict[str, Any]:
        """Return the spend under the names that the commands print."""
        return asdict(self)

    def book(self, role: str, **bill: Any) -> None:
        """Add what calls have cost; the bill is a `Bill` as keywords."""
        self.usd += bill["usd"]
        self.tokens += bill["tokens"]
        self.roles.setdefault(role, Bill()).add(**bill)

    def plus(self, other: Spend) -> Spend:
        """Return the spend of two runs together."""
        mine, its = asdict(self), asdict(other)
        roles = mine.pop("roles")
        both = Spend(**{name: value + its[name] for name, value in mine.items()})
        for role, bill in (*roles.items(), *its["roles"].items()):
            both.roles.setdefault(role, Bill()).add(**bill)
        return both


@dataclass(slots=True)
class Reservation:
    """A call in flight."""

    bound: Cost
    """The most that it can cost."""
    cost: Cost | None = None
    """What it did cost; as long as nobody says so, its bound."""
    told: bool = True
    """Whether that is what somebody told, and not the most that it could be."""

    def take(self, attempt: Attempt) -> None:
        """Take over what a whole attempt says it cost."""
        self.cost = Cost(attempt.cost_usd, attempt.prompt_tokens + attempt.completion_tokens)
        self.told = attempt.cost_told

    def settle(self) -> dict[str, Any]:
        """Return the bill of the call."""
        cost = self.bound if self.cost is None else self.cost
        guessed = self.cost is None or not self.told
        return {"usd": cost.usd, "tokens": cost.tokens, "calls": 1, "at_bound": int(guessed)}


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

    def owe(self, bills: Mapping[str, Mapping[str, Any]]) -> None:
        """Take bills back whose record could not be written."""
        for role, bill in bills.items():
            self._unrecorded.book(role, **bill)

    @asynccontextmanager
    async def reserve(self, role: str, bound: Cost) -> AsyncIterator[Reservation]:
        """Hold the most that a call can cost while it is in flight, then book its true cost.

        The caller writes the cost into the reservation; without one, the bound is booked.

        Raises:
            BudgetSpent: With this call, the caps could be passed.
            ConfigError: It cost more than its bound, so that a cap does not hold; it is booked.
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
        if reservation.cost is not None:
            self._refuse_excess(role, reservation.bound, reservation.cost)

    def _refuse_excess(self, role: str, bound: Cost, cost: Cost) -> None:
        """Refuse a call that cost more than was reserved for it, where a cap relies on that."""
        over_usd = self.caps.usd is not None and cost.usd > bound.usd * (1 + ROUNDING)
        if over_usd or (self.caps.tokens is not None and cost.tokens > bound.tokens):
            raise ConfigError(
                f"a call of the {role} cost ${cost.usd:g} and {cost.tokens} tokens, at most "
                f"${bound.usd:g} and {bound.tokens} were expected, so that no cap can hold: "
                "correct usd_per_attempt and tokens_per_attempt in [worker], or for a model its "
                "[prices]; an endpoint that passes over max_tokens cannot be used with --max-usd "
                "or --max-tokens. What the call cost is booked"
            )

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
        bill = reservation.settle()
        for book in (self.spend, self._unrecorded):
            book.book(role, **bill)
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
            raise BudgetSpent(f"the budget of {cap:,.10g} {what} is spent (--max-{what})")

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
                call.cost, call.told = error.cost, error.cost == Cost()
                raise
            except SkillforgeError:  # a wrong key or name: nothing was served
                call.cost = Cost()
                raise
            call.cost, call.told = reply.cost, reply.cost_told
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
        """Reserve, try, book.

        Raises:
            BudgetSpent: With this attempt, the caps could be passed.
            ConfigError: It cost more than its bound, so that a cap does not hold.
        """
        async with self.meter.reserve("worker", self.bound(task, skills)) as call:
            attempt = await self.worker.attempt(task, skills, seed=seed)
            call.take(attempt)
            return attempt
