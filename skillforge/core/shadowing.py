"""Harm to several neighbours at once: the average of their e-processes.

Each neighbour of an edited skill has a harm process of its own, over its own tasks. Stopping at the
first of five that reaches 1/.20 would flag half of all edits that do nothing; their average may be
held against the same bar as one. All of them bet once in each round, in an order fixed before the
first, so that they are supermartingales in the one filtration of the rounds (averaging processes of
different filtrations would not do: Choe and Ramdas 2024, "Combining evidence across filtrations",
arXiv:2402.09698); one that is stopped keeps its value and stays one. The average of
supermartingales that start at 1 is one again, whatever the dependence between them, so that

    P(average ≥ 1/α in any round) ≤ α            where no neighbour is harmed.

Source: Vovk and Wang (2021), "E-values: calibration, combination and applications", Annals of
Statistics 49(3), arXiv:1912.06116: the mean is an e-value under any dependence, and no other
symmetric way of merging e-values dominates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skillforge.core.course import Course
from skillforge.core.rules import GateRules


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageHarm:
    """Where the neighbours of an edit stand after some rounds; tuples have one entry for each."""

    bets: tuple[int, ...]
    """Bets that count: up to the verdict, or as far as every neighbour has come."""
    e_values: tuple[float, ...]
    """Harm evidence of each after these bets."""
    average: float
    """Their mean, the e-value of "no neighbour is harmed"; 1 without any neighbour."""
    futile: tuple[bool, ...]
    """Whether harm of ``min_effect`` or more is refuted; such a neighbour bets no more."""
    active: tuple[bool, ...]
    """Who has bets left to make: nobody once harm is shown."""
    harmful: bool
    """Whether the average has reached 1/harm_stop, in this round or in one before."""

    @property
    def final(self) -> bool:
        """Whether nothing more is to be bet."""
        return not any(self.active)


def average_harm(courses: Sequence[Course], totals: Sequence[int], rules: GateRules) -> AverageHarm:
    """Average the harm evidence of some neighbours, round by round, up to the first verdict.

    Args:
        courses: For each neighbour the course of the claim "taking the edit back helps" over what
            it has completed.
        totals: Bets that each of them registered, shape of ``courses``.
        rules: Of them, ``harm_stop`` and ``beta`` count here.
    """
    ends, futile = [], []
    for course, total in zip(courses, totals, strict=True):
        refuted = np.flatnonzero(course.futility[:total] >= 1 / rules.beta)
        ends.append(int(refuted[0]) + 1 if refuted.size else total)
        futile.append(bool(refuted.size))
    made = [course.claim.size for course in courses]
    behind = [bets for bets, end in zip(made, ends, strict=True) if bets < end]
    rounds = np.arange(min(behind, default=max(ends, default=0)) + 1)
    paths = [
        np.concatenate([[1.0], course.claim])[np.minimum(rounds, end)]
        for course, end in zip(courses, ends, strict=True)
    ]
    average = np.mean(paths, axis=0) if paths else np.ones(1)
    hits = np.flatnonzero(average >= 1 / rules.harm_stop)
    last = int(hits[0]) if hits.size else rounds.size - 1
    return AverageHarm(
        bets=tuple(min(last, end) for end in ends),
        e_values=tuple(float(path[last]) for path in paths),
        average=float(average[last]),
        futile=tuple(known and end <= last for known, end in zip(futile, ends, strict=True)),
        active=tuple(bets < end and not hits.size for bets, end in zip(made, ends, strict=True)),
        harmful=bool(hits.size),
    )
