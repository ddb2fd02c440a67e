"""How long the gate's statistics take, beside the libraries that compute the same.

Run: python benchmarks/speed/gate.py [--quick] [--json]   (not named after statistics: a script's
folder comes first on Python's path, and that name is the standard library's)

Rows, each the best of some runs, in seconds of this process's CPU:
- ``skillforge decision``: the gate over 1,000 pairs, with interval, MDE and reasons.
- ``skillforge e-process`` beside ``ville`` and ``online-fdr``: the e-values after each of 1,000
  pairs. Theirs bet a plug-in or a single stake, ours a mixture of four.
- ``skillforge confidence sequence`` beside ``ville``: the interval after 1,000 pairs.
- ``skillforge e-BH`` beside both: over 100,000 candidates (``--quick``: 10,000).
- ``skillforge sign flip`` beside ``scipy``: 9,999 patterns over 200 tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import online_fdr.e_values
import scipy.stats
import ville
from report import options, show

from skillforge.core.eprocess import e_process
from skillforge.core.gate import Basis, GateRules, decide
from skillforge.core.intervals import betting_interval
from skillforge.core.multiplicity import e_bh
from skillforge.core.paired_tests import sign_flip_test
from skillforge.core.rollout import Pair

PAIRS = 1_000


def cpu_seconds(work: Callable[[], Any], runs: int) -> float:
    """Return the least CPU time of some runs, after one to warm up."""
    work()
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def ville_process(d: np.ndarray) -> Any:
    """Run ville's betting test along the pairs."""
    test = ville.BettingTest(m0=0, bounds=(-1, 1), alternative="greater")
    test.update(d)
    return test


def online_fdr_process(d: np.ndarray) -> Any:
    """Run online-fdr's betting e-process, one stake, along the pairs."""
    process = online_fdr.e_values.BettingEProcess(stake=0.4)
    for x in d:
        process.update(x)
    return process


def ville_interval(d: np.ndarray) -> Any:
    """Return ville's betting confidence sequence after the pairs."""
    sequence = ville.BettingCS(bounds=(-1.0, 1.0), alpha=0.05)
    sequence.update(d)
    return sequence.interval()


def scipy_flips(d: np.ndarray) -> Any:
    """Run scipy's permutation test of the same statistic."""
    return scipy.stats.permutation_test(
        (d,),
        np.sum,
        permutation_type="samples",
        alternative="greater",
        n_resamples=9_999,
        rng=np.random.default_rng(1),
    )


def measure(quick: bool) -> list[dict[str, Any]]:
    """Measure every row."""
    rng, runs, candidates = (
        np.random.default_rng(0),
        5 if quick else 20,
        10_000 if quick else 100_000,
    )
    d = rng.choice([1.0, -1.0, 0.0], p=[0.12, 0.10, 0.78], size=PAIRS)
    pairs = [
        Pair(task=str(i), family="f", base=float(x < 0), augmented=float(x > 0))
        for i, x in enumerate(d)
    ]
    rules = GateRules(max_tasks=PAIRS)
    e = np.exp(rng.normal(0.0, 2.5, size=candidates)).tolist()
    few = d[:200]
    work: list[tuple[str, int, Callable[[], Any]]] = [
        (
            "skillforge decision",
            PAIRS,
            lambda: decide(pairs, rules, Basis.LIFT, enough=float("inf"), stop=False),
        ),
        ("skillforge e-process", PAIRS, lambda: e_process(d)),
        ("ville e-process", PAIRS, lambda: ville_process(d)),
        ("online-fdr e-process", PAIRS, lambda: online_fdr_process(d)),
        ("skillforge confidence sequence", PAIRS, lambda: betting_interval(d)),
        ("ville confidence sequence", PAIRS, lambda: ville_interval(d)),
        ("skillforge e-BH", candidates, lambda: e_bh(e, 0.10)),
        ("ville e-BH", candidates, lambda: ville.evalues.ebh(e, alpha=0.10)),
        ("online-fdr e-BH", candidates, lambda: online_fdr.e_values.e_bh(e, 0.10)),
        ("skillforge sign flip", 200, lambda: sign_flip_test(few, rng=np.random.default_rng(1))),
        ("scipy sign flip", 200, lambda: scipy_flips(few)),
    ]
    return [
        {"name": name, "size": size, "seconds": cpu_seconds(call, runs), "runs": runs}
        for name, size, call in work
    ]


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of the table."""
    return f"{1000 * row['seconds']:9.2f} {row['size']:8d}  {row['name']}"


if __name__ == "__main__":
    told = options(__doc__).parse_args()
    heading = f"{'ms':>9} {'size':>8}  what"
    show(measure(told.quick), as_json=told.json, heading=heading, line=line)
