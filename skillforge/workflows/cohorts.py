"""Cohorts: the candidates first tried in the same night, over which promotions are controlled.

A night's cohort is whatever came to the gate since the last one was closed, and bears the name of
the night that first closes it. Its members may go on betting in later nights; each of these closes
it again, over all of its members at the E-values that they have by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from skillforge.core.events import Event, NewEvent
from skillforge.core.gate import CohortMember, Decision, promote
from skillforge.ports import Ledger
from skillforge.workflows.contrast import Report
from skillforge.workflows.curate import Curator
from skillforge.workflows.vouch import undo_is_proven

OPEN = ""
"""Name of the cohort that no night has closed yet."""


@dataclass(slots=True)
class Cohorts:
    """Every candidate that came to the gate, and the cohort that it belongs to."""

    homes: dict[str, str] = field(default_factory=dict)
    """Cohort by candidate, in the order in which they were first registered."""
    versions: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Skill and version by candidate."""
    moved: dict[str, None] = field(default_factory=dict)
    """Closed cohorts of which a member was decided anew, checked or served again since."""
    _proposed: set[str] = field(default_factory=set)
    _found: dict[str, CohortMember] = field(default_factory=dict)
    _staged: dict[tuple[str, str], str] = field(default_factory=dict)
    _gone: set[tuple[str, str]] = field(default_factory=set)
    """Versions that were rolled back or retired and have not come back since."""
    _unchecked: set[str] = field(default_factory=set)
    """Candidates whose neighbours' check was cut off, until they are checked or adopted by hand."""

    def size(self, cohort: str) -> int:
        """Return how many candidates a cohort has started."""
        return sum(home == cohort for home in self.homes.values())

    def closed_by(self, event: Event) -> str:
        """Return which of the cohorts, as they stood before it, an event closes."""
        name = str(event.data.get("cohort", event.run))
        return name if name in self.homes.values() else OPEN

    def members(self, cohort: str) -> list[CohortMember]:
        """Return the candidates of a cohort, each at its current E.

        Every candidate that was registered counts, also one that never came to a decision: its
        e-value is then 1, the value at which it started. One that reached probation's evidence but
        was not staged, or was rolled back or retired since, is not to be served, and so is no
        discovery; nor is one as long as it is not known what it does to its neighbours.
        """
        staged = {c for version, c in self._staged.items() if version not in self._gone}
        standing = staged - self._unchecked
        return [self._member(c, c in standing) for c, home in self.homes.items() if home == cohort]

    def _member(self, candidate: str, standing: bool) -> CohortMember:
        undecided = Decision.INSUFFICIENT_EVIDENCE
        found = self._found.get(candidate)
        if found is None:
            return CohortMember(candidate=candidate, decision=undecided, e_value=1.0)
        if found.decision in (Decision.PROBATION, Decision.PROMOTED) and not standing:
            return replace(found, decision=undecided)
        return found

    def add(self, event: Event) -> None:
        """Take in what one event says of candidates and cohorts."""
        data, candidate = event.data, event.data.get("candidate", "")
        match event.kind:
            case "candidate.proposed":  # audits are registered too, but are no candidates
                self._proposed.add(candidate)
            case "gate.registered" if candidate in self._proposed:
                self.homes.setdefault(candidate, OPEN)
                self.versions[candidate] = (data["skill"], data["version"])
            case "gate.decided":
                self._decide(candidate, data)
            case "neighbours.decided":
                self._check(candidate, data)
            case "version.adopted" if candidate in self._unchecked:
                self._unchecked.discard(candidate)
                self._move(candidate)
            case "cohort.closed":
                self._close(event)
            case _:
                self._serve(event.kind, data)

    def _serve(self, kind: str, data: Mapping[str, Any]) -> None:
        """Note which versions wait or are served, and which left the library."""
        version = data.get("skill", ""), data.get("version", "")
        match kind:
            case "version.staged":
                self._staged[version] = data["candidate"]
            case "version.withdrawn":
                self._staged.pop(version, None)
            case "skill.retired":
                self._gone.add(version)
            case "version.rolled_back":
                self._gone.add((data["skill"], data["from"]))
                self._come_back(version)
            case "skill.restored":
                self._come_back(version)

    def _decide(self, candidate: str, data: Mapping[str, Any]) -> None:
        self._found[candidate] = CohortMember(
            candidate=candidate,
            decision=Decision(data["decision"]),
            e_value=data["confirm"]["e_charged"],
        )
        self._move(candidate)

    def _move(self, candidate: str) -> None:
        home = self.homes.get(candidate, OPEN)
        if home != OPEN:
            self.moved[home] = None

    def _come_back(self, version: tuple[str, str]) -> None:
        if version in self._gone:
            self._gone.discard(version)
            self._move(self._staged.get(version, ""))

    def _check(self, candidate: str, data: Mapping[str, Any]) -> None:
        self._move(candidate)
        self._unchecked.discard(candidate)
        if data["decision"] != Decision.PROBATION:
            self._staged.pop((data["skill"], data["version"]), None)
        elif data["found"]["stopped_by"]:
            self._unchecked.add(candidate)

    def _close(self, event: Event) -> None:
        cohort = event.data.get("cohort", event.run)
        self.moved.pop(cohort, None)
        for member in event.data["members"]:
            self.homes[member["candidate"]] = cohort
        for promoted in event.data["promoted"]:
            known = self._found.get(promoted["candidate"])
            if known is not None:
                self._found[known.candidate] = replace(known, decision=Decision.PROMOTED)


