"""Retries, failures, prices and errors of the litellm adapter, against a real HTTP server."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from email.utils import formatdate

import pytest
from support import loopback
from support.loopback import LoopbackServer, ok, rate_limited, status

from skillforge.adapters.models import LitellmModel
from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Message
from skillforge.core.retry import RetryPolicy
from skillforge.core.rollout import FailureKind
from skillforge.errors import BudgetSpent, ConfigError

PRICES = {"input_per_million": 2.0, "output_per_million": 10.0}
REQUEST = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=5, timeout=5.0)


def make(server: LoopbackServer, **settings) -> LitellmModel:
    """Return a model behind the server that retries without waiting long."""
    defaults = {"prices": PRICES, "retry": RetryPolicy(retries=3, backoff=0.01, max_wait=1.0)}
    return LitellmModel("openai/echo", api_base=server.url, **{**defaults, **settings})


def complete(model: LitellmModel, request: ChatRequest = REQUEST) -> ChatReply:
    """Ask once."""
    return asyncio.run(model.complete(request))


PASSING = {
    "429": rate_limited(),
    "500": status(500),
    "502": status(502),
    "503": status(503),
    "408": status(408),
    "504": status(504),
    "no choices": loopback.empty_choices(),
    "no JSON": loopback.malformed(),
    "cut off": loopback.cut(),
    "closed": loopback.drop(),
}


@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING)
def test_a_trouble_that_passes_is_retried(answer):
    """One bad answer costs a retry and nothing else."""
    with LoopbackServer([answer, ok("fine")]) as server:
        reply = complete(make(server))

    assert reply.text == "fine"
    assert len(server.requests) == 2


@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING)
def test_a_trouble_that_stays_is_an_infrastructure_failure(answer):
    """After the last retry the call fails for the infrastructure's fault, and says how often."""
    with LoopbackServer([answer]) as server, pytest.raises(CallFailed) as caught:
        complete(make(server))

    failure = caught.value.failure
    assert failure.kind is FailureKind.INFRA
    assert failure.where == "model"
    assert "openai/echo" in failure.message
    assert "after 4 attempts" in failure.message
    assert len(server.requests) == 4


def test_no_retries_means_one_attempt():
    """With ``retries=0`` the first failure is the last."""
    with LoopbackServer([status(500)]) as server, pytest.raises(CallFailed):
        complete(make(server, retry=RetryPolicy(retries=0)))

    assert len(server.requests) == 1


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured(form):
    """The next attempt does not come before the server wants it."""
    answer = rate_limited(0.4)
    if form == "date":
        later = formatdate(time.time() + 2, usegmt=True)
        answer = replace(answer, headers=(("Retry-After", later),))
    with LoopbackServer([answer, ok()]) as server:
        complete(make(server, retry=RetryPolicy(backoff=0.001, max_wait=5.0)))

    assert server.arrivals[1] - server.arrivals[0] >= 0.4


def test_a_retry_after_beyond_patience_ends_the_call():
    """A server that wants an hour is not waited for, and not asked again earlier."""
    with LoopbackServer([rate_limited(3600)]) as server, pytest.raises(CallFailed) as caught:
        complete(make(server))

    assert caught.value.failure.kind is FailureKind.INFRA
    assert len(server.requests) == 1


def test_an_exhausted_quota_is_not_retried():
    """A 429 that waiting cannot cure costs one attempt."""
    answer = status(429, "You exceeded your current quota", error_code="insufficient_quota")
    with LoopbackServer([answer]) as server, pytest.raises(CallFailed, match="quota"):
        complete(make(server))

    assert len(server.requests) == 1


def test_an_endpoint_that_is_not_there_is_an_infrastructure_failure():
    """A refused connection voids the pair after the retries."""
    with LoopbackServer() as server:
        url = server.url
    model = LitellmModel(
        "openai/echo", api_base=url, prices=PRICES, retry=RetryPolicy(retries=1, backoff=0.01)
    )

    with pytest.raises(CallFailed, match="after 2 attempts") as caught:
        complete(model)

    assert caught.value.failure.kind is FailureKind.INFRA


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (status(401, "Incorrect API key provided: sk-abcdef123456"), "check the API key"),
        (status(403, "no access"), "may not use"),
        (status(404, "The model `echo` does not exist"), "check the model name"),
    ],
    ids=["401", "403", "404"],
)
def test_a_misconfiguration_is_an_error_with_advice(answer, advice):
    """A wrong key or model stops the run at once, names the model, and shows no key."""
    with LoopbackServer([answer]) as server, pytest.raises(ConfigError, match=advice) as caught:
        complete(make(server))

    assert "openai/echo" in str(caught.value)
    assert "abcdef" not in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["nowhere/model", "gibberish", ""])
def test_an_unknown_provider_is_an_error_that_says_what_a_name_looks_like(name):
    """A name that litellm cannot place is refused before anything is sent."""
    with pytest.raises(ConfigError, match="PROVIDER/MODEL"):
        complete(LitellmModel(name, prices=PRICES))


