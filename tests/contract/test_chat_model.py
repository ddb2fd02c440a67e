"""What every chat model must do: the embedded one and one behind HTTP run the same suite."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.loopback import Answer, LoopbackServer, context_overflow, ok, slow, status

from skillforge.adapters import local_model
from skillforge.adapters.models import LitellmModel
from skillforge.core.chat import CallFailed, ChatRequest, Message
from skillforge.core.rollout import FailureKind
from skillforge.errors import ConfigError
from skillforge.ports import ChatModel

CONTEXT = 1024
FREE = {"input_per_million": 0.0, "output_per_million": 0.0}
COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}


def provider(body: dict) -> Answer:
    """Behave as an OpenAI endpoint does, with an echo for a model."""
    words = body["messages"][-1]["content"].split()
    if body["model"] != "echo":
        return status(404, f"The model `{body['model']}` does not exist")
    if len(words) > CONTEXT:
        return context_overflow()
    if "response_format" in body:
        words = ['{"colour":"red"}']
    kept = words[: body["max_tokens"]]
    text, reason = " ".join(kept), "stop" if kept == words else "length"
    for end in body.get("stop", ()):
        text = text.split(end)[0]
    answer = ok(text, finish_reason=reason, prompt_tokens=len(words), completion_tokens=len(kept))
    return slow(2.0, answer) if "slowly" in words else answer


@pytest.fixture(scope="module")
def endpoint() -> Iterator[LoopbackServer]:
    """One HTTP endpoint for all tests of this file."""
    with LoopbackServer(provider) as server:
        yield server


@pytest.fixture(params=["embedded", "http"])
def model(request: pytest.FixtureRequest, endpoint: LoopbackServer) -> ChatModel:
    """Each implementation in turn."""
    return make(request.param, endpoint)


def make(kind: str, endpoint: LoopbackServer, name: str = "") -> ChatModel:
    """Return a model of one kind, of another name if one is given."""
    if kind == "embedded":
        local_model.register(local_model.LocalSettings(context=CONTEXT))
        return LitellmModel(f"local/{name or 'smollm2'}")
    return LitellmModel(
        f"openai/{name or 'echo'}",
        api_base=endpoint.url,
        prices=FREE,
    )


def ask(text: str = "Name three colours of the rainbow, please.", **settings) -> ChatRequest:
    """Return a short greedy request."""
    defaults = {"max_tokens": 8, "temperature": 0.0, "seed": 1}
    return ChatRequest(messages=(Message(role="user", content=text),), **{**defaults, **settings})


def test_a_completion_brings_text_reason_usage_and_cost(model):
    """An answer has a text, a reason to end, the tokens used, its cost and its time."""
    reply = asyncio.run(model.complete(ask()))

    assert reply.text
    assert reply.finish_reason in {"stop", "length"}
    assert reply.prompt_tokens >= 1
    assert 1 <= reply.completion_tokens <= 8
    assert reply.cost_usd == 0.0
    assert reply.seconds > 0


def test_an_answer_cut_by_max_tokens_says_so(model):
    """An answer of ``max_tokens`` tokens that was not finished ends for reason ``length``."""
    reply = asyncio.run(model.complete(ask(max_tokens=2)))

    assert reply.finish_reason == "length"
    assert reply.completion_tokens == 2


def test_a_stop_string_ends_the_answer(model):
    """Nothing of the answer stands at or after a stop string."""
    whole = asyncio.run(model.complete(ask()))
    end = whole.text[len(whole.text) // 2]

    reply = asyncio.run(model.complete(ask(stop=(end,))))

    assert end not in reply.text


def test_a_json_schema_is_followed(model):
    """With a schema the answer is JSON that fits it."""
    reply = asyncio.run(model.complete(ask("Choose a colour.", json_schema=COLOUR, max_tokens=40)))

    assert json.loads(reply.text)["colour"] in {"red", "blue"}


def test_a_prompt_beyond_the_context_is_the_agents_failure(model):
    """A prompt that cannot fit is a recorded failure of kind ``agent``, and is not retried."""
    with pytest.raises(CallFailed) as caught:
        asyncio.run(model.complete(ask("word " * (CONTEXT + 100))))

    assert caught.value.failure.kind is FailureKind.AGENT
    assert "context" in caught.value.failure.message


def test_an_answer_that_comes_too_late_is_the_agents_failure(model):
    """An attempt that passes its timeout ends near it, as a failure of kind ``agent``."""
    started = time.monotonic()

    with pytest.raises(CallFailed) as caught:
        asyncio.run(model.complete(ask("Tell slowly a story.", max_tokens=900, timeout=0.3)))

    assert caught.value.failure.kind is FailureKind.AGENT
    assert time.monotonic() - started < 60


def test_an_unknown_model_is_a_config_error(model, endpoint):
    """A model that does not exist stops the run with a message that names it."""
    kind = "embedded" if model.name.startswith("local/") else "http"

    with pytest.raises(ConfigError, match="no-such-model"):
        asyncio.run(make(kind, endpoint, "no-such-model").complete(ask()))


def test_the_bounds_hold(model):
    """No attempt uses more tokens or money than was announced before it."""
    request = ask("Grüße aus München 🙂 " * 4, json_schema=COLOUR, max_tokens=30)

    reply = asyncio.run(model.complete(request))

    assert reply.prompt_tokens + reply.completion_tokens <= model.token_bound(request)
    assert reply.cost_usd <= model.cost_bound(request)


def test_calls_run_at_the_same_time_and_do_not_block_the_loop(model):
    """While several calls are in flight, the event loop goes on ticking."""

    async def run() -> tuple[list[str], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.002)
                ticks += 1

        ticking = asyncio.create_task(tick())
        calls = [model.complete(ask(f"Count to {n}.", affinity=str(n % 2))) for n in range(6)]
        replies = await asyncio.gather(*calls)
        ticking.cancel()
        return [reply.text for reply in replies], ticks

    texts, ticks = asyncio.run(run())

    assert all(texts)
    assert ticks >= 3


def test_a_cancelled_call_leaves_the_model_usable(model):
    """Giving up one call does not disturb the next."""

    async def run() -> str:
        call = asyncio.create_task(model.complete(ask("Tell slowly a story.", max_tokens=900)))
        await asyncio.sleep(0.2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return (await model.complete(ask())).text

    assert asyncio.run(run())


def test_one_model_serves_several_event_loops(model):
    """A model made once answers in each of several event loops."""
    assert all(asyncio.run(model.complete(ask())).text for _ in range(2))


def test_a_fingerprint_tells_models_apart(model, endpoint):
    """The same model has the same fingerprint, another one has another."""
    kind = "embedded" if model.name.startswith("local/") else "http"

    assert make(kind, endpoint).fingerprint == model.fingerprint
    assert make(kind, endpoint, "other.gguf").fingerprint != model.fingerprint


def test_the_embedded_model_repeats_itself_in_deterministic_mode():
    """Equal requests get equal answers, whatever was asked before and at the same time."""
    settings = local_model.LocalSettings(context=CONTEXT, deterministic=True)
    local_model.register(settings)
    model = LitellmModel("local/smollm2", identity=local_model.identity("smollm2", settings))
    request = ask("Write one line about rain.", temperature=0.9, seed=7, max_tokens=12)
    others = [ask(f"Say {n}.") for n in range(3)]

    async def run() -> list[str]:
        replies = await asyncio.gather(*map(model.complete, [request, *others, request]))
        return [replies[0].text, replies[-1].text, (await model.complete(request)).text]

    assert len(set(asyncio.run(run()))) == 1


def test_another_seed_and_temperature_change_a_sampled_answer():
    """Seeds matter when sampling; a temperature left open is not greedy decoding."""
    settings = local_model.LocalSettings(context=CONTEXT, deterministic=True)
    local_model.register(settings)
    model = LitellmModel("local/smollm2")
    greedy = ask("Write one line about rain.", max_tokens=12)
    open_ended = replace(greedy, temperature=None)

    async def run() -> list[str]:
        requests = [greedy, open_ended, replace(open_ended, seed=2)]
        return [(await model.complete(request)).text for request in requests]

    assert len(set(asyncio.run(run()))) == 3
