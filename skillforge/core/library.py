"""The state of the library: its skills, their versions, and where each of them stands.

Nothing here is stored: `skillforge.core.library_fold` adds it up from the ledger's events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from skillforge.core.digest import json_digest
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
class Staged:
    """A version that a decision put forward and that is not in the user's folder yet."""

    version: str
    base: str
    """Version it was decided against: the only one that it may take the place of."""
    candidate: str
    evidence: str
    """The decision: ``probation``, or ``promoted`` once its cohort let it through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryState:
    """What the events add up to."""

    skills: Mapping[str, SkillRecord] = field(default_factory=dict, hash=False)
    versions: Mapping[tuple[str, str], VersionRecord] = field(default_factory=dict, hash=False)
    """By skill name and version."""
    staged: Mapping[str, tuple[Staged, ...]] = field(default_factory=dict, hash=False)
    """What waits to be adopted, by skill name, newest last; a skill without has no entry."""
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

    def current(self, name: str) -> VersionRecord:
        """Return the version of a skill that is served, or was served last.

        Raises:
            SkillError: There is no such skill.
        """
        return self.versions[name, self.skill(name).current]

    def listing(self, *, every: bool = False) -> list[dict[str, Any]]:
        """Return one row per served skill, sorted by name; retired ones too if ``every``."""
        return [
            {
                "skill": name,
                "version": record.current,
                "status": self.current(name).status.value,
                "evidence": record.evidence,
                "served": record.served,
                "staged": [s.version for s in self.staged.get(name, ())],
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
                "staged": {n: [_plain(s) for s in found] for n, found in self.staged.items()},
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


def _plain(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def require_served(state: LibraryState, skill: str) -> SkillRecord:
    """Return a served skill.

    Raises:
        SkillError: The library is empty, the name is unknown, or the skill is retired.
    """
    if not state.skills:
        raise SkillError(
            "the library is empty: put SKILL.md packages into the folder that [library] path "
            "names, or run `skillforge import FOLDER`"
        )
    record = state.skills.get(skill)
    if record is None:
        raise SkillError(f"no skill named {skill!r} in the library; {suggest(skill, state.skills)}")
    if not record.served:
        raise SkillError(f"{skill} is retired; `skillforge restore {skill}` serves it again")
    return record
