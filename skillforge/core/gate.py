"""The gate: when evidence is enough to keep an edit, to drop it, or to say neither.

Each fresh confirm task is one bet on the paired difference d (augmented − base, replicates
averaged), in the order registered before the first of them was run. Three e-processes run side by
side: for the claim that the candidate makes (`lift`, or `non_inferiority` for a removal), for harm,
and for futility. The claim's process crossing 1/α puts the candidate on probation; harm or futility
ends it. Betting goes on while on probation, because promotion needs the larger evidence that
false-discovery control over a whole cohort asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skillforge.core.course import Course, run_course
from skillforge.core.evidence import Evidence, weigh
from skillforge.core.multiplicity import e_bh
from skillforge.core.registration import Registration
from skillforge.core.rollout import Pair, Void
from skillforge.core.rules import (
    FEWEST_FAMILIES,
    Basis,
    Decision,
    GateRules,
    Inference,
    basis_of,
)
from skillforge.core.validity import examine

__all__ = [
    "FEWEST_FAMILIES",
    "Basis",
    "CohortMember",
    "Decision",
    "GateResult",
    "GateRules",
    "Inference",
    "Registration",
    "Stop",
    "basis_of",
    "decide",
    "find_stop",
    "promote",
]


class Stop(NamedTuple):
    """Where betting ends."""

    bets: int
    """Bets (and wholly void tasks) up to the verdict; all of them without one."""
    verdict: Decision | None
    """Set once nothing more is to be bet."""
    on_probation: bool
    """Whether the claim had been proven by then."""

    @property
    def decision(self) -> Decision:
        """What the candidate is if betting stops here."""
        if self.verdict is not None:
            return self.verdict
        return Decision.PROBATION if self.on_probation else Decision.INSUFFICIENT_EVIDENCE


def find_stop(
    course: Course, rules: GateRules, basis: Basis, enough: float, *, on_probation: bool = False
) -> Stop:
    """Find the first verdict along a course. It stands, whatever is bet later.

    Args:
        course: The processes along the order.
        rules: The registered rules.
        basis: The registered claim.
        enough: E-value at which a candidate on probation needs no more tasks: cohort size / fdr
            passes e-BH whatever the others do. Stopping early never inflates error.
        on_probation: Whether the version is served already. Then futility ends nothing, and harm
            must reach what rolls a served version back, also where E began anew at 1.

    >>> ties = [Pair(task=f"t{i}", family="f", base=1.0, augmented=1.0) for i in range(50)]
    >>> course = run_course(ties, GateRules(), Basis.LIFT)
    >>> find_stop(course, GateRules(), Basis.LIFT, enough=20.0).bets
    36
    """
    proven = 0 if on_probation else _first(course.charged >= 1 / rules.alpha)
    # A removal may be neutral and still right, so futility is a rule for lift alone.
    limit = 1 / rules.beta if basis is Basis.LIFT else np.inf
    harmed, futile = _first(course.harm >= 1 / rules.harm_stop), _first(course.futility >= limit)
    if min(harmed, futile) < proven:
        verdict = Decision.REJECTED_HARM if harmed <= futile else Decision.REJECTED_FUTILE
        return Stop(min(harmed, futile) + 1, verdict, on_probation=False)
    undone = proven + _first(course.harm[proven:] >= 1 / rules.harm_retire)
    satisfied = proven + _first(course.charged[proven:] >= enough)
    bets = course.used.size
    if min(undone, satisfied) < bets:
        verdict = Decision.ROLLED_BACK if undone <= satisfied else Decision.PROBATION
        return Stop(min(undone, satisfied) + 1, verdict, on_probation=True)
    return Stop(bets, None, on_probation=on_probation or proven < bets)


def _first(hit: NDArray[np.bool_]) -> int:
    """Return the index of the first True, or the length."""
    return int(hit.argmax()) if hit.any() else hit.size


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A decision with its evidence and reasons."""

    decision: Decision
    basis: Basis
    evidence: Evidence
    used: int
    """Tasks of the registered order that were bet on or voided before the decision."""
    final: bool
    """Whether nothing more is to be bet."""
    reasons: tuple[str, ...]
    withheld: bool = False
    """Whether the claim is proven, but what is the matter with the inputs forbids the verdict."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as the JSON object that the ledger keeps."""
        return {
            "decision": self.decision.value,
            "basis": self.basis.value,
            "used": self.used,
            "reasons": list(self.reasons),
            "confirm": self.evidence.to_json(),
        }


