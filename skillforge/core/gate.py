"""The gate: when evidence is enough to keep an edit, to drop it, or to say neither.

Each fresh confirm task is one bet on the paired difference d (augmented − base, replicates
averaged), in the order registered before the first of them was run. Three e-processes run side by
side: for the claim that the candidate makes (`lift`, or `non_inferiority` for a removal), for harm,
and for futility. The claim's process crossing 1/α puts the candidate on probation; harm or futility
ends it. Betting goes on while on probation, because promotion needs the larger evidence that
false-discovery control over a whole cohort asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from skillforge.core.eprocess import (
    e_process,
    futility_bet,
    harm_bet,
    lift_bet,
    non_inferiority_bet,
)
from skillforge.core.evidence import Evidence, weigh
from skillforge.core.finite_pool import pool_bets
from skillforge.core.multiplicity import e_bh
from skillforge.core.registration import Registration
from skillforge.core.rollout import Pair, Void, refuse_repeats
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
    "GateState",
    "Inference",
    "Registration",
    "basis_of",
    "decide",
    "promote",
    "walk",
]


class GateState(NamedTuple):
    """Where the gate stands after some tasks of the registered order."""

    used: int
    """Tasks bet on or voided so far."""
    claim: float
    """Value of the claim's process; before the first bet all three are 1."""
    harm: float
    futility: float
    charged: float
    """The claim's value if the augmented arm's surplus of infrastructure failures were losses."""
    on_probation: bool
    verdict: Decision | None
    """Set once nothing more is to be bet."""

    @property
    def decision(self) -> Decision:
        """The verdict if the candidate stopped now."""
        if self.verdict is not None:
            return self.verdict
        return Decision.PROBATION if self.on_probation else Decision.INSUFFICIENT_EVIDENCE


START = GateState(0, 1.0, 1.0, 1.0, 1.0, on_probation=False, verdict=None)
"""The gate before the first bet."""


def walk(
    outcomes: Sequence[Pair | Void],
    rules: GateRules,
    basis: Basis,
    *,
    enough: float,
    blocks: Sequence[int] = (),
    pool: int = 0,
) -> Iterator[GateState]:
    """Yield where the gate stands after each task (or family) of the completed prefix.

    A void is no bet. But if the augmented arm fails more often than the base arm, its surplus is
    held against it: probation needs 1/α even if these tasks are counted as lost. A skill that
    crashes the tasks it would lose gains nothing by it, and an even rate of failures costs a few
    tasks at most. A verdict that has fallen stands, whatever is bet later.

    Args:
        outcomes: One entry per task of the order, shape (n,), n ≥ 0.
        rules: The registered rules.
        basis: The registered claim.
        enough: E-value at which a candidate on probation needs no more tasks: cohort size / fdr
            passes e-BH whatever the others do. Stopping early never inflates error.
        blocks: Sizes of the families along the order, for inference over families: a family bets
            once, when all of it is done. Empty where each task bets for itself.
        pool: Size of the finite pool that the order was drawn from, where `rules` bet without
            replacement.

    Raises:
        StatisticsError: A task stands twice among the outcomes, or the pool is smaller.
    """
    refuse_repeats([outcome.task for outcome in outcomes])
    groups = list(_blocks(outcomes, blocks))
    values = iter(_values(groups, rules, basis, pool))
    state = START
    for group in groups:
        used = state.used + len(group)
        if any(isinstance(outcome, Pair) for outcome in group):
            state = _step(state, used, next(values), rules, basis, enough)
        else:
            state = state._replace(used=used)
        yield state


def _values(
    groups: Sequence[Sequence[Pair | Void]], rules: GateRules, basis: Basis, pool: int
) -> list[tuple[float, ...]]:
    """Compute claim, harm, futility and charged claim after each bet, all bets at once."""
    used, surplus, drawn, charges, d = 0, 0, [], [], []
    for group in groups:
        surplus += sum(_charge(outcome) for outcome in group)
        stake = _stake(group)
        if stake is not None:
            d.append(stake)
            drawn.append(used)
            charges.append(max(0, surplus))
        used += len(group)
    if not d:
        return []
    stakes = np.array(d)
    claims, low = lift_bet(stakes), -1.0
    if basis is Basis.NON_INFERIORITY:
        claims, low = non_inferiority_bet(stakes, rules.margin), rules.margin - 1.0
    bets = [(claims, low), (harm_bet(stakes), -1.0)]
    bets.append((futility_bet(stakes, rules.min_effect), rules.min_effect - 1.0))
    if rules.finite_pool:
        left = pool - np.array(drawn)
        bets = [(pool_bets(x, left, low=floor), floor) for x, floor in bets]
    paths = [e_process(x, rules.lambdas) for x, _ in bets]
    losses = np.array(charges) * (len(groups) / used)  # in bets, of which a family has one
    paths.append(e_process(bets[0][0], rules.lambdas, losses=losses))
    return list(zip(*(path.tolist() for path in paths), strict=True))


