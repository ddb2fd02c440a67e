"""Tasks or replicates: how the variance of a lift divides, and what a design costs in rollouts.

Each task has a true effect, which varies between tasks with variance ω², and every rollout adds
noise of its own. With n tasks and K rollouts of each task and arm,

    Var(lift) = ( ω² + (σ₀² + σ₁²) / K ) / n.

Replicates shrink only the second part. More tasks beat more replicates per rollout spent;
replicates help where tasks are scarce.

Source: Miller (2024), "Adding error bars to evals", arXiv:2411.00640.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from skillforge.core._checks import FloatArray, as_floats, check_count, check_share
from skillforge.errors import StatisticsError


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceModel:
    """Where the variance of paired differences comes from; all in units of scores squared."""

    effect: float
    """ω²: variance of the true effect between tasks, ≥ 0."""
    base: float
    """σ₀²: mean variance of a base rollout within its task, ≥ 0; p(1 − p) for pass or fail."""
    augmented: float
    """σ₁²: the same of an augmented rollout."""

    def __post_init__(self) -> None:
        """Refuse what is no variance, and a model without any.

        Raises:
            StatisticsError: A part is negative or not finite, or all are 0.
        """
        parts = (self.effect, self.base, self.augmented)
        if not all(0.0 <= part < math.inf for part in parts) or not sum(parts) > 0.0:
            raise StatisticsError(
                f"variance model: got {parts}, expected finite numbers of at least 0, not all 0; "
                "without variation there is no uncertainty to plan for"
            )

    def of_task(self, replicates: SupportsIndex) -> float:
        """Return the variance of one task's mean difference over K replicates."""
        k = check_count("replicates", replicates, at_least=1)
        return self.effect + (self.base + self.augmented) / k


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A number of tasks and replicates, and what it costs."""

    tasks: int
    replicates: int
    """Rollouts of each task and arm."""

    @property
    def rollouts(self) -> int:
        """Rollouts of both arms together."""
        return 2 * self.tasks * self.replicates


def estimate_variance(base: ArrayLike, augmented: ArrayLike) -> VarianceModel:
    """Estimate the variance model from replicated scores.

    `ω² = max(0, s_d² - mean(s_{i1}² + s_{i0}²) / K)` with s_d² the variance of the tasks' mean
    differences and s² the variances within a task and arm. Assumes independent tasks, and
    replicates independent given the task.

    Args:
        base: Scores of the base arm in [0, 1], shape (n, K), n ≥ 2 tasks and K ≥ 2 replicates.
        augmented: Scores of the augmented arm, of the same shape and order of tasks.

    Raises:
        StatisticsError: The shapes differ, n < 2 or K < 2 (one replicate does not tell noise from
            effect), a score is outside [0, 1], or nothing varies.

    >>> model = estimate_variance([[0, 1], [0, 0], [1, 1]], [[1, 1], [0, 1], [1, 1]])
    >>> round(model.effect, 4), round(model.base, 4), round(model.augmented, 4)
    (0.0, 0.1667, 0.1667)
    """
    arms = [as_floats(scores, what="scores") for scores in (base, augmented)]
    if arms[0].shape != arms[1].shape or arms[0].ndim != 2 or min(arms[0].shape) < 2:
        raise StatisticsError(
            f"scores: got shapes {arms[0].shape} and {arms[1].shape}, expected one shape (tasks, "
            "replicates) with at least 2 of each; run every task equally often in both arms"
        )
    for name, scores in zip(("base", "augmented"), arms, strict=True):
        wrong = np.argwhere((scores < 0.0) | (scores > 1.0))
        if wrong.size:
            task, replicate = wrong[0].tolist()
            raise StatisticsError(
                f"scores: got {scores[task, replicate]:g} for task {task}, {name} arm, replicate "
                f"{replicate}, expected a number within [0, 1]; scores are fractions, not points"
            )
    within = [float(scores.var(axis=1, ddof=1).mean()) for scores in arms]
    d: FloatArray = arms[1].mean(axis=1) - arms[0].mean(axis=1)
    effect = max(0.0, float(d.var(ddof=1)) - sum(within) / arms[0].shape[1])
    return VarianceModel(effect=effect, base=within[0], augmented=within[1])


def design_for(
    effect: float,
    model: VarianceModel,
    replicates: SupportsIndex,
    *,
    alpha: float = 0.05,
    power: float = 0.80,
) -> Design:
    """Return the fewest tasks that find a lift with K replicates, by a one-sided z test.

    `n = (z_α + z_β)² · Var(task) / Δ²`, rounded up, for a fixed size; the e-process takes about 1.3
    to 1.5 times as many at 80 % (`sequential_pairs`).

    Args:
        effect: Lift Δ to find, strictly between 0 and 1.
        model: The variance model, of a pilot or an assumption.
        replicates: K ≥ 1 rollouts of each task and arm.
        alpha: One-sided error probability, in (0, 1).
        power: In (0, 1), above alpha.

    Raises:
        StatisticsError: An argument is outside its range.

    >>> model = VarianceModel(effect=0.01, base=0.16, augmented=0.16)
    >>> [(d.tasks, d.rollouts) for d in (design_for(0.05, model, k) for k in (1, 4, 8))]
    [(817, 1634), (223, 1784), (124, 1984)]
    """
    z = _quantiles(alpha, power)
    variance = model.of_task(replicates)
    tasks = (z / check_share("effect", effect)) ** 2 * variance
    return Design(tasks=max(2, math.ceil(tasks - 1e-9)), replicates=int(replicates))


def designs(
    effect: float,
    discordance: float,
    flips: float,
    *,
    replicates: Sequence[int] = (1, 2, 4, 8),
    alpha: float = 0.05,
    power: float = 0.80,
) -> list[Design]:
    """Return for each number of replicates the fewest tasks that find a lift of pass or fail.

    Two rollouts of one task and arm differ with probability 2 p (1 − p), so the share of tasks that
    flip between equal arms is σ₀² + σ₁² if both arms are as noisy. Of the discordance of single
    rollouts, q = ω² + σ₀² + σ₁² + Δ², the rest is ω².

    Args:
        effect: Lift Δ to find, strictly between 0 and 1.
        discordance: Share q of pairs of single rollouts that differ, above Δ² and at most 1.
        flips: Share of tasks that flip between equal arms (`calibrate`), in [0, 1]; what it has
            above q − Δ² is chance.
        replicates: The numbers K to plan for, each at least 1.
        alpha: One-sided error probability, in (0, 1).
        power: In (0, 1), above alpha.

    Raises:
        StatisticsError: An argument is outside its range.

    >>> [(d.replicates, d.tasks, d.rollouts) for d in designs(0.10, 0.30, 0.20)]
    [(1, 180, 360), (2, 118, 472), (4, 87, 696), (8, 72, 1152)]
    """
    spread = discordance - effect**2
    if not (spread > 0.0 and discordance <= 1.0 and 0.0 <= flips <= 1.0):
        raise StatisticsError(
            f"discordance, flips: got {discordance!r} and {flips!r} for a lift of {effect!r}, "
            "expected shares, and more discordance than the square of the lift"
        )
    noise = min(flips, spread)
    model = VarianceModel(effect=spread - noise, base=noise / 2, augmented=noise / 2)
    return [design_for(effect, model, k, alpha=alpha, power=power) for k in replicates]


def mde_of_mean(
    n: SupportsIndex,
    sd: float,
    *,
    cluster_size: float = 1.0,
    icc: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.80,
) -> float:
    """Return the lift that n graded tasks find, with tasks of a family resembling each other.

    `(z_α + z_β) sd / √n_eff` with `n_eff = n / (1 + (m - 1) ICC)` for families of m tasks.
    One-sided and asymptotic; for binary pairs `skillforge.core.power.mde` is sharper.

    Args:
        n: Tasks, at least 2.
        sd: Standard deviation of the tasks' differences, in (0, 1].
        cluster_size: Mean tasks of a family m, at least 1.
        icc: Correlation of two tasks of one family, in [0, 1].
        alpha: One-sided error probability, in (0, 1).
        power: In (0, 1), above alpha.

    Returns:
        Lift in units of d; above 1 if no possible lift would be found.

    Raises:
        StatisticsError: An argument is outside its range.

    >>> round(mde_of_mean(100, 0.4), 3), round(mde_of_mean(100, 0.4, cluster_size=5, icc=0.5), 3)
    (0.099, 0.172)
    """
    tasks = check_count("n", n, at_least=2)
    if not (0.0 < sd <= 1.0 and cluster_size >= 1.0 and 0.0 <= icc <= 1.0):
        raise StatisticsError(
            f"sd, cluster_size, icc: got {sd!r}, {cluster_size!r}, {icc!r}, expected them in "
            "(0, 1], [1, n] and [0, 1]; a spread of 0 says nothing about the effect"
        )
    return _quantiles(alpha, power) * sd * math.sqrt((1.0 + (cluster_size - 1.0) * icc) / tasks)


def _quantiles(alpha: float, power: float) -> float:
    """Return z_α + z_β, above 0."""
    normal = NormalDist()
    z = -normal.inv_cdf(check_share("alpha", alpha))
    z += normal.inv_cdf(check_share("power", power))
    if z <= 0.0:
        raise StatisticsError(
            f"power: got {power!r} at alpha {alpha!r}, expected more power than error probability"
        )
    return z
