"""How often is an edit without effect accepted?

Settings: A/A (both arms are the same worker on tasks of unequal difficulty) and null (the edit
helps some tasks and harms others, as much), binary and graded scores, one and eight replicates; and
families whose tasks win and lose together, where the estimand is the mean over families. Ours looks
after every pair and may stop at each; the others look once, after all 160 tasks. `power` is the
share of edits worth +15 points that the same rule accepts, in the same setting.

A rule holds if its error is at most α = .05 plus two Monte Carlo standard errors.
"""

from __future__ import annotations

import numpy as np
import rules
import table
from simulate import FloatArray, Worker, gate, holds, standard_error

ALPHA = rules.ALPHA
TASKS = 160
FAMILIES, SIZE = 40, 8
SETTINGS = {
    f"{kind}, {scores}, K = {replicates}": Worker(
        checks=checks, replicates=replicates, task_spread=spread
    )
    for kind, spread in (("A/A", 0.0), ("null", 0.15))
    for scores, checks in (("binary", 1), ("graded", 5))
    for replicates in (1, 8)
}
CLUSTERED = {
    "families, binary, K = 1": Worker(families=FAMILIES, family_spread=0.25),
    "families, graded, K = 8": Worker(
        families=FAMILIES, family_spread=0.25, checks=5, replicates=8
    ),
}


def over_families(d: FloatArray) -> FloatArray:
    """Return what families bet: their means, shape (edits, families)."""
    return np.asarray(d.reshape(len(d), FAMILIES, SIZE).mean(axis=2))


def measure(quick: bool, seed: int) -> list[table.Row]:
    """Return one row per setting and rule."""
    runs, rows = 500 if quick else 5_000, []
    for number, (setting, worker) in enumerate({**SETTINGS, **CLUSTERED}.items()):
        rng = np.random.default_rng([seed, number])
        tasks = FAMILIES * SIZE if worker.families else TASKS
        null, good = (worker.differences(rng, lift, (runs, tasks)) for lift in (0.0, 0.15))
        ours: dict[str, rules.Rule] = {"skillforge": lambda d: gate(d).reached_probation}
        if worker.families:
            ours = {
                "skillforge, over families": lambda d: gate(over_families(d)).reached_probation,
                "skillforge, over tasks (wrong here)": ours["skillforge"],
            }
        for name, rule in {**ours, **rules.OTHERS}.items():
            error = float(rule(null).mean())
            rows.append(
                {
                    "name": name,
                    "setting": setting,
                    "error": error,
                    "standard_error": standard_error(error, runs),
                    "holds": holds(error, ALPHA, runs),
                    "power": float(rule(good).mean()),
                    "edits": runs,
                    "tasks": tasks,
                }
            )
    return rows


if __name__ == "__main__":
    table.main(
        "type_one", measure, ("setting", "name", "error", "standard_error", "holds", "power")
    )
