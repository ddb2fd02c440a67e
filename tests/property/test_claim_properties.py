"""What a run has paid for is never more than its ledger says, whenever its process is killed."""

import asyncio
from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from skillforge.core.chat import Cost
from skillforge.core.events import Event, NewEvent, link
from skillforge.errors import BudgetSpent
from skillforge.workflows.account import Account
from skillforge.workflows.meter import Meter
from skillforge.workflows.spend import Caps

CENT = Fraction(1, 64)
"""Amounts are multiples of this, so that floats add up exactly."""


@dataclass(frozen=True)
class Plan:
    """One attempt of one call: what it may cost, what it does cost, and when it is made."""

    usd: int
    tokens: int
    share: int
    """True cost in quarters of the bound."""
    starts_at: int
    turns: int

    @property
    def bound(self):
        """The most that it can cost."""
        return Cost(float(self.usd * CENT), self.tokens)

    @property
    def cost(self):
        """What it does cost."""
        return Cost(float(self.usd * self.share * CENT / 4), self.tokens * self.share // 4)


@dataclass(frozen=True)
class Start:
    """One start of the command: its attempts, and the turn at which it is killed, if it is."""

    plans: list[Plan]
    killed_at: int | None
    writing: int
    """Turns that a record takes."""


PLANS = st.builds(
    Plan,
    usd=st.integers(0, 40),
    tokens=st.integers(0, 40),
    share=st.integers(0, 4),
    starts_at=st.integers(0, 12),
    turns=st.integers(0, 6),
)
STARTS = st.builds(
    Start,
    plans=st.lists(PLANS, min_size=1, max_size=12),
    killed_at=st.none() | st.integers(1, 24),
    writing=st.integers(0, 4),
)
CAPS = st.builds(
    lambda usd, tokens, rollouts: Caps(
        usd=None if usd is None else float(usd * CENT), tokens=tokens, rollouts=rollouts
    ),
    st.none() | st.integers(0, 300),
    st.none() | st.integers(0, 300),
    st.none() | st.integers(0, 30),
)


@dataclass
class World:
    """What outlives a process: its ledger, and the books of who served it."""

    events: list[Event] = field(default_factory=list)
    usd: float = 0.0
    tokens: int = 0
    attempts: int = 0
    is_killed: bool = False

    def append(self, events):
        """Store events, unless the process is no more."""
        assert not self.is_killed
        for new in events:
            self.events.append(link(new, seq=len(self.events) + 1, at=0.0, previous=""))

    def select(self, *, run):
        """Return the events."""
        return list(self.events)

    def serve(self, plan):
        """Charge a call; that it was called off later changes nothing."""
        assert not self.is_killed
        self.usd += plan.cost.usd
        self.tokens += plan.cost.tokens
        self.attempts += 1


class Ledger:
    """The port that an account needs, on a list of events."""

    def __init__(self, world):
        self.append = world.append
        self.events = world.select


class NoClock:
    """A clock that nobody needs."""

    def now(self):
        """Never."""
        return 0.0


async def turns(count):
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


class Process:
    """One start: makes its attempts, stores what has landed, and ends or is killed."""

    def __init__(self, world, caps, start):
        account = Account(ledger=Ledger(world), run="r")
        self.meter = Meter(caps=caps, clock=NoClock(), claim=account.claim)
        self.meter.carry(account.spent())
        self.world, self.start = world, start
        self.landed, self.refused = 0, []

    async def attempt(self, plan):
        """Make an attempt as planned, if the budget allows it."""
        meter = self.meter
        await turns(plan.starts_at)
        try:
            meter.admit_rollout()
        except BudgetSpent:
            return
        try:
            async with meter.reserve("worker", plan.bound) as call:
                self.world.serve(plan)
                await turns(plan.turns)
                call.cost = plan.cost
        except BudgetSpent:
            self.refused.append((plan, meter.spend.usd, meter.spend.tokens))
            meter.forget_rollout()
        else:
            self.landed += 1

    async def keep(self):
        """Store what has landed, for as long as it goes."""
        while True:
            await turns(1)
            if self.landed:
                await self.store()

    async def store(self, *, last=False):
        """Store what has landed with what the meter says; that takes a while."""
        kinds = ["rollout.finished"] * self.landed + ["spend.booked"] * last
        self.landed = 0
        with self.meter.record(last=last) as told:
            await turns(0 if last else self.start.writing)
            data = [{}] * (len(kinds) - 1) + [told]
            self.world.append([NewEvent(kind=k, data=d) for k, d in zip(kinds, data, strict=True)])

    async def live(self):
        """Run until the end, or until it is killed."""
        killed_at, keeping = self.start.killed_at, asyncio.create_task(self.keep())
        attempts = [asyncio.create_task(self.attempt(plan)) for plan in self.start.plans]
        if killed_at is None:
            await asyncio.wait_for(asyncio.gather(*attempts), 120)  # a deadlock would end here
            await turns(2 * self.start.writing + 4)  # for what is being stored
        else:
            await turns(killed_at)
            self.world.is_killed = True
        for task in (keeping, *attempts):
            task.cancel()
        await asyncio.gather(keeping, *attempts, return_exceptions=True)
        if killed_at is None:
            await self.store(last=True)
        self.world.is_killed = False


@settings(max_examples=200, deadline=None)
@given(st.lists(STARTS, min_size=1, max_size=5), CAPS)
def test_whenever_it_is_killed_a_run_knows_what_it_may_have_paid(starts, caps):
    """The ledger says at least what was served, so that no cap is passed by any number of starts.

    A start that ends in order leaves nothing unsettled behind, and no call is refused that fits.
    """
    world = World()
    account = Account(ledger=Ledger(world), run="r")
    free = all(plan.usd == 0 for start in starts for plan in start.plans)
    counted = caps.tokens is not None or caps.rollouts is not None
    for start in starts:
        before = account.spent()
        process = Process(world, caps, start)
        asyncio.run(process.live())
        after, spend = account.spent(), process.meter.spend

        assert caps.usd is None or max(world.usd, after.usd) <= caps.usd
        assert caps.tokens is None or max(world.tokens, after.tokens) <= caps.tokens
        assert caps.rollouts is None or max(world.attempts, after.rollouts) <= caps.rollouts
        assert world.usd <= after.usd
        if counted or all(plan.usd for start in starts for plan in start.plans):
            assert world.tokens <= after.tokens
            assert world.attempts <= after.rollouts
        if free and not counted:
            assert "spend.claimed" not in {event.kind for event in world.events}
        if start.killed_at is None:
            assert (after.usd, after.tokens) == (spend.usd, spend.tokens)
            assert after.rollouts == spend.rollouts
            assert after.unsettled == before.unsettled
        for plan, usd, tokens in process.refused:
            too_dear = caps.usd is not None and usd + plan.bound.usd > caps.usd
            assert too_dear or (caps.tokens is not None and tokens + plan.tokens > caps.tokens)
