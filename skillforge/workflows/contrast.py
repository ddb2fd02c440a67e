"""The two arms of a contrast, alike in everything but the version under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skillforge.core.digest import sha256
from skillforge.core.gate import FEWEST_FAMILIES, GateRules
from skillforge.core.package import Package
from skillforge.core.rollout import Arm, Pair, Rollout, Void, pair_up
from skillforge.core.task import Task
from skillforge.errors import SuiteError
from skillforge.workflows.retrieve import Retriever
from skillforge.workflows.trial import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The other skills around the one under test, computed once and the same for every arm."""

    skill: str
    shown: Mapping[str, tuple[Package, ...]] = field(default_factory=dict)
    """By task id; empty where one skill is all that a task gets."""

    def around(self, task: Task, package: Package | None) -> tuple[Package, ...]:
        """Return what an arm shows: the version under test first, then the frozen context."""
        others = self.shown.get(task.id, ())
        return others if package is None else (package, *others)


def freeze_context(
    retriever: Retriever | None, skill: str, tasks: Sequence[Task], k: int
) -> Context:
    """Retrieve the ``k - 1`` other skills of every task from the base library."""
    if retriever is None or k <= 1:
        return Context(skill=skill)
    found = retriever.search_many([task.input for task in tasks], k - 1, without=frozenset({skill}))
    shown = {
        task.id: tuple(retriever.packages[hit.skill] for hit in hits)
        for task, hits in zip(tasks, found, strict=True)
    }
    return Context(skill=skill, shown=shown)


def arm_cells(
    tasks: Sequence[Task],
    *,
    arm: Arm,
    package: Package | None,
    context: Context,
    purpose: str,
    subject: str | None = None,
    scope: str = "",
    replicates: int = 1,
) -> list[Cell]:
    """Return the cells of one arm over some tasks; its subject is the package unless named."""
    if subject is None:
        subject = "" if package is None else package.version
    return [
        Cell(
            task=task,
            arm=arm,
            skills=context.around(task, package),
            subject=subject,
            purpose=purpose,
            replicate=replicate,
            scope=scope,
        )
        for task in tasks
        for replicate in range(replicates)
    ]


def by_task(rollouts: Sequence[Rollout]) -> dict[str, list[Rollout]]:
    """Group rollouts by task."""
    grouped: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        grouped.setdefault(rollout.task, []).append(rollout)
    return grouped


def outcomes(
    tasks: Sequence[Task], base: Sequence[Rollout], augmented: Sequence[Rollout]
) -> list[Pair | Void]:
    """Join two arms along an order of tasks, over the completed prefix."""
    return pair_up([task.id for task in tasks], by_task(base), by_task(augmented))


def truncated(rollouts: Sequence[Rollout]) -> float | None:
    """Return the share of the scored rollouts in which ``max_tokens`` cut an answer off."""
    scored = [r for r in rollouts if r.score is not None]
    return sum(r.finish_reason == "length" for r in scored) / len(scored) if scored else None


def shuffled(tasks: Sequence[Task], seed: int, *salt: int) -> list[Task]:
    """Return the tasks in a seeded random order."""
    rng = np.random.default_rng([seed, *salt])
    return [tasks[i] for i in rng.permutation(len(tasks))]


def betting_order(
    tasks: Sequence[Task], rules: GateRules, seed: int, *salt: int, fewest: int = FEWEST_FAMILIES
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return task ids in the random order in which they bet, and the sizes of families that bet.

    With inference over families, families come in random order and a family's tasks together; the
    sizes are empty where each task bets for itself.

    Args:
        tasks: Fresh tasks.
        rules: Of them, ``inference`` and ``max_tasks`` count here.
        seed: Seed of the run.
        salt: Keeps draws apart.
        fewest: Families that inference over families needs.

    Raises:
        SuiteError: There are fewer families.
    """
    order = shuffled(tasks, seed, *salt)
    if rules.inference == "tasks":
        return tuple(task.id for task in order[: rules.max_tasks]), ()
    families: dict[str, list[str]] = {}
    for task in order:
        families.setdefault(task.family, []).append(task.id)
    if len(families) < fewest:
        raise SuiteError(
            f"[gate] inference = 'families' needs at least {fewest} families of fresh confirm "
            f"tasks, found {len(families)}: add families to the suite, or bet over 'tasks'"
        )
    names = sorted(families)
    rng = np.random.default_rng([seed, *salt, 1])
    blocks = [families[names[i]] for i in rng.permutation(len(names))]
    ends = np.cumsum([len(block) for block in blocks])
    kept = blocks[: max(1, int(np.searchsorted(ends, rules.max_tasks, side="right")))]
    return tuple(name for block in kept for name in block), tuple(map(len, kept))


def spread(tasks: Sequence[Task], count: int, seed: int, *salt: int) -> list[Task]:
    """Return up to ``count`` tasks, drawn at random and evenly over the families."""
    families: dict[str, list[Task]] = {}
    for task in shuffled(tasks, seed, *salt):
        families.setdefault(task.family, []).append(task)
    chosen: list[Task] = []
    while len(chosen) < min(count, len(tasks)):
        for name in sorted(families):
            if families[name] and len(chosen) < count:
                chosen.append(families[name].pop())
    return chosen


def salt_of(text: str) -> int:
    """Return a stable number for a name, to keep random draws of different skills apart."""
    return int(sha256(text.encode())[:8], 16)


Report = dict[str, Any]
"""A JSON object as the commands print it."""
