"""Candidates on their way to a decision, and the report of what was tried on one skill."""

from __future__ import annotations

from dataclasses import dataclass, field

from skillforge.core.gate import Decision, GateResult, basis_of
from skillforge.core.package import Package
from skillforge.workflows.contrast import Report
from skillforge.workflows.propose import Proposal, UnitUtility


@dataclass(slots=True, kw_only=True)
class Candidate:
    """One edit on its way to a decision."""

    id: str
    proposal: Proposal
    package: Package | None
    """The edited package; None if the edit could not be applied or changes nothing."""
    decision: Decision | None = None
    reasons: tuple[str, ...] = ()
    rollback_reward: float | None = None
    screen: Report = field(default_factory=dict)
    result: GateResult | None = None
    cost_usd: float = 0.0

    def close(self, decision: Decision, reason: str) -> None:
        """End the candidate before the gate."""
        self.decision, self.reasons = decision, (reason,)

    @property
    def open(self) -> bool:
        """Whether nothing has been decided yet."""
        return self.decision is None

    def to_json(self) -> Report:
        """Return the candidate as ``evolve --json`` prints it."""
        edit = self.proposal.edit
        return {
            "id": self.id,
            "proposer": self.proposal.proposer,
            "edits": [{"op": edit.op, "unit": edit.unit, "summary": edit.summary}],
            "version": None if self.package is None else self.package.version,
            "rollback_reward": self.rollback_reward,
            "screen": self.screen,
            "confirm": None if self.result is None else self.result.evidence.to_json(),
            "decision": None if self.decision is None else self.decision.value,
            "basis": basis_of(edit.op).value,
            "reasons": list(self.reasons),
            "cost_usd": self.cost_usd,
        }


@dataclass(slots=True, kw_only=True)
class SkillReport:
    """What was tried on one skill and what came of it."""

    suite: str
    skill: str
    base: str
    candidates: list[Candidate] = field(default_factory=list)
    audit: tuple[UnitUtility, ...] = ()
    adopted: str | None = None
    """Version adopted, if any."""
    stopped_by: str | None = None
    """Why the work on this skill ended early, if it did."""

    def to_json(self) -> Report:
        """Return the report as ``evolve --json`` prints it."""
        return {
            "suite": self.suite,
            "skill": self.skill,
            "base": self.base,
            "adopted": self.adopted,
            "candidates": [c.to_json() for c in self.candidates],
            "stopped_by": self.stopped_by,
        }

    def audit_json(self) -> Report:
        """Return the unit audit as ``nightly --json`` prints it."""
        removed = {
            c.proposal.edit.unit
            for c in self.candidates
            if c.package is not None
            and c.package.version == self.adopted
            and c.proposal.edit.op == "PRUNE"
        }
        return {
            "skill": self.skill,
            "units": [u.to_json() | {"removed": u.unit.id in removed} for u in self.audit],
        }
