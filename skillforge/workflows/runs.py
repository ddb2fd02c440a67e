"""Runs: one command's work, found again after a crash by what it was asked to do.

What a spent budget does to a run depends on what its command is for:

- One that measures (`eval`, `audit`, `calibrate`) owes an answer over all the tasks it was asked
  for. Its run stays open; the same command goes on with it, under a larger cap, against which
  counts what the run has spent already.
- One that decides (`evolve`, `nightly`) ends with what is decided. The same command then starts
  another run with a budget of its own: given every night, each night has its caps.

An interrupt, a crash or a model that cannot be reached leaves either kind open. One that decides is
given up when its command is given with other settings: what it has registered is decided on what it
has bet, so that no candidate and no task waits for it for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skillforge.core.digest import json_digest
from skillforge.core.events import NewEvent
from skillforge.core.library import LibraryState
from skillforge.ports import Ledger
from skillforge.workflows import confirm, neighbour_verdict

DECIDE = ("evolve", "nightly")
"""Commands whose runs end with what is decided."""
GOES_ON = (
    "what was measured is kept and the run stays open: run the same command again with a larger "
    "cap to go on with it (minutes count anew)"
)
"""What whoever measures is told when the budget is spent."""
STARTS_ANEW = (
    "what was decided stands and the run has ended: run the same command again to start another "
    "one with a budget of its own; where the skill is the same, it reuses the rollouts of "
    "diagnosis and of screening, and candidates without a verdict whose E is above 1 go on in it"
)
"""What whoever has something decided is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One command's work."""

    id: str
    resumed: bool
    """Whether an interrupted run of the same request goes on."""
    otherwise: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    """Open runs of the command on the same skills, with what was different about their request."""


def open_run(ledger: Ledger, state: LibraryState, command: str, request: Mapping[str, Any]) -> Run:
    """Go on with the interrupted run of this request, or start a new one.

    Args:
        ledger: Where the start is written.
        state: The library before the run.
        command: Name of the command.
        request: What makes two requests the same: suite digest, skill, seed, rules, worker and
            settings. Caps are not part of it, so that a run can be continued under a larger budget.
    """
    fingerprint = json_digest([command, request])
    for run_id, known in state.open_runs.items():
        if known == fingerprint:
            return Run(id=run_id, resumed=True)
    started = list(ledger.events(kinds=("run.started",)))
    run_id = f"{command}-{len(started) + 1}-{fingerprint[:8]}"
    data = {
        "command": command,
        "fingerprint": fingerprint,
        "request": dict(request),
        "library_digest": state.library_digest,
    }
    ledger.append([NewEvent(kind="run.started", data=data, run=run_id)])
    beside = {
        event.run: _differing(event.data["request"], request)
        for event in started
        if event.run in state.open_runs and event.data["command"] == command
    }
    otherwise = {run: keys for run, keys in beside.items() if not {"skill", "skills"} & {*keys}}
    return Run(id=run_id, resumed=False, otherwise=otherwise)


def give_up(ledger: Ledger, run: str, *, stopped_by: str) -> None:
    """End a run that decides where it is."""
    confirm.settle(ledger, run)
    neighbour_verdict.settle(ledger, run)
    close_run(ledger, run, stopped_by=stopped_by, spend={})


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def close_run(ledger: Ledger, run: str, *, stopped_by: str, spend: Mapping[str, Any]) -> None:
    """Write down that a run has come to its end, and what it spent."""
    data = {"stopped_by": stopped_by, "spend": dict(spend)}
    ledger.append([NewEvent(kind="run.finished", data=data, run=run)])
