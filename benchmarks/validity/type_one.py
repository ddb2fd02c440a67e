"""Compare acceptance rules for skill edits on edits whose true effect is known.

Every rule sees the same simulated binary pairs of three kinds of edit: neutral (10 % gains, 10 %
regressions), harmful (5 % / 15 %: -10 points) and good (20 % / 5 %: +15 points). Reported per rule
and number of pairs: how often each kind is accepted, and the share of bad edits (neutral or
harmful) among those accepted from cohorts of 40 (60 % neutral, 20 % harmful, 20 % good).

The rules other than ours are written from their published descriptions: "strictly better" (SkillOpt
and others), "not worse" (SkillProx and others), SkillAdaptor's (five tasks, mean above 0.005, at
most 10 % of the tasks regress), cap-evolve's (mean above one standard error; strictly better if the
standard error is 0), and the exact one-sided McNemar test at .05, taken once at the end (which is
valid) or after every pair (which is not). Ours looks after every pair and may stop at each of them;
that costs some power against a single test of the same size.

Usage: python benchmarks/validity/type_one.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skillforge.core.eprocess import e_process
from skillforge.core.multiplicity import e_bh
from skillforge.core.paired_tests import mcnemar_exact

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

ALPHA = 0.05
FDR = 0.10
KINDS = {"neutral": (0.10, 0.10), "harmful": (0.05, 0.15), "good": (0.20, 0.05)}
COHORT = {"neutral": 24, "harmful": 8, "good": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way to accept an edit."""

    name: str
    """As it is printed; ours begins with "skillforge"."""
    accept: Callable[[FloatArray], BoolArray]
    """Maps differences (edits, pairs) to decisions (edits,)."""


def crosses(d: FloatArray) -> BoolArray:
    """Accept if the mixture e-process reaches 1/alpha at any pair."""
    accepted: BoolArray = e_process(d).max(axis=1) >= 1.0 / ALPHA
    return accepted


def strictly_better(d: FloatArray) -> BoolArray:
    """Accept if the mean rose."""
    accepted: BoolArray = d.sum(axis=1) > 0
    return accepted


def not_worse(d: FloatArray) -> BoolArray:
    """Accept if the mean did not fall."""
    accepted: BoolArray = d.sum(axis=1) >= 0
    return accepted


def skill_adaptor(d: FloatArray) -> BoolArray:
    """Accept on the first five tasks: mean above 0.005, at most 10 % of the tasks regress."""
    seen = d[:, :5]
    accepted: BoolArray = (seen.mean(axis=1) > 0.005) & ((seen < 0).mean(axis=1) <= 0.10)
    return accepted


def cap_evolve(d: FloatArray) -> BoolArray:
    """Accept if the mean exceeds one standard error; the error may be 0."""
    error = d.std(axis=1, ddof=1) / np.sqrt(d.shape[1])
    accepted: BoolArray = d.mean(axis=1) > error
    return accepted


def mcnemar(d: FloatArray) -> BoolArray:
    """Accept if the exact one-sided McNemar test at the end is significant."""
    return _significant((d > 0).sum(axis=1), (d < 0).sum(axis=1))


def mcnemar_peeking(d: FloatArray) -> BoolArray:
    """Accept if that test, repeated after every pair, is ever significant."""
    ever = _significant(np.cumsum(d > 0, axis=1), np.cumsum(d < 0, axis=1))
    return np.asarray(ever.any(axis=1))


