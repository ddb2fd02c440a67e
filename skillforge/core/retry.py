"""What a failed model call means, and how long to wait before the next attempt.

A failed attempt falls into one of four piles:

    again    worth another attempt; an infrastructure failure once the attempts are used up
    infra    nothing was learnt about the task, and another attempt would not help
    agent    this request cannot be served: context overflow, content filter, timeout of the task
    config   wrong key, unknown model or setting: the whole run is misconfigured
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Pile = Literal["again", "infra", "agent", "config"]

UNSERVABLE = {"ContextWindowExceededError", "ContentPolicyViolationError"}
TIMEOUTS = {"Timeout", "TimeoutError", "APITimeoutError"}
SERVER_TIMEOUTS = {"HTTPStatusError", "ConnectTimeout", "PoolTimeout"}
"""Causes that make a timeout the server's (408, 504, no connection) and not the task's."""
ADVICE = {
    401: "check the API key",
    402: "the account has no credit",
    403: "the key may not use this model",
    404: "check the model name and api_base",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently a call is made again."""

    retries: int = 4
    """Attempts after the first, ≥ 0."""
    backoff: float = 1.0
    """Seconds before the first retry; doubled each time, with jitter between half and full."""
    max_wait: float = 60.0
    """Seconds; a pause is never longer, and a longer ``Retry-After`` ends the call."""

    def pause(self, attempt: int, asked: float | None, jitter: float) -> float | None:
        """Return the seconds to wait after an attempt, or None to give up.

        Args:
            attempt: 0-based number of the attempt that failed.
            asked: Seconds that the server asked for, or None; never undercut.
            jitter: Random number in [0, 1] that spreads the retries of parallel calls.

        >>> RetryPolicy().pause(1, None, 1.0), RetryPolicy().pause(0, 5.0, 0.0)
        (2.0, 5.0)
        """
        if attempt >= self.retries or (asked is not None and asked > self.max_wait):
            return None
        wait = min(self.max_wait, self.backoff * float(2**attempt))
        return max(wait * (0.5 + jitter / 2), asked or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a failed attempt means."""

    pile: Pile
    message: str


def judge(*, kind: str, causes: Collection[str], status: int, said: str) -> Verdict:
    """Sort one failed attempt into its pile.

    Args:
        kind: Class name of the error, in litellm's words.
        causes: Class names of what it came from.
        status: HTTP status, or 0 where there was none.
        said: Message of the error.

    >>> judge(kind="RateLimitError", causes=(), status=429, said="slow down").pile
    'again'
    """
    said = plain(said)
    if kind in UNSERVABLE:
        return Verdict(pile="agent", message=said)
    if kind in TIMEOUTS:
        return Verdict(pile="again" if SERVER_TIMEOUTS & set(causes) else "agent", message=said)
    if kind == "UnsupportedParamsError":
        return Verdict(pile="config", message=f"{said}; remove that setting.")
    if "LLM Provider NOT provided" in said:
        return Verdict(pile="config", message="no such provider is registered with litellm.")
    if status in ADVICE:
        return Verdict(pile="config", message=f"{said}; {ADVICE[status]}.")
    if status == 429 and "quota" in said.lower():
        return Verdict(pile="infra", message=said)
    return Verdict(pile="again" if status == 429 or status >= 500 else "infra", message=said)


def plain(said: str) -> str:
    """Return a message on one line, without API keys and the names of wrapping exceptions.

    >>> plain("litellm.RateLimitError: RateLimitError: OpenAIException - key sk-abcdef123 is slow")
    'key [key] is slow'
    """
    text = " ".join(said.split())
    text = re.sub(r"^((litellm\.)?\w*(Error|Timeout|Exception|Timeout Error)(: | - ))+", "", text)
    return re.sub(r"\b(sk|gsk|pk|xai|AIza)[-_][-_*\w]{6,}", "[key]", text)[:500]
