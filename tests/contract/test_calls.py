"""Batches of model calls against a real HTTP server that misbehaves: what is scored, what is not.

Everything between the bench and the socket is the real thing: worker, patience, meter, litellm.
"""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest
from support import loopback
from support.loopback import Answer, LoopbackServer, ok, rate_limited, status
from support.world import TickingClock, make_world, skill, suite

from skillforge.adapters.agent_worker import AgentWorker
from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.models import LitellmModel
from skillforge.adapters.workers import ChatWorker
from skillforge.core.chat import CallFailed, ChatRequest, Message
from skillforge.core.gate import GateRules
from skillforge.core.pace import Throttle
from skillforge.core.retry import RetryPolicy
from skillforge.core.rollout import FailureKind
from skillforge.core.task import Split, WorkerSpec
from skillforge.errors import BudgetSpent
from skillforge.workflows.contrast import Context, arm_cells
from skillforge.workflows.evaluate import evaluate
from skillforge.workflows.meter import Meter
from skillforge.workflows.metered import MeteredModel
from skillforge.workflows.patience import Pace, PatientModel
from skillforge.workflows.spend import Caps
from skillforge.workflows.trial import Bench

PRICES = {"input_per_million": 1000.0, "output_per_million": 1000.0}
QUICK = RetryPolicy(retries=2, busy_retries=8, backoff=0.01, max_wait=5.0)
REQUEST = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=5, timeout=30.0)


@dataclass
class Endpoint:
    """Solves every task, but first or at some tasks gives trouble."""

    storm: list[Answer] = field(default_factory=list)
    """What the first requests get, whatever they ask."""
    trouble: Answer | None = None
    """What every request about a bad task gets."""
    bad: tuple[str, ...] = ()
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, body):
        """Answer one request."""
        asked = body["messages"][-1]["content"]
        with self.lock:
            if self.storm:
                return self.storm.pop()
        if self.trouble is not None and asked.endswith(self.bad):
            return self.trouble
        return ok(f"answer-{asked.rpartition(' ')[2]}")


def chain(server, meter, *, parallel=8, retry=QUICK):
    """Put a model behind meter and patience."""
    bare = LitellmModel("openai/echo", api_base=server.url, prices=PRICES)
    metered = MeteredModel(model=bare, meter=meter)
    return PatientModel(model=metered, pace=Pace(Throttle(parallel)), retry=retry)


def make_bench(world, server, *, run="run-1", parallel=8, caps=None):
    """Return a bench whose worker asks the server."""
    meter = Meter(caps=caps or Caps(), clock=TickingClock())
    meter.start()
    model = chain(server, meter, parallel=parallel)
    spec = WorkerSpec(max_tokens=8, temperature=0.0, timeout=30.0)
    return Bench(
        ledger=world.ledger,
        worker=ChatWorker(model=model, spec=spec),
        executor=AsyncioExecutor(parallel),
        meter=meter,
        run=run,
        seed=0,
    )


def measure(bench, world, tasks=12):
    """Evaluate the skill, base and augmented arm."""
    tried = suite(["a"], confirm=tasks)
    work = evaluate(bench, world.curator, tried, "a", GateRules(), tasks=tasks)
    return asyncio.run(work)


@pytest.fixture
def world(tmp_path):
    """A library of one skill."""
    return make_world(tmp_path, [skill("a", "Answer the question.")])


@pytest.mark.parametrize("asked", [0.1, None], ids=["Retry-After", "no Retry-After"])
def test_a_storm_of_429_costs_no_pair(world, asked):
    """Twenty-five calls refused at once are all answered later, none is an error row.

    LiveBench/LiveBench#543: a burst of 429 turned 25 questions in flight into error rows.
    """
    with LoopbackServer(Endpoint(storm=[rate_limited(asked)] * 25)) as server:
        bench = make_bench(world, server, parallel=25)
        measured = measure(bench, world, tasks=13).to_json()

    assert measured["pairs"] == 13
    assert measured["voided"] == []
    assert measured["retained"] == 13
    assert len(server.requests) == 25 + 26
    assert bench.meter.spend.rollouts == 26
    assert bench.worker.model.pace.throttle.limit < 25
    if asked:
        assert min(server.arrivals[25:]) - server.arrivals[0] >= asked  # nobody asked too early
    assert bench.meter.spend.tokens == 26 * 10  # refusals cost nothing


def test_after_a_retry_after_nobody_asks_too_early(world):
    """The wish of a server holds for every call to it, not only for the one that it refused."""
    with LoopbackServer(Endpoint(storm=[rate_limited(0.5)])) as server:
        bench = make_bench(world, server, parallel=1)
        measure(bench, world, tasks=2)

    first, *others = server.arrivals
    assert all(later - first >= 0.5 for later in others)


