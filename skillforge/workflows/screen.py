"""Screen: score each edit by its rollback reward on the anchor tasks, and keep the best few.

Source: Skill-α's rollback reward (score after one edit minus before it, below zero the edit is
rolled back), here over several anchors and as a screen only; it never adopts anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from skillforge.core.gate import Decision
from skillforge.core.package import Package
from skillforge.core.rollout import Pair, tabulate
from skillforge.core.task import Task
from skillforge.workflows import contrast
from skillforge.workflows.candidates import Candidate
from skillforge.workflows.contrast import Context
from skillforge.workflows.trial import Bench


async def screen(
    bench: Bench,
    base: Package,
    candidates: Sequence[Candidate],
    anchors: Sequence[Task],
    context: Context,
) -> None:
    """Run every candidate and the base on the same anchors, and write the rewards into them."""
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
    for i, candidate in enumerate(candidates, start=1):
        mine = rollouts[i * size : (i + 1) * size]
        joined = contrast.outcomes(anchors, rollouts[:size], mine)
        candidate.cost_usd += sum(r.cost_usd for r in mine)
        candidate.screen = tabulate([o for o in joined if isinstance(o, Pair)]).to_json()
        candidate.rollback_reward = contrast.mean_difference(joined)


def keep_best(candidates: Sequence[Candidate], count: int) -> None:
    """Close the candidates with a reward below zero, and all but the best ``count``."""
    ranked = sorted(candidates, key=_reward, reverse=True)
    for rank, candidate in enumerate(ranked):
        if candidate.rollback_reward is None:
            candidate.close(Decision.INFRA_FAILED, "no anchor task could be scored")
        elif candidate.rollback_reward < 0:
            candidate.close(
                Decision.SCREENED_OUT,
                f"rollback reward {candidate.rollback_reward:+.3f} on "
                f"{candidate.screen['pairs']} anchors is below zero",
            )
        elif rank >= count:
            candidate.close(Decision.SCREENED_OUT, f"not among the best {count} by rollback reward")


def _reward(candidate: Candidate) -> float:
    return -2.0 if candidate.rollback_reward is None else candidate.rollback_reward
