"""The budget, checked before every paid attempt with everything in flight reserved.

A call reserves the most that it can cost before it begins and is booked at what it did cost when it
ends, so that no cap is passed by what was spent and what may still come together. A call that would
fit if those in flight cost less than their bounds waits for them to land; it is refused only where
it would not fit with nothing in flight. Calls are let in first come, first served.

A call that failed is booked at what it may have cost (`skillforge.core.retry` says when that is
nothing); one that was called off, or of which nobody can tell, at its bound. One that turns out
dearer than its bound is an error where there is a cap, for no cap could hold.

A process that is killed books nothing. So whatever is spent is claimed first, durably: the ledger
always says how much the run may have cost, and what no bill shows by then counts as spent
(`skillforge.workflows.account`). A claim is as much again as what has come together since the last
record, within the caps, and goes with the next record, so that it costs no write of its own. Where
calls cost nothing, and neither tokens nor rollouts have a cap, none is made.

Caps of USD, tokens and rollouts are for a run, however often it is gone on with; minutes are those
of one start, as for a window that a team has each night.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from operator import add, sub
from typing import Any, Self

from skillforge.core.chat import Cost
from skillforge.core.rollout import Attempt
from skillforge.errors import BudgetSpent, ConfigError, LedgerError
from skillforge.ports import Clock
from skillforge.workflows.spend import NOTHING, Bill, Caps, Claim, Spend, add_bill

ROUNDING = 1e-9
"""Share by which a sum of prices may be off."""


@dataclass(slots=True)
class Reservation:
    """A call that holds the most it can cost while it is in flight; see `Meter.reserve`."""

    meter: Meter
    role: str
    bound: Cost
    """The most that it can cost."""
    cost: Cost | None = None
    """What it did cost; as long as nobody says so, its bound."""
    told: bool = True
    """Whether that is what somebody told, and not the most that it could be."""

    async def __aenter__(self) -> Self:
        """Wait until there is room, and take off."""
        await self.meter.take_off(self.bound)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: object
    ) -> None:
        """Land, whatever happened in flight."""
        self.meter.land(self.role, self.bound, self.settle())
        if kind is None and self.cost is not None:
            self.meter.refuse_excess(self.role, self.bound, self.cost)

    def take(self, attempt: Attempt) -> None:
        """Take over what a whole attempt says it cost."""
        self.cost = Cost(attempt.cost_usd, attempt.prompt_tokens + attempt.completion_tokens)
        self.told = attempt.cost_told

    def settle(self) -> Bill:
        """Return the bill of the call."""
        cost = self.bound if self.cost is None else self.cost
        guessed = self.cost is None or not self.told
        return Bill(cost.usd, cost.tokens, calls=1, at_bound=int(guessed))


@dataclass(slots=True, kw_only=True)
class Meter:
    """Counts spend against caps. One per run; used from one event loop only.

    A call must not reserve while one that it is part of holds a reservation: the inner one could
    wait for the outer one for ever.
    """

    caps: Caps
    clock: Clock
    claim: Callable[[Claim], None] = lambda _: None
    """Makes a claim durable, or raises."""
    spend: Spend = field(default_factory=Spend)
    _claimed: Claim = NOTHING
    """What was claimed durably."""
    _recorded: Claim = NOTHING
    """What was committed when the last record was made."""
    _room: Claim = NOTHING
    """The most that was committed between a record and the end of the next one."""
    _in_flight: int = 0
    _held_usd: float = 0.0
    _held_tokens: int = 0
    _waiting: int = 0
    _unrecorded: dict[str, Bill] = field(default_factory=dict)
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
        cap = self.caps.rollouts
        if cap is not None and self.spend.rollouts >= cap:
            raise _spent("rollouts", cap)
        self._check_minutes()
        self.spend.rollouts += 1

    def forget_rollout(self) -> None:
        """Take back a rollout that was admitted but whose call the budget refused."""
        self.spend.rollouts -= 1

    def carry(self, spent: Spend) -> None:
        """Count what an interrupted run had spent before it went on: caps are for whole runs."""
        self.spend = self.spend.plus(spent)
        self._recorded = self._committed()

    @contextmanager
    def record(self, *, last: bool = False) -> Iterator[dict[str, Any]]:
        """Give what an event must hold that is made durable meanwhile; it may be nothing.

        That is the bill since the record before, which is still owed if the ledger refuses, and the
        next claim: of the last record of a start, what all has cost.
        """
        bills, self._unrecorded = self._unrecorded, {}
        committed, claimed = self._committed(), self._claimed
        account: dict[str, Any] = {}
        if bills:
            account["bill"] = {role: bill.to_json() for role, bill in bills.items()}
        if claimed != NOTHING:
            claimed = committed if last else claimed.most(self._next_claim(committed))
            account["settled" if last else "claimed"] = claimed._asdict()
        try:
            yield account
        except LedgerError:
            for role, bill in bills.items():
                add_bill(self._unrecorded, role, bill)
            raise
        self._learn(self._committed())
        self._recorded = committed
        self._claimed = claimed if last else claimed.most(self._claimed)

    def reserve(self, role: str, bound: Cost) -> Reservation:
        """Return a context that holds the most that a call can cost, then books its true cost.

        The caller writes the cost into the reservation; without one, the bound is booked.

        Raises:
            BudgetSpent: With this call, the caps could be passed.
            ConfigError: It cost more than its bound, so that a cap does not hold; it is booked.
        """
        return Reservation(self, role, bound)

    async def take_off(self, bound: Cost) -> None:
        """Hold the most that a call can cost; wait until it fits beside those in flight.

        Raises:
            BudgetSpent: With this call, the caps could be passed.
            LedgerError: It cannot be claimed.
        """
        if self._waiting or not self._fits(bound):
            await self._wait_for(bound)
        self._cover(bound)
        if not self._in_flight:
            self._busy_since = self.clock.now()
        self._in_flight += 1
        self._held_usd += bound.usd
        self._held_tokens += bound.tokens

    async def _wait_for(self, bound: Cost) -> None:
        self._waiting += 1
        try:
            async with self._door:  # callers are served in the order of their coming
                while not self._fits(bound):
                    self._landed.clear()
                    await self._landed.wait()
        finally:
            self._waiting -= 1

    def land(self, role: str, bound: Cost, bill: Bill) -> None:
        """Book what a call has cost in the place of what was held for it."""
        self._in_flight -= 1
        self._held_usd = self._held_usd - bound.usd if self._in_flight else 0.0
        self._held_tokens -= bound.tokens
        self.spend.book(role, bill)
        add_bill(self._unrecorded, role, bill)
        if not self._in_flight and self._phase_since is not None:
            self.spend.model_seconds += self.clock.now() - self._busy_since
        self._landed.set()

    def refuse_excess(self, role: str, bound: Cost, cost: Cost) -> None:
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
        caps = self.caps
        usd, tokens = self.spend.usd + bound.usd, self.spend.tokens + bound.tokens
        if caps.usd is not None and usd > caps.usd:
            raise _spent("usd", caps.usd)
        if caps.tokens is not None and tokens > caps.tokens:
            raise _spent("tokens", caps.tokens)
        self._check_minutes()
        return (caps.usd is None or usd + self._held_usd <= caps.usd) and (
            caps.tokens is None or tokens + self._held_tokens <= caps.tokens
        )

    def _cover(self, bound: Cost) -> None:
        """Claim what all comes to with a call, unless that was done before."""
        usd = self.spend.usd + bound.usd + self._held_usd  # added up as `_fits` does it
        tokens = self.spend.tokens + bound.tokens + self._held_tokens
        rollouts, claimed = self.spend.rollouts, self._claimed
        if usd <= claimed.usd and tokens <= claimed.tokens and rollouts <= claimed.rollouts:
            return
        if usd or self.caps.tokens is not None or self.caps.rollouts is not None:
            now = Claim(usd, tokens, rollouts)
            self._learn(now)
            claim = claimed.most(self._next_claim(now))
            self.claim(claim)
            self._claimed = claim

    def _committed(self) -> Claim:
        """Return what is spent and in flight."""
        spend = self.spend
        usd, tokens = spend.usd + self._held_usd, spend.tokens + self._held_tokens
        return Claim(usd, tokens, spend.rollouts)

    def _learn(self, committed: Claim) -> None:
        """Take note of how much has come together since the last record."""
        self._room = self._room.most(Claim._make(map(sub, committed, self._recorded)))

    def _next_claim(self, committed: Claim) -> Claim:
        """Return what to claim where so much is committed, or about to be."""
        caps = self.caps.usd, self.caps.tokens, self.caps.rollouts
        most = (inf if cap is None else cap for cap in caps)
        return committed.most(Claim._make(map(min, map(add, committed, self._room), most)))

    @contextmanager
    def rollout_phase(self) -> Iterator[None]:
        """Time a phase that runs rollouts, and within it the time that the model is busy."""
        self._phase_since = self.clock.now()
        try:
            yield
        finally:
            self.spend.rollout_seconds += self.clock.now() - self._phase_since
            self._phase_since = None

    def _check_minutes(self) -> None:
        minutes, started = self.caps.minutes, self._started
        if minutes is None or started is None:
            return
        if self.clock.now() - started > 60 * minutes:
            raise _spent("minutes", minutes)


def _spent(what: str, cap: float) -> BudgetSpent:
    return BudgetSpent(f"the budget of {cap:,.10g} {what} is spent (--max-{what})")
