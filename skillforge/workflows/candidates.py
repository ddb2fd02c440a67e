"""Candidates on their way to a decision, and the report of what was tried on one skill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillforge.core.digest import json_digest
from skillforge.core.edits import Edit, apply_edit
from skillforge.core.gate import Basis, Decision, GateResult, Registration, basis_of
from skillforge.core.leaks import LeakIndex
from skillforge.core.library import LibraryState, Status
from skillforge.core.lint import lint
from skillforge.core.package import Package
from skillforge.core.problem import Problem
from skillforge.core.task import Task
from skillforge.core.undo_check import MIN_STATES, UndoCheck, check_undo
from skillforge.errors import EditError
from skillforge.workflows.contrast import Report
from skillforge.workflows.propose import Proposal, UnitUtility, warranted


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run left a candidate at the gate."""

    run: str
    registration: Registration
    result: GateResult

    @property
    def e_value(self) -> float:
        """The E that the gate and its cohort count."""
        return self.result.evidence.e_charged

    @property
    def satisfied(self) -> bool:
        """Whether the claim needs no more tasks."""
        return self.e_value >= self.registration.enough


@dataclass(slots=True, kw_only=True)
class Candidate:
    """One edit on its way to a decision.

    It is open until it ends before the gate (`close`: refused, screened out …) or a run has bet on
    it (`stand`). After that the check of its neighbours may still take the decision back.
    """

    id: str
    proposal: Proposal
    package: Package | None
    """The edited package; None if the edit could not be applied or changes nothing."""
    undo: UndoCheck | None = None
    """How often the edit was undone to the byte; None if it never came to that."""
    decision: Decision | None = None
    reasons: tuple[str, ...] = ()
    rollback_reward: float | None = None
    screen: Report = field(default_factory=dict)
    standing: Standing | None = None
    """Where the last run that bet on it left it; at first, an earlier run that it is carried from.
    None for a candidate that has not come to the gate."""
    cost_usd: float = 0.0

    @property
    def result(self) -> GateResult | None:
        """What the gate says of it so far."""
        return None if self.standing is None else self.standing.result

    def stand(self, standing: Standing) -> None:
        """Take over where a run left the candidate."""
        self.standing = standing
        self.decision, self.reasons = standing.result.decision, standing.result.reasons

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
            "edits": [{"op": edit.op, "unit": edit.subject, "summary": edit.summary}],
            "version": None if self.package is None else self.package.version,
            "undo": None if self.undo is None else self.undo.to_json(),
            "rollback_reward": self.rollback_reward,
            "screen": self.screen,
            "confirm": None if self.result is None else self.result.evidence.to_json(),
            "looks": 0 if self.standing is None else self.standing.registration.looks,
            "tried": None if self.standing is None else self.standing.registration.tried,
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
    name = candidate_id(run, base.name, base.version, proposal)
    candidate = Candidate(id=name, proposal=proposal, package=None)
    edit = proposal.edit
    if edit.op == "NOOP":
        candidate.close(Decision.NO_CHANGE, edit.summary)
        return candidate
    try:
        _require_anchor(base, edit)
        if edit.content:
            held_out.check(edit.content, base)
        applied = apply_edit(base, edit)
        _refuse_new_problems(base, applied.package)
        unwarranted = warranted(proposal, tasks)
        if unwarranted:
            raise EditError(unwarranted)
        candidate.undo = check_undo(base, edit)
        _require_undo(candidate.undo)
        candidate.package = applied.package
    except EditError as error:
        candidate.close(Decision.REFUSED, str(error))
    return candidate


def candidate_id(run: str, skill: str, base: str, proposal: Proposal) -> str:
    """Return the identity of a proposal for one version of a skill within one run."""
    return json_digest([run, skill, base, proposal.to_json()])[:12]


def _require_anchor(base: Package, edit: Edit) -> None:
    """Refuse an edit that changes what is there without saying what it read there."""
    replaces = edit.named or edit.target == "description"
    if replaces and not edit.expected_digest:
        raise EditError(
            f"{edit.op} of {edit.subject} of skill {base.name!r} has no `expected_digest`; send "
            "the digest of what you read, so that it cannot land on another text"
        )


