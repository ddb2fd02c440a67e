"""A/A calibration: how often a worker disagrees with itself, and what the gate makes of that.

Both arms show the same bytes; only the replicate differs. Every difference is noise of the worker,
the endpoint or the verifier, so the share of tasks whose outcome flips is the discordance that any
contrast on this worker and suite starts from, and a gate that finds an effect here has erred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skillforge.core.events import NewEvent
from skillforge.core.gate import Basis, GateResult, GateRules, decide
from skillforge.core.intervals import clopper_pearson_interval
from skillforge.core.package import Package
from skillforge.core.rollout import Arm
from skillforge.core.task import Split, Suite, Task
from skillforge.errors import SuiteError
from skillforge.ports import Ledger
from skillforge.workflows.contrast import Report, outcomes, salt_of, spread
from skillforge.workflows.trial import Bench, Cell

KIND = "calibration.measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What an A/A run found."""

    suite: str
    suite_digest: str
    worker: str
    """Fingerprint of the worker."""
    result: GateResult

    @property
    def flips(self) -> int:
        """Tasks that one of the two equal arms passed and the other failed."""
        table = self.result.evidence.table
        return table.gains + table.regressions

    def to_json(self) -> Report:
        """Return the calibration as the ledger keeps it and ``calibrate --json`` prints it."""
        pairs = self.result.evidence.table.pairs
        measured = pairs > 0
        return {
            "suite": self.suite,
            "suite_digest": self.suite_digest,
            "worker": self.worker,
            "flips": self.flips,
            "flip_rate": self.flips / pairs if measured else None,
            "flip_interval": (
                list(clopper_pearson_interval(self.flips, pairs)) if measured else None
            ),
            **self.result.evidence.to_json(),
            "decision": self.result.decision.value,
            "reasons": list(self.result.reasons),
        }


async def calibrate(
    bench: Bench,
    suite: Suite,
    skills: Mapping[str, Package],
    rules: GateRules,
    *,
    tasks: int,
) -> Calibration:
    """Run both arms of some tasks with equal skills and disjoint replicates, and keep the result.

    Tasks come from the splits that no decision rests on. Rollouts are made for this run alone:
    none is read from an earlier one, and none serves a later one.

    Args:
        bench: What rollouts go through.
        suite: The suite; a task shows the served skill that it was made for, if there is one.
        skills: The served packages by name.
        rules: The gate's rules; what they would have said of the A/A contrast is reported.
        tasks: Most tasks to use, at least 1.

    Raises:
        SuiteError: The suite has no tasks in its propose and screen splits.
        BudgetSpent: A cap was reached.
        InfraError: The model cannot be reached.
    """
    chosen = calibration_tasks(suite, tasks, bench.seed)
    arms: tuple[tuple[Arm, int], ...] = (("base", 0), ("augmented", 1))
    cells = [
        Cell(
            task=task,
            arm=arm,
            skills=_shown(task, skills),
            subject="",
            purpose="calibrate",
            replicate=replicate,
            scope=bench.run,
        )
        for arm, replicate in arms
        for task in chosen
    ]
    rollouts = await bench.rollouts(cells)
    joined = outcomes(chosen, rollouts[: len(chosen)], rollouts[len(chosen) :])
    result = decide(joined, rules, Basis.LIFT, enough=float("inf"), stop=False)
    found = Calibration(
        suite=suite.name, suite_digest=suite.digest, worker=bench.worker.fingerprint, result=result
    )
    bench.ledger.append([NewEvent(kind=KIND, data=found.to_json(), run=bench.run)])
    return found


def calibration_tasks(suite: Suite, count: int, seed: int) -> list[Task]:
    """Return up to ``count`` tasks of the splits that no decision rests on.

    Raises:
        SuiteError: The suite has none.
    """
    available = [t for s in (Split.SCREEN, Split.PROPOSE) for t in suite.select(split=s)]
    if not available:
        raise SuiteError(
            f"suite {suite.name} has no tasks in its propose and screen splits to calibrate on; "
            "give it some"
        )
    return spread(available, count, seed, salt_of("calibrate"))


def last_calibration(ledger: Ledger, suite: Suite, worker: str) -> Mapping[str, Any] | None:
    """Return the last calibration of this worker on this suite, or None if there is none."""
    found = None
    for event in ledger.events(kinds=(KIND,)):
        if (event.data["suite_digest"], event.data["worker"]) == (suite.digest, worker):
            found = event.data
    return found


def _shown(task: Task, skills: Mapping[str, Package]) -> tuple[Package, ...]:
    package = skills.get(task.skill or "")
    return () if package is None else (package,)
