"""Replay: fold the ledger anew, check its chain, and recompute every decision from its rollouts."""

from __future__ import annotations

from dataclasses import dataclass

from skillforge.core.events import check_chain
from skillforge.core.gate import CohortMember, Decision, Registration, promote
from skillforge.core.library_fold import fold
from skillforge.errors import LedgerError
from skillforge.ports import Ledger
from skillforge.workflows.confirm import read_result
from skillforge.workflows.contrast import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What replaying a ledger found."""

    events: int
    state_digest: str
    chain_ok: bool
    decisions: int
    """Gate decisions that were recomputed."""
    problems: tuple[str, ...]
    """Decisions that the rollouts do not bear out, and breaks of the chain."""

    def to_json(self) -> Report:
        """Return the result as ``replay --json`` prints it."""
        return {
            "events": self.events,
            "state_digest": self.state_digest,
            "chain_ok": self.chain_ok,
            "decisions": self.decisions,
            "decisions_ok": not self.problems,
            "problems": list(self.problems),
        }


def replay(ledger: Ledger) -> Replay:
    """Check the chain, fold the state, and recompute every gate decision and promotion."""
    events = list(ledger.events())
    problems: list[str] = []
    try:
        check_chain(events)
    except LedgerError as error:
        problems.append(str(error))
    chain_ok = not problems
    registrations: dict[str, tuple[str, Registration]] = {}
    decisions = 0
    for event in events:
        if event.kind == "gate.registered":
            registration = Registration.from_json(dict(event.data))
            registrations[registration.candidate] = (event.run, registration)
        elif event.kind == "gate.decided":
            decisions += 1
            run, registration = registrations[event.data["candidate"]]
            again = read_result(ledger, run, registration).to_json()
            problems += [
                f"decision of {registration.candidate}: the ledger says {key} = "
                f"{event.data[key]!r}, its rollouts say {value!r}"
                for key, value in again.items()
                if event.data[key] != value
            ]
        elif event.kind == "cohort.closed":
            members = [
                CohortMember(
                    candidate=m["candidate"],
                    decision=Decision(m["decision"]),
                    e_value=m["e_value"],
                )
                for m in event.data["members"]
            ]
            expected = promote(members, event.data["fdr"])
            if tuple(p["candidate"] for p in event.data["promoted"]) != expected:
                problems.append(f"cohort of {event.run}: e-BH promotes {expected}")
    return Replay(
        events=len(events),
        state_digest=fold(events).digest,
        chain_ok=chain_ok,
        decisions=decisions,
        problems=tuple(problems),
    )
