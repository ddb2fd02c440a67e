"""What a decision costs, against tests of fixed size, at error rates no worse.

Edits worth −10, 0, 0, +10 and +20 points meet each design, which may stop when it knows. The unit
is the exact McNemar test of fixed size with power .9 for +10 points at α = .05 (`fixed_pairs`).
`ratio` is mean pairs per decision over these edits, divided by it. All that is paid counts:
undecided runs (up to 2.5 × the fixed size), voided pairs (2 % of them, in every design), and
overshoot: pairs run in waves of 8, and a wave is paid for as a whole whatever pair of it the
verdict fell on; the fixed test is not rounded up. `ratio_exact` leaves the waves out.

Beside it the floor, Wald's SPRT told the true discordance and effect (errors .05 and .10), and the
practice, five equal looks with O'Brien-Fleming bounds, which give up where the mean is not above 0.

The second simulator has tasks of unequal difficulty (base pass rates Beta(.5, .5)), effects that
differ by family, and base rollouts that were made before: `control_variate` holds the augmented arm
against all base rollouts of the task (`error` shows that this stays valid). `ratio` leaves out what
the earlier rollouts cost, as if they had been made anyway; `ratio_counted` shares them among five
candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import table
from rules import mcnemar
from simulate import (
    RULES,
    WAVE,
    BoolArray,
    FloatArray,
    IntArray,
    binary,
    first,
    gate,
    in_waves,
    standard_error,
)

from skillforge.core.power import pairs_needed

EFFECTS = (-0.10, 0.0, 0.0, 0.10, 0.20)
TARGET, POWER = 0.10, 0.90
VOIDS, LONGEST, LOOKS = 0.02, 2.5, 5
SHARED = 5
"""Candidates that share the earlier base rollouts, where these are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Verdicts and pairs of one design on many edits of one effect."""

    accepted: BoolArray
    pairs: IntArray
    """Valid pairs until the verdict."""
    wave: int = WAVE
    """Pairs run together; 1 where their number is fixed beforehand."""


@lru_cache
def fixed_size(discordance: float) -> int:
    """Return the fewest pairs with which exact McNemar at .05 has power .9 for +10 points."""
    from scipy.stats import binom

    def power(n: int) -> float:
        k = np.arange(n + 1)
        needed = binom.isf(RULES.alpha, k, 0.5) + 1
        share = (discordance + TARGET) / (2 * discordance)
        return float(binom.pmf(k, n, discordance) @ binom.sf(needed - 1, k, share))

    # The exact test needs more than the normal approximation says. Its power moves in steps both
    # ways; from the size that is returned it stays above.
    least = pairs_needed(TARGET, discordance, alpha=RULES.alpha, power=POWER)
    return 1 + max(n for n in range(least, int(1.3 * least)) if power(n) < POWER)


# Designs


def skillforge(d: FloatArray, discordance: float) -> Runs:
    """Bet until probation, harm or futility."""
    verdicts = gate(d, enough=1 / RULES.alpha)
    return Runs(accepted=verdicts.reached_probation, pairs=np.minimum(verdicts.stopped, d.shape[1]))


def sprt(d: FloatArray, discordance: float) -> Runs:
    """Test "+10 points" against "0" by Wald's likelihood ratio, with everything known."""
    gain, loss = (np.log1p(sign * TARGET / discordance) for sign in (1, -1))
    ratio = np.cumsum(np.where(d > 0, gain, np.where(d < 0, loss, 0.0)), axis=1)
    above = first(ratio >= np.log((1 - RULES.beta) / RULES.alpha))
    below = first(ratio <= np.log(RULES.beta / (1 - RULES.alpha)))
    stopped = np.minimum(above, below)
    return Runs(accepted=(above < below), pairs=np.minimum(stopped, d.shape[1]))


