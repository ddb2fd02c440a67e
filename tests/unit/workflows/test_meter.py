"""The budget: no cap is ever passed, however many calls are in flight."""

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

import numpy as np
import pytest

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost, Message
from skillforge.core.rollout import Attempt, Failure, FailureKind
from skillforge.errors import BudgetSpent, ConfigError, LedgerError
from skillforge.workflows.meter import Meter
from skillforge.workflows.metered import MeteredModel, MeteredWorker
from skillforge.workflows.spend import Bill, Caps, Claim, Spend

NOTHING = Cost()
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
    lost: Cost | None = NOTHING
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
            failure = Failure(kind=FailureKind.INFRA, message="429", where="model")
            raise CallFailed(failure, cost=self.lost)
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
    """Ten calls at once under a cap for three: never more than three are in flight."""
    model = DiceModel(np.random.default_rng(1), usd=1.0)
    wrapped, meter = metered(model, usd=3.5)

    asyncio.run(storm(wrapped, 10))
    assert model.most == 3
    assert meter.spend.usd <= 3.5


def test_a_call_that_may_still_fit_waits_instead_of_being_refused():
    """With cheap replies all ten calls fit in the end, though only two bounds fit at once."""
    model = DiceModel(np.random.default_rng(1), usd=0.0, tokens=100)
    model.rng = Cheap()
    wrapped, meter = metered(model, tokens=250)

    assert asyncio.run(storm(wrapped, 10)) == 0
    assert (model.calls, model.most, meter.spend.tokens) == (10, 2, 10)


class Cheap:
    """Dice that always fall on the smallest side but take their time."""

    def integers(self, low, high):
        """One more than the lowest."""
        return low + 1

    def random(self):
        """Never fails."""
        return 0.5

    def choice(self, values):
        """The first."""
        return values[0]


def test_waiting_calls_are_served_in_the_order_of_their_coming():
    """A large call that waits is not overtaken by a small one that would fit."""
    meter = Meter(caps=Caps(tokens=100), clock=Watch())
    order = []

    async def call(name, tokens, true):
        async with meter.reserve("worker", Cost(0.0, tokens)) as reservation:
            order.append(name)
            await asyncio.sleep(0.001)
            reservation.cost = Cost(0.0, true)

    async def scene():
        calls = [call("first", 60, 1), call("large", 90, 1), call("small", 10, 1)]
        await asyncio.wait_for(asyncio.gather(*calls), 60)

    asyncio.run(scene())
    assert order == ["first", "large", "small"]


def test_a_waiting_call_is_refused_once_what_was_spent_leaves_no_room():
    """If those in flight turn out dear, the waiting one gets its refusal and not a deadlock."""
    model = DiceModel(np.random.default_rng(1), usd=0.0, tokens=100)
    wrapped, meter = metered(model, tokens=150)
    model.rng = Dear()

    assert asyncio.run(storm(wrapped, 3)) == 2
    assert meter.spend.tokens == 100


class Dear(Cheap):
    """Dice that take three turns and make every reply as long as may be."""

    def integers(self, low, high):
        """The highest, but few turns."""
        return high - 1


def test_a_waiting_call_that_is_called_off_costs_nothing_and_blocks_nobody():
    """Its place in the line is free again."""
    meter = Meter(caps=Caps(tokens=100), clock=Watch())

    async def scene():
        async with meter.reserve("worker", Cost(0.0, 80)) as held:
            waiting = asyncio.create_task(hold(meter, 90))
            behind = asyncio.create_task(hold(meter, 20))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait_for(behind, 60)
            held.cost = Cost(0.0, 5)
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(scene())
    assert meter.spend.tokens == 25


async def hold(meter, tokens):
    """Reserve and say nothing of the cost."""
    async with meter.reserve("worker", Cost(0.0, tokens)):
        await asyncio.sleep(0)


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


