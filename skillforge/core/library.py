"""The library as a fold over the ledger's events.

Nothing here is stored: the state is what the events add up to, so replaying them gives the same
state and the same digest, and undoing is one more event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from skillforge.core.digest import json_digest
from skillforge.core.events import Event
from skillforge.errors import SkillError


class Status(StrEnum):
    """Where a version stands."""

    CANDIDATE = "candidate"
    PROBATION = "probation"
    PROMOTED = "promoted"
    RETIRED = "retired"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """One immutable state of a skill."""

    version: str
    skill: str
    parent: str
    """Version it was made from, or ""."""
    candidate: str
    """Candidate that proposed it, or "" for an imported one."""
    blob: str
    """Hash of the whole package in the ledger."""
    status: Status
    promoted: bool
    """Whether it stands as promoted when it is served (imported, or let through by its cohort);
    otherwise it stands on probation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRecord:
    """One skill of the library."""

    name: str
    current: str
    """Version that is served, or was served last."""
    served: bool
    """False once retired."""
    evidence: str
    """``unmeasured``, or the decision on which the current version stands."""
    written: bool
    """Whether the user's folder is known to hold the current state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryState:
    """What the events add up to."""

    skills: Mapping[str, SkillRecord] = field(default_factory=dict, hash=False)
    versions: Mapping[tuple[str, str], VersionRecord] = field(default_factory=dict, hash=False)
    """By skill name and version."""
    decisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """Last decision of each candidate."""
    spent: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    """Confirm tasks that were bet on, by lineage."""
    reserved: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict, hash=False)
    """Lineage and registered tasks of candidates that have no decision yet."""
    open_runs: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Runs that have started and not finished: fingerprint by run id."""

    def spent_by(self, lineage: str) -> frozenset[str]:
        """Return the confirm tasks that a lineage cannot use again.

        Until a decision says how many were used, all that a candidate registered count.
        """
        reserved = [tasks for owner, tasks in self.reserved.values() if owner == lineage]
        return self.spent.get(lineage, frozenset[str]()).union(*reserved)

    @property
    def served(self) -> tuple[str, ...]:
        """Names of the served skills, sorted."""
        return tuple(sorted(name for name, skill in self.skills.items() if skill.served))

    def skill(self, name: str) -> SkillRecord:
        """Return a skill by name.

        Raises:
            SkillError: There is none of that name; near names are suggested.
        """
        found = self.skills.get(name)
        if found is None:
            hint = suggest(name, self.skills)
            raise SkillError(f"no skill named {name!r} in the library; {hint}")
        return found

    def listing(self, *, every: bool = False) -> list[dict[str, Any]]:
        """Return one row per served skill, sorted by name; retired ones too if ``every``."""
        return [
            {
                "skill": name,
                "version": record.current,
                "status": self.versions[name, record.current].status.value,
                "evidence": record.evidence,
                "served": record.served,
            }
            for name, record in sorted(self.skills.items())
            if every or record.served
        ]

    @property
    def digest(self) -> str:
        """SHA-256 of the state; equal ledgers give equal digests."""
        return json_digest(
            {
                "skills": {n: _plain(s) for n, s in self.skills.items()},
                "versions": {f"{n}@{v}": _plain(r) for (n, v), r in self.versions.items()},
                "decisions": dict(self.decisions),
                "spent": {k: sorted(v) for k, v in self.spent.items()},
                "reserved": {k: [o, sorted(v)] for k, (o, v) in self.reserved.items()},
            }
        )

    @property
    def library_digest(self) -> str:
        """SHA-256 over the names and versions that are served."""
        return json_digest({name: self.skills[name].current for name in self.served})