def _require_undo(undo: UndoCheck) -> None:
    if not undo.verified:
        raise EditError(
            f"the edit was undone to the byte in {undo.passed} of {undo.states} states of the "
            f"library (lower bound {undo.lower:.2f}); expected all of at least {MIN_STATES}: write "
            "an edit of fewer units"
        )


def refuse_repeats(
    candidates: Sequence[Candidate], state: LibraryState, undecided: Sequence[Candidate] = ()
) -> None:
    """Refuse a candidate that equals another one of this run, or one that was rejected before.

    One that ended without enough evidence may be tried again, unless it still goes on.
    """
    first = {c.package.version: c.id for c in undecided if c.package is not None}
    for candidate in candidates:
        if candidate.package is None:
            continue
        version = candidate.package.version
        twin = first.setdefault(version, candidate.id)
        known = state.versions.get((candidate.package.name, version))
        if twin != candidate.id:
            candidate.refuse(f"it is the same edit as candidate {twin}, byte for byte")
        elif any(
            s.version == version and s.candidate != candidate.id
            for s in state.staged.get(candidate.package.name, ())
        ):
            candidate.refuse("the same edit is staged already; `skillforge adopt` serves it")
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
    """Refuse an edit that makes a valid package invalid, or a pointer that leads nowhere."""
    before = {_kind_of(problem) for problem in lint(base)}
    new = [p for p in lint(edited) if _counts(p) and _kind_of(p) not in before]
    if new:
        raise EditError(f"the edited package would be invalid: {new[0].path}: {new[0].message}")


def _counts(problem: Problem) -> bool:
    return problem.level == "error" or problem.code.startswith("link-")


def _kind_of(problem: Problem) -> tuple[str, ...]:
    # one broken link does not excuse another
    link = problem.code.startswith("link-")
    return problem.code, problem.path, problem.message if link else ""


@dataclass(slots=True, kw_only=True)
class SkillReport:
    """What was tried on one skill and what came of it."""

    suite: str
    skill: str
    base: str
    candidates: list[Candidate] = field(default_factory=list)
    audit: tuple[UnitUtility, ...] = ()
    neighbours: list[Report] = field(default_factory=list)
    """What each proven candidate does to its neighbours, until one of them harms none."""
    adopted: str | None = None
    """Version adopted, if any."""
    staged: str | None = None
    """Version that waits to be adopted, if any."""
    stopped_by: str | None = None
    """Why the work on this skill ended early, if it did."""

    @property
    def winners(self) -> list[Candidate]:
        """The proven candidates that are not served yet, the largest lift first.

        E-values of different claims do not compare, and overshoot would decide between them.
        """
        proven = [
            c
            for c in self.candidates
            if c.decision is Decision.PROBATION
            and c.package is not None
            and c.package.version != self.base
        ]
        return sorted(proven, key=_lift, reverse=True)

    @property
    def unchecked(self) -> bool:
        """Whether it could not be told what a candidate does to its neighbours."""
        return any(found["stopped_by"] for found in self.neighbours)

    def to_json(self) -> Report:
        """Return the report as ``evolve --json`` prints it."""
        return {
            "suite": self.suite,
            "skill": self.skill,
            "base": self.base,
            "adopted": self.adopted,
            "staged": self.staged,
            "candidates": [c.to_json() for c in self.candidates],
            "neighbours": self.neighbours,
            "stopped_by": self.stopped_by,
        }

    def audit_json(self) -> Report:
        """Return the unit audit as ``nightly --json`` prints it."""
        removed = {
            unit
            for c in self.candidates
            if c.package is not None
            and c.package.version in (self.adopted, self.staged)
            and c.proposal.edit.op == "PRUNE"
            for unit in c.proposal.edit.named
        }
        return {
            "skill": self.skill,
            "units": [u.to_json() | {"removed": u.unit.id in removed} for u in self.audit],
        }


def _lift(candidate: Candidate) -> float:
    lift = candidate.result.evidence.lift if candidate.result else None
    return -1.0 if lift is None else lift
