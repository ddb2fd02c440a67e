"""The budget: no cap is ever passed, however many calls are in flight."""

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Message
from skillforge.core.rollout import Failure, FailureKind
from skillforge.errors import BudgetSpent, ConfigError
from skillforge.workflows.meter import Caps, Meter, MeteredModel

REQUEST = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=8)


@dataclass
class Watch:
    """A clock that is set by hand."""

    at: float = 1000.0

    def now(self):
        """Seconds."""
        return self.at


@dataclass
class DiceModel:
    """A model whose replies cost a random share of their bound and come in random order."""

    rng: np.random.Generator
    usd: float = 0.05
    tokens: int = 100
    failing: float = 0.0
    name: str = "dice"
    fingerprint: str = "dice-1"
    calls: int = 0
    in_flight: int = 0
    most: int = 0
    totals: list = field(default_factory=list)

    def cost_bound(self, request):
        """The most that a call costs."""
        return self.usd

    def token_bound(self, request):
        """The most tokens of a call."""
        return self.tokens

    async def complete(self, request):
        """Wait a random number of turns, then fail or reply."""
        self.calls += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        for _ in range(int(self.rng.integers(0, 6))):
            await asyncio.sleep(0)
        self.in_flight -= 1
        if self.rng.random() < self.failing:
            raise CallFailed(Failure(kind=FailureKind.INFRA, message="429", where="model"))
        tokens = int(self.rng.integers(0, self.tokens + 1))
        cost = self.usd * float(self.rng.choice([0.0, 0.3, 1.0, self.rng.random()]))
        self.totals.append((cost, tokens))
        return ChatReply(
            text="ok",
            finish_reason="stop",
            prompt_tokens=tokens // 2,
            completion_tokens=tokens - tokens // 2,
            cost_usd=cost,
            seconds=0.1,
        )


def metered(model, **caps):
    """Return the model behind a started meter, and the meter."""
    meter = Meter(caps=Caps(**caps), clock=Watch())
    meter.start()
    return MeteredModel(model=model, meter=meter), meter


async def storm(model, calls):
    """Make many calls at once; return how many were refused by the budget and how many failed."""
    results = await asyncio.gather(
        *(model.complete(REQUEST) for _ in range(calls)), return_exceptions=True
    )
    unexpected = [r for r in results if not isinstance(r, ChatReply | BudgetSpent | CallFailed)]
    assert unexpected == []
    return sum(isinstance(r, BudgetSpent) for r in results)


@pytest.mark.parametrize("seed", range(12))
def test_no_cap_is_passed_under_a_storm_of_calls(seed):
    """With random costs, failures and orders, spend and reservations stay below both caps."""
    rng = np.random.default_rng([31, seed])
    model = DiceModel(rng, failing=0.2)
    usd, tokens = float(rng.uniform(0.2, 3.0)), int(rng.integers(300, 6_000))
    wrapped, meter = metered(model, usd=usd, tokens=tokens)

    async def scene():
        for _ in range(40):
            await storm(wrapped, int(rng.integers(1, 30)))

    asyncio.run(scene())
    assert meter.spend.usd <= usd + 1e-9
    assert meter.spend.tokens <= tokens
    assert meter.spend.usd == pytest.approx(sum(cost for cost, _ in model.totals))
    assert meter.spend.tokens == sum(count for _, count in model.totals)
    # The budget is used up to what one more call might cost.
    assert meter.spend.usd > usd - model.usd - 1e-9 or meter.spend.tokens > tokens - model.tokens


def test_what_is_in_flight_is_reserved():
    """Ten calls at once under a cap for three: three begin, seven are refused."""
    model = DiceModel(np.random.default_rng(1), usd=1.0)
    wrapped, _ = metered(model, usd=3.5)

    assert asyncio.run(storm(wrapped, 10)) == 7
    assert model.calls == model.most == 3


def test_unused_reservations_are_given_back():
    """After cheap replies there is room for more calls than the bound alone would allow."""
    model = DiceModel(np.random.default_rng(2), usd=0.0, tokens=100)
    wrapped, meter = metered(model, tokens=250)

    async def scene():
        return [await storm(wrapped, 1) for _ in range(100)]

    refused = asyncio.run(scene())
    assert model.calls > 2
    assert refused[-1] == 1
    assert 150 < meter.spend.tokens <= 250


def test_a_call_without_an_answer_is_booked_at_nothing():
    """A failed call frees its reservation and costs nothing."""
    model = DiceModel(np.random.default_rng(3), failing=1.0)
    wrapped, meter = metered(model, usd=0.05, tokens=100)
    for _ in range(5):
        with pytest.raises(CallFailed):
            asyncio.run(wrapped.complete(REQUEST))

    assert model.calls == 5
    assert (meter.spend.usd, meter.spend.tokens) == (0.0, 0)


def test_a_cancelled_call_frees_its_reservation():
    """What was called off while in flight holds no budget."""
    model = DiceModel(np.random.default_rng(4), usd=1.0)
    wrapped, meter = metered(model, usd=1.0)

    async def scene():
        call = asyncio.create_task(wrapped.complete(REQUEST))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        with meter.reserve(usd=1.0, tokens=1):
            pass

    asyncio.run(scene())


