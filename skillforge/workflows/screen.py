"""Screen: score each edit by its rollback reward on the anchor tasks, and keep the best few.

Source: Skill-α's rollback reward (score after one edit minus before it, below zero the edit is
rolled back), here over several anchors and as a screen only; it never adopts anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skillforge.core.gate import Decision
from skillforge.core.package import Package
from skillforge.core.task import Task
from skillforge.workflows import contrast, measured
from skillforge.workflows.candidates import Candidate
from skillforge.workflows.contrast import Context
from skillforge.workflows.trial import Bench


async def screen(
    bench: Bench,
    base: Package,
    candidates: Sequence[Candidate],
    anchors: Sequence[Task],
    context: Context,
    *,
    keep: int,
) -> None:
    """Run every candidate and the base on the same anchors; close all but the best ``keep``."""
    cells = contrast.arm_cells(anchors, arm="base", package=base, context=context, purpose="screen")
    for candidate in candidates:
        cells += contrast.arm_cells(
            anchors,
            arm="augmented",
            package=candidate.package,
            context=context,
            purpose="screen",
        )
    rollouts = await bench.rollouts(cells)
    size = len(anchors)
    arms = {c.id: rollouts[i * size : (i + 1) * size] for i, c in enumerate(candidates, start=1)}
    found = measured.record(bench, measured.SCREEN, base, rollouts[:size], arms, keep=keep)
    closed = screened_out(found, keep)
    for candidate in candidates:
        numbers = found[candidate.id]
        candidate.cost_usd += sum(r.cost_usd for r in arms[candidate.id])
        candidate.screen = numbers["outcomes"]
        candidate.rollback_reward = numbers["lift"]
        if candidate.id in closed:
            candidate.close(*closed[candidate.id])


def screened_out(
    found: Mapping[str, measured.Numbers], keep: int
) -> dict[str, tuple[Decision, str]]:
    """Return who goes no further, and why: a reward below zero or none, or not the best ``keep``.

    Every candidate gets the same anchors. Dropping the worse half early (sequential halving) finds
    the best no more often with fewer than about eight candidates, and would ask for more anchors.

    Args:
        found: By candidate, its numbers; ``lift`` is the rollback reward.
        keep: Most candidates that go on.
    """
    rewards = {name: numbers["lift"] for name, numbers in found.items()}
    ranked = sorted(rewards, key=lambda n: -2.0 if rewards[n] is None else rewards[n], reverse=True)
    closed: dict[str, tuple[Decision, str]] = {}
    for rank, name in enumerate(ranked):
        reward = rewards[name]
        if reward is None:
            closed[name] = (Decision.INFRA_FAILED, "no anchor task could be scored")
        elif reward < 0:
            anchors = found[name]["outcomes"]["pairs"]
            reason = f"rollback reward {reward:+.3f} on {anchors} anchors is below zero"
            closed[name] = (Decision.SCREENED_OUT, reason)
        elif rank >= keep:
            reason = f"not among the best {keep} by rollback reward"
            closed[name] = (Decision.SCREENED_OUT, reason)
    return closed
