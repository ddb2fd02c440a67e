"""Evaluate one skill as it is: with it against without it, on fresh tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skillforge.core.gate import Basis, GateResult, GateRules, decide
from skillforge.core.library import require_served
from skillforge.core.paired_tests import mcnemar_exact
from skillforge.core.rollout import Pair, Void
from skillforge.core.task import Split, Suite, Task
from skillforge.errors import SuiteError
from skillforge.workflows import contrast
from skillforge.workflows.contrast import Report, freeze_context, salt_of
from skillforge.workflows.curate import Curator
from skillforge.workflows.retrieve import Retriever
from skillforge.workflows.trial import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a skill adds to a suite's tasks."""

    suite: str
    skill: str
    version: str
    result: GateResult
    p_value: float | None
    """Exact one-sided McNemar p at this fixed number of tasks; None without pairs."""
    regressed: tuple[str, ...]
    """Tasks that pass without the skill and fail with it."""
    truncated: Mapping[str, float | None] = field(default_factory=dict, hash=False)
    """By arm, the share of answers that ``max_tokens`` cut off, in [0, 1]; None without answers."""
    voided: tuple[str, ...] = ()
    """Tasks whose pair an infrastructure failure took from the contrast."""

    def to_json(self) -> Report:
        """Return the evaluation as ``eval --json`` prints it."""
        return {
            "suite": self.suite,
            "skill": self.skill,
            "version": self.version,
            "arms": ["base", "augmented"],
            **self.result.evidence.to_json(),
            "p_value": self.p_value,
            "decision": self.result.decision.value,
            "basis": self.result.basis.value,
            "reasons": list(self.result.reasons),
            "regressed": list(self.regressed),
            "truncated": dict(self.truncated),
            "voided": list(self.voided),
        }


async def evaluate(
    bench: Bench,
    curator: Curator,
    suite: Suite,
    skill: str,
    rules: GateRules,
    *,
    tasks: int,
    retriever: Retriever | None = None,
    k: int = 1,
    replicates: int = 1,
) -> Evaluation:
    """Measure a served skill against its absence on confirm tasks of its suite.

    Nothing is decided about the library and nothing reaches a proposer, so no task is spent. All
    tasks asked for are run; the verdict is what the gate would have said along their order.

    Raises:
        SkillError: The skill is unknown or retired.
        SuiteError: The suite has no confirm tasks for it.
        BudgetSpent: The caps were reached before all tasks were run; the rest is kept.
    """
    version = require_served(curator.state, skill).current
    chosen = _choose(suite, skill, tasks, bench.seed)
    package = curator.package(skill, version)
    context = freeze_context(retriever, skill, chosen, k)
    base_cells = contrast.arm_cells(
        chosen, arm="base", package=None, context=context, purpose="eval", replicates=replicates
    )
    cells = base_cells + contrast.arm_cells(
        chosen,
        arm="augmented",
        package=package,
        context=context,
        purpose="eval",
        replicates=replicates,
    )
    rollouts = await bench.rollouts(cells)
    half = len(base_cells)
    arms = {"base": rollouts[:half], "augmented": rollouts[half:]}
    joined = contrast.outcomes(chosen, arms["base"], arms["augmented"])
    pool = len(suite.select(skill=skill, split=Split.CONFIRM))
    result = decide(joined, rules, Basis.LIFT, enough=float("inf"), stop=False, pool=pool)
    pairs = [o for o in joined if isinstance(o, Pair)]
    table = result.evidence.table
    return Evaluation(
        suite=suite.name,
        skill=skill,
        version=version,
        result=result,
        p_value=mcnemar_exact(table.gains, table.regressions, "greater") if pairs else None,
        regressed=tuple(p.task for p in pairs if p.outcome.value == "regression"),
        truncated={arm: contrast.truncated(done) for arm, done in arms.items()},
        voided=tuple(o.task for o in joined if isinstance(o, Void)),
    )


def _choose(suite: Suite, skill: str, count: int, seed: int) -> Sequence[Task]:
    available = suite.select(skill=skill, split=Split.CONFIRM)
    if not available:
        raise SuiteError(
            f"suite {suite.name} has no confirm tasks for {skill}; it has tasks for "
            f"{', '.join(suite.skills) or 'no skill'}"
        )
    return contrast.shuffled(available, seed, salt_of(skill), 4)[:count]