def test_reaching_a_cap_exactly_is_allowed():
    """A cap is what may be spent, not what must be left."""
    meter = Meter(caps=Caps(usd=1.0, tokens=10, rollouts=2), clock=Watch())
    with meter.reserve(usd=1.0, tokens=10):
        pass
    meter.admit_rollout()
    meter.admit_rollout()

    assert meter.spend.rollouts == 2


@pytest.mark.parametrize("caps", [{"usd": 0.0}, {"tokens": 0}])
def test_a_cap_of_nothing_stops_the_first_call(caps):
    """Zero is a cap, not the absence of one."""
    model = DiceModel(np.random.default_rng(5))
    wrapped, _ = metered(model, **caps)
    with pytest.raises(BudgetSpent):
        asyncio.run(wrapped.complete(REQUEST))
    assert model.calls == 0


def test_without_caps_everything_is_counted():
    """No cap stops nothing, and the spend is known all the same."""
    model = DiceModel(np.random.default_rng(6))
    wrapped, meter = metered(model)

    assert asyncio.run(storm(wrapped, 50)) == 0
    assert meter.spend.tokens > 0


def test_the_cap_of_rollouts():
    """The rollout that would pass the cap is refused and not counted."""
    meter = Meter(caps=Caps(rollouts=3), clock=Watch())
    for _ in range(3):
        meter.admit_rollout()
    for _ in range(2):
        with pytest.raises(BudgetSpent, match="budget of 3 rollouts"):
            meter.admit_rollout()

    assert meter.spend.rollouts == 3


def test_the_minutes_stop_new_calls_and_not_those_in_flight():
    """A call that began in time is booked; the next one, and the next rollout, are refused."""
    watch = Watch()
    meter = Meter(caps=Caps(minutes=2), clock=watch)
    meter.start()
    reply = ChatReply(
        text="late",
        finish_reason="stop",
        prompt_tokens=3,
        completion_tokens=4,
        cost_usd=0.25,
        seconds=121.0,
    )
    with meter.reserve(usd=0.0, tokens=0) as replies:
        watch.at += 121
        replies.append(reply)
    with pytest.raises(BudgetSpent, match="budget of 2 minutes"), meter.reserve(usd=0, tokens=0):
        pass
    with pytest.raises(BudgetSpent, match="minutes"):
        meter.admit_rollout()

    assert (meter.spend.usd, meter.spend.tokens, meter.spend.rollouts) == (0.25, 7, 0)


def test_the_minutes_begin_with_the_run():
    """Time before the start does not count, and the seconds of the run are written down."""
    watch = Watch()
    meter = Meter(caps=Caps(minutes=1), clock=watch)
    watch.at += 3600
    meter.start()
    watch.at += 60
    meter.admit_rollout()
    meter.stop()

    assert meter.spend.seconds == 60


def test_model_seconds_count_overlapping_calls_once():
    """Two calls side by side for ten seconds keep the model busy for ten, not twenty."""
    watch = Watch()
    meter = Meter(caps=Caps(), clock=watch)
    with meter.rollout_phase():
        with meter.reserve(usd=0, tokens=0):
            watch.at += 4
            with meter.reserve(usd=0, tokens=0):
                watch.at += 6
        watch.at += 100
        with meter.reserve(usd=0, tokens=0):
            watch.at += 1
    with meter.reserve(usd=0, tokens=0):
        watch.at += 50

    assert meter.spend.model_seconds == 11
    assert meter.spend.rollout_seconds == 111


@pytest.mark.parametrize(
    ("caps", "message"),
    [
        ({"usd": 0.5}, r"the budget of 0\.5 usd is spent; what was measured is kept.*--max-usd"),
        ({"tokens": 50}, r"the budget of 50 tokens is spent; .*raise --max-tokens and run the"),
    ],
)
def test_the_message_names_cap_and_flag(caps, message):
    """Whoever reads it knows which cap was reached, that nothing is lost, and how to go on."""
    wrapped, _ = metered(DiceModel(np.random.default_rng(7), usd=1.0), **caps)
    with pytest.raises(BudgetSpent, match=message) as caught:
        asyncio.run(wrapped.complete(REQUEST))
    assert caught.value.exit_code == 5


def test_an_unknown_price_stops_the_call_before_it_is_made():
    """A model that cannot bound its cost is never called."""

    class Unpriced(DiceModel):
        def cost_bound(self, request):
            """Not known."""
            raise ConfigError("no price for dice")

    model = Unpriced(np.random.default_rng(8))
    wrapped, meter = metered(model, usd=5.0)
    with pytest.raises(ConfigError, match="no price"):
        asyncio.run(wrapped.complete(REQUEST))

    assert model.calls == 0
    with meter.reserve(usd=5.0, tokens=0):
        pass


def test_the_spend_as_json():
    """The commands print the spend under these names."""
    assert set(Meter(caps=Caps(), clock=Watch()).spend.to_json()) >= {
        *("usd", "tokens", "rollouts", "cached", "seconds"),
    }
