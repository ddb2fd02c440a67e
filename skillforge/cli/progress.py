"""Progress on stderr: what is being done, how fast, what it has cost, and when it may be over."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from skillforge.core.rollout import Rollout
from skillforge.report.numbers import money

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

INTERVAL_TTY, INTERVAL_PIPE = 0.25, 10.0
"""Seconds between two looks at the numbers, and before the first one: of a single rollout, while
others are in flight, no rate can be told."""
NARROW = 80
"""Columns below which the numbers have the line to themselves."""
SAID = 300
"""Characters of a failure's message."""


@dataclass(slots=True)
class Progress:
    """Counts rollouts: a bar on a terminal, plain lines when piped.

    What is to come is known for the rollouts that have been asked for; more may be asked for later,
    or fewer be needed. Rate and time left count from when the first of them begins: what comes
    before (libraries, the embedder) says nothing about the others.
    """

    terminal: bool = field(default_factory=lambda: is_terminal())
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    _started: float = field(init=False)
    _begun: float | None = None
    """When the first rollout began."""
    _shown: float = 0.0
    _expected: int = 0
    _rollouts: int = 0
    _told: int = 0
    """Rollouts that the last line counted."""
    _failures: int = 0
    _usd: float = 0.0
    _bar: Bar | None = None

    def __post_init__(self) -> None:
        self._started = self.clock()

    def announce(self, text: str) -> None:
        """Say what begins."""
        line = f"[{self.clock() - self._started:5.0f} s] {text}"
        if self._bar is None:
            click.echo(line, err=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False)

    def expect(self, rollouts: int) -> None:
        """Add rollouts that are to come, the first of them at once."""
        self._expected += rollouts
        if self._begun is None and rollouts:
            self._begun = self._shown = self.clock()

    def rollout(self, rollout: Rollout) -> None:
        """Count one finished rollout, and say so now and then; say what failed first."""
        self._rollouts += 1
        if rollout.failure is not None:
            if not self._failures:
                said = " ".join(rollout.failure.message.split())[:SAID]
                self.announce(f"the first failure, of {rollout.task}: {said}")
            self._failures += 1
        self._usd += rollout.cost_usd
        now = self.clock()
        if now - self._shown < (INTERVAL_TTY if self.terminal else INTERVAL_PIPE):
            return
        self._shown = now
        if self.terminal:
            self._draw()
        else:
            self._tell()

    def line(self) -> str:
        """Return the numbers in words: rate, cost, time left, failures."""
        now = self.clock()
        rate = self._rollouts / max(now - (now if self._begun is None else self._begun), 1e-9)
        left = timedelta(seconds=round((self._expected - self._rollouts) / max(rate, 1e-9)))
        return (
            f"{self._rollouts} of {self._expected} rollouts, {rate:.1f}/s, {money(self._usd)}, "
            f"{self._failures} failed, {left} left"
        )

    def finish(self) -> None:
        """Take the bar away, or say the last numbers, before a result or an error is printed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        elif not self.terminal and self._rollouts > self._told:
            self._tell()

    def _tell(self) -> None:
        self._told = self._rollouts
        self.announce(self.line())

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        console = self._bar.console if self._bar else Console(stderr=True)
        narrow, line = console.width < NARROW, self.line()
        line = line.replace(" rollouts", "", 1) if narrow else line
        if self._bar is None:
            numbers = TextColumn("{task.description}")
            self._bar = Bar(
                *([numbers] if narrow else [BarColumn(), numbers]),
                console=console,
                auto_refresh=False,
                transient=True,
            )
            self._bar.add_task(line)
            self._bar.start()
        self._bar.update(
            self._bar.task_ids[0],
            total=self._expected,
            completed=self._rollouts,
            description=line,
            refresh=True,
        )


def is_terminal() -> bool:
    """Whether lines on stderr can be drawn anew."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
