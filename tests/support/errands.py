"""Attempts that wait for a file before they end, so that a test can direct them in any process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillforge.core.chat import Cost
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt
from skillforge.core.task import Task

PAUSE, PATIENCE = 0.02, 6000
"""Seconds between two looks, and looks after which a test fails instead of waiting for ever."""


@dataclass(frozen=True, slots=True)
class Errands:
    """Performs items that are names; one called ``bad…`` fails when it may end."""

    folder: Path

    async def __call__(self, name: str) -> str:
        """Say that it has begun, wait until it may end, and return the name in capitals."""
        self._file(name, "begun").touch()
        try:
            await until(self._file(name, "may-end").exists)
        except asyncio.CancelledError:
            self._file(name, "cancelled").touch()
            raise
        if name.startswith("bad"):
            raise ValueError(name)
        return name.upper()

    def end(self, *names: str) -> None:
        """Let attempts end."""
        for name in names:
            self._file(name, "may-end").touch()

    def those(self, state: str) -> set[str]:
        """Return the names that have ``begun``, or were ``cancelled``."""
        return {path.name for path in (self.folder / state).iterdir()}

    def _file(self, name: str, state: str) -> Path:
        return self.folder / state / name


def make_errands(folder: Path) -> Errands:
    """Return errands that are directed through a folder."""
    for state in ("begun", "may-end", "cancelled"):
        (folder / state).mkdir()
    return Errands(folder)


async def until(met: Callable[[], bool]) -> None:
    """Wait until a condition is met."""
    for _ in range(PATIENCE):
        if met():
            return
        await asyncio.sleep(PAUSE)
    raise TimeoutError("the condition was never met")


@dataclass(frozen=True, slots=True)
class FragileWorker:
    """Answers by the seed; its process is killed once, or always, at the tasks that say so.

    The transcript tells of the process: its id, and whether it has a ledger open.
    """

    folder: Path
    """Where a process that is going to be killed leaves a note."""
    bound_tokens: int = 100

    @property
    def fingerprint(self) -> str:
        """Identity of the worker; not where its notes are."""
        return "fragile"

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return what an attempt uses at most."""
        return Cost(0.0, self.bound_tokens)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Answer, or die."""
        note = self.folder / task.id.replace("/", "-")
        if task.input.startswith("kill always") or (
            task.input.startswith("kill once") and not note.exists()
        ):
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # the signal may take a moment
        process = {"pid": os.getpid(), "ledger": "skillforge.adapters.ledger" in sys.modules}
        output = (task.expected if seed % 3 else "no") or ""
        return Attempt(output=output, prompt_tokens=seed % 50, transcript=(process,))
