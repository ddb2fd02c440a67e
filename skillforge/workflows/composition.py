"""Composition: what the accepted edits of one night do together, through retrieval.

Each edit was measured alone, with the rest of the library as it was. Together they may clash, and
they may change which skills a task gets. So the library with all of them is measured against the
library without: on fresh tasks, and only on those to which the two show something else. If taking
the edits back is proven to help, delta debugging looks for a minimal set that does the harm
(`skillforge.core.minimal_set`); it must be proven harmful by tasks of its own before its edits are
rolled back, and what is left is then measured again.

Stated error: the t-th proof of a night claims at ``6 α / (π² t²)``, so that the probability that
any set without a joint loss is ever rolled back is at most α = ``harm_retire``, however many are
tried. The search between two proofs only says what to prove next, on tasks that no proof uses, so
its tests stop at a level of their own; they would be more than three times as dear if each of them
had to pay for all before it. A search that was wrong is found out: what it named is not proven, or
is larger than need be, and the search is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from skillforge.core.digest import json_digest
from skillforge.core.events import NewEvent
from skillforge.core.gate import Basis, Decision, GateResult, GateRules, Registration
from skillforge.core.library import LibraryState
from skillforge.core.minimal_set import minimal_set
from skillforge.core.multiplicity import spending_alpha
from skillforge.core.package import Package
from skillforge.core.task import Task
from skillforge.workflows import contrast
from skillforge.workflows.confirm import confirm, register, registered
from skillforge.workflows.contrast import Report
from skillforge.workflows.retrieve import Retriever, Shown
from skillforge.workflows.trial import Bench, Cell

NAME = "library/composition"
HORIZON = 3
"""Tasks that a test may use, as a multiple of a candidate's: its α is smaller, and a test that ends
undecided names a set larger than it need be."""
SEARCH_ALPHA = 0.02
"""Level of a test that only steers the search."""
PATIENCE = 2
"""Searches in a row without a smaller proven set after which the smallest one stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedEdit:
    """An edit that a night adopted or staged."""

    skill: str
    parent: str
    """Version that it was measured against."""
    version: str
    candidate: str


Edits = tuple[AcceptedEdit, ...]


@dataclass(slots=True, kw_only=True)
class CompositionReport:
    """What the edits of a night do together."""

    edits: Edits
    tests: list[Report] = field(default_factory=list)
    """Every contrast in order: the skills whose edits stood against the base, whether it was to
    prove them harmful or to steer the search, and the result."""
    harmful: list[Edits] = field(default_factory=list)
    """Minimal sets that were proven harmful, to be rolled back."""

    def alpha(self, rules: GateRules, *, proof: bool) -> float:
        """Return the level of the next test."""
        proofs = sum(test["proof"] for test in self.tests)
        return spending_alpha(proofs + 1, rules.harm_retire) if proof else SEARCH_ALPHA

    def to_json(self) -> Report:
        """Return the report as ``nightly --json`` prints it."""
        return {
            "edits": [edit.skill for edit in self.edits],
            "tests": self.tests,
            "rolled_back": [[edit.skill for edit in edits] for edits in self.harmful],
        }


