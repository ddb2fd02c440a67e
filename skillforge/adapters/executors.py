"""Executors: how many attempts run at once, and where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from skillforge.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")


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
        self, attempt: Callable[[Item], Awaitable[Result]], items: Sequence[Item]
    ) -> AsyncIterator[tuple[int, Result]]:
        """Yield ``(position, result)`` in order of completion.

        If an attempt raises, no new one is started, those in flight are finished and yielded, and
        the first error is raised then: work that is already paid for is never thrown away.
        """
        waiting = iter(enumerate(items))
        finished: asyncio.Queue[tuple[int, Result] | None] = asyncio.Queue()
        errors: list[Exception] = []

        async def lane() -> None:
            try:
                while not errors and (entry := next(waiting, None)) is not None:
                    position, item = entry
                    await finished.put((position, await attempt(item)))
            except Exception as error:  # noqa: BLE001 - raised again once the others have landed
                errors.append(error)
            finally:
                await finished.put(None)

        lanes = [asyncio.create_task(lane()) for _ in range(min(self.limit, len(items)))]
        try:
            running = len(lanes)
            while running:
                result = await finished.get()
                if result is None:
                    running -= 1
                else:
                    yield result
        finally:
            for task in lanes:
                task.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        if errors:
            raise errors[0]
