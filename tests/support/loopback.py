"""A small real HTTP server on loopback that speaks the OpenAI chat protocol, for tests.

    from support.loopback import Answer, LoopbackServer, ok, rate_limited, status

    with LoopbackServer() as server:                      # every request: echoes the last message
        server.url                                        # "http://127.0.0.1:PORT/v1"

    with LoopbackServer([rate_limited(retry_after=0.2), ok("done")]) as server:
        ...                                               # scripted: one answer per request, then
                                                          # the last one for ever
    with LoopbackServer(lambda body: ok(body["model"])) as server:
        ...                                               # computed from the JSON of the request

    server.requests                                       # the JSON bodies received, in order
    server.paths, server.arrivals                         # their paths; monotonic seconds

Reach it through litellm as model ``openai/ANYTHING`` with ``api_base=server.url`` and any key.
Every answer closes its connection, so that no client keeps a socket open past its event loop.
A script may be replaced while the server runs: ``server.script([...])``.

Answers:
    ok(text, …)              a completion, with ``finish_reason`` and token counts
    use((tool, arguments), …)  a completion that asks for tools to be run; a text goes out as it is
    rate_limited(seconds)    429, with a Retry-After header unless seconds is None
    status(code, message, kind=…)   an error object in OpenAI's form
    context_overflow()       400 as OpenAI words it
    empty_choices()          200 with ``"choices": []``
    malformed()              200 whose body is no JSON
    cut()                    200 whose Content-Length promises more than comes, then a closed socket
    slow(seconds, then)      waits before it answers; ends early when the server stops
    drop()                   closes the connection without a word
    drip(answer, seconds)    sends an answer byte by byte, with a pause after each
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server does with one request."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    """Seconds before anything is sent."""
    promised: int | None = None
    """Content-Length to claim instead of the body's own."""
    silent: bool = False
    """Close the connection without sending anything."""
    pause: float = 0.0
    """Seconds after each byte of the body; 0 sends it whole."""


Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def ok(
    text: str = "ok",
    *,
    finish_reason: str = "stop",
    prompt_tokens: int = 7,
    completion_tokens: int = 3,
    calls: Sequence[tuple[str, Any]] = (),
) -> Answer:
    """Return a completion with one choice, which may ask for tools."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [_tool_call(i, *call) for i, call in enumerate(calls)]
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return _completion([choice], usage)


def _tool_call(number: int, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text}
    return {"id": f"call-{number}", "type": "function", "function": function}


def use(*calls: tuple[str, Any], text: str = "") -> Answer:
    """Return a completion that asks for tools, by name; arguments are an object or raw text."""
    return ok(text, finish_reason="tool_calls", calls=calls)


def empty_choices() -> Answer:
    """Return a completion without any choice."""
    return _completion([], {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7})


def _completion(choices: list[dict[str, Any]], usage: dict[str, int]) -> Answer:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "loopback",
        "choices": choices,
        "usage": usage,
    }
    return Answer(body=_json(body))


def status(
    code: int, message: str = "told to fail", *, kind: str = "error", error_code: str = ""
) -> Answer:
    """Return an error in OpenAI's form."""
    error = {"message": message, "type": kind, "param": None, "code": error_code or None}
    return Answer(code=code, body=_json({"error": error}))


def rate_limited(retry_after: float | None = None) -> Answer:
    """Return a 429, with Retry-After in seconds where given."""
    answer = status(429, "Rate limit reached", kind="requests", error_code="rate_limit_exceeded")
    headers = () if retry_after is None else (("Retry-After", f"{retry_after:g}"),)
    return replace(answer, headers=headers)


def context_overflow() -> Answer:
    """Return the 400 that OpenAI sends when a prompt is too long."""
    return status(
        400,
        "This model's maximum context length is 4096 tokens. However, your messages resulted in "
        "9031 tokens. Please reduce the length of the messages.",
        kind="invalid_request_error",
        error_code="context_length_exceeded",
    )


def malformed() -> Answer:
    """Return a 200 whose body is cut JSON."""
    return Answer(body=b'{"id": "chatcmpl-1", "choices": [{"mess')


def cut() -> Answer:
    """Return a 200 that promises more bytes than it sends."""
    whole = ok("never complete").body
    return Answer(body=whole[: len(whole) // 2], promised=len(whole))


def slow(seconds: float, then: Answer | None = None) -> Answer:
    """Return an answer that comes late."""
    return replace(then or ok("late"), delay=seconds)


def drop() -> Answer:
    """Close the connection without an answer."""
    return Answer(silent=True)


def drip(answer: Answer, seconds: float) -> Answer:
    """Send an answer byte by byte."""
    return replace(answer, pause=seconds)


def _parts(answer: Answer) -> list[bytes]:
    """Return what of an answer's body is sent at once."""
    return [bytes([byte]) for byte in answer.body] if answer.pause else [answer.body]


def echo(body: dict[str, Any]) -> Answer:
    """Return the last message of the request, its words counted as tokens."""
    text = str(body["messages"][-1]["content"])
    return ok(text, prompt_tokens=len(text.split()) or 1, completion_tokens=1)


@dataclass(slots=True)
class _Log:
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    """Connections that may wait to be accepted; beyond it the system resets some."""


class LoopbackServer:
    """The server; a context manager that stops it and its threads."""

    def __init__(self, script: Script = echo) -> None:
        self._log = _Log()
        self._stopping = threading.Event()
        self.script(script)
        self._http = _Http(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def script(self, script: Script) -> None:
        """Replace what the next requests get; a sequence starts from its beginning."""
        if not callable(script) and not script:
            raise ValueError("script is empty; expected at least one Answer")
        self._script = script
        self._position = 0

    @property
    def url(self) -> str:
        """The api_base to give to a client."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """JSON bodies received so far, in order of arrival."""
        with self._log.lock:
            return list(self._log.requests)

    @property
    def paths(self) -> list[str]:
        """Paths requested so far."""
        with self._log.lock:
            return list(self._log.paths)

    @property
    def arrivals(self) -> list[float]:
        """Monotonic seconds at which the requests arrived."""
        with self._log.lock:
            return list(self._log.arrivals)

    def close(self) -> None:
        """Stop serving; answers still being delayed are given up."""
        self._stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def __enter__(self) -> LoopbackServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _next(self, path: str, body: dict[str, Any]) -> Answer:
        with self._log.lock:
            self._log.requests.append(body)
            self._log.paths.append(path)
            self._log.arrivals.append(time.monotonic())
            if callable(self._script):
                return self._script(body)
            answer = self._script[min(self._position, len(self._script) - 1)]
            self._position += 1
            return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                """Keep quiet."""

            def do_POST(self) -> None:
                """Answer one chat completion as the script says."""
                length = int(self.headers.get("Content-Length", 0))
                sent = self.rfile.read(length)
                if len(sent) < length:
                    self.close_connection = True  # the client died while it was asking
                    return
                answer = server._next(self.path, json.loads(sent or b"{}"))
                if answer.delay and server._stopping.wait(answer.delay):
                    self.close_connection = True
                    return
                try:
                    self._send(answer)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client gave up waiting

            def _send(self, answer: Answer) -> None:
                if answer.silent:
                    self.close_connection = True
                    return
                self.send_response(answer.code)
                self.send_header("Content-Type", answer.content_type)
                promised = len(answer.body) if answer.promised is None else answer.promised
                self.send_header("Content-Length", str(promised))
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                for part in _parts(answer):
                    self.wfile.write(part)
                    server._stopping.wait(answer.pause)

        return Handler