@pytest.mark.parametrize(
    ("lost", "usd", "tokens"), [(Cost(), 0.0, 0), (None, 0.25, 500), (Cost(0.01, 7), 0.05, 35)]
)
def test_a_failed_call_is_booked_at_what_it_may_have_cost(lost, usd, tokens):
    """Nothing where nothing was served, the bound where nobody can tell."""
    model = DiceModel(np.random.default_rng(3), failing=1.0, lost=lost)
    wrapped, meter = metered(model, usd=0.5, tokens=1000)
    for _ in range(5):
        with pytest.raises(CallFailed):
            asyncio.run(wrapped.complete(REQUEST))

    assert meter.spend.usd == pytest.approx(usd)
    assert meter.spend.tokens == tokens
    bill = meter.spend.roles["worker"]
    assert (bill.calls, bill.at_bound) == (5, 5 if tokens else 0), (
        "what it may have cost is a guess"
    )


def test_a_cancelled_call_is_booked_at_its_bound():
    """What was called off while in flight may have been served, and holds nothing any more."""
    model = DiceModel(np.random.default_rng(4), usd=1.0)
    wrapped, meter = metered(model, usd=2.0)

    async def scene():
        call = asyncio.create_task(wrapped.complete(REQUEST))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await hold_usd(meter, 1.0)

    asyncio.run(scene())
    assert meter.spend.usd == 2.0


async def hold_usd(meter, usd, tokens=0):
    """Reserve, and book what was reserved."""
    async with meter.reserve("worker", Cost(usd, tokens)):
        pass


def test_a_wrong_key_costs_nothing():
    """An error of the configuration comes before anything is served."""

    class Keyless(DiceModel):
        async def complete(self, request):
            """Refuse."""
            raise ConfigError("no key")

    wrapped, meter = metered(Keyless(np.random.default_rng(4)), usd=2.0)
    with pytest.raises(ConfigError):
        asyncio.run(wrapped.complete(REQUEST))

    assert meter.spend.usd == 0.0


def test_the_bill_is_split_by_role_and_told_once():
    """Each role has its own sum; what was told for a record is not told again."""
    meter = Meter(caps=Caps(), clock=Watch())
    for role in ("worker", "proposer", "worker"):
        model = MeteredModel(model=DiceModel(np.random.default_rng(5)), meter=meter, role=role)
        asyncio.run(model.complete(REQUEST))
    roles = meter.spend.to_json()["roles"]

    with meter.record() as account:
        assert account["bill"] == roles
    with meter.record() as account:
        assert "bill" not in account
    assert {role: bill["calls"] for role, bill in roles.items()} == {"worker": 2, "proposer": 1}
    assert sum(bill["tokens"] for bill in roles.values()) == meter.spend.tokens
    again = Meter(caps=Caps(), clock=Watch())
    again.carry(meter.spend)
    assert again.spend == meter.spend
    with again.record() as account:
        assert account == {}


@pytest.mark.parametrize("name", ["usd", "tokens", "rollouts", "minutes"])
@pytest.mark.parametrize("cap", [float("nan"), float("inf"), -1])
def test_a_cap_that_holds_nothing_is_refused(name, cap):
    """A cap that is infinite or no number would let everything pass."""
    with pytest.raises(ConfigError, match=f"cap of {name} is {cap}"):
        Caps(**{name: cap})


def test_what_is_left_of_the_caps():
    """Spent amounts leave the caps, which stay above zero; no cap stays none."""
    spend = Spend(usd=3.0, tokens=5, rollouts=2, seconds=30.0)

    left = Caps(usd=1.0, tokens=8, minutes=2.0).less(spend)
    assert left == Caps(usd=0.0, tokens=3, rollouts=None, minutes=1.5)


def test_the_spend_of_two_runs_together():
    """Sums and roles are added up, and neither of the two changes."""
    one, two = Spend(usd=1.0, tokens=3, rollouts=2, cached=1, seconds=4.0), Spend(rollouts=1)
    one.roles["worker"] = Bill(usd=1.0, tokens=3, calls=2, at_bound=1)
    two.book("worker", Bill(usd=0.5, tokens=4, calls=1))
    two.book("proposer", Bill(usd=0.25, tokens=1, calls=1))
    before = one.to_json(), two.to_json()
    both = one.plus(two)

    assert (both.usd, both.tokens, both.rollouts, both.cached, both.seconds) == (1.75, 8, 3, 1, 4)
    assert both.roles["worker"] == Bill(usd=1.5, tokens=7, calls=3, at_bound=1)
    assert both.roles["proposer"] == Bill(usd=0.25, tokens=1, calls=1)
    assert before == (one.to_json(), two.to_json())


