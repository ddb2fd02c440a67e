"""The library as a fold over the ledger's events.

Replaying the events gives the same state and the same digest, and undoing is one more event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from skillforge.core.events import Event
from skillforge.core.library import LibraryState, SkillRecord, Staged, Status, VersionRecord
from skillforge.core.rules import Decision
from skillforge.errors import LedgerError


def fold(events: Iterable[Event], state: LibraryState | None = None) -> LibraryState:
    """Add events to a state.

    ``fold(a + b) == fold(b, fold(a))`` for every way of cutting a ledger in two.
    """
    state = state or LibraryState()
    work = _Work(
        skills=dict(state.skills),
        versions=dict(state.versions),
        staged=dict(state.staged),
        decisions=dict(state.decisions),
        spent=dict(state.spent),
        reserved=dict(state.reserved),
        open_runs=dict(state.open_runs),
    )
    for event in events:
        step = _STEPS.get(event.kind)
        try:
            if step is not None:
                step(work, event)
        except KeyError as error:
            raise LedgerError(
                f"event {event.seq} of the ledger ({event.kind}) needs {error}, which it and the "
                "events before it lack: it was changed from outside; restore ledger.db from a "
                "backup"
            ) from error
    return LibraryState(
        skills=work.skills,
        versions=work.versions,
        staged=work.staged,
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
    "neighbours.registered",
    "neighbours.decided",
    "version.staged",
    "version.adopted",
    "version.withdrawn",
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
    staged: dict[str, tuple[Staged, ...]]
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

    def spend(self, decided: Mapping[str, Any]) -> None:
        """Take the tasks that a decision used from its lineage, and give the others back."""
        kept = (decided["lineage"], frozenset[str]())
        lineage, registered = self.reserved.pop(decided["candidate"], kept)
        used = registered - frozenset(decided["unused"])
        self.spent[lineage] = self.spent.get(lineage, frozenset[str]()) | used

    def stand(self, skill: str, version: str) -> str:
        """Give a version that comes to be served its status; return the evidence it stands on."""
        record = self.versions[skill, version]
        status = Status.PROMOTED if record.promoted else Status.PROBATION
        self.set_status(skill, version, status)
        waiting = self.staged.get(skill, ())
        self.set_staged(skill, (s for s in waiting if s.version != version))
        imported = record.promoted and not record.candidate
        return Decision.UNMEASURED.value if imported else status.value

    def set_promoted(self, skill: str, version: str, *, promoted: bool) -> None:
        record = self.versions.get((skill, version))
        if record is not None:
            self.versions[skill, version] = replace(record, promoted=promoted)

    def unstage(self, skill: str, candidate: str) -> None:
        """Let a candidate wait no longer: it went on betting, or its neighbours did, and lost."""
        waiting = self.staged.get(skill, ())
        self.set_staged(skill, (s for s in waiting if s.candidate != candidate))

    def set_staged(self, skill: str, staged: Iterable[Staged]) -> None:
        found = tuple(staged)
        if found:
            self.staged[skill] = found
        else:
            self.staged.pop(skill, None)


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
    if (name, version) not in work.versions:
        work.versions[name, version] = VersionRecord(
            version=version,
            skill=name,
            parent=old.current if old is not None else "",
            candidate="",
            blob=data["blob"],
            status=Status.PROMOTED,
            promoted=True,
        )
    evidence = work.stand(name, version)
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
    work.spend(data)
    # Probation means served: the version gets there when it is adopted.
    status = {
        "probation": Status.CANDIDATE,
        "insufficient_evidence": Status.CANDIDATE,
        "rolled_back": Status.ROLLED_BACK,
    }.get(data["decision"], Status.REJECTED)
    work.set_outcome(data["skill"], data["version"], status)
    if status is not Status.CANDIDATE:
        work.unstage(data["skill"], data["candidate"])


def _neighbours_decided(work: _Work, event: Event) -> None:
    data = event.data
    work.spend(data)
    if data["decision"] != "probation":
        work.decisions[data["candidate"]] = data
        work.unstage(data["skill"], data["candidate"])
    if data["decision"] == "rejected_harm":
        work.set_outcome(data["skill"], data["version"], Status.REJECTED)


def _staged(work: _Work, event: Event) -> None:
    data = event.data
    name, version = data["skill"], data["version"]
    new = Staged(
        version=version,
        base=data["base"],
        candidate=data["candidate"],
        evidence=data["evidence"],
    )
    # staged anew, it is the newest
    others = (s for s in work.staged.get(name, ()) if s.version != version)
    work.set_staged(name, (*others, new))


def _adopted(work: _Work, event: Event) -> None:
    data = event.data
    name, version = data["skill"], data["version"]
    promoted = data["evidence"] == Status.PROMOTED
    work.set_status(name, work.skills[name].current, Status.SUPERSEDED)
    work.set_promoted(name, version, promoted=promoted)
    work.stand(name, version)
    work.skills[name] = replace(
        work.skills[name], current=version, evidence=data["evidence"], written=False
    )


def _withdrawn(work: _Work, event: Event) -> None:
    name, version = event.data["skill"], event.data["version"]
    work.set_outcome(name, version, Status.ROLLED_BACK)
    work.set_staged(name, (s for s in work.staged.get(name, ()) if s.version != version))


def _rolled_back(work: _Work, event: Event) -> None:
    data = event.data
    name = data["skill"]
    work.set_status(name, work.skills[name].current, Status.ROLLED_BACK)
    standing = work.stand(name, data["version"])
    evidence = "probation" if standing == "probation" else "rolled_back"
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
        work.set_staged(
            skill,
            (
                replace(s, evidence="promoted") if s.candidate == candidate else s
                for s in work.staged.get(skill, ())
            ),
        )
        if work.skills[skill].current == version:
            work.skills[skill] = replace(work.skills[skill], evidence="promoted")


def _retired(work: _Work, event: Event) -> None:
    name = event.data["skill"]
    work.set_status(name, work.skills[name].current, Status.RETIRED)
    work.skills[name] = replace(work.skills[name], served=False, written=False)


def _restored(work: _Work, event: Event) -> None:
    name = event.data["skill"]
    old = work.skills[name]
    version = event.data.get("version", old.current)
    if version != old.current:
        work.set_status(name, old.current, Status.SUPERSEDED)
    evidence = work.stand(name, version)
    if version == old.current:
        evidence = old.evidence
    work.skills[name] = replace(old, current=version, served=True, evidence=evidence, written=False)


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
    "neighbours.registered": _registered,
    "neighbours.decided": _neighbours_decided,
    "version.staged": _staged,
    "version.adopted": _adopted,
    "version.withdrawn": _withdrawn,
    "version.rolled_back": _rolled_back,
    "cohort.closed": _cohort_closed,
    "skill.retired": _retired,
    "skill.restored": _restored,
    "folder.written": _written,
}
