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

from skillforge.core.course import run_course
from skillforge.core.events import Event, NewEvent
from skillforge.core.gate import Basis, Decision, Registration
from skillforge.core.package import Package
from skillforge.core.paired_tests import mcnemar_exact
from skillforge.core.records import registered_outcomes
from skillforge.core.rollout import Pair, Void
from skillforge.core.rules import GateRules
from skillforge.core.shadowing import AverageHarm, average_harm
from skillforge.core.task import Split, Suite, Task
from skillforge.core.validity import DIFFERS
from skillforge.errors import BudgetSpent
from skillforge.ports import Ledger
from skillforge.workflows import contrast
from skillforge.workflows.candidates import Candidate, SkillReport
from skillforge.workflows.contrast import Report
from skillforge.workflows.curate import Curator
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
        return _decide(self.bench.ledger, registered, stopped)

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
        contrasts = _contrasts(registered)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rollouts in the ledger say of an edit's neighbours."""

    standing: AverageHarm
    unused: tuple[str, ...]
    """Registered tasks that were not bet on."""
    found: Report
    """What the commands print of it."""

    def to_json(self) -> Report:
        """Return what the ledger keeps of it."""
        return {
            "decision": self.found["decision"],
            "reasons": self.found["reasons"],
            "unused": list(self.unused),
            "found": self.found,
        }


def read_verdict(ledger: Ledger, registered: Event, stopped: str | None = None) -> Verdict:
    """Recompute a verdict from the rollouts in the ledger.

    Args:
        ledger: Where the rollouts are.
        registered: The event that fixed neighbours, tasks and orders.
        stopped: Why the bets ended before there was a verdict, if they did.
    """
    contrasts = _contrasts(registered)
    outcomes = [
        registered_outcomes(ledger.events, registered.run, one, decided="neighbours.decided")
        for one in contrasts
    ]
    courses = [
        run_course(done, one.rules, one.basis, blocks=one.blocks, pool=one.pool)
        for done, one in zip(outcomes, contrasts, strict=True)
    ]
    totals = [len(one.blocks or one.order) for one in contrasts]
    standing = average_harm(courses, totals, contrasts[0].rules if contrasts else GateRules())
    rows: dict[str, Report] = {}
    unused: list[str] = []
    for i, one in enumerate(contrasts):
        bets = standing.bets[i]
        used = int(courses[i].used[bets - 1]) if bets else 0
        rows[one.skill] = _row(outcomes[i][:used], standing.e_values[i], standing.futile[i])
        unused += one.order[used:]
    near = [
        {**hit, **rows.get(hit["skill"], _row((), 1.0, False))} for hit in registered.data["near"]
    ]
    spent = registered.data["spent"]
    return Verdict(
        standing=standing,
        unused=tuple(unused),
        found={
            "candidate": registered.data["candidate"],
            "decision": _decision(standing, near, spent).value,
            "stopped_by": None if standing.final else stopped,
            "e_value": standing.average,
            "neighbours": near,
            "reasons": [_because(standing, near, spent, stopped)],
        },
    )


def settle(ledger: Ledger, run: str) -> None:
    """Cut off every check of a run that will not go on; another run asks the neighbours again."""
    decided = {e.data["candidate"] for e in ledger.events(run=run, kinds=("neighbours.decided",))}
    for registered in ledger.events(run=run, kinds=("neighbours.registered",)):
        if registered.data["candidate"] not in decided:
            _decide(ledger, registered, "its run was given up")


def _decide(ledger: Ledger, registered: Event, stopped: str | None) -> Report:
    """Write the verdict down; return what the commands print of it."""
    verdict = read_verdict(ledger, registered, stopped)
    kept = {name: registered.data[name] for name in ("candidate", "skill", "version", "lineage")}
    data = {**kept, **verdict.to_json()}
    ledger.append([NewEvent(kind="neighbours.decided", data=data, run=registered.run)])
    return verdict.found


def is_checked(ledger: Ledger, candidate: str) -> bool:
    """Whether the last check of a candidate's neighbours, if there was one, came to its end."""
    decided = list(ledger.events(kinds=("neighbours.decided",), about=(candidate,)))
    return not decided or not decided[-1].data["found"]["stopped_by"]


def _contrasts(registered: Event) -> list[Registration]:
    return [Registration.from_json(data) for data in registered.data["contrasts"]]


def _row(outcomes: Sequence[Pair | Void], e_value: float, futile: bool) -> Report:
    """Return the numbers of one neighbour; its lift is that of the edit, not of taking it back."""
    lifts = [-o.difference for o in outcomes if isinstance(o, Pair)]
    failed = [o.arm for o in outcomes if isinstance(o, Void)]
    return {
        "tasks": len(outcomes),
        "dropped": {"with": failed.count("base"), "without": failed.count("augmented")},
        "lift": sum(lifts) / len(lifts) if lifts else None,
        "e_harm": e_value,
        "futile": futile,
    }


def _decision(standing: AverageHarm, near: Sequence[Report], spent: Sequence[str]) -> Decision:
    if standing.harmful:
        return Decision.REJECTED_HARM
    return Decision.INSUFFICIENT_EVIDENCE if spent or _hides(near) else Decision.PROBATION


def _hides(near: Sequence[Report]) -> bool:
    """Whether infrastructure fails more often with the edit, so that harm may not be seen."""
    with_, without = (sum(row["dropped"][arm] for row in near) for arm in ("with", "without"))
    return with_ > without and mcnemar_exact(with_, without, "two-sided") <= DIFFERS


def _because(
    standing: AverageHarm, near: Sequence[Report], spent: Sequence[str], stopped: str | None
) -> str:
    asked = [row for row in near if row["tasks"]]
    names = ", ".join(row["skill"] for row in near)
    said = ", ".join(
        f"{row['skill']} {100 * row['lift']:+.0f} points (E harm {row['e_harm']:.3g})"
        for row in asked
        if row["lift"] is not None
    )
    average = f"average harm evidence of its neighbours {standing.average:.3g}"
    if standing.harmful:
        return f"{average} on their own tasks: {said}"
    if _hides(near):
        return f"verdict withheld: infrastructure fails its neighbours' tasks more often; {average}"
    if spent:
        return (
            f"verdict withheld: all confirm tasks of {', '.join(spent)} that it shows something "
            f"else are spent: add tasks to their confirm split; {average}"
        )
    if not standing.final:
        return f"not adopted yet: the check of its neighbours was cut off ({stopped}); {average}"
    if not near:
        return "no other served skill has confirm tasks in the suite: no neighbour was checked"
    if not asked:
        return f"it changes nothing that the fresh tasks of its neighbours ({names}) are shown"
    return f"no harm to its neighbours shown; {average} on their own tasks: {said}"
