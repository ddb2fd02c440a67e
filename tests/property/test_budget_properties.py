"""No cap is ever passed: random calls, costs, failures and cancellations on a real event loop."""

import asyncio
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.world import PlantedWorker, make_world, skill, suite

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost, Message
from skillforge.core.rollout import Failure, FailureKind
from skillforge.core.task import Split
from skillforge.errors import BudgetSpent, ConfigError
from skillforge.workflows import contrast
from skillforge.workflows.contrast import Context
from skillforge.workflows.meter import Meter
from skillforge.workflows.metered import MeteredModel
from skillforge.workflows.spend import Caps

CENT = Fraction(1, 64)
"""Amounts are multiples of this, so that floats add up exactly."""
LOST = CallFailed(Failure(kind=FailureKind.INFRA, message="cut", where="model"))
FREE = CallFailed(Failure(kind=FailureKind.INFRA, message="429", where="model"), cost=Cost())


@dataclass(frozen=True)
class Plan:
    """One call: what it may cost, what it does cost, how it ends, and when it is called off."""

    usd: int
    tokens: int
    share: int
    """True cost in quarters of the bound."""
    ending: str
    turns: int
    cancelled_at: int | None
    starts_at: int


PLANS = st.builds(
    Plan,
    usd=st.integers(0, 40),
    tokens=st.integers(0, 40),
    share=st.integers(0, 4),
    ending=st.sampled_from(["answer", "answer", "answer", "lost", "refused", "wrong key", "crash"]),
    turns=st.integers(0, 6),
    cancelled_at=st.none() | st.integers(0, 8),
    starts_at=st.integers(0, 6),
)
CAPS = st.none() | st.integers(0, 160)


class NoClock:
    """A clock that nobody needs."""

    def now(self):
        """Never."""
        return 0.0


@dataclass
class Provider:
    """An endpoint with a bill of its own: what it served is what it charges."""

    plans: dict[str, Plan]
    usd: Fraction = Fraction(0)
    tokens: int = 0
    may_usd: Fraction = Fraction(0)
    may_tokens: int = 0
    highest: list = field(default_factory=lambda: [Fraction(0), 0])
    name: str = "provider"
    fingerprint: str = "provider-1"

    def plan(self, request):
        """Find the plan of a request."""
        return self.plans[request.messages[0].content]

    def cost_bound(self, request):
        """USD."""
        return float(self.plan(request).usd * CENT)

    def token_bound(self, request):
        """Tokens."""
        return self.plan(request).tokens

    async def complete(self, request):
        """Serve, charge, and end as planned; what is called off half-way is charged in full."""
        plan = self.plan(request)
        self.may_usd += plan.usd * CENT
        self.may_tokens += plan.tokens
        total = self.usd + self.may_usd, self.tokens + self.may_tokens
        self.highest = [max(a, b) for a, b in zip(self.highest, total, strict=True)]
        served = plan.ending in ("answer", "lost", "crash")
        usd, tokens = plan.usd * plan.share * CENT / 4, plan.tokens * plan.share // 4
        try:
            for _ in range(plan.turns):
                await asyncio.sleep(0)
        finally:
            self.may_usd -= plan.usd * CENT
            self.may_tokens -= plan.tokens
            self.usd += usd * served
            self.tokens += tokens * served
        errors = {
            "lost": LOST,
            "refused": FREE,
            "wrong key": ConfigError("no"),
            "crash": KeyError("x"),
        }
        if plan.ending in errors:
            raise errors[plan.ending]
        return ChatReply(
            text="ok",
            finish_reason="stop",
            prompt_tokens=tokens,
            completion_tokens=0,
            cost_usd=float(usd),
            seconds=0.0,
        )


async def turns(count):
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


async def play(model, plans):
    """Start every call when its plan says, call some off, and return what came of each."""

    async def one(name, plan):
        await turns(plan.starts_at)
        request = ChatRequest(messages=(Message(role="user", content=name),), max_tokens=1)
        call = asyncio.create_task(model.complete(request))
        if plan.cancelled_at is not None:
            await turns(plan.cancelled_at)
            call.cancel()
        return (await asyncio.gather(call, return_exceptions=True))[0]

    work = asyncio.gather(*(one(name, plan) for name, plan in plans.items()))
    return await asyncio.wait_for(work, timeout=120)  # a deadlock would end here


@settings(max_examples=300, deadline=None)
@given(st.lists(PLANS, min_size=1, max_size=24), CAPS, CAPS)
def test_no_cap_is_ever_passed(listed, usd_cap, token_cap):
    """At no moment can what was charged and what may still be charged pass a cap.

    The books are never below the provider's bill, every call ends, and one that was refused would
    not have fitted with nothing in flight.
    """
    plans = {str(i): plan for i, plan in enumerate(listed)}
    usd = None if usd_cap is None else usd_cap * CENT
    provider = Provider(plans)
    caps = Caps(usd=None if usd is None else float(usd), tokens=token_cap)
    meter = Meter(caps=caps, clock=NoClock())

    results = asyncio.run(play(MeteredModel(model=provider, meter=meter), plans))

    spent, used = Fraction(meter.spend.usd), meter.spend.tokens
    assert usd is None or max(spent, provider.highest[0]) <= usd
    assert token_cap is None or max(used, provider.highest[1]) <= token_cap
    assert provider.usd <= spent
    assert provider.tokens <= used
    for plan, result in zip(plans.values(), results, strict=True):
        if isinstance(result, BudgetSpent):
            too_dear = usd is not None and spent + plan.usd * CENT > usd
            assert too_dear or (token_cap is not None and used + plan.tokens > token_cap)
    assert sum(bill.tokens for bill in meter.spend.roles.values()) == used
    # Nothing stays reserved: whatever the caps still leave can be spent.
    left = Cost(
        0.0 if usd is None else float(usd - spent), 0 if token_cap is None else token_cap - used
    )
    asyncio.run(asyncio.wait_for(_spend(meter, left), 60))


async def _spend(meter, cost):
    async with meter.reserve("worker", cost):
        pass


@pytest.mark.parametrize("cap", [0, 1, 7, 19])
def test_the_cap_of_rollouts_is_exact(tmp_path, cap):
    """With four in flight, exactly as many rollouts are run and stored as the cap allows."""
    world = make_world(tmp_path, [skill("a", "x")])
    tasks = suite(["a"]).select(split=Split.CONFIRM)[:20]
    cells = contrast.arm_cells(
        tasks, arm="base", package=None, context=Context(skill="a"), purpose="eval"
    )
    bench = world.bench(PlantedWorker(), caps=Caps(rollouts=cap))

    with pytest.raises(BudgetSpent, match="rollouts"):
        asyncio.run(bench.rollouts(cells))

    assert len(list(world.ledger.events(kinds=("rollout.finished",)))) == cap
    assert bench.meter.spend.rollouts == cap