def test_minutes_are_those_of_one_start():
    """A run that is gone on with has spent its money before, and has its minutes anew."""
    watch = Watch()
    for _ in range(2):
        meter = Meter(caps=Caps(minutes=2, usd=1.0), clock=watch)
        meter.carry(Spend(usd=0.75, tokens=5, rollouts=1))
        meter.start()
        watch.at += 90
        meter.admit_rollout()
        with pytest.raises(BudgetSpent, match="usd"):
            asyncio.run(hold_usd(meter, 0.5))


class Clerk:
    """A worker that takes what it is told to and may not say how much."""

    fingerprint = "clerk"

    def __init__(self, attempt):
        """Take what each attempt brings, or raises."""
        self.brings = attempt

    def bound(self, task, skills):
        """The same for every task."""
        return Cost(0.5, 100)

    async def attempt(self, task, skills, *, seed):
        """Bring it."""
        if isinstance(self.brings, BaseException):
            raise self.brings
        return self.brings


@pytest.mark.parametrize(
    ("brings", "booked"),
    [
        (Attempt(output="x", prompt_tokens=3, completion_tokens=4, cost_usd=0.25), (0.25, 7)),
        (Attempt(output="x"), (0.0, 0)),
        (RuntimeError("crash"), (0.5, 100)),
        (asyncio.CancelledError(), (0.5, 100)),
    ],
    ids=["told", "told nothing", "crashed", "cancelled"],
)
def test_a_worker_whose_calls_are_unseen_is_metered_as_a_whole(brings, booked):
    """Its bound is reserved around the attempt, and booked where none comes back."""
    meter = Meter(caps=Caps(usd=1.0), clock=Watch())
    worker = MeteredWorker(worker=Clerk(brings), meter=meter)

    async def scene():
        return await asyncio.gather(worker.attempt(None, (), seed=0), return_exceptions=True)

    asyncio.run(scene())
    assert (meter.spend.usd, meter.spend.tokens) == booked
    assert meter.spend.roles["worker"].at_bound == (not isinstance(brings, Attempt))
    assert worker.fingerprint == "clerk"


def test_the_bill_tells_which_attempts_nobody_told_the_cost_of():
    """An attempt that holds its bound for want of better says so, and is counted."""
    meter = Meter(caps=Caps(usd=1.0), clock=Watch())
    guess = Attempt(output="x", completion_tokens=100, cost_usd=0.5, cost_told=False)
    for brings in (guess, Attempt(output="x")):
        asyncio.run(MeteredWorker(worker=Clerk(brings), meter=meter).attempt(None, (), seed=0))

    bill = meter.spend.roles["worker"]
    assert (bill.usd, bill.calls, bill.at_bound) == (0.5, 2, 1)


DEARER = [{"cost_usd": 0.6}, {"prompt_tokens": 101}]


@pytest.mark.parametrize("dearer", DEARER, ids=["usd", "tokens"])
@pytest.mark.parametrize("caps", [{"usd": 9.0}, {"tokens": 900}, {"rollouts": 9}])
def test_a_call_dearer_than_its_bound_is_an_error_where_a_cap_relies_on_it(dearer, caps):
    """Whoever settles a reservation, what it cost is booked, and without a cap nothing breaks."""
    meter = Meter(caps=Caps(**caps), clock=Watch())
    worker = MeteredWorker(worker=Clerk(Attempt(output="x", **dearer)), meter=meter)
    relied = ("usd" in caps and "cost_usd" in dearer) or ("tokens" in caps and dearer == DEARER[1])
    refused = pytest.raises(ConfigError, match=r"a call of the worker cost \$.*usd_per_attempt")

    with refused if relied else nullcontext():
        asyncio.run(worker.attempt(None, (), seed=0))

    assert meter.spend.usd == dearer.get("cost_usd", 0.0)
    assert meter.spend.tokens == dearer.get("prompt_tokens", 0)


