"""The nightly batch: evolve the library under a budget, then audit, retire, promote, re-index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from skillforge.core.events import NewEvent
from skillforge.core.gate import Decision
from skillforge.core.package import Package
from skillforge.core.task import Split, Suite
from skillforge.errors import BudgetSpent, SkillError
from skillforge.ports import Ledger
from skillforge.workflows.audit import Exposure, LibraryAudit, audit_skill, exposures
from skillforge.workflows.candidates import SkillReport
from skillforge.workflows.cohorts import close_cohorts
from skillforge.workflows.composition import Composer, CompositionReport, planned
from skillforge.workflows.contrast import Report
from skillforge.workflows.evolve import Evolver
from skillforge.workflows.retrieve import Retriever


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlySettings:
    """How much of the library one night looks at."""

    skills: tuple[str, ...] = ()
    """Skills to evolve, in this order; none named means every skill the suite has tasks for."""
    library_audits: int = 2
    """Most skills whose effect on the tasks of others is audited."""


@dataclass(slots=True, kw_only=True)
class NightReport:
    """What one night did."""

    run_id: str
    stopped_by: str = "done"
    skills: list[SkillReport] = field(default_factory=list)
    composition: CompositionReport | None = None
    """What the adopted edits do together; None where there were fewer than two."""
    composed: bool = False
    """Whether that has been measured to the end."""
    library_audits: list[LibraryAudit] = field(default_factory=list)
    promoted: list[Report] = field(default_factory=list)
    retired: list[Report] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)
    """Served skills that this night did not try to evolve."""
    library_digest: str = ""

    def to_json(self) -> Report:
        """Return the report as ``nightly --json`` prints it."""
        every = [(report, c) for report in self.skills for c in report.candidates]
        rejected = [
            {"skill": report.skill, "candidate": c.id, "decision": c.decision.value}
            for report, c in every
            if c.decision
            in (Decision.REJECTED_HARM, Decision.REJECTED_FUTILE, Decision.ROLLED_BACK)
        ]
        return {
            "run_id": self.run_id,
            "stopped_by": self.stopped_by,
            "skills": [report.to_json() for report in self.skills],
            "audits": [report.audit_json() for report in self.skills],
            "composition": None if self.composition is None else self.composition.to_json(),
            "library_audits": [audit.to_json() for audit in self.library_audits],
            "promoted": self.promoted,
            "rejected": rejected,
            "retired": self.retired,
            "restored": [],
            "unmeasured": self.unmeasured,
            "library_digest": self.library_digest,
        }


def planned_night(
    ledger: Ledger, run: str, order: Sequence[str], library: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return order of the skills and served versions as they were when a night began.

    What a night adopts or retires changes what would come first, and what stands beside a skill; a
    rerun goes on as it was planned.
    """
    for event in ledger.events(run=run, kinds=("night.planned",)):
        return list(event.data["skills"]), dict(event.data["library"])
    data = {"skills": list(order), "library": dict(library)}
    ledger.append([NewEvent(kind="night.planned", data=data, run=run)])
    return list(order), dict(library)


