"""Chat models behind litellm: any provider, or the embedded one.

One call is one attempt at one endpoint: there is no cache, no retry and no fallback in here. A
cache or another model would make a rollout something else than it says it is, and a retry must
pass the budget like any call, so it belongs outside of what the budget wraps
(`skillforge.workflows.patience`). litellm's Router, which offers all three, does them inside one
call: it asks no budget between two attempts, sums up no cost of those that failed, refuses where a
limit per minute is reached instead of waiting, and would answer the two arms of a pair by two
models. The same holds for the provider's own client, whose retries are turned off.

What an error means, for whom, and whether it may have cost something, is decided in
`skillforge.core.retry`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cache, lru_cache
from typing import Any

from skillforge.adapters.model_prices import listed_prices, stated_prices
from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, Cost, ToolCall
from skillforge.core.digest import json_digest
from skillforge.core.retry import Judgement, judge
from skillforge.core.rollout import Failure, FailureKind
from skillforge.errors import ConfigError, SkillforgeError

LOCAL = "local/"
ENCODINGS = {"cl100k_base", "o200k_base"}
"""Tokenizers that litellm brings along; any other would have to be downloaded."""
OPENAI_ELSEWHERE = {"OPENAI_API_BASE", "OPENAI_BASE_URL"}
"""Variables that send calls to OpenAI's models to another endpoint, and so to other models."""
TOKENS_PER_MESSAGE = 16
"""Bound of what a chat template adds around one message."""
TOKENS_PER_REQUEST = 64
"""Bound of what a chat template adds around a conversation, a default system prompt included."""
GRACE = 5.0
"""Seconds that a provider's own timeout gets before the call is abandoned from outside."""