def group_sequential(d: FloatArray, discordance: float) -> Runs:
    """Look five times, up to 1.2 × the fixed size."""
    most = int(np.ceil(1.2 * fixed_size(discordance) / LOOKS)) * LOOKS
    looks = np.arange(1, LOOKS + 1) * most // LOOKS
    net = np.cumsum(d[:, :most], axis=1)[:, looks - 1]
    z = net / np.sqrt(np.maximum(np.cumsum(d[:, :most] ** 2, axis=1)[:, looks - 1], 1))
    won = first(z >= obrien_fleming() * np.sqrt(LOOKS / np.arange(1, LOOKS + 1)))
    lost = first(z <= 0)
    last = np.minimum(np.minimum(won, lost), LOOKS)
    return Runs(accepted=won < np.minimum(lost, LOOKS + 1), pairs=looks[last - 1], wave=1)


@lru_cache
def obrien_fleming() -> float:
    """Return the final bound of five equal looks at one-sided α, by simulation (fixed seed)."""
    steps = np.random.default_rng(0).standard_normal((200_000, LOOKS))
    top = (np.cumsum(steps, axis=1) / np.sqrt(LOOKS)).max(axis=1)
    return float(np.quantile(top, 1 - RULES.alpha))


def fixed(d: FloatArray, discordance: float) -> Runs:
    """Test once, by exact McNemar, at the fixed size."""
    n = fixed_size(discordance)
    return Runs(accepted=mcnemar(d[:, :n]), pairs=np.full(len(d), n), wave=1)


DESIGNS = {
    "skillforge": skillforge,
    "SPRT, all known (floor)": sprt,
    "group sequential, 5 looks": group_sequential,
    "exact McNemar, fixed n": fixed,
}


def paid(runs: Runs, rng: np.random.Generator, most: int) -> tuple[FloatArray, FloatArray]:
    """Return what runs cost in pairs, voided ones and whole waves counted; and without waves."""
    voided = rng.negative_binomial(runs.pairs, 1 - VOIDS)
    exact = runs.pairs + voided
    return in_waves(exact, int(most / (1 - VOIDS)) + voided.max(), runs.wave) * 1.0, exact * 1.0


def planted(edits: int, seed: int) -> list[table.Row]:
    """Compare the designs on binary pairs of known discordance."""
    rows = []
    for discordance in (0.2, 0.3, 0.4):
        n = fixed_size(discordance)
        most = int(LONGEST * n)
        rng = np.random.default_rng([seed, int(100 * discordance)])
        drawn = {e: binary(rng, e, discordance, (edits, most)) for e in sorted(set(EFFECTS))}
        for name, design in DESIGNS.items():
            runs = {effect: design(d, discordance) for effect, d in drawn.items()}
            row = summarise(runs, np.random.default_rng([seed, 1]), n, most)
            rows.append({"name": name, "simulator": f"discordance {discordance:g}", **row})
    return rows


def summarise(
    runs: dict[float, Runs], rng: np.random.Generator, fixed_pairs: int, most: int
) -> table.Row:
    """Return error, power and cost over the mix of effects."""
    costs = {effect: paid(found, rng, most) for effect, found in runs.items()}
    edits = len(runs[0.0].accepted)
    waves, exact = (np.mean([costs[e][i].mean() for e in EFFECTS]) for i in (0, 1))
    spread = np.sqrt(np.mean([costs[e][0].var() for e in EFFECTS]) / (len(EFFECTS) * edits))
    unit = fixed_pairs / (1 - VOIDS)
    power = float(runs[TARGET].accepted.mean())
    return {
        "fixed_pairs": fixed_pairs,
        "pairs": round(float(waves), 1),
        "ratio": float(waves / unit),
        "ratio_se": float(spread / unit),
        "ratio_exact": float(exact / unit),
        "error": float(runs[0.0].accepted.mean()),
        "harmful": float(runs[-0.10].accepted.mean()),
        "power": power,
        "power_se": standard_error(power, edits),
        "edits": edits,
        "by_effect": {f"{e:+.2f}": round(float(costs[e][0].mean()), 1) for e in runs},
    }


# Tasks that are known from before


