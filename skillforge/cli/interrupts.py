"""What Ctrl-C, or a polite end, does to a command at work."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


async def told_of_interrupts(work: Coroutine[Any, Any, Result]) -> Result:
    """Do the work, and say what the first interrupt does; asyncio's own handler does it.

    A polite end (SIGTERM, as `timeout` and schedulers send it) is an interrupt as well, also for a
    command in the background, which a shell has told to pass over Ctrl-C.
    """
    if current_thread() is not main_thread():
        return await work
    interrupt, task = signal.getsignal(signal.SIGINT), asyncio.current_task()
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in found.items() if handler != signal.SIG_IGN}
    ended = False

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        restore()
        said = "finishing what is in flight; press Ctrl-C again to stop now"
        print(said, file=sys.stderr, flush=True)  # by way of the bar, if there is one
        if callable(interrupt):
            interrupt(number, frame)
        elif task is not None:
            ended = True
            task.get_loop().call_soon_threadsafe(task.cancel)

    for number in before:
        signal.signal(number, on_interrupt)
    try:
        return await work
    except asyncio.CancelledError:
        if ended:
            raise KeyboardInterrupt from None
        raise
    finally:
        restore()
