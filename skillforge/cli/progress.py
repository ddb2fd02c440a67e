"""Progress on stderr: what is being done, how fast, and what it has cost."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

import click

from skillforge.core.rollout import Rollout
from skillforge.report.numbers import money

INTERVAL_TTY, INTERVAL_PIPE = 0.5, 10.0


@dataclass(slots=True)
class Progress:
    """Counts rollouts; a line that rewrites itself on a terminal, plain lines when piped."""

    _started: float = field(default_factory=time.monotonic)
    _shown: float = 0.0
    _rollouts: int = 0
    _failures: int = 0
    _usd: float = 0.0

    def announce(self, text: str) -> None:
        """Say what begins."""
        click.echo(f"[{time.monotonic() - self._started:5.0f} s] {text}", err=True)

    def rollout(self, rollout: Rollout) -> None:
        """Count one finished rollout, and say so now and then."""
        self._rollouts += 1
        self._failures += rollout.failure is not None
        self._usd += rollout.cost_usd
        terminal = sys.stderr.isatty()
        now = time.monotonic()
        if now - self._shown < (INTERVAL_TTY if terminal else INTERVAL_PIPE):
            return
        self._shown = now
        rate = self._rollouts / max(now - self._started, 1e-9)
        line = (
            f"[{now - self._started:5.0f} s] {self._rollouts} rollouts, {rate:.1f}/s, "
            f"{money(self._usd)}, {self._failures} failed"
        )
        click.echo(f"\r{line}" if terminal else line, err=True, nl=not terminal)