def control_variate(
    augmented: FloatArray, base: FloatArray, earlier: FloatArray, rollouts: int
) -> FloatArray:
    """Return paired differences freed of most of the base arm's noise.

    With p̂ the mean of ``rollouts`` (r) earlier base rollouts of the same task, y1 − y0 has the
    control variate y0 − p̂, whose mean is 0 over both. Its best weight for equal noise is
    r / (r + 1), which turns the difference into y1 − (y0 + r p̂) / (r + 1): augmented minus the
    mean of all base rollouts, within [−1, 1] as before. Its mean is that of y1 − y0, whatever the
    pass rates, so every bet on it is as valid, if three things hold: the earlier rollouts come
    from the same base version, model and verifier; they took no part in making, choosing or
    screening the edit; and all of them are used. Source: Lavenberg and Welch (1981), Management
    Science 27(3), for control variates.

    Args:
        augmented: Scores in [0, 1], any shape.
        base: Scores of the base arm in the same run, same shape.
        earlier: Means of the earlier base rollouts, same shape.
        rollouts: Earlier rollouts r of each task; with 0 the difference is plain.
    """
    return np.asarray(augmented - (base + rollouts * earlier) / (rollouts + 1))


def known_tasks(
    rng: np.random.Generator, effect: float, shape: tuple[int, int], earlier: int
) -> FloatArray:
    """Draw differences on tasks of very unequal difficulty, plain or against all base rollouts.

    Base pass rates are Beta(.5, .5). A quarter of the families does not move; the others move by a
    common strength, half of them 20 points more and half 20 points less. The family of each task
    is drawn at random, so that the strength is drawn with it; the mean lift is ``effect``.
    """
    ease = rng.beta(0.5, 0.5, shape)
    still = rng.random(shape) < 0.25
    # Strength s moves p to p + s (1 − p), or to p + s p for s < 0: the mean lift is s / 2.
    strength = np.where(still, 0.0, effect * 2 / 0.75 + rng.choice([-0.2, 0.2], shape))
    moved = ease + np.where(strength > 0, strength * (1 - ease), strength * ease)
    base, augmented = (rng.random(shape) < p for p in (ease, np.clip(moved, 0.0, 1.0)))
    before = rng.binomial(earlier, ease) / max(earlier, 1)
    return control_variate(augmented.astype(np.float64), base.astype(np.float64), before, earlier)


def heterogeneous(
    edits: int, seed: int, rollouts: Sequence[int] = (0, 1, 2, 4, 8)
) -> list[table.Row]:
    """Compare plain differences with control variates of several numbers of earlier rollouts."""
    rows = []
    probe = known_tasks(np.random.default_rng([seed, 2]), TARGET, (1, 400_000), 0)
    discordance = round(float((probe != 0).mean()), 2)
    n = fixed_size(discordance)
    most = int(LONGEST * n)
    for earlier in rollouts:
        rng = np.random.default_rng([seed, 3])
        drawn = {e: known_tasks(rng, e, (edits, most), earlier) for e in sorted(set(EFFECTS))}
        runs = {e: skillforge(d, discordance) for e, d in drawn.items()}
        row = summarise(runs, np.random.default_rng([seed, 1]), n, most)
        row["ratio_counted"] = row["ratio"] * (1 + earlier / (2 * SHARED))
        name = f"skillforge, {earlier} earlier base rollouts" if earlier else "skillforge"
        rows.append({"name": name, "simulator": f"unequal tasks ({discordance:.2f})", **row})
    return rows


def measure(quick: bool, seed: int) -> list[table.Row]:
    """Return one row per simulator and design."""
    edits = 1_000 if quick else 8_000
    return [*planted(edits, seed), *heterogeneous(edits, seed)]


COLUMNS = (
    "simulator", "name", "fixed_pairs", "pairs", "ratio", "ratio_exact", "ratio_counted", "error",
    "harmful", "power",
)  # fmt: skip

if __name__ == "__main__":
    table.main("cost", measure, COLUMNS)
