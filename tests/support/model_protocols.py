"""What the model APIs that agent harnesses speak answer, streamed, for `support.loopback`.

    with LoopbackServer(lambda body: reply(body, text="done")) as server: ...
    with LoopbackServer(lambda body: reply(body, call=("Skill", {"skill": "x"}))) as server: ...

Which API it is shows in the request: Anthropic Messages, OpenAI Responses, OpenAI chat completions
or Gemini ``generateContent``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from support.loopback import Answer

Call = tuple[str, dict[str, Any]]
"""A tool and its arguments."""
_ID = "call_1"


def reply(body: dict[str, Any], text: str = "", call: Call | None = None) -> Answer:
    """Return what the API of a request answers: a text, or one call of a tool."""
    if "contents" in body:
        return _stream(_gemini(text, call))
    if "input" in body:
        return _stream(_responses(body["model"], text, call))
    if body["model"].startswith("claude"):
        return _stream(_messages(body["model"], text, call))
    return _stream(_chat(body["model"], text, call))


def _stream(events: Iterable[dict[str, Any]]) -> Answer:
    """Return server-sent events, each under its type where it has one."""
    lines = []
    for event in events:
        if "type" in event:
            lines.append(f"event: {event['type']}\n")
        lines.append(f"data: {json.dumps(event)}\n\n")
    return Answer(body="".join(lines).encode(), content_type="text/event-stream")


def _messages(model: str, text: str, call: Call | None) -> Iterable[dict[str, Any]]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    usage = {"input_tokens": 7, "output_tokens": 3}
    empty = {"stop_reason": None, "stop_sequence": None, "usage": usage}
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": text}
    if call:
        block = {"type": "tool_use", "id": _ID, "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    why = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    yield {"type": "message_start", "message": message | empty}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": why, "usage": usage}
    yield {"type": "message_stop"}


def _responses(model: str, text: str, call: Call | None) -> Iterable[dict[str, Any]]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": content}
    if call:
        item = {"type": "function_call", "call_id": _ID, "name": call[0]}
        item["arguments"] = json.dumps(call[1])
    item |= {"id": "item_1", "status": "completed"}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": model}
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    done = {"status": "completed", "output": [item], "usage": usage}
    yield {"type": "response.created", "response": response | {"status": "in_progress"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": response | done}


def _chat(model: str, text: str, call: Call | None) -> Iterable[dict[str, Any]]:
    chunk = {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": model}
    delta: dict[str, Any] = {"role": "assistant", "content": text}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        asked = {"index": 0, "id": _ID, "type": "function", "function": function}
        delta = {"role": "assistant", "tool_calls": [asked]}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    why = "tool_calls" if call else "stop"
    yield chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": why}], "usage": usage}


def _gemini(text: str, call: Call | None) -> Iterable[dict[str, Any]]:
    part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": text}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
    yield {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
    }
