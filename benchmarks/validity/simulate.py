"""Simulated workers with planted effects, and the gate over many of them at once.

A simulated worker passes a task with a known probability, and a skill changes that probability by a
known amount; so every verdict can be held against the truth. `gate` is the rule of
`skillforge.core.gate` in vector form: the e-processes are the core's own, and
tests/calibration/test_validity_tables.py holds the verdicts against `decide`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skillforge.core.eprocess import e_process, harm_bet, lift_bet
from skillforge.core.futility import futility_process
from skillforge.core.gate import Decision, GateRules

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

RULES = GateRules()
WAVE = 8
"""Pairs that are run together; those of a wave in which the verdict falls are paid for."""


# Workers


def binary(
    rng: np.random.Generator, effect: float, discordance: float, shape: tuple[int, int]
) -> FloatArray:
    """Draw differences of binary pairs.

    Args:
        rng: The source of randomness.
        effect: True lift, at most the discordance in size.
        discordance: Share of pairs that are gains or regressions, in (0, 1].
        shape: (edits, pairs).
    """
    u = rng.random(shape)
    gains = u < (discordance + effect) / 2
    return gains.astype(np.float64) - (u >= 1 - (discordance - effect) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker whose pass rate differs from task to task and from family to family."""

    checks: int = 1
    """A score is the share of so many checks that pass: 1 is binary, more is graded."""
    replicates: int = 1
    """Rollouts of a task and arm, averaged."""
    families: int = 0
    """Families that tasks come from in equal parts, laid out one after the other; 0: none."""
    task_spread: float = 0.0
    """The edit moves the pass rate of each task up or down by so much, evenly."""
    family_spread: float = 0.0
    """The same for all tasks of a family together."""

    def differences(
        self, rng: np.random.Generator, lift: float, shape: tuple[int, int]
    ) -> FloatArray:
        """Draw paired differences, replicates averaged, with the given mean lift."""
        edits, tasks = shape
        room = max(lift, 0.0) + self.task_spread + self.family_spread
        ease = rng.uniform(room, 1 - room, shape)
        moved = ease + lift + self.task_spread * rng.choice([-1.0, 1.0], shape)
        if self.families:
            signs = rng.choice([-1.0, 1.0], (edits, self.families))
            moved += self.family_spread * np.repeat(signs, tasks // self.families, axis=1)
        trials = self.checks * self.replicates
        # Rounding could leave the pass rate a hair outside its range.
        augmented = rng.binomial(trials, np.clip(moved, 0.0, 1.0))
        return (augmented - rng.binomial(trials, ease)) / trials


# The gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What the gate says of many edits, shape (edits,) unless stated."""

    claim: FloatArray
    """Running evidence for a lift, shape (edits, pairs)."""
    proven: IntArray
    """Pair at which the claim was proven before harm or futility; pairs + 1 if it never was."""
    stopped: IntArray
    """Pair at which nothing more was to be bet; pairs + 1 if that never came."""
    rejected: NDArray[np.str_]
    """Decision on which an edit ends if it is stopped and not kept."""

    @property
    def reached_probation(self) -> BoolArray:
        """Whether the claim was ever proven; a later roll-back does not undo the error."""
        return np.asarray(self.proven <= self.claim.shape[1])

    def after(self, pairs: int) -> tuple[NDArray[np.str_], FloatArray, IntArray]:
        """Return decisions, e-values and pairs bet on, had the tasks ended after so many pairs."""
        used = np.minimum(self.stopped, pairs)
        undecided = np.where(
            self.proven <= pairs, Decision.PROBATION.value, Decision.INSUFFICIENT_EVIDENCE.value
        )
        decisions = np.where(self.stopped <= pairs, self.rejected, undecided)
        return decisions, self.claim[np.arange(len(used)), used - 1], used


def gate(
    d: FloatArray, rules: GateRules = RULES, *, enough: float = np.inf, rows: int = 1_000
) -> Verdicts:
    """Apply the gate to differences of shape (edits, pairs).

    Args:
        d: Paired differences in [-1, 1], in betting order.
        rules: The registered rules.
        enough: E-value at which an edit on probation needs no more pairs.
        rows: Edits worked on at a time, to bound memory.
    """
    parts = [_gate(d[i : i + rows], rules, enough) for i in range(0, len(d), rows)]
    names = ("claim", "proven", "stopped", "rejected")
    return Verdicts(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in names})


def _gate(d: FloatArray, rules: GateRules, enough: float) -> Verdicts:
    claim = e_process(lift_bet(d), rules.lambdas)
    harm = e_process(harm_bet(d), rules.lambdas)
    futility = futility_process(d, rules.min_effect)
    crossed = first(claim >= 1 / rules.alpha)
    harmed, futile = first(harm >= 1 / rules.harm_stop), first(futility >= 1 / rules.beta)
    never = d.shape[1] + 1
    proven = np.where(crossed <= np.minimum(harmed, futile), crossed, never)
    served = np.arange(1, never) >= proven[:, None]
    back = first(served & (harm >= 1 / rules.harm_retire))
    done = first(served & (claim >= enough))
    kept = proven < never
    return Verdicts(
        claim=claim,
        proven=proven,
        stopped=np.where(kept, np.minimum(back, done), np.minimum(harmed, futile)),
        rejected=np.select(
            [kept & (back <= done), kept, harmed <= futile],
            [Decision.ROLLED_BACK.value, Decision.PROBATION.value, Decision.REJECTED_HARM.value],
            Decision.REJECTED_FUTILE.value,
        ),
    )


def first(hit: BoolArray) -> IntArray:
    """Return the 1-based place of the first hit of each row, columns + 1 where there is none."""
    return np.where(hit.any(axis=1), hit.argmax(axis=1) + 1, hit.shape[1] + 1)


def in_waves(pairs: IntArray, most: int, wave: int = WAVE) -> IntArray:
    """Return the pairs that are paid for, whole waves, when the verdict needs so many."""
    return np.minimum(-(-pairs // wave) * wave, -(-most // wave) * wave)


# Rates


def standard_error(rate: float, runs: int) -> float:
    """Return the Monte Carlo standard error of a rate."""
    return float(np.sqrt(rate * (1 - rate) / runs))


def holds(error: float, level: float, runs: int) -> bool:
    """Whether a simulated error rate is at most its level plus two standard errors."""
    return bool(error <= level + 2 * standard_error(level, runs))
