"""What one run of `evolve` has written down, and reads again when it goes on after a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skillforge.core.digest import canonical_json, sha256
from skillforge.core.events import NewEvent
from skillforge.core.package import Package, pack
from skillforge.ports import Ledger
from skillforge.workflows.candidates import Candidate
from skillforge.workflows.propose import Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The events of one run about the candidates of its skills; each is written once."""

    ledger: Ledger
    run: str

    def has_started(self, skill: str) -> bool:
        """Whether this run has begun to edit a skill."""
        events = self.ledger.events(run=self.run, kinds=("evolve.started",))
        return any(event.data["skill"] == skill for event in events)

    def started(
        self, skill: str, current: str, carried: Sequence[str]
    ) -> tuple[str, tuple[str, ...]]:
        """Return what this run started from on a skill, also after it changed that.

        Args:
            skill: Name of the skill.
            current: The version that is served.
            carried: Candidates of earlier runs that go on.

        Returns:
            Base version and carried candidates, as they were when this was first asked.
        """
        for event in self.ledger.events(run=self.run, kinds=("evolve.started",)):
            if event.data["skill"] == skill:
                return str(event.data["base"]), tuple(event.data.get("carried", ()))
        data = {"skill": skill, "base": current, "carried": list(carried)}
        self._record("evolve.started", data)
        return current, tuple(carried)

    def proposals(self, skill: str) -> list[Proposal] | None:
        """Return what was proposed for a skill, or None if nothing has been asked for yet."""
        for event in self.ledger.events(run=self.run, kinds=("proposals.made",)):
            if event.data["skill"] == skill:
                stored = json.loads(self.ledger.get_blob(event.data["blob"]))
                return [Proposal.from_json(p) for p in stored]
        return None

    def remember(
        self, skill: str, proposals: Sequence[Proposal], account: Mapping[str, Any]
    ) -> None:
        """Keep proposals, and what they cost: a model asked again would propose something else."""
        blob = canonical_json([p.to_json() for p in proposals]).encode()
        digest = self.ledger.put_blob(blob)
        data = {"skill": skill, "blob": digest, "count": len(proposals), **account}
        self._record("proposals.made", data)

    def proposed(self, base: Package, candidate: Candidate) -> None:
        """Write a candidate down, and its end if it was refused or changes nothing."""
        if self._knows("candidate.proposed", candidate):
            return
        edit, package = candidate.proposal.edit, candidate.package
        blobs = () if package is None else pack(package)
        data = {
            "candidate": candidate.id,
            "skill": base.name,
            "base": base.version,
            "proposer": candidate.proposal.proposer,
            "op": edit.op,
            "unit": edit.subject,
            "summary": edit.summary,
            "undo": None if candidate.undo is None else candidate.undo.to_json(),
            "version": "" if package is None else package.version,
            "blob": sha256(blobs[0]) if blobs else "",
        }
        events = [self._event("candidate.proposed", data), *self._end(base, candidate)]
        self.ledger.record(events, blobs=blobs)

    def screened(self, base: Package, candidate: Candidate) -> None:
        """Write down what the screen said, also of a candidate that goes on to the gate."""
        if self._knows("candidate.screened", candidate):
            return
        data = {
            "candidate": candidate.id,
            "skill": base.name,
            "rollback_reward": candidate.rollback_reward,
            "screen": candidate.screen,
        }
        self._append(self._event("candidate.screened", data), *self._end(base, candidate))

    def closed(self, base: Package, candidate: Candidate) -> None:
        """Write down how a candidate ended before the gate."""
        if not self._knows("candidate.closed", candidate):
            self._append(*self._end(base, candidate))

    def _end(self, base: Package, candidate: Candidate) -> list[NewEvent]:
        """Return the event of a candidate's end, if it has come to one.

        It is stored together with what brought the end about: a crash must not part the two.
        """
        if candidate.decision is None:
            return []
        package = candidate.package
        data = {
            "candidate": candidate.id,
            "skill": base.name,
            "version": "" if package is None else package.version,
            "decision": candidate.decision.value,
            "reasons": list(candidate.reasons),
            "rollback_reward": candidate.rollback_reward,
            "screen": candidate.screen,
        }
        return [self._event("candidate.closed", data)]

    def _knows(self, kind: str, candidate: Candidate) -> bool:
        return any(self.ledger.events(run=self.run, kinds=(kind,), about=(candidate.id,)))

    def _event(self, kind: str, data: Mapping[str, Any]) -> NewEvent:
        return NewEvent(kind=kind, data=data, run=self.run)

    def _append(self, *events: NewEvent) -> None:
        self.ledger.append(events)

    def _record(self, kind: str, data: Mapping[str, Any]) -> None:
        self._append(self._event(kind, data))