KINDS = (
    "candidate.proposed",
    "gate.registered",
    "gate.decided",
    "neighbours.decided",
    "version.staged",
    "version.adopted",
    "version.rolled_back",
    "version.withdrawn",
    "skill.retired",
    "skill.restored",
    "cohort.closed",
)
"""Kinds of event that say something of candidates and cohorts."""


def read_cohorts(ledger: Ledger) -> Cohorts:
    """Read every cohort from the ledger."""
    cohorts = Cohorts()
    for event in ledger.events(kinds=KINDS):
        cohorts.add(event)
    return cohorts


def close_cohorts(curator: Curator, run: str, fdr: float) -> list[Report]:
    """Close the night's own cohort, and every earlier one of which a member has gone on since.

    In each, e-BH over all of its members at their current E decides who is promoted; who is stays
    so. All of them are closed by one write, once in a run.

    Returns:
        Candidate, skill, version and cohort of each that is newly promoted.
    """
    ledger = curator.ledger
    closed: Iterable[Event] = tuple(ledger.events(run=run, kinds=("cohort.closed",)))
    if not closed:
        cohorts = read_cohorts(ledger)
        names = (OPEN, *cohorts.moved)
        closed = ledger.append([_closing(curator, cohorts, name, run, fdr) for name in names])
    return [
        {**promoted, "cohort": event.data.get("cohort", run)}
        for event in closed
        for promoted in event.data["promoted"]
    ]


def _closing(curator: Curator, cohorts: Cohorts, cohort: str, run: str, fdr: float) -> NewEvent:
    """Return the event that closes a cohort; a change that cannot be undone is not promoted."""
    members = [
        replace(m, decision=Decision.REFUSED)
        if m.decision is Decision.PROBATION and not undo_is_proven(curator, m.candidate)
        else m
        for m in cohorts.members(cohort)
    ]
    promoted = [(name, *cohorts.versions[name]) for name in promote(members, fdr)]
    data = {
        "cohort": cohort or run,
        "fdr": fdr,
        "members": [
            {"candidate": m.candidate, "decision": m.decision.value, "e_value": m.e_value}
            for m in members
        ],
        "promoted": [
            {"candidate": name, "skill": skill, "version": version}
            for name, skill, version in promoted
        ],
    }
    return NewEvent(kind="cohort.closed", data=data, run=run)
