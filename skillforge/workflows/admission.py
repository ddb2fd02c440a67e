"""Admission to the gate: on which tasks a candidate bets, and with what evidence behind it.

Candidates of one base bet on the same fresh tasks and share the base rollouts of the run. One that
is carried from an earlier run goes on with its E if base, worker, tasks and rules are what they
were; otherwise its E begins anew at 1. What its lineage has spent stays spent either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from skillforge.core.digest import json_digest
from skillforge.core.gate import FEWEST_FAMILIES, Decision, GateRules, Registration, basis_of
from skillforge.core.multiplicity import betting_limit
from skillforge.core.package import Package
from skillforge.core.records import ROLLOUTS, read_rollout
from skillforge.core.task import Task
from skillforge.workflows import contrast
from skillforge.workflows.candidates import Candidate, Standing
from skillforge.workflows.cohorts import OPEN, read_cohorts
from skillforge.workflows.confirm import confirm, read_result, register, registered
from skillforge.workflows.contrast import Context, betting_order, salt_of
from skillforge.workflows.curate import Curator
from skillforge.workflows.journal import Journal
from skillforge.workflows.trial import Bench, Cell


@dataclass(slots=True, kw_only=True)
class Admission:
    """Brings candidates of one skill to the gate, within one run."""

    bench: Bench
    curator: Curator
    rules: GateRules
    suite: str
    skill: str
    tasks: Sequence[Task]
    """The skill's confirm tasks."""
    context: Context
    wave: int
    cohort_size: int
    """Most candidates that the run's own cohort can start."""

    async def decide(
        self, base: Package, candidates: Sequence[Candidate], *, on_probation: bool = False
    ) -> None:
        """Let the gate decide on fresh confirm tasks; all candidates share the base rollouts.

        Args:
            base: The version they are edits of.
            candidates: New ones, and those carried from earlier runs; each gets its result.
            on_probation: Whether they are served already.

        Raises:
            BudgetSpent: A cap was reached; what was bet on by then counts.
            InfraError: The model cannot be reached; a rerun goes on from here.
        """
        running = {c.id: c for c in candidates}
        registrations = self._register(base, candidates, on_probation=on_probation)
        if not registrations:
            return
        packages = {c.package.version: c.package for c in candidates if c.package}
        packages[base.version] = base

        def cells_for(subject: str, wave: Sequence[Task]) -> list[Cell]:
            return contrast.arm_cells(
                wave,
                arm="base" if subject == base.version else "augmented",
                package=packages[subject],
                context=self.context,
                purpose="confirm",
                scope=self.bench.run,
                replicates=self.rules.replicates,
            )

        by_id = {task.id: task for task in self.tasks}
        try:
            await confirm(self.bench, registrations, by_id, cells_for, wave=self.wave)
        finally:
            for registration in registrations:
                self._take(running[registration.candidate], registration)

    def _take(self, candidate: Candidate, registration: Registration) -> None:
        run = self.bench.run
        result = read_result(self.bench.ledger, run, registration)
        candidate.stand(Standing(run=run, registration=registration, result=result))
        about = (registration.version,)
        events = self.bench.ledger.events(run=run, kinds=ROLLOUTS, about=about)
        spent = [r.cost_usd for r in map(read_rollout, events) if r.purpose == "confirm"]
        candidate.cost_usd += sum(spent)

    def _register(
        self, base: Package, candidates: Sequence[Candidate], *, on_probation: bool
    ) -> list[Registration]:
        """Fix claim, rules and task order in the ledger before the first confirm rollout.

        A candidate whose lineage has spent every confirm task gets no further.
        """
        known = registered(self.bench, self.skill)
        missing = [c for c in candidates if c.id not in known]
        # One that is missing beside others was left out before the run was cut off.
        tasks = self.tasks if len(missing) == len(candidates) else ()
        going, fresh = self._with_fresh_tasks(base, missing, tasks)
        if going:
            seed, salt = self.bench.seed, salt_of(self.skill)
            fewest = FEWEST_FAMILIES if any(c.standing is None for c in going) else 1
            order, blocks = betting_order(fresh, self.rules, seed, salt, 2, fewest=fewest)
            cohorts = read_cohorts(self.bench.ledger)
            for candidate in going:
                cohorts.homes.setdefault(candidate.id, OPEN)
            new = [
                self._registration(
                    base,
                    candidate,
                    order,
                    blocks,
                    pool=len(fresh),
                    tried=cohorts.size(cohorts.homes[candidate.id]),
                    on_probation=on_probation,
                )
                for candidate in going
            ]
            register(self.bench, new)
            known |= {registration.candidate: registration for registration in new}
        return [known[candidate.id] for candidate in candidates if candidate.id in known]

    def _with_fresh_tasks(
        self, base: Package, candidates: Sequence[Candidate], tasks: Sequence[Task]
    ) -> tuple[list[Candidate], list[Task]]:
        """Return the candidates that go on, and those of some tasks that none of them has spent.

        One that would leave no task to those before it ends here; if it is carried, it stays as it
        is until there are more.
        """
        fresh, going = list(tasks), list[Candidate]()
        for candidate in candidates:
            spent = self.curator.state.spent_by(self._lineage(candidate))
            bet = self._bet(candidate)
            left = [t for t in fresh if t.id not in spent and t.family not in bet]
            if left:
                fresh = left
                going.append(candidate)
                continue
            reason = (
                f"all {len(self.tasks)} confirm tasks of {self.skill} in suite {self.suite} are "
                f"spent for proposer {candidate.proposal.proposer}: add tasks to its confirm split"
            )
            if candidate.standing is not None:
                candidate.reasons = (*candidate.reasons, reason)
            else:
                candidate.close(Decision.INSUFFICIENT_EVIDENCE, reason)
                Journal(ledger=self.bench.ledger, run=self.bench.run).closed(base, candidate)
        return going, fresh

    def _bet(self, candidate: Candidate) -> frozenset[str]:
        """Return the families that have had their one bet on a candidate, where families bet."""
        if self.rules.inference == "tasks" or candidate.standing is None:
            return frozenset()
        used = {*candidate.standing.registration.order[: candidate.standing.result.used]}
        return frozenset(task.family for task in self.tasks if task.id in used)

    def _lineage(self, candidate: Candidate) -> str:
        """A revision of what a proposer tried before on this skill is of the same lineage."""
        return f"{self.suite}/{self.skill}/{candidate.proposal.proposer}"

    def _registration(
        self,
        base: Package,
        candidate: Candidate,
        order: tuple[str, ...],
        blocks: tuple[int, ...],
        *,
        pool: int,
        tried: int,
        on_probation: bool,
    ) -> Registration:
        assert candidate.package is not None
        again = candidate.proposal.again
        new = Registration(
            candidate=candidate.id,
            skill=self.skill,
            base=base.version,
            version=candidate.package.version,
            basis=basis_of(candidate.proposal.edit.op),
            rules=self.rules,
            order=order,
            enough=betting_limit(max(self.cohort_size, 1), self.rules.fdr),
            lineage=self._lineage(candidate),
            blocks=blocks,
            pool=pool,
            restarted=f"candidate {again} was this edit of another version" if again else "",
            on_probation=on_probation,
            worker=self.bench.worker.fingerprint,
            tasks=self._digest(order),
            tried=tried,
        )
        return new if candidate.standing is None else self._carry(new, candidate.standing)

    def _carry(self, new: Registration, standing: Standing) -> Registration:
        """Return a registration with the bets of an earlier run, unless something forbids that."""
        earlier, used = standing.registration, standing.result.used
        new = replace(new, enough=earlier.enough, restarted=self._changed(standing))
        if new.restarted:
            return new
        order = earlier.order[:used] + new.order
        return replace(
            new,
            order=order,
            blocks=earlier.blocks_until(used) + new.blocks,
            carried=earlier.bets_until(standing.run, used),
            tasks=self._digest(order),
        )

    def _changed(self, standing: Standing) -> str:
        """Say what forbids going on with the evidence of an earlier run; "" if nothing does."""
        earlier, run = standing.registration, standing.run
        if earlier.worker != self.bench.worker.fingerprint:
            return f"the worker, its model or its settings are not those of {run}"
        if earlier.tasks != self._digest(earlier.order):
            return f"the tasks of {run}, their verifier or the skills shown beside have changed"
        # How many tasks a night may take says nothing about what they show.
        if replace(earlier.rules, max_tasks=self.rules.max_tasks) != self.rules:
            return f"the rules of the gate are not those of {run}"
        if self.rules.finite_pool:
            return f"betting without replacement is on the pool of one run, and {run} had its own"
        return ""

    def _digest(self, order: Sequence[str]) -> str:
        """Return the digest of what tasks ask, how they are scored, and what is shown beside."""
        by_id = {task.id: task for task in self.tasks}
        if any(name not in by_id for name in order):
            return "gone"
        asked = [by_id[name] for name in order]
        beside = ([p.version for p in self.context.around(task, None)] for task in asked)
        return json_digest([[t.digest, *shown] for t, shown in zip(asked, beside, strict=True)])