@cache
def load_litellm() -> Any:
    """Import litellm with its price list from disk, and no banner, log line or telemetry."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_aiohttp_transport = True  # its sessions outlive the event loop
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # It prepares each call in a thread; what comes of that is lost where the call is dropped.
    lost = "coroutine '.*completion.*' was never awaited"
    warnings.filterwarnings("ignore", lost, RuntimeWarning)
    return litellm


class LitellmModel:
    """A chat model that litellm can reach, or ``local/…`` once that provider is registered.

    Args:
        name: litellm model name, such as ``openai/gpt-4o-mini`` or ``local/smollm2``.
        api_base: URL of an OpenAI-compatible endpoint, where it is not the provider's own.
        api_key: Key, where it does not stand in the provider's environment variable.
        prices: ``input_per_million`` and ``output_per_million`` in USD; they win over the list
            of prices that comes with litellm, but a local model costs nothing whatever they say.
        identity: Digest of the weights where the name alone does not tell them.
    """

    def __init__(
        self,
        name: str,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        prices: Mapping[str, float] | None = None,
        identity: str = "",
    ) -> None:
        self._name = name
        self._api_base = api_base
        self._api_key = api_key
        self._prices = None if prices is None else stated_prices(name, prices)
        self._identity = identity

    @property
    def name(self) -> str:
        """The litellm model name."""
        return self._name

    @property
    def fingerprint(self) -> str:
        """Digest of the name, the endpoint and the weights where they are known."""
        return json_digest([self._name, self._api_base, self._identity])

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return one completion, from one attempt.

        Raises:
            CallFailed: No answer came; the failure says whose fault it is.
            ConfigError: The key, the model, the provider or the price is missing or wrong.
        """
        self._price()
        litellm = load_litellm()
        arguments = self._arguments(litellm, request)
        try:
            return await self._attempt(litellm, arguments, request)
        except (litellm.exceptions.openai.OpenAIError, TimeoutError, _NoReplyError) as error:
            ours = [link for link in _causes(error) if isinstance(link, SkillforgeError)]
            if ours:
                raise ours[0] from error
            found = _judged(error)
            if found.pile == "config":
                raise ConfigError(f"model {self._name!r}: {found.message}") from error
            raise self._failed(request, found, _retry_after(error)) from error

    def _failed(self, request: ChatRequest, found: Judgement, wait: float | None) -> CallFailed:
        kind = FailureKind.AGENT if found.pile == "agent" else FailureKind.INFRA
        message = f"model {self._name!r}: {found.message}"
        return CallFailed(
            Failure(kind=kind, message=message, where="model", cause=found.cause),
            again=found.pile == "again",
            busy=found.busy,
            wait=wait,
            cost=self._bound(request) if found.billed else Cost(),
        )

    def _bound(self, request: ChatRequest) -> Cost:
        return Cost(usd=self.cost_bound(request), tokens=self.token_bound(request))

    def cost_bound(self, request: ChatRequest) -> float:
        """Return an upper bound of the USD that one attempt can cost.

        Raises:
            ConfigError: The price of the model is unknown.
        """
        prompt, completion = self._price()
        return self._prompt_bound(request) * prompt + request.max_tokens * completion

    def token_bound(self, request: ChatRequest) -> int:
        """Return an upper bound of prompt plus completion tokens of one attempt.

        Counted by the model's own tokenizer where it is known for certain: OpenAI's models at
        OpenAI. For any other, no tokenizer makes more tokens than there are bytes; English prose
        comes to about a quarter of that. Holds for endpoints that honour ``max_tokens``.
        """
        return self._prompt_bound(request) + request.max_tokens

    def _prompt_bound(self, request: ChatRequest) -> int:
        elsewhere = self._api_base or OPENAI_ELSEWHERE & os.environ.keys()
        unknown = elsewhere or self._name.startswith(LOCAL)
        count = _bytes if unknown else _tokenizer(self._name) or _bytes
        texts = [message.content for message in request.messages]
        texts += [repr(part) for m in request.messages for part in m.tool_calls]
        texts += map(repr, request.tools)
        size = sum(map(count, texts))
        if request.json_schema is not None:  # nobody says how providers show it to the model
            texts.append(repr(request.json_schema))
            size += _bytes(texts[-1])
        return size + TOKENS_PER_MESSAGE * len(texts) + TOKENS_PER_REQUEST

    def _price(self) -> tuple[float, float]:
        """Return USD per prompt token and per completion token."""
        if self._name.startswith(LOCAL):
            return 0.0, 0.0
        if self._prices is not None:
            return self._prices
        litellm = load_litellm()
        return listed_prices(litellm.model_cost, self._name, _provider(litellm, self._name))

    def _arguments(self, litellm: Any, request: ChatRequest) -> dict[str, Any]:
        """Return the keyword arguments of one litellm call; what is not set is not sent."""
        local = self._name.startswith(LOCAL)
        supported = None if local else litellm.get_supported_openai_params(self._name)
        arguments: dict[str, Any] = {
            "model": self._name,
            "messages": [message.to_json() for message in request.messages],
            "tools": list(request.tools) or None,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop) or None,
            "seed": request.seed,
            "response_format": _response_format(request.json_schema),
            "timeout": request.timeout,
            "max_retries": 0,
            "num_retries": 0,
            "affinity": request.affinity if local else None,
            **self._endpoint(litellm),
        }
        if request.tools and "tools" not in (supported or ()):
            raise ConfigError(
                f"model {self._name!r} calls no tools, which an agent needs; choose one that does "
                "(a local one behind its own server, such as ollama_chat/MODEL)."
            )
        for hint in ("seed", "response_format"):  # sent where they help, never a reason to fail
            if supported is not None and hint not in supported:
                del arguments[hint]
        return {key: value for key, value in arguments.items() if value is not None}

    def _endpoint(self, litellm: Any) -> dict[str, str | None]:
        """Return endpoint and key, or say which key is missing."""
        if self._name.startswith(LOCAL):
            return {}
        key = self._api_key
        missing = (
            _provider(litellm, self._name)
            and (litellm.validate_environment(self._name, api_key=key)["missing_keys"])
        )
        if missing and not key and self._api_base is None:
            raise ConfigError(
                f"model {self._name!r}: no API key; set {' and '.join(missing)} in the environment."
            )
        if missing and not key:
            key = "none"  # an endpoint of one's own needs no key, but the client wants one
        return {"api_base": self._api_base, "api_key": key}

    async def _attempt(
        self, litellm: Any, arguments: Mapping[str, Any], request: ChatRequest
    ) -> ChatReply:
        """Make one call, bounded in time whatever the provider's client makes of its timeout."""
        started = time.monotonic()
        local = self._name.startswith(LOCAL)  # keeps its own time, from when its slot is free
        limit = None if local else request.timeout + GRACE
        try:
            async with asyncio.timeout(limit):
                response = await litellm.acompletion(**arguments)
        except TimeoutError as error:
            late = f"no whole reply within {request.timeout + GRACE:g} s, only parts of one"
            raise TimeoutError(late) from error
        reply = _reply(response, self._price(), time.monotonic() - started)
        if reply.prompt_tokens == 0:  # no prompt has none: the endpoint does not count
            return replace(
                reply,
                prompt_tokens=self._prompt_bound(request),
                completion_tokens=request.max_tokens,
                cost_usd=self.cost_bound(request),
                cost_told=False,
            )
        return reply


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=8)
def _tokenizer(name: str) -> Callable[[str], int] | None:
    """Return what counts the tokens of a text for a model, or None if that is not certain."""
    litellm = load_litellm()
    if _provider(litellm, name) != "openai":
        return None
    import tiktoken
    from litellm.litellm_core_utils import default_encoding  # noqa: F401 - says where they lie

    try:
        encoding_name = tiktoken.encoding_name_for_model(name.removeprefix("openai/"))
        if encoding_name not in ENCODINGS:
            return None
        encoding = tiktoken.get_encoding(encoding_name)
    except (KeyError, OSError):  # no model of OpenAI's, or a litellm that brings less along
        return None
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def _provider(litellm: Any, name: str) -> str:
    """Return the provider that litellm reads from a model name.

    Raises:
        ConfigError: litellm knows no such provider.
    """
    try:
        return str(litellm.get_llm_provider(name)[1])
    except litellm.BadRequestError as error:
        raise ConfigError(
            f"model {name!r}: litellm knows no such provider; expected PROVIDER/MODEL, such as "
            "openai/gpt-4o-mini, anthropic/claude-sonnet-4-5, ollama/llama3 or local/smollm2."
        ) from error


