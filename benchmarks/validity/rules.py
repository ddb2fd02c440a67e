"""How others accept an edit, written from their published descriptions.

A rule maps paired differences of shape (edits, pairs) to decisions of shape (edits,). Rules of one
look take it after the last pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from simulate import BoolArray, FloatArray

ALPHA = 0.05
SELECTION = 40
"""Tasks of SkillOpt's selection split: one batch."""

Rule = Callable[[FloatArray], BoolArray]


def strictly_better(d: FloatArray) -> BoolArray:
    """Accept if the mean rose."""
    return np.asarray(d.sum(axis=1) > 0)


def not_worse(d: FloatArray) -> BoolArray:
    """Accept if the mean did not fall (SkillProx and others)."""
    return np.asarray(d.sum(axis=1) >= 0)


def skill_opt(d: FloatArray) -> BoolArray:
    """Accept if the mean on the selection split rose; ties are refused (arXiv:2605.23904)."""
    return strictly_better(d[:, :SELECTION])


def skill_adaptor(d: FloatArray) -> BoolArray:
    """Accept on five tasks: mean above 0.005, at most 10 % of them regress."""
    seen = d[:, :5]
    return np.asarray((seen.mean(axis=1) > 0.005) & ((seen < 0).mean(axis=1) <= 0.10))


def cap_evolve(d: FloatArray) -> BoolArray:
    """Accept if the mean exceeds one standard error, which may be 0."""
    error = d.std(axis=1, ddof=1) / np.sqrt(d.shape[1])
    return np.asarray(d.mean(axis=1) > error)


def p_values(d: FloatArray) -> FloatArray:
    """Return the one-sided p of the exact McNemar test; of graded scores, the sign test."""
    from scipy.special import bdtr

    won, lost = (d > 0).sum(axis=1), (d < 0).sum(axis=1)
    return np.asarray(np.where(won + lost > 0, bdtr(lost, won + lost, 0.5), 1.0))


def mcnemar(d: FloatArray) -> BoolArray:
    """Accept if the exact McNemar test is significant at .05."""
    return np.asarray(p_values(d) <= ALPHA)


OTHERS: dict[str, Rule] = {
    "exact McNemar .05, fixed n": mcnemar,
    "cap-evolve: mean > 1 SE": cap_evolve,
    "SkillAdaptor: 5 tasks": skill_adaptor,
    "SkillOpt: strict, 40 tasks": skill_opt,
    "strictly better": strictly_better,
    "not worse": not_worse,
}
"""The rules that decide on one edit at a time."""


def online(name: str, p: Iterable[float], fdr: float) -> BoolArray:
    """Test a stream of p-values with SAFFRON or LORD++ (online-fdr, initial wealth fdr / 2)."""
    from online_fdr.p_values import LordPlusPlus, Saffron

    test = (
        Saffron(alpha=fdr, wealth=fdr / 2, lambda_=0.5)
        if name == "SAFFRON"
        else LordPlusPlus(alpha=fdr, wealth=fdr / 2)
    )
    return np.array([test.test_one(value) for value in p])