def _significant(gains: NDArray[np.int64], regressions: NDArray[np.int64]) -> BoolArray:
    """Test every pair of counts, each distinct one once; same shape as the counts."""
    base = int(max(gains.max(), regressions.max())) + 1
    distinct, places = np.unique(gains * base + regressions, return_inverse=True)
    decided = [mcnemar_exact(code // base, code % base) <= ALPHA for code in distinct.tolist()]
    return np.array(decided)[places].reshape(gains.shape)


RULES = (
    Rule(name="skillforge e-process .05", accept=crosses),
    Rule(name="exact McNemar .05, fixed n", accept=mcnemar),
    Rule(name="exact McNemar .05, every pair", accept=mcnemar_peeking),
    Rule(name="cap-evolve: mean > 1 SE", accept=cap_evolve),
    Rule(name="SkillAdaptor: 5 tasks", accept=skill_adaptor),
    Rule(name="strictly better", accept=strictly_better),
    Rule(name="not worse", accept=not_worse),
)


def draw(rng: np.random.Generator, kind: str, edits: int, pairs: int) -> FloatArray:
    """Draw differences of binary pairs, shape (edits, pairs)."""
    gain, regression = KINDS[kind]
    u = rng.random((edits, pairs))
    return (u < gain).astype(np.float64) - (u >= 1.0 - regression)


def false_share(decisions: dict[str, BoolArray]) -> float:
    """Average, over the cohorts, the share of bad edits among those accepted; 0 if none was.

    The decisions of each kind are laid out as (cohorts, members of that kind).
    """
    bad = decisions["neutral"].sum(axis=1) + decisions["harmful"].sum(axis=1)
    accepted = bad + decisions["good"].sum(axis=1)
    return float(np.mean(bad / np.maximum(accepted, 1)))


def measure(pairs: int, cohorts: int, seed: int) -> list[dict[str, object]]:
    """Apply all rules to the same draws and return one row per rule."""
    rng = np.random.default_rng([seed, pairs])
    drawn = {kind: draw(rng, kind, cohorts * members, pairs) for kind, members in COHORT.items()}
    rows = []
    for rule in RULES:
        start = time.perf_counter()
        flat = {kind: rule.accept(d) for kind, d in drawn.items()}
        rows.append(_row(rule.name, flat, pairs, cohorts, time.perf_counter() - start))
    start = time.perf_counter()
    rows.append(
        _row("skillforge e-BH .10", promoted(drawn, cohorts), pairs, cohorts,
             time.perf_counter() - start)
    )  # fmt: skip
    return rows


def promoted(drawn: dict[str, FloatArray], cohorts: int) -> dict[str, BoolArray]:
    """Apply e-BH to the last e-values of each cohort."""
    ends = {kind: np.asarray(e_process(d)[:, -1]).reshape(cohorts, -1) for kind, d in drawn.items()}
    e_values = np.concatenate(list(ends.values()), axis=1)
    accepted = np.zeros(e_values.shape, dtype=np.bool_)
    for row, values in enumerate(e_values.tolist()):
        accepted[row, list(e_bh(values, FDR))] = True
    cuts = np.cumsum([part.shape[1] for part in ends.values()])[:-1]
    parts = np.split(accepted, cuts, axis=1)
    return {kind: part.ravel() for kind, part in zip(ends, parts, strict=True)}


def _row(
    name: str, flat: dict[str, BoolArray], pairs: int, cohorts: int, seconds: float
) -> dict[str, object]:
    shaped = {kind: accepted.reshape(cohorts, -1) for kind, accepted in flat.items()}
    return {
        "name": name,
        "pairs": pairs,
        "neutral_accepted": round(float(flat["neutral"].mean()), 4),
        "harmful_accepted": round(float(flat["harmful"].mean()), 4),
        "power": round(float(flat["good"].mean()), 4),
        "fdr": round(false_share(shaped), 4),
        "seconds": round(seconds, 4),
        "setting": {
            "edits": {kind: int(accepted.size) for kind, accepted in flat.items()},
            "gain_regression": {kind: list(shares) for kind, shares in KINDS.items()},
            "cohorts": cohorts,
            "alpha": ALPHA,
            "fdr_level": FDR,
        },
    }


def machine() -> dict[str, str]:
    """Describe where the figures were measured."""
    return {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description="Compare acceptance rules on known edits.")
    parser.add_argument("--quick", action="store_true", help="fewer simulated edits (seconds)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seed", type=int, default=20, help="seed of the simulation")
    options = parser.parse_args(argv)
    sizes, cohorts = ((20, 80, 160), 100) if options.quick else ((20, 50, 80, 160, 320), 800)
    rows = [row for pairs in sizes for row in measure(pairs, cohorts, options.seed)]
    if options.json:
        print(json.dumps({"schema": 1, "machine": machine(), "rows": rows}, indent=2))
        return 0
    print(f"{'rule':<30}{'pairs':>6}{'neutral':>9}{'harmful':>9}{'power':>8}{'fdr':>7}")
    for row in rows:
        figures = "".join(
            f"{row[key]:>{width}.3f}"
            for key, width in (
                ("neutral_accepted", 9), ("harmful_accepted", 9), ("power", 8), ("fdr", 7),
            )
        )  # fmt: skip
        print(f"{row['name']:<30}{row['pairs']:>6}{figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
