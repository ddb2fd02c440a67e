"""Runs: one command's work, found again after a crash by what it was asked to do.

What a spent budget does to a run depends on what its command is for:

- One that measures (`eval`, `audit`, `calibrate`) owes an answer over all the tasks it was asked
  for. Its run stays open; the same command goes on with it, under a larger cap, against which
  counts what the run has spent already.
- One that decides (`evolve`, `nightly`) ends with what is decided. The same command then starts
  another run with a budget of its own: given every night, each night has its caps.

An interrupt, a crash or a model that cannot be reached leaves either kind open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skillforge.core.digest import json_digest
from skillforge.core.events import NewEvent
from skillforge.core.library import LibraryState
from skillforge.ports import Ledger

GOES_ON = (
    "what was measured is kept and the run stays open: the same command with a larger cap goes on "
    "with it"
)
"""What whoever measures is told when the budget is spent."""
STARTS_ANEW = (
    "what was decided stands and the run has ended: the same command starts another one with a "
    "budget of its own, which reuses the rollouts of diagnosis and of screening, and in which "
    "candidates without a verdict whose E is above 1 go on with it"
)
"""What whoever has something decided is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One command's work."""

    id: str
    resumed: bool
    """Whether an interrupted run of the same request goes on."""


def open_run(ledger: Ledger, state: LibraryState, command: str, request: Mapping[str, Any]) -> Run:
    """Go on with the interrupted run of this request, or start a new one.

    Args:
        ledger: Where the start is written.
        state: The library before the run.
        command: Name of the command.
        request: What makes two requests the same: suite digest, skill, seed, rules, worker.
            Caps are not part of it, so that a run can be continued under a larger budget.
    """
    fingerprint = json_digest([command, request])
    for run_id, known in state.open_runs.items():
        if known == fingerprint:
            return Run(id=run_id, resumed=True)
    started = sum(1 for _ in ledger.events(kinds=("run.started",)))
    run_id = f"{command}-{started + 1}-{fingerprint[:8]}"
    data = {
        "command": command,
        "fingerprint": fingerprint,
        "request": dict(request),
        "library_digest": state.library_digest,
    }
    ledger.append([NewEvent(kind="run.started", data=data, run=run_id)])
    return Run(id=run_id, resumed=False)


def close_run(ledger: Ledger, run: Run, *, stopped_by: str, spend: Mapping[str, Any]) -> None:
    """Write down that a run has come to its end, and what it spent."""
    data = {"stopped_by": stopped_by, "spend": dict(spend)}
    ledger.append([NewEvent(kind="run.finished", data=data, run=run.id)])
