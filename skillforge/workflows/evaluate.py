"""Evaluate one skill as it is: with it against without it, on fresh tasks.

With the arms ``none``, ``description`` and ``full`` the effect is taken apart: what being listed
does, what the body does, and the whole. The contrasts share their rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from skillforge.core.arms import EFFECTS, TWO_ARMS, Arms, shown_in
from skillforge.core.gate import Basis, GateResult, GateRules, decide
from skillforge.core.library import require_served
from skillforge.core.package import Package
from skillforge.core.paired_table import PairedTable
from skillforge.core.paired_tests import mcnemar_exact
from skillforge.core.rollout import Arm, Outcome, Pair, Rollout
from skillforge.core.task import Split, Suite, Task
from skillforge.errors import SuiteError
from skillforge.workflows import contrast
from skillforge.workflows.contrast import Context, Report, freeze_context, salt_of
from skillforge.workflows.curate import Curator
from skillforge.workflows.retrieve import Retriever
from skillforge.workflows.trial import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A task that one arm passes and the other fails, with what was said in either."""

    task: str
    traces: Mapping[str, tuple[str, ...]] = field(hash=False)
    """By arm, the hashes of its payloads, one for each replicate; ``log show`` opens them."""

    def to_json(self) -> Report:
        """Return the task with its traces as a JSON object."""
        return {"task": self.task, "traces": {a: list(h) for a, h in self.traces.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What lies between two arms. Its first arm is the base of all its numbers."""

    name: str
    """``whole``, or with three arms also ``listed`` and ``body``."""
    arms: tuple[Arm, Arm]
    result: GateResult
    p_value: float | None
    """Exact one-sided McNemar p at this fixed number of tasks; None without pairs."""
    gained: tuple[Changed, ...]
    """Tasks that fail in the first arm and pass in the second."""
    regressed: tuple[Changed, ...]
    """Tasks that pass in the first arm and fail in the second."""
    truncated: Mapping[str, float | None] = field(hash=False)
    """By arm, the share of answers that ``max_tokens`` cut off, in [0, 1]; None without answers."""
    cost: Report = field(hash=False)
    """``cost_usd``, ``tokens`` and ``seconds`` inside the model of its rollouts, also of those that
    were reused or serve other effects too."""

    @property
    def table(self) -> PairedTable:
        """The four outcomes."""
        return self.result.evidence.table

    @property
    def tax(self) -> float | None:
        """Regressions for each gain; None where nothing was gained."""
        return self.table.regressions / self.table.gains if self.table.gains else None

    def to_json(self) -> Report:
        """Return the effect under the names that ``eval --json`` prints."""
        return {
            "arms": list(self.arms),
            **self.result.evidence.to_json(),
            "net": self.table.gains - self.table.regressions,
            "tax": self.tax,
            "p_value": self.p_value,
            "decision": self.result.decision.value,
            "basis": self.result.basis.value,
            "reasons": list(self.result.reasons),
            "gained": [changed.to_json() for changed in self.gained],
            "regressed": [changed.to_json() for changed in self.regressed],
            "truncated": dict(self.truncated),
            "agent_failures": dict(zip(self.arms, self.table.agent_failures.values(), strict=True)),
            "voided": list(self.result.evidence.voided),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a skill adds to a suite's tasks."""

    suite: str
    skill: str
    version: str
    arms: Arms
    effects: tuple[Effect, ...]
    """What was asked of the arms; the last one is the whole effect."""
    alpha: float
    """Error rate of calling a lift proven, over all effects together."""

    @property
    def whole(self) -> Effect:
        """With the skill against without it."""
        return self.effects[-1]

    @property
    def result(self) -> GateResult:
        """Decision and evidence of the whole effect."""
        return self.whole.result

    def to_json(self) -> Report:
        """Return the evaluation as ``eval --json`` prints it; several effects as ``contrasts``."""
        about = {"suite": self.suite, "skill": self.skill, "version": self.version}
        if len(self.effects) == 1:
            return about | self.whole.to_json()
        count = len(self.effects)
        return {
            **about,
            "arms": list(self.arms),
            "contrasts": [
                {"effect": e.name, **about, **e.to_json(), **e.cost} for e in self.effects
            ],
            "multiplicity": {
                "method": "bonferroni",
                "contrasts": count,
                "alpha": self.alpha,
                "alpha_each": self.alpha / count,
            },
        }


async def evaluate(
    bench: Bench,
    curator: Curator,
    suite: Suite,
    skill: str,
    rules: GateRules,
    *,
    tasks: int,
    arms: Arms = TWO_ARMS,
    retriever: Retriever | None = None,
    k: int = 1,
    replicates: int = 1,
) -> Evaluation:
    """Measure a served skill against its absence on confirm tasks of its suite.

    Nothing is decided about the library and nothing reaches a proposer, so no task is spent. All
    tasks asked for are run; the verdict is what the gate would have said along their order. Where
    several effects are asked of the same rollouts, they share the error rate in equal parts
    (Bonferroni: it holds at any time, and however the effects depend on each other).

    Args:
        bench: What rollouts go through; the arms are interleaved in its seeded order.
        curator: Knows the served version.
        suite: The suite.
        skill: Name of the skill.
        rules: The gate's rules.
        tasks: Most tasks to run, at least 1.
        arms: See `skillforge.core.arms.EFFECTS`.
        retriever: The base library, where a task gets more than one skill.
        k: Skills that a task gets.
        replicates: Rollouts of each task and arm, at least 1.

    Raises:
        SkillError: The skill is unknown or retired.
        SuiteError: The suite has no confirm tasks for it.
        BudgetSpent: The caps were reached before all tasks were run; the rest is kept.
    """
    version = require_served(curator.state, skill).current
    chosen = _choose(suite, skill, tasks, bench.seed)
    context = freeze_context(retriever, skill, chosen, k)
    package = curator.package(skill, version)
    by_arm = await _run(bench, chosen, package, arms, context, replicates)
    pool = len(suite.select(skill=skill, split=Split.CONFIRM))
    effects = EFFECTS[arms]
    shared = replace(rules, alpha=rules.alpha / len(effects))
    return Evaluation(
        suite=suite.name,
        skill=skill,
        version=version,
        arms=arms,
        effects=tuple(
            _effect(name, pair, chosen, by_arm, shared, pool) for name, pair in effects.items()
        ),
        alpha=rules.alpha,
    )


async def _run(
    bench: Bench,
    tasks: Sequence[Task],
    package: Package,
    arms: Arms,
    context: Context,
    replicates: int,
) -> dict[Arm, list[Rollout]]:
    """Run every arm together; the subject is the version under test, whatever is shown of it."""
    cells = [
        contrast.arm_cells(
            tasks,
            arm=arm,
            package=shown,
            context=context,
            purpose="eval",
            subject="" if shown is None else package.version,
            replicates=replicates,
        )
        for arm in arms
        for shown in [shown_in(arm, package)]
    ]
    rollouts = iter(await bench.rollouts([cell for some in cells for cell in some]))
    return {arm: [next(rollouts) for _ in some] for arm, some in zip(arms, cells, strict=True)}


def _effect(
    name: str,
    arms: tuple[Arm, Arm],
    tasks: Sequence[Task],
    by_arm: Mapping[Arm, Sequence[Rollout]],
    rules: GateRules,
    pool: int,
) -> Effect:
    joined = contrast.outcomes(tasks, *(by_arm[arm] for arm in arms))
    result = decide(joined, rules, Basis.LIFT, enough=float("inf"), stop=False, pool=pool)
    pairs = [o for o in joined if isinstance(o, Pair)]
    table = result.evidence.table
    traces = {arm: contrast.by_task(by_arm[arm]) for arm in arms}

    def changed(outcome: Outcome) -> tuple[Changed, ...]:
        return tuple(
            Changed(
                task=pair.task,
                traces={a: tuple(r.output_blob for r in traces[a][pair.task]) for a in arms},
            )
            for pair in pairs
            if pair.outcome is outcome
        )

    return Effect(
        name=name,
        arms=arms,
        result=result,
        p_value=mcnemar_exact(table.gains, table.regressions, "greater") if pairs else None,
        gained=changed(Outcome.GAIN),
        regressed=changed(Outcome.REGRESSION),
        truncated={arm: contrast.truncated(by_arm[arm]) for arm in arms},
        cost=_cost([rollout for arm in arms for rollout in by_arm[arm]]),
    )


def _cost(rollouts: Sequence[Rollout]) -> Report:
    return {
        "cost_usd": sum(r.cost_usd for r in rollouts),
        "tokens": sum(r.prompt_tokens + r.completion_tokens for r in rollouts),
        "seconds": sum(r.seconds for r in rollouts),
    }


def _choose(suite: Suite, skill: str, count: int, seed: int) -> Sequence[Task]:
    available = suite.select(skill=skill, split=Split.CONFIRM)
    if not available:
        raise SuiteError(
            f"suite {suite.name} has no confirm tasks for {skill}; it has tasks for "
            f"{', '.join(suite.skills) or 'no skill'}"
        )
    return contrast.shuffled(available, seed, salt_of(skill), 4)[:count]
