"""Evolve one skill: diagnose → propose → refuse → screen → confirm → adopt.

Each step reads what the one before it wrote, and writes its own result to the ledger before the
next begins. Run again after a crash, every step finds what it had finished and goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from skillforge.core.gate import Decision, GateRules, Registration, basis_of
from skillforge.core.leaks import LeakIndex
from skillforge.core.library import require_served
from skillforge.core.multiplicity import betting_limit
from skillforge.core.package import Package
from skillforge.core.records import ROLLOUTS, read_rollout
from skillforge.core.rollout import Rollout
from skillforge.core.task import Split, Suite, Task
from skillforge.errors import BlobErased, BudgetSpent, SkillError, SuiteError
from skillforge.ports import ChatModel
from skillforge.workflows import contrast
from skillforge.workflows.audit import audit_units, audited_units
from skillforge.workflows.candidates import (
    Candidate,
    SkillReport,
    make_candidate,
    refuse_removals,
    refuse_repeats,
)
from skillforge.workflows.confirm import confirm, read_result, register, registered
from skillforge.workflows.contrast import (
    Context,
    betting_order,
    freeze_context,
    salt_of,
    spread,
)
from skillforge.workflows.curate import Curator
from skillforge.workflows.journal import Journal
from skillforge.workflows.neighbours import NeighbourCheck
from skillforge.workflows.propose import (
    Attempted,
    Brief,
    propose_examples,
    propose_prune,
)
from skillforge.workflows.propose_llm import propose_llm
from skillforge.workflows.retrieve import Retriever
from skillforge.workflows.screen import keep_best, screen
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
    neighbours: int = 5
    """Nearest skills whose tasks a proven edit must not harm; 0 checks none."""
    neighbour_tasks: int = 60
    """Most confirm tasks of each of them."""
    stage_only: bool = False
    """Whether a proven version waits for `adopt` instead of being written to the folder."""


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
    make_retriever: Callable[[Mapping[str, Package]], Retriever] | None = None
    """Embeds and indexes some packages; None checks no neighbours."""
    cohort_size: int = 1
    """Most candidates that the cohort can start; sets how much evidence is enough."""
    _held_out: LeakIndex | None = field(default=None, init=False)

    @property
    def _journal(self) -> Journal:
        return Journal(ledger=self.bench.ledger, run=self.bench.run)

    async def evolve(self, skill: str) -> SkillReport:
        """Try to make one skill better; a spent budget ends it early with what there is.

        Raises:
            SkillError: The skill is unknown or retired.
            SuiteError: The suite has no tasks for it in one of the splits.
            InfraError: The model cannot be reached.
        """
        record = require_served(self.curator.state, skill)
        base = self.curator.package(skill, self._journal.base_version(skill, record.current))
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
                    self._journal.closed(base, candidate)
        await self._check_neighbours(base, report)
        self._serve(base, report)
        return report

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
        audit = await audit_units(self.bench, base, audited_units(base), anchors, context)
        return Brief(
            package=base,
            attempts=attempts,
            audit=audit.units,
            informative=audit.informative,
            seed=seed,
        )

    def _output(self, rollout: Rollout) -> str:
        """Return what was answered; nothing where it was erased meanwhile."""
        try:
            blob = self.bench.ledger.get_blob(rollout.output_blob)
        except BlobErased:
            return ""
        output: str = json.loads(blob)["output"]
        return output

    async def _candidates(
        self, brief: Brief, tasks: Mapping[Split, Sequence[Task]]
    ) -> list[Candidate]:
        proposals = self._journal.proposals(brief.package.name)
        if proposals is None:
            proposals = [*propose_examples(brief), *propose_prune(brief)]
            if self.proposer is not None:
                proposals += await propose_llm(brief, self.proposer)
            bill = self.bench.meter.unrecorded()
            self._journal.remember(brief.package.name, proposals, bill)
        if self._held_out is None:
            self._held_out = LeakIndex(self.suite.tasks)
        held_out = self._held_out
        propose_tasks = {t.id: t for t in tasks[Split.PROPOSE]}
        candidates = [
            make_candidate(self.bench.run, brief.package, proposal, propose_tasks, held_out)
            for proposal in proposals
        ]
        if not brief.informative:
            refuse_removals(candidates)
        refuse_repeats(candidates, self.curator.state)
        for candidate in candidates:
            self._journal.proposed(brief.package, candidate)
        return candidates

    async def _screen(
        self,
        base: Package,
        candidates: Sequence[Candidate],
        tasks: Sequence[Task],
        context: Context,
    ) -> None:
        anchors = spread(tasks, self.settings.anchors, self.bench.seed, salt_of(base.name), 1)
        running = [c for c in candidates if c.open]
        await screen(self.bench, base, running, anchors, context)
        keep_best(running, self.settings.max_confirm)
        for candidate in running:
            self._journal.screened(base, candidate)

    async def _confirm(
        self,
        base: Package,
        candidates: Sequence[Candidate],
        tasks: Sequence[Task],
        context: Context,
    ) -> None:
        """Let the gate decide on fresh confirm tasks; all candidates share the base rollouts."""
        running = {c.id: c for c in candidates if c.open}
        registrations = self._register(base, list(running.values()), tasks)
        if not registrations:
            return
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
                replicates=self.rules.replicates,
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
        """Fix claim, rules and task order in the ledger before the first confirm rollout.

        A candidate whose lineage has spent every confirm task ends here, without evidence.
        """
        known = registered(self.bench, base.name)
        missing = [c for c in candidates if c.id not in known]
        missing, spent = self._refuse_spent(base, missing, tasks)
        if missing:
            fresh = [task for task in tasks if task.id not in spent]
            order = betting_order(fresh, self.rules, self.bench.seed, salt_of(base.name), 2)
            new = [self._registration(base, c, *order, pool=len(fresh)) for c in missing]
            register(self.bench, new)
            known |= {registration.candidate: registration for registration in new}
        return [known[candidate.id] for candidate in candidates if candidate.id in known]

    def _lineage(self, candidate: Candidate) -> str:
        """A revision of what a proposer tried before on this skill is of the same lineage."""
        assert candidate.package is not None
        return f"{self.suite.name}/{candidate.package.name}/{candidate.proposal.proposer}"

    def _refuse_spent(
        self, base: Package, candidates: Sequence[Candidate], tasks: Sequence[Task]
    ) -> tuple[list[Candidate], frozenset[str]]:
        """Close candidates that leave no fresh task to those they share an order with.

        Returns:
            Those that go on, and the tasks that one of them has spent.
        """
        every, spent = {task.id for task in tasks}, frozenset[str]()
        going: list[Candidate] = []
        for candidate in candidates:
            with_it = spent | self.curator.state.spent_by(self._lineage(candidate))
            if every <= with_it:
                reason = (
                    f"all {len(tasks)} confirm tasks of {base.name} in suite {self.suite.name} are "
                    f"spent for proposer {candidate.proposal.proposer}: add tasks to its confirm "
                    "split"
                )
                candidate.close(Decision.INSUFFICIENT_EVIDENCE, reason)
                self._journal.closed(base, candidate)
            else:
                spent = with_it
                going.append(candidate)
        return going, spent

    def _registration(
        self,
        base: Package,
        candidate: Candidate,
        order: tuple[str, ...],
        blocks: tuple[int, ...],
        *,
        pool: int,
    ) -> Registration:
        assert candidate.package is not None
        return Registration(
            candidate=candidate.id,
            skill=base.name,
            base=base.version,
            version=candidate.package.version,
            basis=basis_of(candidate.proposal.edit.op),
            rules=self.rules,
            order=order,
            enough=betting_limit(max(self.cohort_size, 1), self.rules.fdr),
            lineage=self._lineage(candidate),
            blocks=blocks,
            pool=pool,
        )

    def _cost(self, candidate: Candidate, purpose: str) -> float:
        about = (candidate.package.version,) if candidate.package else ()
        events = self.bench.ledger.events(run=self.bench.run, kinds=ROLLOUTS, about=about)
        return sum(r.cost_usd for r in map(read_rollout, events) if r.purpose == purpose)

    async def _check_neighbours(self, base: Package, report: SkillReport) -> None:
        """Reject what is proven but harms the skills beside it, before it is served."""
        if self.make_retriever is None or not self.settings.neighbours:
            return
        check = NeighbourCheck(
            bench=self.bench,
            curator=self.curator,
            suite=self.suite,
            rules=self.rules,
            make_retriever=self.make_retriever,
            k=self.settings.k,
            wave=self.settings.wave,
            count=self.settings.neighbours,
            max_tasks=self.settings.neighbour_tasks,
        )
        await check.check(base, report)

    def _serve(self, base: Package, report: SkillReport) -> None:
        """Stage the proven candidate of the largest lift, and adopt it unless told to wait.

        The others' base is then gone.
        """
        winners = report.winners
        if not winners:
            return
        best = winners[0]
        assert best.package is not None
        for other in winners[1:]:
            other.reasons = (
                *other.reasons,
                f"not adopted: measured against {base.short}, which {best.id} is to replace",
            )
        curator, version = self.curator, best.package.version
        if curator.state.skill(base.name).current == version:
            report.adopted = version
            return
        curator.stage(
            base.name,
            version,
            base=base.version,
            run=self.bench.run,
            candidate=best.id,
            evidence=Decision.PROBATION.value,
        )
        if all(s.version != version for s in curator.state.staged.get(base.name, ())):
            best.reasons = (*best.reasons, "adopted by this run before, and undone since")
            return
        report.staged = version
        if self.settings.stage_only or report.unchecked:
            return
        try:
            report.adopted = curator.adopt(base.name, version, run=self.bench.run)
            report.staged = None
        except SkillError as error:
            best.reasons = (*best.reasons, f"staged, not adopted: {error}")
