"""Sequential halving: what is refused, and what is never measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from skillforge.core.halving import sequential_halving
from skillforge.errors import StatisticsError


def ties(chosen: Sequence[int], k: int) -> np.ndarray:
    """Measure nothing but ties."""
    return np.zeros((len(chosen), k))


def test_a_single_candidate_is_chosen_unmeasured() -> None:
    """There is nothing to choose, so nothing is spent."""

    def never(chosen: Sequence[int], k: int) -> np.ndarray:
        raise AssertionError(chosen, k)

    assert sequential_halving(1, 0, never) == 0


def test_ties_go_to_the_first() -> None:
    """Without any difference the first candidate is left, in every run alike."""
    assert sequential_halving(7, 100, ties) == 0


@pytest.mark.parametrize(("candidates", "budget"), [(0, 10), (4, 7), (8, 23)])
def test_a_budget_below_one_pair_each_is_refused(candidates: int, budget: int) -> None:
    """A choice among candidates of which one has not been measured is no choice."""
    with pytest.raises(StatisticsError, match="expected at least"):
        sequential_halving(candidates, budget, ties)


def test_what_was_measured_is_checked_by_candidate() -> None:
    """A missing row, a NaN and points in place of fractions are named."""
    with pytest.raises(StatisticsError, match=r"got shape \(1, 4\), expected \(4, 4\)"):
        sequential_halving(4, 32, lambda chosen, k: np.zeros((1, k)))
    with pytest.raises(StatisticsError, match="NaN"):
        sequential_halving(4, 32, lambda chosen, k: np.full((len(chosen), k), np.nan))
    with pytest.raises(StatisticsError, match="got 25 for candidate 0 on task 0"):
        sequential_halving(4, 32, lambda chosen, k: np.full((len(chosen), k), 25.0))
