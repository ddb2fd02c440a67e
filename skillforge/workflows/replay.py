"""Replay: fold the ledger anew, check its chain, and recompute every decision from its rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skillforge.core.events import Event, check_chain
from skillforge.core.gate import CohortMember, Decision, Registration, promote
from skillforge.core.library import LibraryState
from skillforge.core.library_fold import FOLDED, fold
from skillforge.errors import LedgerError
from skillforge.ports import Ledger
from skillforge.workflows.confirm import read_result
from skillforge.workflows.contrast import Report
from skillforge.workflows.curate import load_state
from skillforge.workflows.neighbours import read_verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What replaying a ledger found."""

    events: int
    state_digest: str
    chain_ok: bool
    decisions: int
    """Gate decisions that were recomputed."""
    erased: tuple[dict[str, Any], ...]
    """What was erased on purpose: hashes and reason, once for each time."""
    problems: tuple[str, ...]
    """Decisions that the rollouts do not bear out, breaks of the chain, damaged payloads."""

    def to_json(self) -> Report:
        """Return the result as ``replay --json`` prints it."""
        return {
            "events": self.events,
            "state_digest": self.state_digest,
            "chain_ok": self.chain_ok,
            "decisions": self.decisions,
            "decisions_ok": not self.problems,
            "erased": list(self.erased),
            "problems": list(self.problems),
        }


def replay(ledger: Ledger) -> Replay:
    """Check chain, payloads and checkpoint; recompute the state and every gate decision.

    Events pass by one at a time: memory does not grow with the number of rollouts.
    """
    problems: list[str] = []
    try:
        check_chain(ledger.events())
    except LedgerError as error:
        problems.append(str(error))
    chain_ok = not problems
    state = fold(ledger.events(kinds=FOLDED))
    decided = list(ledger.events(kinds=("gate.decided",)))
    for event in decided:
        problems += _decision(ledger, event)
    for event in ledger.events(kinds=("neighbours.decided",)):
        problems += _neighbours(ledger, event)
    for event in ledger.events(kinds=("cohort.closed",)):
        problems += _cohort(event)
    problems += [*_checkpoint(ledger), *ledger.damaged_blobs()]
    return Replay(
        events=ledger.head,
        state_digest=state.digest,
        chain_ok=chain_ok,
        decisions=len(decided),
        erased=tuple(dict(event.data) for event in ledger.events(kinds=("blob.erased",))),
        problems=tuple(problems),
    )


def _decision(ledger: Ledger, event: Event) -> Iterator[str]:
    """Say where a decision differs from what its rollouts say."""
    candidate = event.data["candidate"]
    registrations = ledger.events(kinds=("gate.registered",), about=(candidate,))
    for registered in registrations:
        registration = Registration.from_json(dict(registered.data))
        again = read_result(ledger, registered.run, registration).to_json()
        for key, value in again.items():
            if event.data[key] != value:
                yield (
                    f"decision of {candidate}: the ledger says {key} = {event.data[key]!r}, its "
                    f"rollouts say {value!r}"
                )
        return
    yield f"decision of {candidate}: it was never registered"


def _neighbours(ledger: Ledger, event: Event) -> Iterator[str]:
    """Say where the verdict on an edit's neighbours differs from what the rollouts say."""
    candidate, kinds = event.data["candidate"], ("neighbours.registered",)
    for registered in ledger.events(run=event.run, kinds=kinds, about=(candidate,)):
        again = read_verdict(ledger, registered, event.data["found"]["stopped_by"]).to_json()
        for key, value in again.items():
            if event.data[key] != value:
                yield (
                    f"neighbours of {candidate}: the ledger says {key} = {event.data[key]!r}, "
                    f"the rollouts say {value!r}"
                )
        return
    yield f"neighbours of {candidate}: they were never registered"


def _cohort(event: Event) -> Iterator[str]:
    members = [
        CohortMember(
            candidate=m["candidate"], decision=Decision(m["decision"]), e_value=m["e_value"]
        )
        for m in event.data["members"]
    ]
    expected = promote(members, event.data["fdr"])
    if tuple(p["candidate"] for p in event.data["promoted"]) != expected:
        yield f"cohort of {event.run}: e-BH promotes {expected}"


def _checkpoint(ledger: Ledger) -> Iterator[str]:
    """Say whether the checkpoint differs from the fold of the events it stands for."""
    kept, seq = load_state(ledger)
    before = (event for event in ledger.events(kinds=FOLDED) if event.seq <= seq)
    if seq and kept != fold(before, LibraryState()):
        yield f"the checkpoint at event {seq} is not what the events before it add up to"