PROLOGUE = (
    "from skillforge.adapters.models import LitellmModel\n"
    "from skillforge.core.chat import ChatRequest, Message\n"
    "REQUEST = ChatRequest(messages=(Message(role='user', content='hi'),), max_tokens=5)"
)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter without any API key."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )


def test_a_missing_key_is_named():
    """Without a key the error names the variable to set, and nothing is sent."""
    ask = "\nimport asyncio; asyncio.run(LitellmModel('openai/gpt-4o-mini').complete(REQUEST))"
    done = run_python(PROLOGUE + ask)

    assert "ConfigError" in done.stderr
    assert "OPENAI_API_KEY" in done.stderr


def test_importing_the_adapter_loads_nothing_heavy():
    """The module itself needs neither litellm nor a tensor library."""
    heavy = "{'litellm', 'torch', 'faiss', 'xllamacpp'}"
    code = f"import sys, skillforge.adapters.models; print({heavy} & set(sys.modules))"

    assert run_python(code).stdout.strip() == "set()"


def test_nothing_is_printed():
    """A failing call prints no banner, no provider list and no advice of litellm's own."""
    code = PROLOGUE + (
        "\nimport asyncio, contextlib\n"
        "from skillforge.core.chat import CallFailed\n"
        "from skillforge.core.retry import RetryPolicy\n"
        "from skillforge.errors import ConfigError\n"
        "free = {'input_per_million': 0, 'output_per_million': 0}\n"
        "for name in ('openai/x', 'nowhere/x'):\n"
        "    model = LitellmModel(name, api_base='http://127.0.0.1:9/v1', prices=free,\n"
        "                         retry=RetryPolicy(retries=0))\n"
        "    with contextlib.suppress(CallFailed, ConfigError):\n"
        "        asyncio.run(model.complete(REQUEST))\n"
    )
    done = run_python(code)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_preflight_comes_before_each_attempt():
    """Retries are attempts too: the budget is asked before every one of them."""
    asked = []
    with LoopbackServer([status(500), status(500), ok()]) as server:
        complete(make(server, preflight=asked.append))

    assert asked == [REQUEST] * 3


def test_a_preflight_may_be_a_coroutine_and_may_forbid():
    """`BudgetSpent` ends the call before the attempt that it forbids."""
    calls = []

    async def once(request: ChatRequest) -> None:
        calls.append(request)
        if len(calls) > 1:
            raise BudgetSpent("the cap is reached")

    with LoopbackServer([status(500)]) as server, pytest.raises(BudgetSpent):
        complete(make(server, preflight=once))

    assert len(server.requests) == 1


def test_only_what_is_set_is_sent():
    """A temperature of None is left to the model, 0.0 is sent; so are seed and stop."""
    with LoopbackServer() as server:
        model = make(server)
        complete(model)
        complete(model, replace(REQUEST, temperature=0.0, seed=0, stop=("x",)))

    first, second = server.requests
    assert not {"temperature", "seed", "stop", "response_format"} & set(first)
    assert (second["temperature"], second["seed"], second["stop"]) == (0.0, 0, ["x"])


def test_stated_prices_make_bound_and_cost():
    """Cost is tokens times the stated price, and never above the bound."""
    with LoopbackServer([ok(prompt_tokens=1000, completion_tokens=100)]) as server:
        reply = complete(make(server))
    long = replace(REQUEST, messages=(Message(role="user", content="x" * 1000),))

    assert reply.cost_usd == pytest.approx(1000 * 2e-6 + 100 * 10e-6)
    assert make(server).cost_bound(long) >= 1000 * 2e-6 + 5 * 10e-6


def test_the_bundled_list_knows_prices():
    """A well-known model needs no stated price."""
    request = replace(REQUEST, max_tokens=1_000_000)

    assert LitellmModel("openai/gpt-4o-mini").cost_bound(request) == pytest.approx(0.6, rel=1e-3)


def test_an_unknown_price_is_an_error_that_says_where_to_state_it():
    """No call is made, and no budget is checked, against a price that nobody knows."""
    with LoopbackServer() as server:
        model = LitellmModel("openai/echo", api_base=server.url)
        with pytest.raises(ConfigError, match=r'\[prices."openai/echo"\]'):
            model.cost_bound(REQUEST)
        with pytest.raises(ConfigError, match="input_per_million"):
            complete(model)

    assert server.requests == []


@pytest.mark.parametrize("wrong", [None, -1.0, float("nan"), True, "2"])
def test_a_wrong_price_is_refused(wrong):
    """A stated price is a number of USD, at least 0."""
    with pytest.raises(ConfigError, match="input_per_million"):
        LitellmModel("openai/echo", prices={**PRICES, "input_per_million": wrong})


def test_an_empty_answer_is_an_answer():
    """A completion without text is not an error of the model call."""
    with LoopbackServer([ok("")]) as server:
        assert complete(make(server)).text == ""