def _charge(outcome: Pair | Void) -> int:
    """Return 1 for a failure of the augmented arm alone, -1 for one of the base arm alone."""
    if isinstance(outcome, Pair) or len(outcome.arms) > 1:
        return 0
    return -1 if outcome.arms[0] == "base" else 1


def _step(
    state: GateState,
    used: int,
    values: tuple[float, ...],
    rules: GateRules,
    basis: Basis,
    enough: float,
) -> GateState:
    """Return the gate after one more bet."""
    claim, harm, futility, charged = values
    on_probation = state.on_probation or charged >= 1 / rules.alpha
    verdict = state.verdict
    if verdict is None and on_probation:
        if harm >= 1 / rules.harm_retire:
            verdict = Decision.ROLLED_BACK
        elif charged >= enough:
            verdict = Decision.PROBATION
    elif verdict is None:
        # A removal may be neutral and still right, so futility is a rule for lift alone.
        if harm >= 1 / rules.harm_stop:
            verdict = Decision.REJECTED_HARM
        elif basis is Basis.LIFT and futility >= 1 / rules.beta:
            verdict = Decision.REJECTED_FUTILE
    return GateState(used, claim, harm, futility, charged, on_probation, verdict)


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
) -> GateResult:
    """Run the gate over the completed prefix of the registered order.

    Pure: the same prefix gives the same result, which is what `replay` relies on. Pairs after the
    verdict (in flight when it fell) are overshoot and not counted.

    Args:
        outcomes: One entry per task of the order, shape (n,), n ≥ 0.
        rules: The registered rules.
        basis: The registered claim.
        enough: See `walk`.
        stop: Whether a verdict ends the betting; a fixed-size study counts every pair.
        blocks: See `walk`.
        pool: See `walk`.

    Raises:
        StatisticsError: A task stands twice among the outcomes, or the pool is smaller.
    """
    state = START
    for state in walk(outcomes, rules, basis, enough=enough, blocks=blocks, pool=pool):
        if stop and state.verdict is not None:
            break
    counted = list(_blocks(outcomes[: state.used], blocks))
    pairs = [o for o in outcomes[: state.used] if isinstance(o, Pair)]
    evidence = weigh(
        pairs,
        [stake for group in counted if (stake := _stake(group)) is not None],
        voids=[o for o in outcomes[: state.used] if isinstance(o, Void)],
        e_values=(state.claim, state.harm, state.futility),
        alpha=rules.alpha,
    )
    decision, reasons = _conclude(state, rules, basis, pairs, evidence)
    return GateResult(
        decision=decision,
        basis=basis,
        evidence=evidence,
        used=state.used,
        final=state.verdict is not None,
        reasons=reasons,
    )


def _blocks(
    outcomes: Sequence[Pair | Void], sizes: Sequence[int]
) -> Iterator[Sequence[Pair | Void]]:
    """Cut the outcomes into what bets together; an unfinished family at the end is left out."""
    ends = list(accumulate(sizes)) if sizes else range(1, len(outcomes) + 1)
    begin = 0
    for end in ends:
        if end > len(outcomes):
            return
        yield outcomes[begin:end]
        begin = end


def _stake(group: Sequence[Pair | Void]) -> float | None:
    """Return what a task or family bets, the mean of its differences; None if all of it is void."""
    differences = [o.difference for o in group if isinstance(o, Pair)]
    return sum(differences) / len(differences) if differences else None


def _conclude(
    state: GateState, rules: GateRules, basis: Basis, pairs: Sequence[Pair], evidence: Evidence
) -> tuple[Decision, tuple[str, ...]]:
    """Name the reasons, and withhold a verdict that the inputs cannot carry."""
    findings, decision = examine(pairs, evidence, basis), state.decision
    reasons = [_because(state, rules, basis, len(pairs))]
    withheld = decision is Decision.PROBATION and any(f.withholds for f in findings)
    for finding in findings:
        reasons.append(("verdict withheld: " if finding.withholds else "") + finding.reason)
    return Decision.INSUFFICIENT_EVIDENCE if withheld else decision, tuple(reasons)


def _because(state: GateState, rules: GateRules, basis: Basis, pairs: int) -> str:
    claim, harm, futility = state.claim, state.harm, state.futility
    match state.decision:
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
                f"1/{rules.beta:g}; now {futility:.3g}"
            )
    short = f"evidence for {basis.value} is {claim:.3g}, short of 1/{rules.alpha:g}"
    if claim >= 1 / rules.alpha:
        return (
            f"evidence for {basis.value} is {claim:.3g}, but {state.charged:.3g}, short of "
            f"1/{rules.alpha:g}, with the augmented arm's surplus of infrastructure failures as "
            "losses"
        )
    if basis is Basis.LIFT and 0 < pairs < rules.fewest_tasks:
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
