"""Evolve one skill: watch → diagnose → propose → refuse → screen → confirm → neighbours → adopt.

Each step reads what the one before it wrote, and writes its own result to the ledger before the
next begins. Run again after a crash, every step finds what it had finished and goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from skillforge.core.gate import Decision, GateRules
from skillforge.core.leaks import LeakIndex
from skillforge.core.library import require_served
from skillforge.core.package import Package
from skillforge.core.rollout import Rollout
from skillforge.core.task import Split, Suite, Task
from skillforge.errors import BlobErased, BudgetSpent, SkillError, SuiteError
from skillforge.ports import ChatModel
from skillforge.workflows import carry, contrast
from skillforge.workflows.admission import Admission
from skillforge.workflows.audit import audit_units, audited_units
from skillforge.workflows.candidates import (
    Candidate,
    SkillReport,
    make_candidate,
    refuse_removals,
    refuse_repeats,
)
from skillforge.workflows.confirm import registered
from skillforge.workflows.contrast import Context, freeze_context, salt_of, spread
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
from skillforge.workflows.screen import screen
from skillforge.workflows.trial import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveSettings:
    """How much is tried on one skill."""

    propose_tasks: int = 12
    """Tasks of the propose split that the base skill is diagnosed on."""
    anchors: int = 12
    """Tasks of the screen split that every candidate is screened on."""
    max_confirm: int = 3
    """New candidates that go on to the gate, and carried ones beside them: so many of either."""
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

        What earlier runs left undecided goes on first: the version that is served on probation,
        then, beside the new ones, up to ``max_confirm`` candidates.

        Raises:
            SkillError: The skill is unknown or retired.
            SuiteError: The suite has no tasks for it in one of the splits.
            InfraError: The model cannot be reached.
        """
        record = self.curator.state.skills.get(skill)
        if record is None or not self._journal.has_started(skill):  # it may have retired it since
            record = require_served(self.curator.state, skill)
        report = SkillReport(suite=self.suite.name, skill=skill, base=record.current)
        tasks = {split: self._tasks(skill, split) for split in (*Split,) if split != Split.SEALED}
        every = [t for group in tasks.values() for t in group]
        context = freeze_context(self.retriever, skill, every, self.settings.k)
        admission = self._admission(skill, tasks[Split.CONFIRM], context)
        try:
            await self._watch(admission, report)
        except BudgetSpent as spent:
            report.stopped_by = str(spent)
            return report
        await self._improve(admission, report, tasks)
        return report

    def _admission(self, skill: str, tasks: Sequence[Task], context: Context) -> Admission:
        return Admission(
            bench=self.bench,
            curator=self.curator,
            rules=self.rules,
            suite=self.suite.name,
            skill=skill,
            tasks=tasks,
            context=context,
            wave=self.settings.wave,
            cohort_size=self.cohort_size,
        )

    async def _watch(self, admission: Admission, report: SkillReport) -> None:
        """Let the version on probation bet on against its parent; roll it back if that says so."""
        curator, skill = self.curator, report.skill
        mine = [r.candidate for r in registered(self.bench, skill).values() if r.on_probation]
        if mine:
            candidate = carry.recall(curator, mine[0], run=self.bench.run)
        else:
            candidate = carry.watched(curator, self.suite.name, skill)
        if candidate is None or candidate.standing is None:
            return
        if candidate.standing.run == self.bench.run:
            return  # this run adopted it before it was cut off, and comes to it again
        report.candidates.append(candidate)
        try:
            if candidate.decision is not Decision.ROLLED_BACK:
                parent = curator.package(skill, candidate.standing.registration.base)
                await admission.decide(parent, [candidate], on_probation=True)
        finally:
            carry.take_back(curator, candidate)

    async def _improve(
        self, admission: Admission, report: SkillReport, tasks: Mapping[Split, Sequence[Task]]
    ) -> None:
        """Bring carried and new candidates to the gate, and serve the best that is proven."""
        base, carried = self._start(report.skill)
        report.base = base.version
        try:
            brief = await self._diagnose(base, tasks, admission.context)
            report.audit = brief.audit
            new = await self._candidates(brief, tasks, carried)
            report.candidates += new
            await self._screen(base, new, tasks, admission.context)
            report.candidates += carried
            await admission.decide(base, [*carried, *(c for c in new if c.open)])
        except BudgetSpent as spent:
            report.stopped_by = str(spent)
            for candidate in report.candidates:
                if candidate.open:
                    candidate.close(Decision.INSUFFICIENT_EVIDENCE, str(spent))
                    self._journal.closed(base, candidate)
        await self._check_neighbours(base, report)
        self._serve(base, report)

    def _start(self, skill: str) -> tuple[Package, list[Candidate]]:
        """Return the version that this run edits, and the earlier candidates that go on with it."""
        curator = self.curator
        current = curator.state.skill(skill).current
        waiting = carry.undecided(curator, self.suite.name, skill, current)
        chosen = [c.id for c in waiting[: self.settings.max_confirm]]
        version, names = self._journal.started(skill, current, chosen)
        found = [carry.recall(curator, name, run=self.bench.run) for name in names]
        return curator.package(skill, version), [c for c in found if c is not None]

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
        rollouts = await self.bench.rollouts(
            contrast.arm_cells(chosen, arm="base", package=base, context=context, purpose="propose")
        )
        attempts = tuple(
            Attempted(task=task, rollout=rollout, output=self._output(rollout))
            for task, rollout in zip(chosen, rollouts, strict=True)
            if rollout.score is not None
        )
        anchors, units = self._anchors(base, tasks), audited_units(base)
        audit = await audit_units(self.bench, base, units, anchors, context)
        return Brief(
            package=base,
            attempts=attempts,
            audit=audit.units,
            informative=audit.informative,
            seed=seed,
        )

    def _anchors(self, base: Package, tasks: Mapping[Split, Sequence[Task]]) -> list[Task]:
        """Return the screen tasks for audit and screen alike, which share the base rollouts."""
        seed, salt = self.bench.seed, salt_of(base.name)
        return spread(tasks[Split.SCREEN], self.settings.anchors, seed, salt, 1)

    def _output(self, rollout: Rollout) -> str:
        """Return what was answered; nothing where it was erased meanwhile."""
        try:
            blob = self.bench.ledger.get_blob(rollout.output_blob)
        except BlobErased:
            return ""
        output: str = json.loads(blob)["output"]
        return output

    async def _candidates(
        self, brief: Brief, tasks: Mapping[Split, Sequence[Task]], carried: Sequence[Candidate]
    ) -> list[Candidate]:
        base, curator, suite = brief.package, self.curator, self.suite.name
        proposals = self._journal.proposals(base.name)
        if proposals is None:
            proposals = [*propose_examples(brief), *propose_prune(brief)]
            proposals += carry.rebased(curator, suite, base)
            if self.proposer is not None:
                proposals += await propose_llm(brief, self.proposer)
            with self.bench.meter.record() as account:
                self._journal.remember(base.name, proposals, account)
        if self._held_out is None:
            self._held_out = LeakIndex(self.suite.tasks)
        held_out = self._held_out
        propose_tasks = {t.id: t for t in tasks[Split.PROPOSE]}
        going_on = {c.package.version for c in carried if c.package is not None}
        made = (
            make_candidate(self.bench.run, base, proposal, propose_tasks, held_out)
            for proposal in proposals
        )
        candidates = [c for c in made if c.package is None or c.package.version not in going_on]
        if not brief.informative:
            refuse_removals(candidates)
        waiting = carry.undecided(curator, suite, base.name, base.version)
        refuse_repeats(candidates, curator.state, waiting)
        for candidate in candidates:
            self._journal.proposed(base, candidate)
        return candidates

    async def _screen(
        self,
        base: Package,
        candidates: Sequence[Candidate],
        tasks: Mapping[Split, Sequence[Task]],
        context: Context,
    ) -> None:
        running, anchors = [c for c in candidates if c.open], self._anchors(base, tasks)
        keep = self.settings.max_confirm
        await screen(self.bench, base, running, anchors, context, keep=keep)
        for candidate in running:
            self._journal.screened(base, candidate)

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
