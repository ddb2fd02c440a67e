"""Executors: how many attempts run at once, and where."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from skillforge.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")
Landed = TypeVar("Landed")

FULL, OVERDUE = 1024, 0.05
"""Results, and seconds since the first of them, after which the reader has its turn."""


class AsyncioExecutor:
    """Runs attempts as tasks of this process's event loop, at most ``limit`` at once."""

    def __init__(self, limit: int) -> None:
        """Take the number of attempts in flight, ≥ 1.

        Raises:
            ConfigError: It is less; nothing would ever run.
        """
        if limit < 1:
            raise ConfigError(f"{limit} attempts in flight; expected at least 1")
        self.limit = limit

    async def run(
        self,
        attempt: Callable[[Item], Awaitable[Result]],
        items: Iterator[Item],
        land: Callable[[int, Result], Landed],
    ) -> AsyncGenerator[list[Landed], None]:
        """Yield what has arrived; see `skillforge.ports.Executor` for the contract."""
        arrivals = _Arrivals[Landed](running=self.limit)
        entries = enumerate(items)

        async def lane() -> None:
            try:
                while (entry := await arrivals.next_of(entries)) is not None:
                    arrivals.add(land(entry[0], await attempt(entry[1])))
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                arrivals.errors.append(RuntimeError("an attempt was cancelled from within"))
            except Exception as error:  # noqa: BLE001 - raised again once the others have landed
                arrivals.errors.append(error)
            finally:
                arrivals.leave()

        lanes = [asyncio.create_task(lane()) for _ in range(self.limit)]
        try:
            while arrivals.running or arrivals.results:
                if batch := await arrivals.take():
                    yield batch
        finally:
            for task in lanes:
                task.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        if arrivals.errors:
            raise arrivals.errors[0]


def _is_cancelled() -> bool:
    """Whether somebody has asked this task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@dataclass(slots=True)
class _Arrivals(Generic[Landed]):
    """Results on their way from the lanes to the reader, and why no more are begun."""

    running: int
    results: list[Landed] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _taken: asyncio.Event = field(default_factory=asyncio.Event)
    _since: float = 0.0

    async def next_of(self, entries: Iterator[tuple[int, Item]]) -> tuple[int, Item] | None:
        """Return the next entry to begin, or None where there is none or an error came first.

        Attempts that never wait would keep the event loop for themselves; so the reader has its
        turn first where results have piled up.
        """
        while self.results and not self.errors and self._is_due():
            await self._taken.wait()
        return None if self.errors else next(entries, None)

    def _is_due(self) -> bool:
        return len(self.results) >= FULL or time.monotonic() - self._since > OVERDUE

    def add(self, result: Landed) -> None:
        """Put a result there for the reader."""
        if not self.results:
            self._since = time.monotonic()
            self._taken.clear()
            self._news.set()
        self.results.append(result)

    def leave(self) -> None:
        """Count a lane that has come to its end."""
        self.running -= 1
        self._news.set()

    async def take(self) -> list[Landed]:
        """Wait for news, and return what is there in order of completion."""
        await self._news.wait()
        taken, self.results = self.results, []
        self._news.clear()
        self._taken.set()
        return taken
