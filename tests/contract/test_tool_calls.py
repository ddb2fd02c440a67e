"""Tools on their way to a model and back, as an OpenAI endpoint sees them."""

import asyncio
from dataclasses import replace

import pytest
from support.loopback import LoopbackServer, use

from skillforge.adapters.models import LitellmModel
from skillforge.core.chat import ChatRequest, Message, ToolCall
from skillforge.errors import ConfigError

FIND = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Find it.",
        "parameters": {"type": "object", "properties": {"it": {"type": "string"}}},
    },
}
CALL = ToolCall(id="c1", name="find", arguments='{"it": "key"}')
REQUEST = ChatRequest(
    messages=(
        Message(role="user", content="Where?"),
        Message(role="assistant", content="", tool_calls=(CALL,)),
        Message(role="tool", content="Here.", tool_call_id="c1"),
    ),
    tools=(FIND,),
    max_tokens=5,
)


def test_tools_calls_and_results_go_out_in_the_openai_form():
    """A request carries its tools, the calls made so far, and what came of them."""
    with LoopbackServer([use(("find", {"it": "hat"}), ("find", '{"it'))]) as server:
        prices = {"input_per_million": 0.0, "output_per_million": 0.0}
        model = LitellmModel("openai/any", api_base=server.url, prices=prices)
        reply = asyncio.run(model.complete(REQUEST))
        [sent] = server.requests

    assert sent["tools"] == [FIND]
    function = {"name": "find", "arguments": '{"it": "key"}'}
    assert sent["messages"] == [
        {"role": "user", "content": "Where?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "Here.", "tool_call_id": "c1"},
    ]
    assert reply.finish_reason == "tool_calls"
    assert reply.tool_calls == (
        ToolCall(id="call-0", name="find", arguments='{"it": "hat"}'),
        ToolCall(id="call-1", name="find", arguments='{"it'),  # as the model wrote it
    )


def test_tools_and_calls_are_part_of_the_bound():
    """What a request costs at most counts its tools and the calls in it."""
    model = LitellmModel("openai/any", api_base="http://127.0.0.1:9")
    bare = replace(REQUEST, tools=())
    silent = replace(bare, messages=(bare.messages[0], bare.messages[2]))

    assert model.token_bound(REQUEST) - model.token_bound(bare) > len(str(FIND)) - 1
    assert model.token_bound(bare) - model.token_bound(silent) > len(CALL.arguments)


def test_a_model_without_tools_is_a_config_error():
    """Tools are never dropped without a word: the embedded model has none."""
    with pytest.raises(ConfigError, match="calls no tools"):
        asyncio.run(LitellmModel("local/smollm2").complete(REQUEST))
