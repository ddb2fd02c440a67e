"""Chat models behind litellm: any provider, or the embedded one.

One call is one attempt after another until an answer comes: an attempt may fail for reasons that
pass (429, 5xx, a broken connection, a reply that is no reply), and is then made again after a
pause. Every attempt asks ``preflight`` first, because every attempt may cost money. There is no
cache and no fallback model: either would make a rollout something else than it says it is.

What an error means, and for whom, is decided in `skillforge.core.retry`.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from skillforge.core.chat import CallFailed, ChatReply, ChatRequest, ToolCall
from skillforge.core.digest import json_digest
from skillforge.core.retry import RetryPolicy, Verdict, judge
from skillforge.core.rollout import Failure, FailureKind
from skillforge.errors import ConfigError, SkillforgeError

Preflight = Callable[[ChatRequest], Awaitable[None] | None]
"""Called before each attempt; raises `BudgetSpent` where it must not be made."""

LOCAL = "local/"
TOKENS_PER_MESSAGE = 16
"""Bound of what a chat template adds around one message."""
TOKENS_PER_REQUEST = 64
"""Bound of what a chat template adds around a conversation, a default system prompt included."""
GRACE = 5.0
"""Seconds that a provider's own timeout gets before the call is abandoned from outside."""


def load_litellm() -> Any:
    """Import litellm with its price list from disk, and no banner, log line or telemetry."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_aiohttp_transport = True  # its sessions outlive the event loop
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return litellm


class LitellmModel:
    """A chat model that litellm can reach, or ``local/…`` once that provider is registered.

    Args:
        name: litellm model name, such as ``openai/gpt-4o-mini`` or ``local/smollm2``.
        api_base: URL of an OpenAI-compatible endpoint, where it is not the provider's own.
        api_key: Key, where it does not stand in the provider's environment variable.
        prices: ``input_per_million`` and ``output_per_million`` in USD; they win over the list
            of prices that comes with litellm.
        retry: How often and how patiently a call is made again.
        preflight: Asked before each attempt, retries included; may raise `BudgetSpent`.
        identity: Digest of the weights where the name alone does not tell them.
    """

    def __init__(
        self,
        name: str,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        prices: Mapping[str, float] | None = None,
        retry: RetryPolicy | None = None,
        preflight: Preflight | None = None,
        identity: str = "",
    ) -> None:
        self._name = name
        self._api_base = api_base
        self._api_key = api_key
        self._prices = None if prices is None else _stated_prices(name, prices)
        self._retry = retry or RetryPolicy()
        self._preflight = preflight
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
        """Return one completion.

        Raises:
            CallFailed: No answer came; the failure says whose fault it is.
            ConfigError: The key, the model, the provider or the price is missing or wrong.
            BudgetSpent: ``preflight`` forbade an attempt.
        """
        prices = self._price()
        litellm = load_litellm()
        arguments = self._arguments(litellm, request)
        for attempt in itertools.count():
            await self._ask(request)
            try:
                return await self._attempt(litellm, arguments, request.timeout, prices)
            except (litellm.exceptions.openai.OpenAIError, TimeoutError, _NoReplyError) as error:
                ours = [link for link in _causes(error) if isinstance(link, SkillforgeError)]
                if ours:
                    raise ours[0] from error
                verdict, jitter = _verdict(error), random.random()  # noqa: S311 - no secret
                wait = self._retry.pause(attempt, _retry_after(error), jitter)
                if verdict.pile == "config":
                    raise ConfigError(f"model {self._name!r}: {verdict.message}") from error
                if verdict.pile != "again" or wait is None:
                    raise self._failed(verdict, attempts=attempt + 1) from error
            await asyncio.sleep(wait)
        raise AssertionError("unreachable: the loop above ends by returning or raising")

    def _failed(self, verdict: Verdict, *, attempts: int) -> CallFailed:
        kind = FailureKind.AGENT if verdict.pile == "agent" else FailureKind.INFRA
        tried = f" (after {attempts} attempts)" if attempts > 1 else ""
        message = f"model {self._name!r}: {verdict.message}{tried}"
        return CallFailed(Failure(kind=kind, message=message, where="model"))

    async def _ask(self, request: ChatRequest) -> None:
        """Let ``preflight`` forbid the next attempt."""
        if self._preflight is not None:
            waiting = self._preflight(request)
            if inspect.isawaitable(waiting):
                await waiting

    def cost_bound(self, request: ChatRequest) -> float:
        """Return an upper bound of the USD that one attempt can cost.

        Raises:
            ConfigError: The price of the model is unknown.
        """
        prompt, completion = self._price()
        return self._prompt_bound(request) * prompt + request.max_tokens * completion

    def token_bound(self, request: ChatRequest) -> int:
        """Return an upper bound of prompt plus completion tokens of one attempt.

        No tokenizer makes more tokens than there are bytes, so the bound holds for any model;
        English prose comes to about a quarter of it.
        """
        return self._prompt_bound(request) + request.max_tokens

    def _prompt_bound(self, request: ChatRequest) -> int:
        texts = [message.content for message in request.messages]
        texts += [repr(part) for m in request.messages for part in m.tool_calls]
        texts += map(repr, request.tools)
        if request.json_schema is not None:
            texts.append(repr(request.json_schema))
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        return size + TOKENS_PER_MESSAGE * len(texts) + TOKENS_PER_REQUEST

    def _price(self) -> tuple[float, float]:
        """Return USD per prompt token and per completion token."""
        if self._prices is not None:
            return self._prices
        if self._name.startswith(LOCAL):
            return 0.0, 0.0
        return _listed_prices(self._name)

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
        self,
        litellm: Any,
        arguments: Mapping[str, Any],
        timeout: float,
        prices: tuple[float, float],
    ) -> ChatReply:
        """Make one call, bounded in time whatever the provider's client makes of its timeout."""
        started = time.monotonic()
        local = self._name.startswith(LOCAL)  # keeps its own time, from when its slot is free
        async with asyncio.timeout(None if local else timeout + GRACE):
            response = await litellm.acompletion(**arguments)
        return _reply(response, prices, time.monotonic() - started)


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


