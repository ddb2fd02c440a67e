"""How fast an endpoint may be called: calls at once, and requests and tokens per minute.

The number of calls at once adapts: it is halved when the endpoint says that it is busy, and grows
by one per round of answers (additive increase, multiplicative decrease: Chiu and Jain 1989). A
burst of refusals is one sign, not many: calls that began before the last decrease do not decrease
again. The limits per minute hold for every minute, wherever one starts counting.

Nothing here reads a clock or waits: the caller tells the time, in seconds.
"""

from __future__ import annotations

from collections import deque

MINUTE = 60.0


class Window:
    """What was used within the last minute, against a limit.

    >>> window = Window(10)
    >>> used = window.use(8, now=0.0)
    >>> window.delay(2, now=1.0), window.delay(3, now=1.0)
    (0.0, 59.0)
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._used: deque[list[float]] = deque()

    def delay(self, amount: float, now: float) -> float:
        """Return the seconds until an amount fits; one above the limit fits an empty minute."""
        while self._used and self._used[0][0] <= now - MINUTE:
            self._used.popleft()
        excess = sum(used for _, used in self._used) + amount - self._limit
        delay = 0.0
        for at, used in self._used:
            if excess <= 0:
                break
            excess -= used
            delay = at + MINUTE - now
        return delay

    def use(self, amount: float, now: float) -> list[float]:
        """Count an amount, and return the entry: its second number is the amount."""
        entry = [now, amount]
        self._used.append(entry)
        return entry


class Throttle:
    """The state of one endpoint; not for several threads at once."""

    def __init__(
        self,
        parallel: int,
        *,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        """Take the most calls at once, ≥ 1, and the limits per minute, > 0; None is no limit."""
        self.limit = float(parallel)
        """Calls at once just now, from 1 to ``parallel``."""
        self._parallel = parallel
        self._requests = Window(requests_per_minute or float("inf"))
        self._tokens = Window(tokens_per_minute or float("inf"))
        self._running = 0
        self._decreases = 0
        self._closed_until = float("-inf")

    def delay(self, tokens: int, now: float) -> float | None:
        """Return the seconds until a call may begin, or None if another one must end first."""
        if self._running >= int(self.limit):
            return None
        windows = self._requests.delay(1, now), self._tokens.delay(tokens, now)
        return max(0.0, self._closed_until - now, *windows)

    def begin(self, tokens: int, now: float) -> Call:
        """Count a call of at most so many tokens as begun."""
        self._running += 1
        self._requests.use(1, now)
        return Call(self._decreases, self._tokens.use(tokens, now))

    def end(self, call: Call, *, tokens: int | None = None, busy: bool = False) -> None:
        """Count a call as ended.

        Args:
            call: What `begin` returned.
            tokens: What an answer truly took; None if none came.
            busy: Whether the endpoint asked for fewer calls.
        """
        self._running -= 1
        if tokens is not None:
            call.entry[1] = tokens
            self.limit = min(float(self._parallel), self.limit + 1 / self.limit)
        elif busy and call.decreases == self._decreases:
            self.limit = max(1.0, self.limit / 2)
            self._decreases += 1

    def close(self, until: float) -> None:
        """Let no call begin before a moment: the endpoint asked to be left alone."""
        self._closed_until = max(self._closed_until, until)


class Call:
    """A call that has begun."""

    __slots__ = ("decreases", "entry")

    def __init__(self, decreases: int, entry: list[float]) -> None:
        self.decreases = decreases
        """How often the number of calls at once had been decreased before it began."""
        self.entry = entry
        """Its tokens, as the window of the minute counts them."""
