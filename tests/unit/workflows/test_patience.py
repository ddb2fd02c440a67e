"""Calls made again, at the pace of their endpoint: order, limits, cancellation."""

import asyncio
import pickle
from dataclasses import replace

import pytest

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost, Message
from skillforge.core.pace import Throttle
from skillforge.core.retry import RetryPolicy
from skillforge.core.rollout import Failure, FailureKind
from skillforge.errors import BudgetSpent
from skillforge.workflows.patience import Pace, PatientModel

QUICK = RetryPolicy(retries=2, busy_retries=5, backoff=0.001)
FAILURE = Failure(kind=FailureKind.INFRA, message="no luck", where="model")


def ask(word="hi"):
    """Return a small request."""
    return ChatRequest(messages=(Message(role="user", content=word),), max_tokens=8)


class Scripted:
    """A model that fails as told, one call after the other, and then answers for ever."""

    name = "scripted"
    fingerprint = "scripted-1"

    def __init__(self, *errors, turns=1, usd=0.0):
        """Take what the first calls raise, and the bound of each."""
        self.errors = list(errors)
        self.usd = usd
        self.turns = turns
        self.asked = []
        self.running = self.most = 0

    def cost_bound(self, request):
        """USD."""
        return self.usd

    def token_bound(self, request):
        """Tokens."""
        return 10

    async def complete(self, request):
        """Take some turns, then fail or answer."""
        self.asked.append(request.messages[0].content)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            if self.errors:
                raise self.errors.pop(0)
        finally:
            self.running -= 1
        return ChatReply(
            text="ok",
            finish_reason="stop",
            prompt_tokens=1,
            completion_tokens=1,
            cost_usd=0.0,
            seconds=0.0,
        )


def patient(model, parallel=4, retry=QUICK, **limits):
    """Put a model behind a pace."""
    return PatientModel(model=model, pace=Pace(Throttle(parallel, **limits)), retry=retry)


def test_it_is_what_it_wraps():
    """Name, fingerprint and bounds are those of the model underneath."""
    model = patient(Scripted())

    assert (model.name, model.fingerprint) == ("scripted", "scripted-1")
    assert (model.cost_bound(ask()), model.token_bound(ask())) == (0.0, 10)


def test_a_trouble_that_passes_costs_a_retry():
    """Two failures and an answer are three attempts and one reply."""
    inner = Scripted(CallFailed(FAILURE, again=True), CallFailed(FAILURE, again=True))

    assert asyncio.run(patient(inner).complete(ask())).text == "ok"
    assert len(inner.asked) == 3


@pytest.mark.parametrize(
    ("trouble", "attempts"),
    [
        ({"again": True}, 3),
        ({"again": True, "busy": True}, 6),
        ({}, 1),
        ({"again": True, "wait": 1e4}, 1),
    ],
    ids=["passing", "busy", "lasting", "asked to wait for hours"],
)
def test_a_trouble_that_stays_ends_after_so_many_attempts(trouble, attempts):
    """A busy endpoint is given more time than a broken one; the failure says how often."""
    inner = Scripted(*[CallFailed(FAILURE, **trouble) for _ in range(9)])
    with pytest.raises(CallFailed, match="no luck") as caught:
        asyncio.run(patient(inner).complete(ask()))

    assert len(inner.asked) == attempts
    assert (f"after {attempts} attempts" in str(caught.value)) == (attempts > 1)
    assert caught.value.failure.kind is FailureKind.INFRA


@pytest.mark.parametrize(
    ("cost", "calls"), [(Cost(), 2), (Cost(0.0, 1), 1), (None, 1)], ids=["free", "paid", "unknown"]
)
def test_where_an_attempt_is_paid_as_a_whole_only_free_calls_are_made_again(cost, calls):
    """A call that may have been billed is not repeated, so that one call is all that is paid."""
    model = Scripted(CallFailed(FAILURE, again=True, cost=cost))
    asked = replace(patient(model), free_only=True).complete(ask())

    if calls == 1:
        with pytest.raises(CallFailed):
            asyncio.run(asked)
    else:
        asyncio.run(asked)
    assert len(model.asked) == calls


@pytest.mark.parametrize(
    ("cost", "each"),
    [(Cost(), Cost()), (Cost(0.5, 7), Cost(0.5, 7)), (None, Cost(0.25, 10))],
    ids=["free", "paid", "unknown"],
)
def test_what_attempts_have_lost_is_told_with_the_answer_or_the_last_failure(cost, each):
    """The sum over the attempts without an answer; where nobody knows, each at its bound."""
    errors = [CallFailed(FAILURE, again=True, cost=cost) for _ in range(5)]
    answering, failing = (patient(Scripted(*errors[:n], usd=0.25)) for n in (2, 5))

    assert asyncio.run(answering.complete(ask())).lost == each + each
    with pytest.raises(CallFailed) as caught:
        asyncio.run(failing.complete(ask()))
    assert caught.value.cost == each + each + each


def test_a_pace_begins_anew_in_another_process():
    """A model that is sent elsewhere takes its limits along, and no lock."""
    pace = Pace(Throttle(3, requests_per_minute=2.5))

    assert pickle.loads(pickle.dumps(pace)).throttle.limit == 3


def test_a_spent_budget_ends_the_retries():
    """What is no failed call is not retried."""
    inner = Scripted(CallFailed(FAILURE, again=True), BudgetSpent("enough"))
    with pytest.raises(BudgetSpent):
        asyncio.run(patient(inner).complete(ask()))

    assert len(inner.asked) == 2


def test_no_more_calls_at_once_than_allowed_and_in_order():
    """Calls that wait begin in the order in which they came."""
    inner = Scripted(turns=3)
    model = patient(inner, parallel=2)
    words = [str(n) for n in range(9)]

    async def scene():
        await asyncio.gather(*(model.complete(ask(word)) for word in words))

    asyncio.run(scene())
    assert inner.most == 2
    assert inner.asked == words


def test_a_busy_endpoint_gets_fewer_calls_at_once():
    """After a burst of refusals half as many run, and all are answered in the end."""
    inner = Scripted(*[CallFailed(FAILURE, again=True, busy=True) for _ in range(8)], turns=3)
    model = patient(inner, parallel=8)

    async def scene():
        await asyncio.gather(*(model.complete(ask()) for _ in range(8)))
        inner.most = 0
        await asyncio.gather(*(model.complete(ask()) for _ in range(4)))

    asyncio.run(scene())
    assert len(inner.asked) == 8 + 8 + 4
    assert model.pace.throttle.limit < 8


def test_a_limit_per_minute_holds_calls_back():
    """The third request of a minute waits, and a call given up while waiting blocks nobody."""
    inner = Scripted()
    model = patient(inner, requests_per_minute=2)

    async def scene():
        await asyncio.gather(model.complete(ask()), model.complete(ask()))
        third = asyncio.create_task(model.complete(ask("third")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not third.done()
        assert model.pace.throttle.delay(10, asyncio.get_running_loop().time()) > 0
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)
        assert not model.pace._door.locked()

    asyncio.run(scene())
    assert len(inner.asked) == 2


def test_a_cancelled_call_gives_its_turn_back():
    """Turns are never lost: after many calls called off, the next one is served."""
    inner = Scripted(turns=5)
    model = patient(inner, parallel=2)

    async def scene():
        calls = [asyncio.create_task(model.complete(ask(str(n)))) for n in range(12)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.wait_for(model.complete(ask("last")), 60)

    asyncio.run(scene())
    assert inner.asked[-1] == "last"
    assert inner.running == 0