def _stated_prices(name: str, prices: Mapping[str, float]) -> tuple[float, float]:
    """Return USD per token from prices per million tokens."""
    values = []
    for key in ("input_per_million", "output_per_million"):
        value = prices.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise ConfigError(
                f"[prices] of model {name!r}: {key} is {value!r}; expected USD per million "
                "tokens, a number of at least 0 (0 for an endpoint that costs nothing)."
            )
        values.append(float(value) / 1e6)
    return values[0], values[1]


def _listed_prices(name: str) -> tuple[float, float]:
    """Return the highest USD per token that litellm's own list has for a model.

    A model may cost more above some length; the highest rate keeps the bound a bound.
    """
    litellm = load_litellm()
    provider = _provider(litellm, name)
    bare = name.removeprefix(f"{provider}/")
    for key in (name, bare):
        entry = litellm.model_cost.get(key)
        if entry and entry.get("litellm_provider") == provider:
            rates = [_highest(entry, f"{side}_cost_per_token") for side in ("input", "output")]
            if None not in rates:
                return rates[0] or 0.0, rates[1] or 0.0
    raise ConfigError(
        f"model {name!r}: its price is unknown, so no budget could hold. State it in "
        f'skillforge.toml: [prices."{name}"] input_per_million = USD, output_per_million = USD '
        "(0 for an endpoint that costs nothing)."
    )


def _highest(entry: Mapping[str, Any], key: str) -> float | None:
    """Return the highest standard rate under a key and its ``_above_…`` variants."""
    rates = [
        value
        for name, value in entry.items()
        if (name == key or (name.startswith(f"{key}_above_") and name.endswith("_tokens")))
        and isinstance(value, int | float)
    ]
    return max(rates) if key in entry and rates else None


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


def _verdict(error: BaseException) -> Verdict:
    """Sort one failed attempt into its pile."""
    return judge(
        kind=type(error).__name__,
        causes=[type(link).__name__ for link in _causes(error)[1:]],
        status=int(getattr(error, "status_code", 0) or 0),
        said=str(error) or type(error).__name__,
    )