def suggest(name: str, known: Iterable[str]) -> str:
    """Say which known names come near, or how to see them all.

    >>> suggest("iso-date", ["iso-dates", "units"])
    'did you mean iso-dates?'
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else "`skillforge list` shows the names"


def fold(events: Iterable[Event], state: LibraryState | None = None) -> LibraryState:
    """Add events to a state.

    ``fold(a + b) == fold(b, fold(a))`` for every way of cutting a ledger in two.
    """
    state = state or LibraryState()
    work = _Work(
        skills=dict(state.skills),
        versions=dict(state.versions),
        decisions=dict(state.decisions),
        spent=dict(state.spent),
        reserved=dict(state.reserved),
        open_runs=dict(state.open_runs),
    )
    for event in events:
        step = _STEPS.get(event.kind)
        if step is not None:
            step(work, event)
    return LibraryState(
        skills=work.skills,
        versions=work.versions,
        decisions=work.decisions,
        spent=work.spent,
        reserved=work.reserved,
        open_runs=work.open_runs,
    )


FOLDED: tuple[str, ...] = (
    "run.started",
    "run.finished",
    "skill.imported",
    "candidate.proposed",
    "candidate.closed",
    "gate.registered",
    "gate.decided",
    "version.adopted",
    "version.rolled_back",
    "cohort.closed",
    "skill.retired",
    "skill.restored",
    "folder.written",
)
"""Kinds of event that change the state; rollouts and audits do not."""


@dataclass(slots=True, kw_only=True)
class _Work:
    """The state while it is being folded."""

    skills: dict[str, SkillRecord]
    versions: dict[tuple[str, str], VersionRecord]
    decisions: dict[str, Mapping[str, Any]]
    spent: dict[str, frozenset[str]]
    reserved: dict[str, tuple[str, frozenset[str]]]
    open_runs: dict[str, str]

    def set_status(self, skill: str, version: str, status: Status) -> None:
        record = self.versions.get((skill, version))
        if record is not None:
            self.versions[skill, version] = replace(record, status=status)

    def set_outcome(self, skill: str, version: str, status: Status) -> None:
        """Set what a decision makes of a version, unless it is the one that stands.

        What stands changes by adoption, roll-back and retirement alone: a candidate whose bytes
        are those of the current version says nothing against it.
        """
        known = self.skills.get(skill)
        if known is None or known.current != version:
            self.set_status(skill, version, status)

    def standing(self, skill: str, version: str) -> Status:
        """Return the status that a version has when it is served again."""
        return Status.PROMOTED if self.versions[skill, version].promoted else Status.PROBATION

    def set_promoted(self, skill: str, version: str, *, promoted: bool) -> None:
        record = self.versions.get((skill, version))
        if record is not None:
            self.versions[skill, version] = replace(record, promoted=promoted)


def _run_started(work: _Work, event: Event) -> None:
    work.open_runs[event.run] = event.data["fingerprint"]


def _run_finished(work: _Work, event: Event) -> None:
    work.open_runs.pop(event.run, None)


def _imported(work: _Work, event: Event) -> None:
    data = event.data
    name, version = data["skill"], data["version"]
    old = work.skills.get(name)
    if old is not None and old.current != version:
        work.set_status(name, old.current, Status.SUPERSEDED)
    elif old is not None and old.served:
        return
    # A version that was here before keeps its parent, so that no line runs in a circle, and what
    # is known of it, so that a hand edit takes nothing off probation.
    known = work.versions.get((name, version))
    evidence = "unmeasured"
    if known is not None:
        standing = work.standing(name, version)
        work.set_status(name, version, standing)
        evidence = standing.value if known.candidate else "unmeasured"
    else:
        work.versions[name, version] = VersionRecord(
            version=version,
            skill=name,
            parent=old.current if old is not None else "",
            candidate="",
            blob=data["blob"],
            status=Status.PROMOTED,
            promoted=True,
        )
    # What was found in the folder is written; what comes from outside follows the event.
    written = data.get("written", True)
    work.skills[name] = SkillRecord(
        name=name, current=version, served=True, evidence=evidence, written=written
    )


def _proposed(work: _Work, event: Event) -> None:
    data = event.data
    if not data["version"] or (data["skill"], data["version"]) in work.versions:
        return
    work.versions[data["skill"], data["version"]] = VersionRecord(
        version=data["version"],
        skill=data["skill"],
        parent=data["base"],
        candidate=data["candidate"],
        blob=data["blob"],
        status=Status.CANDIDATE,
        promoted=False,
    )


def _closed(work: _Work, event: Event) -> None:
    data = event.data
    work.decisions[data["candidate"]] = data
    lost = data["decision"] == "refused" or (data.get("rollback_reward") or 0) < 0
    # Whoever only lacked budget, luck or a working model may be tried again.
    work.set_outcome(
        data["skill"], data.get("version", ""), Status.REJECTED if lost else Status.CANDIDATE
    )


def _registered(work: _Work, event: Event) -> None:
    data = event.data
    work.reserved[data["candidate"]] = (data["lineage"], frozenset(data["order"]))


def _decided(work: _Work, event: Event) -> None:
    data = event.data
    work.decisions[data["candidate"]] = data
    lineage, registered = work.reserved.pop(data["candidate"], (data["lineage"], frozenset[str]()))
    used = registered - frozenset(data["unused"])
    work.spent[lineage] = work.spent.get(lineage, frozenset[str]()) | used
    # Probation means served: the version gets there when it is adopted.
    status = {
        "probation": Status.CANDIDATE,
        "insufficient_evidence": Status.CANDIDATE,
        "rolled_back": Status.ROLLED_BACK,
    }.get(data["decision"], Status.REJECTED)
    work.set_outcome(data["skill"], data["version"], status)


def _adopted(work: _Work, event: Event) -> None:
    data = event.data
    name, version = data["skill"], data["version"]
    work.set_status(name, work.skills[name].current, Status.SUPERSEDED)
    work.set_status(name, version, Status.PROBATION)
    work.set_promoted(name, version, promoted=False)
    work.skills[name] = replace(
        work.skills[name], current=version, evidence=data["evidence"], written=False
    )


def _rolled_back(work: _Work, event: Event) -> None:
    data = event.data
    name = data["skill"]
    work.set_status(name, work.skills[name].current, Status.ROLLED_BACK)
    standing = work.standing(name, data["version"])
    work.set_status(name, data["version"], standing)
    evidence = "probation" if standing is Status.PROBATION else "rolled_back"
    work.skills[name] = replace(
        work.skills[name], current=data["version"], evidence=evidence, written=False
    )


def _cohort_closed(work: _Work, event: Event) -> None:
    for member in event.data["promoted"]:
        skill, version, candidate = member["skill"], member["version"], member["candidate"]
        record = work.versions.get((skill, version))
        if record is not None and record.status is Status.PROBATION:
            work.set_status(skill, version, Status.PROMOTED)
        work.set_promoted(skill, version, promoted=True)
        work.decisions[candidate] = {**work.decisions.get(candidate, {}), "decision": "promoted"}
        if work.skills[skill].current == version:
            work.skills[skill] = replace(work.skills[skill], evidence="promoted")


def _retired(work: _Work, event: Event) -> None:
    name = event.data["skill"]
    work.set_status(name, work.skills[name].current, Status.RETIRED)
    work.skills[name] = replace(work.skills[name], served=False, written=False)


def _restored(work: _Work, event: Event) -> None:
    name = event.data["skill"]
    current = work.skills[name].current
    work.set_status(name, current, work.standing(name, current))
    work.skills[name] = replace(work.skills[name], served=True, written=False)


def _written(work: _Work, event: Event) -> None:
    name = event.data["skill"]
    work.skills[name] = replace(work.skills[name], written=True)


_STEPS = {
    "run.started": _run_started,
    "run.finished": _run_finished,
    "skill.imported": _imported,
    "candidate.proposed": _proposed,
    "candidate.closed": _closed,
    "gate.registered": _registered,
    "gate.decided": _decided,
    "version.adopted": _adopted,
    "version.rolled_back": _rolled_back,
    "cohort.closed": _cohort_closed,
    "skill.retired": _retired,
    "skill.restored": _restored,
    "folder.written": _written,
}


def _plain(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
