"""Check the numbers that enter a statistic, and name what is wrong with them.

Every statistic of the core refuses input that does not define it. The checks live here, so that
the same mistake (points instead of fractions, a NaN score, fewer tasks than the formula needs)
gets the same message everywhere. All of them raise `StatisticsError`.
"""

from __future__ import annotations

import operator
from statistics import NormalDist
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skillforge.errors import StatisticsError

FloatArray = NDArray[np.float64]
"""A numpy array of 64-bit floats; the shape is stated where it is used."""


def as_floats(values: ArrayLike, *, what: str) -> FloatArray:
    """Return `values` as a finite float array of any shape."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StatisticsError(f"{what}: not an array of numbers ({error}); pass floats") from error
    if not np.isfinite(array).all():
        raise StatisticsError(
            f"{what}: got NaN or infinity, expected finite numbers; "
            "leave out pairs that have no score before computing"
        )
    return array


def as_differences(values: ArrayLike, *, what: str, at_least: int = 1) -> FloatArray:
    """Return paired differences as a float array of shape (n,) within [-1, 1]."""
    array = as_floats(values, what=what)
    if array.ndim != 1:
        raise StatisticsError(
            f"{what}: got an array of shape {array.shape}, expected one difference per task, "
            "shape (n,); average the replicates of a task first"
        )
    if array.size < at_least:
        raise StatisticsError(
            f"{what}: got {array.size} differences, expected at least {at_least}; "
            "measure more tasks or report the result as insufficient evidence"
        )
    low, high = float(array.min()), float(array.max())
    if low < -1.0 or high > 1.0:
        raise StatisticsError(
            f"{what}: got differences from {low:g} to {high:g}, expected them within [-1, 1]; "
            "scores are fractions in [0, 1], not points"
        )
    return array


def check_share(name: str, value: float) -> float:
    """Return `value` if it lies strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise StatisticsError(
            f"{name}: got {value!r}, expected a number strictly between 0 and 1; "
            "write 5 % or 5 points as 0.05"
        )
    return float(value)


def check_count(name: str, value: SupportsIndex, *, at_least: int = 0) -> int:
    """Return `value` as an int if it is a whole number of at least `at_least`."""
    try:
        count = operator.index(value)
    except TypeError:
        raise StatisticsError(
            f"{name}: got {value!r}, expected a whole number; count tasks, not shares"
        ) from None
    if count < at_least:
        raise StatisticsError(
            f"{name}: got {count}, expected at least {at_least}; "
            "measure more tasks or report the result as insufficient evidence"
        )
    return count


def check_discordant(
    gains: SupportsIndex, regressions: SupportsIndex, n: SupportsIndex
) -> tuple[int, int, int]:
    """Return the three counts if at least two pairs hold that many gains and regressions."""
    won, lost = check_count("gains", gains), check_count("regressions", regressions)
    pairs = check_count("n", n, at_least=2)
    if won + lost > pairs:
        raise StatisticsError(
            f"n: got {pairs} pairs for {won} gains and {lost} regressions, expected at least "
            f"{won + lost}; count retained and residual pairs in n as well"
        )
    return won, lost, pairs


def two_sided_z(confidence: float) -> float:
    """Return the standard normal quantile of a two-sided interval, 1.96 at 0.95."""
    return NormalDist().inv_cdf(0.5 + check_share("confidence", confidence) / 2)