def _response_format(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    body = {"name": "answer", "schema": dict(schema), "strict": True}
    return {"type": "json_schema", "json_schema": body}


class _NoReplyError(Exception):
    """The provider answered with something that is no completion."""

    status_code = 502


def _reply(response: Any, prices: tuple[float, float], seconds: float) -> ChatReply:
    """Return litellm's response as ours."""
    choices = getattr(response, "choices", None)
    if not choices:
        raise _NoReplyError("the reply has no choices")
    message = choices[0].message
    if message is None:
        raise _NoReplyError("the first choice of the reply has no message")
    usage = getattr(response, "usage", None)
    prompt = int(getattr(usage, "prompt_tokens", 0) or 0)
    completion = int(getattr(usage, "completion_tokens", 0) or 0)
    return ChatReply(
        text=message.content or "",
        finish_reason=str(choices[0].finish_reason or "unknown"),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost_usd=prompt * prices[0] + completion * prices[1],
        seconds=seconds,
        tool_calls=tuple(
            ToolCall(
                id=call.id or "",
                name=call.function.name or "",
                arguments=call.function.arguments or "",
            )
            for call in message.tool_calls or ()
        ),
    )


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and what it came from, outermost first."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return chain


def _retry_after(error: BaseException) -> float | None:
    """Return the seconds that the server asked to wait, or None if it did not say."""
    for link in _causes(error):
        headers = getattr(getattr(link, "response", None), "headers", None)
        if headers and "retry-after" in headers:
            return _seconds(headers["retry-after"])
    return None


def _seconds(value: str) -> float | None:
    """Read a Retry-After header: seconds, or a date."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _judged(error: BaseException) -> Judgement:
    """Sort one failed attempt into its pile."""
    return judge(
        kind=type(error).__name__,
        causes=[type(link).__name__ for link in _causes(error)[1:]],
        status=int(getattr(error, "status_code", 0) or 0),
        said=str(error) or type(error).__name__,
    )