TROUBLES = {
    "429": rate_limited(None),
    "500": status(500),
    "503": status(503),
    "cut": loopback.cut(),
    "closed": loopback.drop(),
    "no JSON": loopback.malformed(),
    "no choices": loopback.empty_choices(),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_no_error_becomes_a_score_and_none_is_cached(world, trouble):
    """The batch ends with the failed pairs named and out of the mean; a rerun makes them good.

    lm-sys/FastChat#2074: errors were averaged in as -1. gepa-ai/gepa#456: a passing failure was
    kept as 0.0 for ever. LiveBench/LiveBench#543: a 429 that stays voids the pair in both arms.
    """
    endpoint = Endpoint(trouble=trouble, bad=(" 3", " 9"))
    with LoopbackServer(endpoint) as server:
        first = measure(make_bench(world, server), world, tasks=10).to_json()
        endpoint.trouble, before = None, len(server.requests)
        second = measure(make_bench(world, server, run="run-2"), world, tasks=10).to_json()

    assert sorted(first["voided"]) == ["a/confirm/3", "a/confirm/9"]
    assert first["dropped"] == {"base": 2, "augmented": 2}  # both arms of both tasks
    assert (first["pairs"], first["retained"], first["lift"]) == (8, 8, 0.0)
    assert (second["pairs"], second["retained"], second["voided"]) == (10, 10, [])
    assert len(server.requests) - before == 4
    failed = list(world.ledger.events(kinds=("rollout.failed",)))
    assert [event.data["score"] for event in failed] == [None] * 4


def test_a_late_answer_is_the_tasks_own_failure_and_is_booked(world):
    """A task that takes longer than it may scores 0 by the rules, and its call is paid for."""
    with LoopbackServer([loopback.slow(60)]) as server:
        meter = Meter(caps=Caps(), clock=TickingClock())
        model = chain(server, meter)
        with pytest.raises(CallFailed) as caught:
            asyncio.run(
                model.complete(ChatRequest(messages=REQUEST.messages, max_tokens=5, timeout=0.3))
            )

    assert caught.value.failure.kind is FailureKind.AGENT
    assert meter.spend.tokens == model.token_bound(REQUEST)
    assert len(server.requests) == 1


@pytest.mark.parametrize("cap", ["usd", "tokens"])
def test_every_retry_passes_the_budget_and_shows_in_the_bill(cap):
    """Cut replies may have been billed: two fit under the cap, the third attempt is not made."""
    with LoopbackServer([loopback.cut()]) as server:
        bare = LitellmModel("openai/echo", api_base=server.url, prices=PRICES)
        bound = {"usd": bare.cost_bound(REQUEST), "tokens": bare.token_bound(REQUEST)}
        meter = Meter(caps=Caps(**{cap: bound[cap] * 2}), clock=TickingClock())
        with pytest.raises(BudgetSpent):
            asyncio.run(chain(server, meter).complete(REQUEST))

    assert len(server.requests) == 2
    assert meter.spend.tokens == 2 * bound["tokens"]
    assert meter.spend.usd == pytest.approx(2 * bound["usd"])
    assert meter.spend.roles["worker"].calls == 2


def test_refused_attempts_are_free_and_counted():
    """A 429 and a 500 before the answer leave the cost of the answer alone."""
    with LoopbackServer([rate_limited(), status(500), ok()]) as server:
        meter = Meter(caps=Caps(), clock=TickingClock())
        reply = asyncio.run(chain(server, meter).complete(REQUEST))

    assert meter.spend.usd == reply.cost_usd
    assert meter.spend.tokens == 10
    assert meter.spend.roles["worker"].calls == 3


@pytest.mark.parametrize("kind", ["chat", "agent"])
def test_a_rollout_costs_what_its_retries_cost_too(world, kind):
    """What the bill holds is the sum over the rollouts, whatever was cut off and made again.

    What is lost on the way does not use up the tokens that an agent may use.
    """
    tasks = suite(["a"]).select(split=Split.CONFIRM)[:6]
    cells = arm_cells(tasks, arm="base", package=None, context=Context(skill="a"), purpose="eval")
    with LoopbackServer(Endpoint(storm=[loopback.cut()] * 2)) as server:
        bench = make_bench(world, server, parallel=1)
        spec = WorkerSpec(kind=kind, max_tokens=8, token_limit=2000, timeout=30.0)
        make = {"chat": ChatWorker, "agent": AgentWorker}[kind]
        bench.worker = make(model=bench.worker.model, spec=spec)
        bound = bench.worker.model.token_bound(bench.worker.prompt(tasks[0], ()))
        done = asyncio.run(bench.rollouts(cells))

    spent = bench.meter.spend
    tokens = [r.prompt_tokens + r.completion_tokens for r in done]
    assert [r.score for r in done] == [1.0] * 6
    assert sum(tokens) == spent.tokens
    assert sum(r.cost_usd for r in done) == pytest.approx(spent.usd)
    assert max(tokens) == pytest.approx(2 * bound + 10, abs=4)  # tasks differ by a digit or two
    assert sorted(tokens)[:-1] == [10] * 5
    assert spent.roles["worker"].calls == 6 + 2


def test_an_endpoint_that_does_not_count_shows_in_the_bill():
    """Its calls are booked at their bounds, and the bill says how many were."""
    uncounted = ok(prompt_tokens=0, completion_tokens=0)
    with LoopbackServer([uncounted, ok()]) as server:
        meter = Meter(caps=Caps(), clock=TickingClock())
        model = chain(server, meter)
        for _ in range(2):
            asyncio.run(model.complete(REQUEST))

    assert meter.spend.tokens == model.token_bound(REQUEST) + 10
    assert (meter.spend.roles["worker"].calls, meter.spend.roles["worker"].at_bound) == (2, 1)


def test_a_batch_under_a_cap_spends_nearly_all_of_it_and_never_more(world):
    """Bounds are far above the truth, and the batch still goes on until the cap is near."""
    tasks = suite(["a"]).select(split=Split.CONFIRM)
    cells = arm_cells(tasks, arm="base", package=None, context=Context(skill="a"), purpose="eval")
    with LoopbackServer(Endpoint()) as server:
        bench = make_bench(world, server, caps=Caps(tokens=600))
        with pytest.raises(BudgetSpent, match="tokens"):
            asyncio.run(bench.rollouts(cells))

    spent = bench.meter.spend.tokens
    bound = max(bench.worker.bound(task, ()).tokens for task in tasks)
    assert 600 - bound < spent <= 600
    assert len(server.requests) * 10 == spent
