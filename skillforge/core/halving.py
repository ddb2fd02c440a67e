"""Choosing among candidate edits with few pairs: sequential halving.

All candidates get a few pairs, the worse half is dropped, the rest get more, until one is left. It
spends its budget where the choice is still open, and gains over equal shares from about eight
candidates on. What it chooses is not thereby proven: the pairs that chose a winner flatter it, so
the winner starts at E = 1 on fresh tasks.

Source: Karnin, Koren and Somekh (2013), "Almost optimal exploration in multi-armed bandits", ICML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import SupportsIndex

import numpy as np

from skillforge.core._checks import FloatArray, as_floats, check_count
from skillforge.errors import StatisticsError

Measure = Callable[[Sequence[int], int], FloatArray]
"""Measures candidates on the same fresh tasks: (candidates, tasks) → differences in [-1, 1]."""


def sequential_halving(candidates: SupportsIndex, budget: SupportsIndex, measure: Measure) -> int:
    """Return the candidate that is left after halving.

    With `L = ⌈log2 m⌉` rounds, each round gives its |S| candidates `⌊budget / (|S| L)⌋` pairs each,
    on the same tasks, and keeps the better half (rounded up) by the mean difference over all rounds
    so far (the original forgets earlier rounds, and chooses less well for it). Ties go to the
    lower number.

    Args:
        candidates: Candidates m, at least 1.
        budget: Pairs in all, enough for one pair of each candidate in the first round.
        measure: Called once a round with the candidates that are left, ascending, and a number of
            tasks k ≥ 1; returns differences in [-1, 1], shape (candidates, k).

    Returns:
        The number of the chosen candidate, from 0; a single one is not measured.

    Raises:
        StatisticsError: The budget is too small, or what was measured has another shape or a
            number outside [-1, 1].

    >>> lifts = np.array([0.0, 0.2, 0.1, 0.0])
    >>> sequential_halving(4, 80, lambda chosen, k: np.repeat(lifts[list(chosen)][:, None], k, 1))
    1
    """
    left = list(range(check_count("candidates", candidates, at_least=1)))
    rounds = math.ceil(math.log2(len(left)))
    check_count("budget", budget, at_least=len(left) * rounds)
    totals = np.zeros(len(left))
    while len(left) > 1:
        tasks = int(budget) // (len(left) * rounds)
        # All that are left have been measured on the same tasks, so sums compare as means do.
        totals[left] += _totals(measure(tuple(left), tasks), left, tasks)
        order = np.argsort(-totals[left], kind="stable")[: math.ceil(len(left) / 2)]
        left = sorted(left[i] for i in order)
    return left[0]


def _totals(measured: FloatArray, left: Sequence[int], tasks: int) -> FloatArray:
    d = as_floats(measured, what="differences")
    if d.shape != (len(left), tasks):
        raise StatisticsError(
            f"differences: got shape {d.shape}, expected {(len(left), tasks)}: one row for each of "
            f"the candidates {list(left)}, one column for each task"
        )
    outside = np.argwhere(np.abs(d) > 1.0)
    if outside.size:
        row, column = outside[0].tolist()
        raise StatisticsError(
            f"differences: got {d[row, column]:g} for candidate {left[row]} on task {column}, "
            "expected numbers within [-1, 1]; scores are fractions, not points"
        )
    totals: FloatArray = d.sum(axis=1)
    return totals