@dataclass(slots=True, kw_only=True)
class Nightly:
    """One night over one library and suite."""

    evolver: Evolver
    suite: Suite
    settings: NightlySettings
    make_retriever: Callable[[Mapping[str, Package]], Retriever]
    """Embeds and indexes some packages."""
    announce: Callable[[str], None] = lambda _: None
    """Told what begins, for progress."""

    async def run(self, order: Sequence[str]) -> NightReport:
        """Evolve the skills in order, audit the library, close the cohorts, re-index.

        A spent budget ends the evolving. The night's own cohort, and those whose members went on,
        are closed all the same, unless edits that were adopted have yet to be measured together:
        the next night then does both.

        Raises:
            InfraError: The model cannot be reached; a rerun goes on from here.
        """
        curator = self.evolver.curator
        report = NightReport(run_id=self.evolver.bench.run)
        try:
            for skill in order:
                self.announce(f"evolving {skill}")
                done = await self.evolver.evolve(skill)
                report.skills.append(done)
                if done.stopped_by:
                    raise BudgetSpent(done.stopped_by)
            await self._check_composition(report)
            await self._audit_library(report)
        except BudgetSpent as spent:
            report.stopped_by = str(spent)
        edits, _ = planned(self.evolver.bench, curator.state)
        if report.composed or len(edits) < 2:
            self.announce("closing the cohorts")
            fdr = self.evolver.rules.fdr
            report.promoted = close_cohorts(curator, self.evolver.bench.run, fdr)
        self.announce("re-indexing the library")
        self.make_retriever(curator.served())
        measured = {s.skill for s in report.skills}
        report.unmeasured = [name for name in curator.state.served if name not in measured]
        report.library_digest = curator.state.library_digest
        return report

    async def _check_composition(self, report: NightReport) -> None:
        """Measure what this night adopted together, and roll back what does harm together."""
        evolver, curator = self.evolver, self.evolver.curator
        edits, library = planned(evolver.bench, curator.state)
        if len(edits) < 2:
            return
        self.announce(f"measuring {len(edits)} adopted edits together")
        report.composition = CompositionReport(edits=edits)
        composer = Composer(
            bench=evolver.bench,
            rules=evolver.rules,
            suite=self.suite.name,
            tasks=self.suite.select(split=Split.CONFIRM),
            library={name: curator.package(name, version) for name, version in library.items()},
            edited={edit.skill: curator.package(edit.skill, edit.version) for edit in edits},
            make_retriever=self.make_retriever,
            state=lambda: curator.state,
            k=evolver.settings.k,
            wave=evolver.settings.wave,
        )
        try:
            await composer.check(report.composition)
            report.composed = True
        finally:
            self._take_back(report.composition)

    def _take_back(self, composition: CompositionReport) -> None:
        """Roll back the edits of every set that was proven harmful."""
        curator, run = self.evolver.curator, self.evolver.bench.run
        for edits in composition.harmful:
            names = ", ".join(edit.skill for edit in edits)
            for edit in edits:
                reason = f"joint loss of the edits of {names}, proven on fresh tasks"
                state = curator.state
                if state.skill(edit.skill).current == edit.version:
                    curator.roll_back(edit.skill, to=edit.parent, reason=reason, run=run)
                elif any(s.version == edit.version for s in state.staged.get(edit.skill, ())):
                    curator.withdraw(edit.skill, edit.version, reason=reason, run=run)

    async def _audit_library(self, report: NightReport) -> None:
        """Audit the skills that are most often retrieved for the tasks of others, one by one.

        Each audit sees the library as the one before it left it.
        """
        evolver = self.evolver
        for number in range(self.settings.library_audits):
            plan = self._plan_audit(number, {audit.skill for audit in report.library_audits})
            if plan is None:
                return
            retriever, exposure = plan
            self.announce(f"auditing what {exposure.skill} does to the tasks that retrieve it")
            audit = await audit_skill(
                evolver.bench,
                retriever,
                exposure,
                evolver.rules,
                k=evolver.settings.k,
                wave=evolver.settings.wave,
                state=evolver.curator.state,
            )
            report.library_audits.append(audit)
            if audit.harmful:
                report.retired.append(self._retire(audit))

    def _plan_audit(self, number: int, done: set[str]) -> tuple[Retriever, Exposure] | None:
        """Choose whom to audit, and write it down: a rerun must not choose anew from what is left.

        Returns None where no skill is retrieved for the tasks of another.
        """
        bench, curator, k = self.evolver.bench, self.evolver.curator, self.evolver.settings.k
        for event in bench.ledger.events(run=bench.run, kinds=("audit.planned",)):
            if event.data["number"] == number:
                library = event.data["library"]
                packages = {name: curator.package(name, v) for name, v in library.items()}
                retriever = self.make_retriever(packages)
                found = exposures(self.suite, retriever, k)
                return retriever, next(e for e in found if e.skill == event.data["skill"])
        packages = curator.served()
        retriever = self.make_retriever(packages)
        found = exposures(self.suite, retriever, k)
        suspects = [e for e in found if e.foreign and e.skill not in done]
        if not suspects:
            return None
        data = {
            "number": number,
            "skill": suspects[0].skill,
            "library": {name: package.version for name, package in packages.items()},
        }
        bench.ledger.append([NewEvent(kind="audit.planned", data=data, run=bench.run)])
        return retriever, suspects[0]

    def _retire(self, audit: LibraryAudit) -> Report:
        curator, run = self.evolver.curator, self.evolver.bench.run
        reason = "; ".join(audit.result.reasons)
        evidence = audit.result.to_json()
        retired = {"skill": audit.skill, "version": audit.version, "reason": reason, **evidence}
        if curator.state.skill(audit.skill).served:
            try:
                curator.retire(audit.skill, evidence=evidence, reason=reason, run=run)
            except SkillError as error:
                retired["reason"] = f"not retired: {error}"
        return retired