def decide(
    outcomes: Sequence[Pair | Void],
    rules: GateRules,
    basis: Basis,
    *,
    enough: float,
    stop: bool = True,
    blocks: Sequence[int] = (),
    pool: int = 0,
    on_probation: bool = False,
) -> GateResult:
    """Run the gate over the completed prefix of the registered order.

    Pure: the same prefix gives the same result, which is what `replay` relies on. Pairs after the
    verdict (in flight when it fell) are overshoot and not counted. Estimand: the mean paired
    difference over tasks, families or a pool, as the rules say; assumed are an order fixed
    beforehand and tasks that were not chosen by their outcome. Without a pair there is no lift, and
    with fewer than two no interval: `insufficient_evidence`, never 0.

    Args:
        outcomes: One entry per task of the order, shape (n,), n ≥ 0.
        rules: The registered rules.
        basis: The registered claim.
        enough: See `find_stop`.
        stop: Whether a verdict ends the betting; a fixed-size study counts every pair.
        blocks: See `run_course`.
        pool: See `run_course`.
        on_probation: See `find_stop`.

    Raises:
        StatisticsError: A task stands twice among the outcomes, or the pool is smaller.

    Complexity: O(n); about 4 ms for 1,000 pairs.

    >>> wins = [Pair(task=f"t{i}", family="f", base=0.0, augmented=1.0) for i in range(7)]
    >>> [decide(wins[:n], GateRules(), Basis.LIFT, enough=20.0).decision.value for n in (6, 7)]
    ['insufficient_evidence', 'probation']
    """
    course = run_course(outcomes, rules, basis, blocks=blocks, pool=pool)
    end = find_stop(course, rules, basis, enough, on_probation=on_probation)
    bets = end.bets if stop else course.used.size
    used = int(course.used[bets - 1]) if bets else 0
    pairs = [o for o in outcomes[:used] if isinstance(o, Pair)]
    stakes = course.stakes[:bets]
    bet = ~np.isnan(stakes)
    left = pool + 1 - course.used[:bets][bet] if rules.finite_pool else None
    evidence = weigh(
        pairs,
        stakes[bet],
        voids=[o for o in outcomes[:used] if isinstance(o, Void)],
        e_values=_last(course, bets),
        rules=rules,
        left=left,
    )
    decision, findings = end.decision, examine(pairs, evidence, basis)
    reasons = [_because(decision, evidence, rules, basis, served=on_probation)]
    withheld = decision is Decision.PROBATION and any(f.withholds for f in findings)
    for finding in findings:
        prefix = "verdict withheld: " if withheld and finding.withholds else ""
        reasons.append(prefix + finding.reason)
    if withheld:
        decision = Decision.INSUFFICIENT_EVIDENCE
    return GateResult(
        decision=decision,
        basis=basis,
        evidence=evidence,
        used=used,
        final=end.verdict is not None,
        reasons=tuple(reasons),
        withheld=withheld,
    )


def _last(course: Course, bets: int) -> list[float]:
    """Return claim, harm, futility and charged claim after so many bets; 1 before the first."""
    paths = (course.claim, course.harm, course.futility, course.charged)
    return [float(path[bets - 1]) if bets else 1.0 for path in paths]


def _because(
    decision: Decision, evidence: Evidence, rules: GateRules, basis: Basis, *, served: bool
) -> str:
    claim, harm, pairs = evidence.e_value, evidence.e_harm, evidence.table.pairs
    match decision:
        case Decision.PROBATION if served:
            return f"served on probation; evidence for {basis.value} is now {claim:.3g}"
        case Decision.PROBATION:
            return f"evidence for {basis.value} reached 1/{rules.alpha:g}; now {claim:.3g}"
        case Decision.ROLLED_BACK:
            limit = f"1/{rules.harm_retire:g}"
            return f"harm evidence reached {limit} while on probation; now {harm:.3g}"
        case Decision.REJECTED_HARM:
            return f"harm evidence reached 1/{rules.harm_stop:g}; now {harm:.3g}"
        case Decision.REJECTED_FUTILE:
            return (
                f"evidence against a lift of {rules.min_effect:g} or more reached "
                f"1/{rules.beta:g}; now {evidence.e_futility:.3g}"
            )
    if claim >= 1 / rules.alpha:
        return (
            f"evidence for {basis.value} is {claim:.3g}, but {evidence.e_charged:.3g}, short of "
            f"1/{rules.alpha:g}, with a score of 0 where infrastructure failed the augmented arm "
            "alone"
        )
    short = f"evidence for {basis.value} is {claim:.3g}, short of 1/{rules.alpha:g}"
    if basis is Basis.LIFT and not rules.finite_pool and 0 < pairs < rules.fewest_tasks:
        return f"{short}, which takes {rules.fewest_tasks} straight wins; {pairs} pairs cannot"
    return short


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortMember:
    """One candidate of a cohort, at its current evidence."""

    candidate: str
    decision: Decision
    e_value: float


def promote(members: Sequence[CohortMember], fdr: float) -> tuple[str, ...]:
    """Return the candidates on probation that e-BH lets through at a false-discovery rate.

    Every candidate that the cohort ever started counts towards m, each at its current e-value
    (a promoted one frozen at its own). One that is not kept, whatever its evidence, is no
    discovery and helps none: it enters as 0, because e-BH bounds the false share of the set it
    returns, not that of every subset. Source: Wang and Ramdas 2022, arXiv:2009.02824.

    >>> promote([CohortMember(candidate="a", decision=Decision.PROBATION, e_value=40.0),
    ...          CohortMember(candidate="b", decision=Decision.REJECTED_FUTILE, e_value=0.1)], .10)
    ('a',)
    """
    if not members:
        return ()
    kept = (Decision.PROBATION, Decision.PROMOTED)
    found = e_bh([m.e_value if m.decision in kept else 0.0 for m in members], fdr)
    return tuple(members[i].candidate for i in found if members[i].decision is Decision.PROBATION)
