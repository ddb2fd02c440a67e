"""Real replicates against themselves: 50 tasks of tau-bench (airline), four trials each.

The four recorded trials of each task are split at random into two arms that are exchangeable by
construction, 10,000 times; one or two trials an arm. Nothing can be better than itself, so that
every acceptance is an error, whatever the real pass rates are. `promoted` is how often a rule
accepts (ours: reaches probation). Of ours also: mean E after all tasks, which is exactly 1 in
expectation, and where it stopped (at most 1), and the Kolmogorov-Smirnov distance of sign-flip
p-values from uniform. These p-values are exact and, as the sums are discrete, randomised over ties:
`p = P(T > t) + u P(T = t)`. `sign_flip` is the share at or below .05 of
`core.paired_tests.sign_flip_test`, which does not randomise and may only be lower.

The traces are not part of the project; without them there is nothing to run.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import table
from rules import OTHERS
from simulate import RULES, FloatArray, gate, holds

from skillforge.core.paired_tests import sign_flip_test

TRACES = (
    Path(__file__).resolve().parents[3]
    / "shared" / "corpus" / "traces" / "tau_bench" / "gpt-4o-airline.json"
)  # fmt: skip


def rewards() -> FloatArray | None:
    """Return the recorded rewards, shape (tasks, trials), or None where the traces are absent."""
    if not TRACES.is_file():
        return None
    records = json.loads(TRACES.read_text(encoding="utf-8"))
    tasks = sorted({record["task_id"] for record in records})
    found = {(record["task_id"], record["trial"]): record["reward"] for record in records}
    trials = sorted({trial for _, trial in found})
    return np.array([[found[task, trial] for trial in trials] for task in tasks], dtype=np.float64)


def split(rng: np.random.Generator, scores: FloatArray, each: int, times: int) -> FloatArray:
    """Return paired differences of random splits, ``each`` trials an arm, shape (times, tasks)."""
    shuffled = rng.permuted(np.broadcast_to(scores, (times, *scores.shape)), axis=2)
    d = shuffled[..., :each].mean(axis=2) - shuffled[..., each : 2 * each].mean(axis=2)
    return np.asarray(rng.permuted(d, axis=1))


@cache
def flips(halves: int, wholes: int) -> tuple[float, ...]:
    """Return the distribution of a sum of random signs, ``wholes`` of them counting double.

    Entry i is the probability of the sum i − halves − 2 wholes.
    """
    law = np.ones(1)
    for step in (1,) * halves + (2,) * wholes:
        law = np.convolve(law, [0.5, *[0.0] * (2 * step - 1), 0.5])
    return tuple(law.tolist())


def p_value(d: FloatArray, u: float) -> float:
    """Return the exact randomised sign-flip p-value of differences that are multiples of ½."""
    units = np.rint(2 * d).astype(int)
    halves, wholes = (int(np.count_nonzero(np.abs(units) == size)) for size in (1, 2))
    law = np.array(flips(halves, wholes))
    place = int(units.sum()) + halves + 2 * wholes
    return float(law[place + 1 :].sum() + u * law[place])


def ours(rng: np.random.Generator, d: FloatArray) -> table.Row:
    """Return the evidence that the gate finds, and the p-values beside it."""
    from scipy.stats import kstest

    verdicts = gate(d, enough=1 / RULES.alpha)
    _, stopped, used = verdicts.after(d.shape[1])
    last, times = verdicts.claim[:, -1], len(d)
    uniform = kstest([p_value(x, u) for x, u in zip(d, rng.random(times), strict=True)], "uniform")
    level = np.mean([sign_flip_test(x, rng=rng, resamples=999) <= 0.05 for x in d[:1_000]])
    return {
        "promoted": float(verdicts.reached_probation.mean()),
        "mean_e": float(last.mean()),
        "mean_e_se": float(last.std(ddof=1) / np.sqrt(times)),
        "mean_e_stopped": float(stopped.mean()),
        "ks": float(uniform.statistic),
        "ks_p": float(uniform.pvalue),
        "sign_flip": float(level),
        "pairs": round(float(used.mean()), 1),
    }


def measure(quick: bool, seed: int) -> list[table.Row]:
    """Return one row per number of trials an arm and rule; none where the traces are absent."""
    scores, rows = rewards(), []
    if scores is None:
        print(f"skipped: {TRACES.name} is not beside the checkout", file=sys.stderr)
        return []
    times = 1_000 if quick else 10_000
    for each in (1, 2):
        rng = np.random.default_rng([seed, each])
        d = split(rng, scores, each, times)
        found = {"skillforge": ours(rng, d)}
        found |= {name: {"promoted": float(rule(d).mean())} for name, rule in OTHERS.items()}
        for name, figures in found.items():
            valid = holds(figures["promoted"], RULES.alpha, times)
            setting = {"trials_an_arm": each, "splits": times}
            rows.append({"name": name, **setting, **figures, "holds": valid})
    return rows


COLUMNS = (
    "trials_an_arm", "name", "promoted", "holds", "mean_e", "mean_e_se", "mean_e_stopped", "ks",
    "ks_p", "sign_flip",
)  # fmt: skip

if __name__ == "__main__":
    table.main("replicates", measure, COLUMNS)
