"""What a failed model call means, and how long to wait before the next attempt.

A failed attempt falls into one of four piles:

    again    worth another attempt; an infrastructure failure once the attempts are used up
    infra    nothing was learnt about the task, and another attempt would not help
    agent    this request cannot be served: context overflow, content filter, timeout of the task
    config   wrong key, unknown model or setting: the whole run is misconfigured

It also may have cost something. An error status says that nothing was served, so it is booked at
nothing, as is a connection that never came about. Everything else is booked at the most that the
call could cost: a timeout, a reply that was cut off or that cannot be read, and the statuses of a
gateway that gave up on a server behind it (408, 502, 504), which may have answered all the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from skillforge.core.rollout import Cause

Pile = Literal["again", "infra", "agent", "config"]

UNSERVABLE = {
    "ContextWindowExceededError": Cause.CONTEXT,
    "ContentPolicyViolationError": Cause.REFUSED,
}
TIMEOUTS = {"Timeout", "APITimeoutError"}
TRICKLE = "TimeoutError"
"""The whole time passed although the connection was never silent for that long."""
STATUS = "HTTPStatusError"
"""Cause of an error that came as an HTTP status, and not as a broken connection or reply."""
NOT_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout"}
"""Causes that kept the request from being sent at all."""
GATEWAY = {408, 502, 504}
"""Statuses after which a server behind the gateway may have done the work."""
BUSY = {429, 503, 529}
"""Statuses that ask for fewer calls."""
ADVICE = {
    401: "check the API key",
    402: "the account has no credit",
    403: "the key may not use this model",
    404: "check the model name and api_base",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently a call is made again.

    Rate limits count by the minute, so the defaults wait for at least a minute where an endpoint is
    busy; other trouble either passes soon or does not.
    """

    retries: int = 4
    """Attempts after the first, ≥ 0."""
    busy_retries: int = 8
    """The same where the endpoint asks for fewer calls, ≥ 0."""
    backoff: float = 0.5
    """Seconds before the first retry; doubled each time, with jitter between half and full."""
    max_wait: float = 60.0
    """Seconds; a pause is never longer, and a longer ``Retry-After`` ends the call."""

    def pause(
        self, attempt: int, asked: float | None, jitter: float, *, busy: bool = False
    ) -> float | None:
        """Return the seconds to wait after an attempt, or None to give up.

        Args:
            attempt: 0-based number of the attempt that failed.
            asked: Seconds that the server asked for, or None; never undercut.
            jitter: Random number in [0, 1] that spreads the retries of parallel calls.
            busy: Whether the endpoint asked for fewer calls.

        >>> RetryPolicy().pause(1, None, 1.0), RetryPolicy().pause(0, 5.0, 0.0)
        (1.0, 5.0)
        """
        most = self.busy_retries if busy else self.retries
        if attempt >= most or (asked is not None and asked > self.max_wait):
            return None
        wait = min(self.max_wait, self.backoff * float(2**attempt))
        return max(wait * (0.5 + jitter / 2), asked or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a failed attempt means."""

    pile: Pile
    message: str
    busy: bool = False
    """Whether the endpoint asked for fewer calls."""
    billed: bool = True
    """Whether the attempt may have cost something."""
    cause: Cause = Cause.OTHER
    """What the agent failed by, where it is the agent's failure."""


def judge(*, kind: str, causes: Collection[str], status: int, said: str) -> Judgement:
    """Sort one failed attempt into its pile.

    Args:
        kind: Class name of the error, in litellm's words.
        causes: Class names of what it came from.
        status: HTTP status, or 0 where there was none.
        said: Message of the error.

    >>> found = judge(kind="RateLimitError", causes=(STATUS,), status=429, said="slow down")
    >>> found.pile, found.busy, found.billed
    ('again', True, False)
    """
    answered = STATUS in causes
    unserved = answered and status not in GATEWAY
    pile, advice = _pile(kind, set(causes), status, said)
    return Judgement(
        pile=pile,
        message=plain(said) + advice,
        busy=answered and status in BUSY,
        billed=not (unserved or NOT_SENT & set(causes) or kind in UNSERVABLE or pile == "config"),
        cause=UNSERVABLE.get(kind, Cause.TIMEOUT) if pile == "agent" else Cause.OTHER,
    )


def _pile(kind: str, causes: Collection[str], status: int, said: str) -> tuple[Pile, str]:
    """Return the pile of a failed attempt, and advice to go with its message."""
    if kind in UNSERVABLE:
        return "agent", ""
    if kind == TRICKLE:
        return "infra", ""
    if kind in TIMEOUTS:
        return ("again" if (STATUS in causes or NOT_SENT & set(causes)) else "agent"), ""
    if kind == "UnsupportedParamsError":
        return "config", "; remove that setting."
    if "LLM Provider NOT provided" in said:
        return "config", "; no such provider is registered with litellm."
    if status in ADVICE:
        return "config", f"; {ADVICE[status]}."
    if status == 429 and "quota" in said.lower():
        return "infra", ""
    return ("again" if status == 429 or status >= 500 else "infra"), ""


def plain(said: str) -> str:
    """Return a message on one line, without API keys and the names of wrapping exceptions.

    >>> plain("litellm.RateLimitError: RateLimitError: OpenAIException - key sk-abcdef123 is slow")
    'key [key] is slow'
    """
    text = " ".join(said.split())
    text = re.sub(r"^((litellm\.)?\w*(Error|Timeout|Exception|Timeout Error)(: | - ))+", "", text)
    return re.sub(r"\b(sk|gsk|pk|xai|AIza)[-_][-_*\w]{6,}", "[key]", text)[:500]
