"""Neighbours: does an edit that proved itself do harm to the skills beside it (shadowing)?

An edit changes what its skill looks like to retrieval, and so what the tasks of others get. Before
a proven edit is served, its nearest neighbours in the index bet on their own fresh confirm tasks,
the library without the edit against the library with it, both through retrieval; only on tasks to
which the two show something else, the others being ties for certain. The average of the
neighbours' harm e-values at 1/harm_stop rejects the edit (`skillforge.core.shadowing`): an edit
that harms no neighbour is rejected with probability harm_stop at most. A neighbour without such
tasks costs nothing and has no part in the average.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from skillforge.core.events import Event, NewEvent
from skillforge.core.gate import Basis, Decision, Registration
from skillforge.core.package import Package
from skillforge.core.rules import GateRules
from skillforge.core.task import Split, Suite, Task
from skillforge.errors import BudgetSpent
from skillforge.workflows import contrast
from skillforge.workflows.candidates import Candidate, SkillReport
from skillforge.workflows.contrast import Report
from skillforge.workflows.curate import Curator
from skillforge.workflows.neighbour_verdict import contrasts_of, decide, read_verdict
from skillforge.workflows.retrieve import Hit, Retriever, Shown
from skillforge.workflows.trial import Bench, Cell


@dataclass(slots=True, kw_only=True)
class NeighbourCheck:
    """Checks proven edits of one library on the tasks of others, within one run."""

    bench: Bench
    curator: Curator
    suite: Suite
    rules: GateRules
    make_retriever: Callable[[Mapping[str, Package]], Retriever]
    k: int
    """Skills that a task is given."""
    wave: int
    count: int
    """Neighbours of a skill that are looked at."""
    max_tasks: int
    """Most tasks of each."""

    async def check(self, base: Package, report: SkillReport) -> None:
        """Reject proven candidates that harm their neighbours, until one is not shown to.

        Where the budget ends a check, the candidate is not rejected and the report says so.

        Raises:
            InfraError: The model cannot be reached; a rerun goes on from here.
        """
        for candidate in report.winners:
            found = await self._examine(base, candidate)
            report.neighbours.append(found)
            report.stopped_by = report.stopped_by or found["stopped_by"]
            candidate.reasons = (*candidate.reasons, *found["reasons"])
            candidate.decision = Decision(found["decision"])
            if candidate.decision is Decision.PROBATION:
                return

    async def _examine(self, base: Package, candidate: Candidate) -> Report:
        """Bet until there is a verdict, and write it down; one that is written stands."""
        decided = self._event("neighbours.decided", candidate) or self._passed(base, candidate)
        if decided is not None:
            return dict(decided.data["found"])
        registered = self._event("neighbours.registered", candidate) or self._register(
            base, candidate
        )
        stopped = None
        try:
            await self._bet(registered, candidate)
        except BudgetSpent as spent:
            stopped = str(spent)
        return decide(self.bench.ledger, registered, stopped)

    def _event(self, kind: str, candidate: Candidate) -> Event | None:
        about = (candidate.id,)
        return next(
            iter(self.bench.ledger.events(run=self.bench.run, kinds=(kind,), about=about)), None
        )

    def _passed(self, base: Package, candidate: Candidate) -> Event | None:
        """Return the verdict of an earlier run that let an edit into the library as it is now.

        An edit that waits to be adopted comes here every night. Asked anew each time, one that
        harms nobody would be rejected sooner or later.
        """
        kinds, about = ("neighbours.registered", "neighbours.decided"), (candidate.id,)
        events = list(self.bench.ledger.events(kinds=kinds, about=about))
        if len(events) < 2 or events[-1].kind != "neighbours.decided":
            return None
        registered, decided = events[-2:]
        let_in = decided.data["decision"] == Decision.PROBATION
        if not let_in or decided.data["found"]["stopped_by"]:
            return None
        if candidate.standing is None or candidate.standing.registration.restarted:
            return None  # under another worker, say, it has shown nothing yet
        library = {**self.curator.served(), base.name: base}
        same = registered.data["library"] == {name: p.version for name, p in library.items()}
        return decided if same else None

    # What is written down before the first rollout

    def _register(self, base: Package, candidate: Candidate) -> Event:
        """Fix the neighbours, and the tasks on which each of them bets, in the ledger."""
        assert candidate.package is not None
        library = {**self.curator.served(), base.name: base}
        lineage = f"{self.suite.name}/{base.name}/{candidate.proposal.proposer}/neighbours"
        measured = {task.skill for task in self.suite.select(split=Split.CONFIRM)}
        near: list[Hit] = []
        affected: dict[str, list[Task]] = {}
        if measured & library.keys() - {base.name}:
            edited = self.make_retriever({**library, base.name: candidate.package})
            near = edited.neighbours(base.name, self.count)
            affected = self._affected(near, library, edited)
        used = self.curator.state.spent_by(lineage)
        fresh = {name: [t for t in tasks if t.id not in used] for name, tasks in affected.items()}
        contrasts = [
            self._contrast(candidate, base, neighbour, tasks, lineage)
            for neighbour, tasks in fresh.items()
            if tasks
        ]
        data = {
            "candidate": candidate.id,
            "skill": base.name,
            "base": base.version,
            "version": candidate.package.version,
            "lineage": lineage,
            "library": {name: package.version for name, package in library.items()},
            "near": [{"skill": hit.skill, "score": hit.score} for hit in near],
            "spent": [neighbour for neighbour, tasks in fresh.items() if not tasks],
            "contrasts": [registration.to_json() for registration in contrasts],
            "order": [task for registration in contrasts for task in registration.order],
        }
        event = NewEvent(kind="neighbours.registered", data=data, run=self.bench.run)
        return self.bench.ledger.append([event])[0]

    def _affected(
        self, near: Sequence[Hit], library: Mapping[str, Package], edited: Retriever
    ) -> dict[str, list[Task]]:
        """Return the tasks to which the edit shows something else, by neighbour."""
        groups = {
            hit.skill: self.suite.select(skill=hit.skill, split=Split.CONFIRM) for hit in near
        }
        tasks = [task for group in groups.values() for task in group]
        after = edited.show(tasks, self.k)
        before = self.make_retriever(library).show(tasks, self.k)
        affected = {
            neighbour: [task for task in group if before[task.id] != after[task.id]]
            for neighbour, group in groups.items()
        }
        return {neighbour: tasks for neighbour, tasks in affected.items() if tasks}

    def _contrast(
        self,
        candidate: Candidate,
        base: Package,
        neighbour: str,
        tasks: Sequence[Task],
        lineage: str,
    ) -> Registration:
        """Return the claim of one neighbour: taking the edit back helps its tasks."""
        rules = replace(self.rules, alpha=self.rules.harm_stop, max_tasks=self.max_tasks)
        salt = contrast.salt_of(f"{base.name} beside {neighbour}")
        order, blocks = contrast.betting_order(tasks, rules, self.bench.seed, salt, fewest=1)
        return Registration(
            candidate=candidate.id,
            skill=neighbour,
            base=f"with:{candidate.id}",
            version=f"without:{candidate.id}",
            basis=Basis.LIFT,
            rules=rules,
            order=order,
            enough=1 / rules.alpha,
            lineage=lineage,
            blocks=blocks,
            pool=len(tasks),
        )

    # Rollouts

    async def _bet(self, registered: Event, candidate: Candidate) -> None:
        """Run the tasks of all neighbours side by side until nothing more is to be bet."""
        if read_verdict(self.bench.ledger, registered).standing.final:
            return
        contrasts = contrasts_of(registered)
        by_id = {task.id: task for task in self.suite.select(split=Split.CONFIRM)}
        arms = self._arms(registered, candidate, [by_id[name] for name in registered.data["order"]])
        share = max(1, self.wave // len(contrasts))
        for start in range(0, max(len(c.order) for c in contrasts), share):
            standing = read_verdict(self.bench.ledger, registered).standing
            if standing.final:
                return
            chunk = [
                by_id[name]
                for one, active in zip(contrasts, standing.active, strict=True)
                for name in one.order[start : start + share]
                if active
            ]
            cells = [
                self._cell(s, task, shown[task.id]) for s, shown in arms.items() for task in chunk
            ]
            await self.bench.rollouts(
                [replace(cell, replicate=i) for cell in cells for i in range(self.rules.replicates)]
            )

    def _arms(
        self, registered: Event, candidate: Candidate, tasks: Sequence[Task]
    ) -> dict[str, Shown]:
        """Return what the library shows with the edit and without, as it was registered."""
        assert candidate.package is not None
        library = {
            name: self.curator.package(name, version)
            for name, version in registered.data["library"].items()
        }
        edited = {**library, candidate.package.name: candidate.package}
        return {
            f"{arm}:{candidate.id}": self.make_retriever(packages).show(tasks, self.k)
            for arm, packages in (("with", edited), ("without", library))
        }

    def _cell(self, subject: str, task: Task, skills: tuple[Package, ...]) -> Cell:
        return Cell(
            task=task,
            arm="base" if subject.startswith("with:") else "augmented",
            skills=skills,
            subject=subject,
            purpose="confirm",
            scope=f"{self.bench.run}/neighbours/{subject.partition(':')[2]}",
        )