class Talkative(DiceModel):
    """A model that writes more than it was allowed to."""

    def token_bound(self, request):
        """What it was allowed to write."""
        return 1


def test_a_model_that_passes_over_its_limits_is_refused_under_a_cap():
    """An endpoint that writes more than it may makes every cap of tokens void."""
    wrapped, meter = metered(Talkative(np.random.default_rng(7), tokens=100), tokens=10_000)

    with pytest.raises(ConfigError, match="passes over max_tokens"):
        asyncio.run(wrapped.complete(REQUEST))

    assert meter.spend.tokens == wrapped.model.totals[0][1] > 1


def test_an_unseen_worker_stops_at_the_cap():
    """Four attempts of half a dollar each under a cap of one: two are made."""
    meter = Meter(caps=Caps(usd=1.0), clock=Watch())
    worker = MeteredWorker(worker=Clerk(Attempt(output="x", cost_usd=0.5)), meter=meter)

    async def scene():
        calls = [worker.attempt(None, (), seed=0) for _ in range(4)]
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(scene())
    assert [type(r) for r in results] == [Attempt, Attempt, BudgetSpent, BudgetSpent]


def test_reaching_a_cap_exactly_is_allowed():
    """A cap is what may be spent, not what must be left."""
    meter = Meter(caps=Caps(usd=1.0, tokens=10, rollouts=2), clock=Watch())
    asyncio.run(hold_usd(meter, 1.0, 10))
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

    async def late():
        async with meter.reserve("worker", Cost(1.0, 9)) as call:
            watch.at += 121
            call.cost = Cost(0.25, 7)

    asyncio.run(late())
    with pytest.raises(BudgetSpent, match="budget of 2 minutes"):
        asyncio.run(hold_usd(meter, 0.0))
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

    async def wait(seconds, inside=None):
        async with meter.reserve("worker", Cost()):
            watch.at += seconds
            if inside is not None:
                await inside

    async def scene():
        with meter.rollout_phase():
            await wait(4, wait(6))
            watch.at += 100
            await wait(1)
        await wait(50)

    asyncio.run(scene())
    assert meter.spend.model_seconds == 11
    assert meter.spend.rollout_seconds == 111


@pytest.mark.parametrize(
    ("caps", "message"),
    [
        ({"usd": 0.5}, r"the budget of 0\.5 usd is spent \(--max-usd\)"),
        ({"tokens": 50}, r"the budget of 50 tokens is spent \(--max-tokens\)"),
    ],
)
def test_the_message_names_cap_and_flag(caps, message):
    """Whoever reads it knows which cap was reached, and what raises it."""
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
    asyncio.run(hold_usd(meter, 5.0))


def test_the_spend_as_json():
    """The commands print the spend under these names."""
    assert set(Meter(caps=Caps(), clock=Watch()).spend.to_json()) >= {
        *("usd", "tokens", "rollouts", "cached", "seconds"),
    }


# --- claims ---


def claiming(**caps):
    """Return a meter, and the list of what it claims."""
    claims = []
    return Meter(caps=Caps(**caps), clock=Watch(), claim=claims.append), claims


async def several(meter, count, bound):
    """Return so many reservations that are in flight."""
    calls = [meter.reserve("worker", bound) for _ in range(count)]
    for call in calls:
        meter.admit_rollout()
        await call.__aenter__()
    return calls


def test_a_claim_comes_before_the_call_and_covers_as_much_again():
    """With 64 calls in flight it was made a few times, and is twice what they may cost at most."""
    meter, claims = claiming()
    asyncio.run(several(meter, 64, Cost(0.25, 100)))

    assert claims[0] == Claim(0.5, 200, 2)
    assert claims == sorted(claims)
    assert len(claims) <= 7
    assert (16.0, 6400, 64) <= claims[-1] <= (32.0, 12800, 128)


def test_in_a_steady_state_claims_go_with_the_records():
    """Once two batches were seen, whatever is run between two records needs no write of its own."""
    meter, claims = claiming(usd=1e6)

    async def batch(size):
        for _ in range(size):
            meter.admit_rollout()
            await hold_usd(meter, 0.25, 100)

    async def scene():
        for number in range(20):
            with meter.record() as account:
                await batch(32)  # attempts go on while a batch is written
            if number == 4:
                claims.clear()
            await batch(32)
        return account

    account = asyncio.run(scene())
    assert claims == []
    assert account["claimed"]["rollouts"] - meter.spend.rollouts <= 64
    assert account["claimed"]["usd"] <= meter.spend.usd + 64 * 0.25


