"""Failures, prices, bounds and errors of the litellm adapter, against a real HTTP server."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from email.utils import formatdate

import pytest
from support import loopback
from support.loopback import LoopbackServer, drip, ok, rate_limited, status

from skillforge.adapters.models import LitellmModel
from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost, Message
from skillforge.core.rollout import FailureKind
from skillforge.errors import ConfigError

PRICES = {"input_per_million": 2.0, "output_per_million": 10.0}
REQUEST = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=5, timeout=5.0)


def make(server: LoopbackServer, **settings) -> LitellmModel:
    """Return a model behind the server."""
    return LitellmModel("openai/echo", api_base=server.url, **{"prices": PRICES, **settings})


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
def test_a_trouble_that_may_pass_says_so(answer):
    """A failed attempt is the infrastructure's fault, worth another one, and made only once."""
    with LoopbackServer([answer]) as server, pytest.raises(CallFailed) as caught:
        complete(make(server))

    assert caught.value.again
    assert caught.value.failure.kind is FailureKind.INFRA
    assert caught.value.failure.where == "model"
    assert "openai/echo" in caught.value.failure.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", PASSING)
def test_a_failed_attempt_says_what_it_may_have_cost(name):
    """What may have been served costs its bound; an error status of the server's own nothing."""
    unserved = {"429", "500", "503"}
    with LoopbackServer([PASSING[name]]) as server, pytest.raises(CallFailed) as caught:
        complete(make(server))
    model = make(server)
    bound = Cost(model.cost_bound(REQUEST), model.token_bound(REQUEST))

    assert caught.value.cost == (Cost() if name in unserved else bound)
    assert caught.value.busy == (name in {"429", "503"})


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_what_the_server_asks_for_is_passed_on(form):
    """A Retry-After header is read as seconds or as a date."""
    answer = rate_limited(7.5)
    if form == "date":
        later = formatdate(time.time() + 3600, usegmt=True)
        answer = replace(answer, headers=(("Retry-After", later),))
    with LoopbackServer([answer]) as server, pytest.raises(CallFailed) as caught:
        complete(make(server))

    assert caught.value.wait == 7.5 if form == "seconds" else 3000 < caught.value.wait <= 3600


def test_an_exhausted_quota_is_not_worth_another_attempt():
    """A 429 that waiting cannot cure says so."""
    answer = status(429, "You exceeded your current quota", error_code="insufficient_quota")
    with LoopbackServer([answer]) as server, pytest.raises(CallFailed, match="quota") as caught:
        complete(make(server))

    assert not caught.value.again


def test_an_endpoint_that_is_not_there_costs_nothing():
    """A refused connection is the infrastructure's fault, and free."""
    with LoopbackServer() as server:
        url = server.url
    with pytest.raises(CallFailed) as caught:
        complete(LitellmModel("openai/echo", api_base=url, prices=PRICES))

    assert caught.value.failure.kind is FailureKind.INFRA
    assert caught.value.again
    assert caught.value.cost == Cost()


def test_a_reply_that_trickles_is_given_up_and_is_no_score():
    """An endpoint that keeps sending without ever finishing is at fault, not the task."""
    hasty = replace(REQUEST, timeout=4.0)  # no byte may be that late, or it is the task's fault
    with LoopbackServer([drip(ok("never whole " * 40), 0.02)]) as server:
        with pytest.raises(CallFailed, match="only parts of one") as caught:
            complete(make(server), hasty)
        bound = make(server).token_bound(hasty)

    assert caught.value.failure.kind is FailureKind.INFRA
    assert not caught.value.again
    assert caught.value.cost.tokens == bound


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


