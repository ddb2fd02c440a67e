"""Candidates on their way to a decision, and the report of what was tried on one skill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillforge.core.digest import json_digest
from skillforge.core.edits import LeakIndex, apply_edit, verify_undo
from skillforge.core.gate import Basis, Decision, GateResult, basis_of
from skillforge.core.library import LibraryState, Status
from skillforge.core.lint import lint
from skillforge.core.package import Package
from skillforge.core.task import Task
from skillforge.errors import EditError
from skillforge.workflows.contrast import Report
from skillforge.workflows.propose import Proposal, UnitUtility, warranted


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

    def refuse(self, reason: str) -> None:
        """End the candidate without a package of its own."""
        self.package = None
        self.close(Decision.REFUSED, reason)

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


def make_candidate(
    run: str,
    base: Package,
    proposal: Proposal,
    tasks: Mapping[str, Task],
    held_out: LeakIndex,
) -> Candidate:
    """Apply a proposal to the base version, or say why it is refused before it costs a rollout.

    Args:
        run: The run it belongs to; part of its identity.
        base: The version that is edited.
        proposal: The edit with the evidence it cites.
        tasks: The propose split by task id, which citations may name.
        held_out: What the edit must not quote: confirm and sealed tasks.
    """
    identity = json_digest([run, base.name, base.version, proposal.to_json()])
    candidate = Candidate(id=identity[:12], proposal=proposal, package=None)
    edit = proposal.edit
    if edit.op == "NOOP":
        candidate.close(Decision.NO_CHANGE, edit.summary)
        return candidate
    try:
        if edit.content:
            held_out.check(edit.content)
        applied = apply_edit(base, edit)
        verify_undo(base, edit)
        _refuse_new_problems(base, applied.package)
        unwarranted = warranted(proposal, tasks)
        if unwarranted:
            raise EditError(unwarranted)
        candidate.package = applied.package
    except EditError as error:
        candidate.close(Decision.REFUSED, str(error))
    return candidate


def refuse_repeats(candidates: Sequence[Candidate], state: LibraryState) -> None:
    """Refuse a candidate that equals another one of this run, or one that was rejected before.

    One that ended without enough evidence may be tried again.
    """
    first: dict[str, str] = {}
    for candidate in candidates:
        if candidate.package is None:
            continue
        version = candidate.package.version
        twin = first.setdefault(version, candidate.id)
        known = state.versions.get((candidate.package.name, version))
        if twin != candidate.id:
            candidate.refuse(f"it is the same edit as candidate {twin}, byte for byte")
        elif known and known.candidate not in ("", twin) and known.status is not Status.CANDIDATE:
            candidate.refuse(f"candidate {known.candidate} was the same edit: {known.status.value}")


def refuse_removals(candidates: Sequence[Candidate]) -> None:
    """Refuse what claims only not to be worse, where every anchor fails with and without it."""
    for candidate in candidates:
        removal = basis_of(candidate.proposal.edit.op) is Basis.NON_INFERIORITY
        if candidate.open and removal:
            candidate.refuse(
                "every anchor fails with and without each unit: nothing shows what one is worth"
            )


def _refuse_new_problems(base: Package, edited: Package) -> None:
    """Refuse an edit that makes a valid package invalid."""
    before = {(p.code, p.path) for p in lint(base) if p.level == "error"}
    new = [p for p in lint(edited) if p.level == "error" and (p.code, p.path) not in before]
    if new:
        raise EditError(f"the edited package would be invalid: {new[0].path}: {new[0].message}")


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
    staged: str | None = None
    """Version that waits to be adopted, if any."""
    stopped_by: str | None = None
    """Why the work on this skill ended early, if it did."""

    def to_json(self) -> Report:
        """Return the report as ``evolve --json`` prints it."""
        return {
            "suite": self.suite,
            "skill": self.skill,
            "base": self.base,
            "adopted": self.adopted,
            "staged": self.staged,
            "candidates": [c.to_json() for c in self.candidates],
            "stopped_by": self.stopped_by,
        }

    def audit_json(self) -> Report:
        """Return the unit audit as ``nightly --json`` prints it."""
        removed = {
            c.proposal.edit.unit
            for c in self.candidates
            if c.package is not None
            and c.package.version in (self.adopted, self.staged)
            and c.proposal.edit.op == "PRUNE"
        }
        return {
            "skill": self.skill,
            "units": [u.to_json() | {"removed": u.unit.id in removed} for u in self.audit],
        }