@dataclass(slots=True, kw_only=True)
class Composer:
    """Tests sets of edits on fresh tasks of one suite, within one run."""

    bench: Bench
    rules: GateRules
    suite: str
    """Name of the suite."""
    tasks: Sequence[Task]
    """The confirm tasks of the suite."""
    library: Mapping[str, Package]
    """What was served before the first of the edits."""
    edited: Mapping[str, Package]
    """The edited packages, by skill."""
    make_retriever: Callable[[Mapping[str, Package]], Retriever]
    state: Callable[[], LibraryState]
    k: int
    wave: int
    max_tests: int = 60
    """Tests after which the search ends with what is proven by then."""
    _before: Shown = field(default_factory=dict)
    """What the library shows for each task, once it was asked."""

    @property
    def lineage(self) -> str:
        """Whose confirm tasks the tests spend."""
        return f"{self.suite}/{NAME}"

    async def check(self, report: CompositionReport) -> None:
        """Measure the edits of a report together, and add what does harm to it.

        Raises:
            BudgetSpent: A cap was reached; what is proven by then stands in the report.
            InfraError: The model cannot be reached.
        """
        left = report.edits
        while len(left) > 1 and len(report.tests) < self.max_tests:
            if not await self._harmful(left, report, proof=True):
                return
            report.harmful.append(left)
            await self._reduce(report)
            left = tuple(edit for edit in left if edit not in report.harmful[-1])

    async def _reduce(self, report: CompositionReport) -> None:
        """Put a smaller set in the place of the last one that is proven, as long as there is one.

        A set of two or fewer that a search has been through is taken as minimal.
        """
        fruitless = 0
        while fruitless < PATIENCE and len(report.tests) < self.max_tests:
            proven = report.harmful[-1]
            found = await self._search(proven, report)
            if len(found) < len(proven) and await self._harmful(found, report, proof=True):
                report.harmful[-1], fruitless = found, 0
            else:
                fruitless += 1
            if len(report.harmful[-1]) <= 2:
                return

    async def _search(self, edits: Edits, report: CompositionReport) -> Edits:
        """Return a minimal harmful set among some edits, as far as tests for it can tell."""
        search = minimal_set(edits)
        subset = next(search, edits)
        try:
            while len(report.tests) < self.max_tests:
                subset = search.send(await self._harmful(subset, report, proof=False))
        except StopIteration as found:
            minimal: Edits = found.value
            return minimal
        return edits

    async def _harmful(self, edits: Edits, report: CompositionReport, *, proof: bool) -> bool:
        """Whether taking a set of edits back is shown to help, the rest being as it was."""
        number = len(report.tests) + 1
        self._before = self._before or self._shown(self.library)
        changed = {edit.skill: self.edited[edit.skill] for edit in edits}
        shown = {
            f"without:{number}": self._before,
            f"with:{number}": self._shown({**self.library, **changed}),
        }
        result = await self._contrast(number, shown, report.alpha(self.rules, proof=proof))
        verdict = result is not None and result.decision is Decision.PROBATION
        report.tests.append(
            {
                "skills": [edit.skill for edit in edits],
                "proof": proof,
                "harmful": verdict,
                **(result.to_json() if result else {"reasons": ["no task tells them apart"]}),
            }
        )
        return verdict

    async def _contrast(
        self, number: int, shown: Mapping[str, Shown], alpha: float
    ) -> GateResult | None:
        """Let the gate compare two libraries; None where they show every task the same."""
        without, with_ = shown
        known = [r for r in registered(self.bench, "").values() if r.version == without]
        if not known:
            differ = [t for t in self._fresh() if shown[without][t.id] != shown[with_][t.id]]
            if not differ:
                return None
            known = [self._registration(number, alpha, with_, without, differ)]
            register(self.bench, known)

        def cells_for(subject: str, tasks: Sequence[Task]) -> list[Cell]:
            return [
                Cell(
                    task=task,
                    arm="augmented" if subject == without else "base",
                    skills=shown[subject][task.id],
                    subject=subject,
                    purpose="confirm",
                    replicate=replicate,
                    scope=f"{self.bench.run}/composition/{number}",
                )
                for task in tasks
                for replicate in range(self.rules.replicates)
            ]

        by_id = {task.id: task for task in self.tasks}
        results = await confirm(self.bench, known, by_id, cells_for, wave=self.wave)
        return results[known[0].candidate]

    def _shown(self, library: Mapping[str, Package]) -> Shown:
        """Return what a library shows for each task, through retrieval."""
        return self.make_retriever(library).show(self.tasks, self.k)

    def _fresh(self) -> list[Task]:
        """Return the tasks that neither the edits' own evidence nor an earlier test has used."""
        state, edited = self.state(), {(name, p.version) for name, p in self.edited.items()}
        own = {
            decision["lineage"]
            for decision in state.decisions.values()
            if "lineage" in decision and (decision["skill"], decision["version"]) in edited
        }
        spent = frozenset[str]().union(*map(state.spent_by, {self.lineage, *own}))
        return [task for task in self.tasks if task.id not in spent]

    def _registration(
        self, number: int, alpha: float, with_: str, without: str, tasks: Sequence[Task]
    ) -> Registration:
        rules = replace(self.rules, alpha=alpha, max_tasks=HORIZON * self.rules.max_tasks)
        order, blocks = contrast.betting_order(
            tasks, rules, self.bench.seed, contrast.salt_of(NAME), number, fewest=1
        )
        return Registration(
            candidate=json_digest([self.bench.run, NAME, number])[:12],
            skill="",
            base=with_,
            version=without,
            basis=Basis.LIFT,
            rules=rules,
            order=order,
            enough=1 / alpha,
            lineage=self.lineage,
            blocks=blocks,
            pool=len(tasks),
        )


def planned(bench: Bench, state: LibraryState) -> tuple[Edits, dict[str, str]]:
    """Return the edits that no night has measured together yet, and the library before them.

    They are those staged since the last cohort was closed: a night that ends before its test leaves
    its cohort open. Both are written down, so that a rerun does not choose anew from what is left.
    """
    for event in bench.ledger.events(run=bench.run, kinds=("composition.planned",)):
        edits = tuple(AcceptedEdit(**edit) for edit in event.data["edits"])
        return edits, dict(event.data["library"])
    found: dict[str, AcceptedEdit] = {}
    for event in bench.ledger.events(kinds=("version.staged", "cohort.closed")):
        if event.kind == "cohort.closed":
            found.clear()
            continue
        skill, base, version = (event.data[name] for name in ("skill", "base", "version"))
        first = found.get(skill)
        found[skill] = AcceptedEdit(
            skill=skill,
            parent=base if first is None else first.parent,
            version=version,
            candidate=event.data["candidate"],
        )
    served = {name: state.skill(name).current for name in state.served}
    waiting = {(name, s.version) for name, every in state.staged.items() for s in every}
    standing = tuple(
        e
        for e in found.values()
        if e.version == served.get(e.skill) or (e.skill, e.version) in waiting
    )
    library = served | {edit.skill: edit.parent for edit in standing if edit.skill in served}
    data = {"edits": [asdict(edit) for edit in standing], "library": library}
    if _is_measured(bench, data):
        standing, data = (), {"edits": [], "library": library}
    bench.ledger.append([NewEvent(kind="composition.planned", data=data, run=bench.run)])
    return standing, library


def _is_measured(bench: Bench, plan: Mapping[str, object]) -> bool:
    """Whether an earlier night measured the same edits in the same library to the end.

    What waits to be adopted is staged anew every night; tried at α each time, edits without a joint
    loss would be taken back sooner or later.
    """
    closed = {event.run for event in bench.ledger.events(kinds=("cohort.closed",))}
    planned = bench.ledger.events(kinds=("composition.planned",))
    return any(event.run in closed and event.data == plan for event in planned)