@pytest.mark.parametrize(
    ("caps", "claim"),
    [
        ({"usd": 1.25}, Claim(1.25, 700, 7)),
        ({"tokens": 499}, Claim(1.75, 499, 7)),
        ({"rollouts": 5}, Claim(1.75, 700, 5)),
        ({"usd": 1.0, "tokens": 400, "rollouts": 4}, Claim(1.0, 400, 4)),
    ],
)
def test_a_claim_stays_within_the_caps(caps, claim):
    """What the caps leave for one call is claimed for one call, and that call is made."""
    meter, claims = claiming(**caps)
    asyncio.run(several(meter, 4, Cost(0.25, 100)))

    assert claims[-1].most(claim) == claim
    with meter.record() as account:
        assert account["claimed"] == claim._asdict()


@pytest.mark.parametrize("caps", [{}, {"usd": 0.0}, {"minutes": 5}])
def test_calls_that_cost_nothing_claim_nothing_where_no_cap_counts_them(caps):
    """Neither a write of its own nor a word in any record."""
    meter, claims = claiming(**caps)

    async def scene():
        for call in await several(meter, 8, Cost(0.0, 100)):
            await call.__aexit__(None, None, None)

    asyncio.run(scene())
    for last in (False, True):
        with meter.record(last=last) as account:
            assert account.keys() == ({"bill"} if not last else set())
    assert claims == []


@pytest.mark.parametrize("caps", [{"tokens": 9_999}, {"rollouts": 99}])
def test_calls_that_cost_nothing_are_claimed_where_a_cap_counts_them(caps):
    """A cap of tokens or rollouts holds for a free model as well."""
    meter, claims = claiming(**caps)
    asyncio.run(several(meter, 1, Cost(0.0, 100)))

    assert claims == [Claim(0.0, 200, 2)]


def test_what_cannot_be_claimed_is_not_paid():
    """The call is not made, nothing is held for it, and the next one asks again."""
    meter = Meter(caps=Caps(usd=1.0), clock=Watch(), claim=refuse)
    model = DiceModel(np.random.default_rng(9), usd=0.5)
    for _ in range(3):
        with pytest.raises(LedgerError, match="full"):
            asyncio.run(MeteredModel(model=model, meter=meter).complete(REQUEST))

    assert (model.calls, meter.spend.usd) == (0, 0.0)
    meter.claim = lambda _: None
    asyncio.run(hold_usd(meter, 1.0))


def refuse(claim):
    """Refuse like a full disk."""
    raise LedgerError("the disk is full")


def test_what_a_record_promised_counts_once_it_is_durable():
    """While it is written, and where that fails, calls are covered by the claim of before."""
    meter, claims = claiming()

    async def scene():
        await hold_usd(meter, 0.25)
        with meter.record():
            pass
        await hold_usd(meter, 0.25)
        assert claims == [Claim(0.5, 0, 0)]
        with suppress(LedgerError), meter.record() as account:
            assert account["claimed"]["usd"] == 0.75
            await hold_usd(meter, 0.25)
            raise LedgerError("full")
        assert len(claims) == 2
        with meter.record() as account:
            promised = account["claimed"]["usd"]
        await hold_usd(meter, promised - meter.spend.usd)
        assert len(claims) == 2

    asyncio.run(scene())


def test_the_last_record_of_a_start_settles_what_was_claimed():
    """It holds what all has cost, what is still in flight at the most that it can cost."""
    meter, claims = claiming(usd=9.0)

    async def scene():
        first, _ = await several(meter, 2, Cost(0.25, 100))
        first.cost = Cost(0.125, 7)
        await first.__aexit__(None, None, None)

    asyncio.run(scene())
    with meter.record(last=True) as account:
        assert account["settled"] == {"usd": 0.375, "tokens": 107, "rollouts": 2}
    assert claims