def test_a_call_that_is_dropped_while_litellm_prepares_it_goes_in_silence():
    """Nobody can await what a thread of litellm's brings too late, so nobody is warned of it.

    So it is with a second Ctrl-C, or where the ledger cannot be written any more.
    """
    done = run_python(
        PROLOGUE
        + """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

class Late(ThreadPoolExecutor):
    def submit(self, work):
        def held():
            made.append(type(result := work()).__name__)
            loop.call_soon_threadsafe(call.cancel)
            dropped.wait()
            return result
        return super().submit(held)

async def drop():
    global loop, call
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Late(1))
    prices = {"input_per_million": 1.0, "output_per_million": 1.0}
    model = LitellmModel("openai/echo", api_base="http://127.0.0.1:9/v1", prices=prices)
    call = asyncio.create_task(model.complete(REQUEST))
    await asyncio.wait([call])
    dropped.set()
    await loop.shutdown_default_executor()
    print(call.cancelled(), *made)

made, dropped = [], Event()
asyncio.run(drop())
"""
    )
    assert (done.stdout, done.stderr) == ("True coroutine\n", "")


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
        "from skillforge.errors import ConfigError\n"
        "free = {'input_per_million': 0, 'output_per_million': 0}\n"
        "for name in ('openai/x', 'nowhere/x'):\n"
        "    model = LitellmModel(name, api_base='http://127.0.0.1:9/v1', prices=free)\n"
        "    with contextlib.suppress(CallFailed, ConfigError):\n"
        "        asyncio.run(model.complete(REQUEST))\n"
    )
    done = run_python(code)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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


@pytest.mark.parametrize("name", ["local/smollm2", "local/other.gguf", "ollama/llama3.2:1b"])
def test_a_model_on_ones_own_machine_costs_nothing(name):
    """No list and no stated price makes a local model dear (OpenHands/OpenHands#9158)."""
    assert LitellmModel(name).cost_bound(REQUEST) == 0.0
    assert LitellmModel("local/smollm2", prices=PRICES).cost_bound(REQUEST) == 0.0


PROSE = "Write the date of the meeting in ISO form, and leave everything else as it is. " * 20
ODD = "<|endoftext|> Grüße 🙂 \ud800 " + "9" * 200 + "\n" * 50 + "\x00\x1b"


@pytest.mark.parametrize("name", ["openai/gpt-4o-mini", "gpt-3.5-turbo", "openai/gpt-5"])
def test_a_known_tokenizer_makes_the_bound_tight(name):
    """For OpenAI's own models the bound is near the truth, far below the bytes."""
    request = replace(REQUEST, messages=(Message(role="user", content=PROSE),))
    elsewhere = LitellmModel(name, api_base="http://127.0.0.1:9/v1", prices=PRICES)

    assert LitellmModel(name).token_bound(request) < 0.4 * elsewhere.token_bound(request)
    assert elsewhere.token_bound(request) > len(PROSE)


@pytest.mark.parametrize("variable", ["OPENAI_API_BASE", "OPENAI_BASE_URL"])
def test_a_name_of_openais_at_another_endpoint_is_bounded_by_bytes(variable):
    """Where the environment sends OpenAI's names elsewhere, nobody knows the tokenizer."""
    code = (
        f"import os; os.environ[{variable!r}] = 'http://127.0.0.1:9/v1'\n{PROLOGUE}\n"
        "print(LitellmModel('openai/gpt-4o-mini').token_bound(REQUEST))"
    )
    unknown = LitellmModel("openai/echo", api_base="http://127.0.0.1:9/v1", prices=PRICES)

    assert int(run_python(code).stdout) == unknown.token_bound(REQUEST)


@pytest.mark.parametrize("text", [PROSE, ODD, ""], ids=["prose", "odd", "empty"])
def test_a_tight_bound_is_still_a_bound(text):
    """It covers what litellm counts for the whole conversation, special tokens as plain text."""
    import litellm

    request = replace(REQUEST, messages=(Message(role="user", content=text),) * 3)
    said = text.encode("utf-8", "replace").decode()
    messages = [{"role": "user", "content": said}] * 3
    counted = litellm.token_counter(model="gpt-4o-mini", messages=messages)

    bound = LitellmModel("openai/gpt-4o-mini").token_bound(request)
    assert counted + request.max_tokens <= bound


def test_a_reply_without_usage_is_booked_at_its_bound():
    """An endpoint that does not count is not free of charge."""
    with LoopbackServer([ok(prompt_tokens=0, completion_tokens=0)]) as server:
        reply = complete(make(server))

    assert reply.cost_usd == make(server).cost_bound(REQUEST)
    assert reply.prompt_tokens + reply.completion_tokens == make(server).token_bound(REQUEST)


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
