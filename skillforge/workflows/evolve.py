"""Evolve one skill: diagnose → propose → refuse → screen → confirm → adopt.

Each step reads what the one before it wrote, and writes its own result to the ledger before the
next begins. Run again after a crash, every step finds what it had finished and goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skillforge.core.digest import canonical_json, json_digest
from skillforge.core.edits import LeakIndex, apply_edit, verify_undo
from skillforge.core.events import NewEvent
from skillforge.core.gate import Decision, GateRules, Registration, basis_of
from skillforge.core.lint import lint
from skillforge.core.package import Package, pack
from skillforge.core.records import ROLLOUTS, read_rollout
from skillforge.core.rollout import Pair, Rollout, tabulate
from skillforge.core.task import Split, Suite, Task
from skillforge.errors import BudgetSpent, EditError, SuiteError
from skillforge.ports import ChatModel
from skillforge.workflows import contrast
from skillforge.workflows.audit import audit_units
from skillforge.workflows.candidates import Candidate, SkillReport
from skillforge.workflows.confirm import confirm, read_result, register, registered
from skillforge.workflows.contrast import Context, freeze_context, salt_of, spread
from skillforge.workflows.curate import Curator, require_served
from skillforge.workflows.propose import (
    Attempted,
    Brief,
    Proposal,
    propose_examples,
    propose_llm,
    propose_prune,
    warranted,
)
from skillforge.workflows.retrieve import Retriever
from skillforge.workflows.trial import Bench, Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveSettings:
    """How much is tried on one skill."""

    propose_tasks: int = 12
    """Tasks of the propose split that the base skill is diagnosed on."""
    anchors: int = 12
    """Tasks of the screen split that every candidate is screened on."""
    max_confirm: int = 3
    """Candidates that go on to the gate."""
    wave: int = 8
    """Confirm tasks run together before the gate looks again."""
    k: int = 1
    """Skills that a task is given, the one under test included."""


@dataclass(slots=True, kw_only=True)
class Evolver:
    """Evolves skills of one library on one suite, within one run."""

    bench: Bench
    curator: Curator
    suite: Suite
    rules: GateRules
    settings: EvolveSettings
    proposer: ChatModel | None = None
    """The model behind the `llm` proposer; None leaves it out."""
    retriever: Retriever | None = None
    """The base library; needed where a task is given more than one skill."""
    cohort_size: int = 1
    """Most candidates that the cohort can start; sets how much evidence is enough."""

    async def evolve(self, skill: str) -> SkillReport:
        """Try to make one skill better; a spent budget ends it early with what there is.

        Raises:
            SkillError: The skill is unknown or retired.
            SuiteError: The suite has no tasks for it in one of the splits.
            InfraError: The model cannot be reached.
        """
        record = require_served(self.curator.state, skill)
        base = self._base_version(skill, record.current)
        report = SkillReport(suite=self.suite.name, skill=skill, base=base.version)
        tasks = {split: self._tasks(skill, split) for split in (*Split,) if split != Split.SEALED}
        every = [t for group in tasks.values() for t in group]
        context = freeze_context(self.retriever, skill, every, self.settings.k)
        try:
            brief = await self._diagnose(base, tasks, context)
            report.audit = brief.audit
            report.candidates = await self._candidates(brief, tasks)
            await self._screen(base, report.candidates, tasks[Split.SCREEN], context)
            await self._confirm(base, report.candidates, tasks[Split.CONFIRM], context)
        except BudgetSpent as spent:
            report.stopped_by = str(spent)
            for candidate in report.candidates:
                if candidate.open:
                    candidate.close(Decision.INSUFFICIENT_EVIDENCE, str(spent))
        report.adopted = self._adopt(base, report.candidates)
        return report

    def _base_version(self, skill: str, current: str) -> Package:
        """Return the version that this run started from, also after it adopted another."""
        for event in self.bench.ledger.events(run=self.bench.run, kinds=("evolve.started",)):
            if event.data["skill"] == skill:
                return self.curator.package(skill, event.data["base"])
        self._record("evolve.started", {"skill": skill, "base": current})
        return self.curator.package(skill, current)

    def _tasks(self, skill: str, split: Split) -> tuple[Task, ...]:
        tasks = self.suite.select(skill=skill, split=split)
        if not tasks:
            raise SuiteError(
                f"suite {self.suite.name} has no {split.value} tasks for {skill}; a skill needs "
                "tasks in propose, screen and confirm: name it in the tasks' `skill` field"
            )
        return tasks

    async def _diagnose(
        self, base: Package, tasks: Mapping[Split, Sequence[Task]], context: Context
    ) -> Brief:
        seed, salt = self.bench.seed, salt_of(base.name)
        chosen = spread(tasks[Split.PROPOSE], self.settings.propose_tasks, seed, salt, 0)
        anchors = spread(tasks[Split.SCREEN], self.settings.anchors, seed, salt, 1)
        rollouts = await self.bench.rollouts(
            contrast.arm_cells(chosen, arm="base", package=base, context=context, purpose="propose")
        )
        attempts = tuple(
            Attempted(task=task, rollout=rollout, output=self._output(rollout))
            for task, rollout in zip(chosen, rollouts, strict=True)
            if rollout.score is not None
        )
        audit = await audit_units(self.bench, base, anchors, context)
        return Brief(
            package=base,
            attempts=attempts,
            audit=audit.units,
            informative=audit.informative,
            seed=seed,
        )

    def _output(self, rollout: Rollout) -> str:
        blob = self.bench.ledger.get_blob(rollout.output_blob)
        output: str = json.loads(blob)["output"]
        return output

    async def _candidates(
        self, brief: Brief, tasks: Mapping[Split, Sequence[Task]]
    ) -> list[Candidate]:
        proposals = self._proposed_before(brief.package.name)
        if proposals is None:
            proposals = [*propose_examples(brief), *propose_prune(brief)]
            if self.proposer is not None:
                proposals += await propose_llm(brief, self.proposer)
            self._remember(brief.package.name, proposals)
        held_out = LeakIndex((t.input, t.expected) for t in self.suite.tasks if _is_held_out(t))
        propose_tasks = {t.id: t for t in tasks[Split.PROPOSE]}
        return [
            self._candidate(brief.package, proposal, propose_tasks, held_out)
            for proposal in proposals
        ]

    def _candidate(
        self,
        base: Package,
        proposal: Proposal,
        tasks: Mapping[str, Task],
        held_out: LeakIndex,
    ) -> Candidate:
        """Apply a proposal, or say why it is refused before it costs a rollout."""
        identity = json_digest([self.bench.run, base.name, base.version, proposal.to_json()])
        candidate = Candidate(id=identity[:12], proposal=proposal, package=None)
        edit = proposal.edit
        if edit.op == "NOOP":
            candidate.close(Decision.NO_CHANGE, edit.summary)
        else:
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
        self._record_candidate(base, candidate)
        return candidate

    async def _screen(
        self,
        base: Package,
        candidates: Sequence[Candidate],
        tasks: Sequence[Task],
        context: Context,
    ) -> None:
        """Score each edit by its rollback reward on the anchors; keep the best few.

        Source: Skill-α's rollback reward, here over several anchors and as a screen only.
        """
        anchors = spread(tasks, self.settings.anchors, self.bench.seed, salt_of(base.name), 1)
        running = [c for c in candidates if c.open and c.package is not None]
        cells = contrast.arm_cells(
            anchors, arm="base", package=base, context=context, purpose="screen"
        )
        for candidate in running:
            cells += contrast.arm_cells(
                anchors,
                arm="augmented",
                package=candidate.package,
                context=context,
                purpose="screen",
            )
        rollouts = await self.bench.rollouts(cells)
        size = len(anchors)
        for i, candidate in enumerate(running, start=1):
            mine = rollouts[i * size : (i + 1) * size]
            joined = contrast.outcomes(anchors, rollouts[:size], mine)
            candidate.cost_usd += sum(r.cost_usd for r in mine)
            candidate.screen = tabulate([o for o in joined if isinstance(o, Pair)]).to_json()
            candidate.rollback_reward = contrast.mean_difference(joined)
            self._record_screened(base, candidate)
        self._keep_best(base, running)

    def _keep_best(self, base: Package, candidates: Sequence[Candidate]) -> None:
        def reward(candidate: Candidate) -> float:
            return -2.0 if candidate.rollback_reward is None else candidate.rollback_reward

        ranked = sorted(candidates, key=reward, reverse=True)
        for rank, candidate in enumerate(ranked):
            if candidate.rollback_reward is None:
                candidate.close(Decision.INFRA_FAILED, "no anchor task could be scored")
            elif candidate.rollback_reward < 0:
                candidate.close(
                    Decision.SCREENED_OUT,
                    f"rollback reward {candidate.rollback_reward:+.3f} on "
                    f"{candidate.screen['pairs']} anchors is below zero",
                )
            elif rank >= self.settings.max_confirm:
                candidate.close(
                    Decision.SCREENED_OUT,
                    f"not among the best {self.settings.max_confirm} by rollback reward",
                )
            if not candidate.open:
                self._record_closed(base, candidate)

    async def _confirm(
        self,
        base: Package,
        candidates: Sequence[Candidate],
        tasks: Sequence[Task],
        context: Context,
    ) -> None:
        """Let the gate decide on fresh confirm tasks; all candidates share the base rollouts."""
        running = {c.id: c for c in candidates if c.open and c.package is not None}
        if not running:
            return
        registrations = self._register(base, list(running.values()), tasks)
        packages = {c.package.version: c.package for c in running.values() if c.package}
        packages[base.version] = base

        def cells_for(subject: str, wave: Sequence[Task]) -> list[Cell]:
            return contrast.arm_cells(
                wave,
                arm="base" if subject == base.version else "augmented",
                package=packages[subject],
                context=context,
                purpose="confirm",
                scope=self.bench.run,
            )

        by_id = {task.id: task for task in tasks}
        try:
            await confirm(self.bench, registrations, by_id, cells_for, wave=self.settings.wave)
        finally:
            for registration in registrations:
                candidate = running[registration.candidate]
                result = read_result(self.bench.ledger, self.bench.run, registration)
                candidate.result, candidate.decision = result, result.decision
                candidate.reasons = result.reasons
                candidate.cost_usd += self._cost(candidate, "confirm")

    def _register(
        self, base: Package, candidates: Sequence[Candidate], tasks: Sequence[Task]
    ) -> list[Registration]:
        """Fix claim, rules and task order in the ledger before the first confirm rollout."""
        known = registered(self.bench, base.name)
        missing = [c for c in candidates if c.id not in known]
        if missing:
            spent = frozenset[str]().union(
                *(self.curator.state.spent_by(_lineage(base, c)) for c in missing)
            )
            fresh = [task for task in tasks if task.id not in spent]
            if not fresh:
                raise SuiteError(
                    f"suite {self.suite.name}: all {len(tasks)} confirm tasks of {base.name} are "
                    "spent for these proposers: add tasks to its confirm split"
                )
            order = contrast.shuffled(fresh, self.bench.seed, salt_of(base.name), 2)
            new = [self._registration(base, candidate, order) for candidate in missing]
            register(self.bench, new)
            known |= {registration.candidate: registration for registration in new}
        return [known[candidate.id] for candidate in candidates]

    def _registration(
        self, base: Package, candidate: Candidate, order: Sequence[Task]
    ) -> Registration:
        assert candidate.package is not None
        return Registration(
            candidate=candidate.id,
            skill=base.name,
            base=base.version,
            version=candidate.package.version,
            basis=basis_of(candidate.proposal.edit.op),
            rules=self.rules,
            order=tuple(task.id for task in order[: self.rules.max_tasks]),
            enough=max(self.cohort_size, 1) / self.rules.fdr,
            lineage=_lineage(base, candidate),
        )

    def _cost(self, candidate: Candidate, purpose: str) -> float:
        rollouts = map(read_rollout, self.bench.ledger.events(run=self.bench.run, kinds=ROLLOUTS))
        version = candidate.package.version if candidate.package else None
        return sum(r.cost_usd for r in rollouts if (r.purpose, r.subject) == (purpose, version))

    def _adopt(self, base: Package, candidates: Sequence[Candidate]) -> str | None:
        """Adopt the best-proven candidate; the others were measured on a base that is now gone."""
        winners = [
            c
            for c in candidates
            if c.decision is Decision.PROBATION and c.result is not None and c.package is not None
        ]
        if not winners:
            return None
        winners.sort(key=lambda c: c.result.evidence.e_value if c.result else 0.0, reverse=True)
        best = winners[0]
        assert best.package is not None
        for other in winners[1:]:
            other.reasons = (
                *other.reasons,
                f"not adopted: measured against {base.short}, which {best.id} has replaced",
            )
        version = best.package.version
        if self.curator.state.skill(base.name).current == version:
            return version
        adopted = self.curator.adopt(
            base.name,
            version,
            run=self.bench.run,
            candidate=best.id,
            evidence=Decision.PROBATION.value,
        )
        if not adopted:
            best.reasons = (
                *best.reasons,
                "not adopted: the folder was edited by hand meanwhile; the edit was taken in",
            )
        return version if adopted else None

    def _proposed_before(self, skill: str) -> list[Proposal] | None:
        for event in self.bench.ledger.events(run=self.bench.run, kinds=("proposals.made",)):
            if event.data["skill"] == skill:
                stored = json.loads(self.bench.ledger.get_blob(event.data["blob"]))
                return [Proposal.from_json(p) for p in stored]
        return None

    def _remember(self, skill: str, proposals: Sequence[Proposal]) -> None:
        blob = canonical_json([p.to_json() for p in proposals]).encode()
        digest = self.bench.ledger.put_blob(blob)
        self._record("proposals.made", {"skill": skill, "blob": digest, "count": len(proposals)})

    def _record_candidate(self, base: Package, candidate: Candidate) -> None:
        events = self.bench.ledger.events(run=self.bench.run, kinds=("candidate.proposed",))
        known = {event.data["candidate"] for event in events}
        if candidate.id in known:
            return
        edit, package = candidate.proposal.edit, candidate.package
        self._record(
            "candidate.proposed",
            {
                "candidate": candidate.id,
                "skill": base.name,
                "base": base.version,
                "proposer": candidate.proposal.proposer,
                "op": edit.op,
                "unit": edit.unit,
                "summary": edit.summary,
                "version": "" if package is None else package.version,
                "blob": "" if package is None else self.bench.ledger.put_blob(pack(package)),
            },
        )
        if not candidate.open:
            self._record_closed(base, candidate)

    def _record_screened(self, base: Package, candidate: Candidate) -> None:
        """Write down once what the screen said, also of a candidate that goes on to the gate."""
        events = self.bench.ledger.events(run=self.bench.run, kinds=("candidate.screened",))
        if any(event.data["candidate"] == candidate.id for event in events):
            return
        self._record(
            "candidate.screened",
            {
                "candidate": candidate.id,
                "skill": base.name,
                "rollback_reward": candidate.rollback_reward,
                "screen": candidate.screen,
            },
        )

    def _record_closed(self, base: Package, candidate: Candidate) -> None:
        assert candidate.decision is not None
        if candidate.id in self.curator.state.decisions:
            return
        package = candidate.package
        self._record(
            "candidate.closed",
            {
                "candidate": candidate.id,
                "skill": base.name,
                "version": "" if package is None else package.version,
                "decision": candidate.decision.value,
                "reasons": list(candidate.reasons),
                "rollback_reward": candidate.rollback_reward,
                "screen": candidate.screen,
            },
        )

    def _record(self, kind: str, data: Mapping[str, Any]) -> None:
        self.bench.ledger.append([NewEvent(kind=kind, data=data, run=self.bench.run)])


def _is_held_out(task: Task) -> bool:
    return task.split in (Split.CONFIRM, Split.SEALED)


def _lineage(base: Package, candidate: Candidate) -> str:
    """A revision of what a proposer tried before on this skill is of the same lineage."""
    return f"{base.name}/{candidate.proposal.proposer}"


def _refuse_new_problems(base: Package, edited: Package) -> None:
    """Refuse an edit that makes a valid package invalid."""
    before = {(p.code, p.path) for p in lint(base) if p.level == "error"}
    new = [p for p in lint(edited) if p.level == "error" and (p.code, p.path) not in before]
    if new:
        raise EditError(f"the edited package would be invalid: {new[0].path}: {new[0].message}")
