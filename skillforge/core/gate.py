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
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from skillforge.core._checks import FloatArray
from skillforge.core.eprocess import (
    DEFAULT_LAMBDAS,
    EProcess,
    harm_bet,
    lift_bet,
    non_inferiority_bet,
)
from skillforge.core.evidence import Evidence, constant_score, weigh
from skillforge.core.futility import FutilityProcess
from skillforge.core.multiplicity import e_bh
from skillforge.core.rollout import Pair, Void
from skillforge.errors import ConfigError


class Basis(StrEnum):
    """What a candidate claims."""

    LIFT = "lift"
    """Better than the base: H0 is E[d] ≤ 0."""
    NON_INFERIORITY = "non_inferiority"
    """Not worse than the base by the margin (removals): H0 is E[d] ≤ −margin."""


Inference = Literal["tasks", "families"]
"""What one bet is: a task, or a whole family of them."""

FEWEST_FAMILIES = 30
"""Families below which inference over families is refused: too few bets to decide anything."""


class Decision(StrEnum):
    """What became of a candidate."""

    PROBATION = "probation"
    PROMOTED = "promoted"
    REJECTED_HARM = "rejected_harm"
    REJECTED_FUTILE = "rejected_futile"
    INSUFFICIENT_EVIDENCE = "insufficient_evidence"
    SCREENED_OUT = "screened_out"
    NO_CHANGE = "no_change"
    REFUSED = "refused"
    ROLLED_BACK = "rolled_back"
    UNMEASURED = "unmeasured"
    INFRA_FAILED = "infra_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """The error rates and sizes of the gate, fixed before the first bet."""

    alpha: float = 0.05
    """Per-candidate probability that an edit without lift ever reaches probation."""
    beta: float = 0.10
    """Probability that an edit worth ``min_effect`` is ever called futile."""
    min_effect: float = 0.10
    """Smallest lift worth finding, as a difference of scores in (0, 1)."""
    margin: float = 0.05
    """Largest loss that a removal may cost, as a difference of scores in (0, 1)."""
    harm_stop: float = 0.20
    """Error rate of stopping an unproven candidate for harm."""
    harm_retire: float = 0.05
    """Error rate of rolling back or retiring what is served."""
    fdr: float = 0.10
    """Share of false discoveries allowed among the promotions of one cohort."""
    max_tasks: int = 200
    """Most confirm tasks that one candidate may use."""
    replicates: int = 1
    """Rollouts of each task and arm; a task bets the difference of its means."""
    inference: Inference = "tasks"
    """``families``: the estimand is the mean lift over families, each of which bets once, by the
    mean over its tasks; for tasks of one family that win and lose together."""
    lambdas: tuple[float, ...] = DEFAULT_LAMBDAS
    """Bets mixed with equal weight, each in (0, 1)."""

    def __post_init__(self) -> None:
        """Refuse rates and stakes outside (0, 1) and an empty horizon."""
        for name in ("alpha", "beta", "min_effect", "margin", "harm_stop", "harm_retire", "fdr"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ConfigError(
                    f"[gate] {name} is {value}; expected a number between 0 and 1 (write 5 % as "
                    "0.05)"
                )
        for name in ("max_tasks", "replicates"):
            if getattr(self, name) < 1:
                raise ConfigError(f"[gate] {name} is {getattr(self, name)}; expected at least 1")
        if self.inference not in ("tasks", "families"):
            raise ConfigError(
                f"[gate] inference is {self.inference!r}; expected 'tasks' or 'families'"
            )
        if not self.lambdas or not all(0 < stake < 1 for stake in self.lambdas):
            raise ConfigError(
                f"[gate] lambdas are {list(self.lambdas)}; expected one or more numbers between 0 "
                f"and 1, such as {list(DEFAULT_LAMBDAS)}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the rules as a JSON object, for the registration event."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "lambdas": list(self.lambdas)
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GateRules:
        """Read the rules back from a registration event."""
        return cls(**{**data, "lambdas": tuple(data["lambdas"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class GateState:
    """The three processes after some bets."""

    basis: Basis
    claim: EProcess
    harm: EProcess
    futility: FutilityProcess
    on_probation: bool = False
    verdict: Decision | None = None
    """Set once nothing more is to be bet."""

    @property
    def decision(self) -> Decision:
        """The verdict if the candidate stopped now."""
        if self.verdict is not None:
            return self.verdict
        return Decision.PROBATION if self.on_probation else Decision.INSUFFICIENT_EVIDENCE


def start(rules: GateRules, basis: Basis) -> GateState:
    """Open the three processes at 1."""
    fresh = EProcess.start(rules.lambdas)
    futility = FutilityProcess(min_effect=rules.min_effect)
    return GateState(basis=basis, claim=fresh, harm=fresh, futility=futility)


def bet(state: GateState, rules: GateRules, difference: float, *, enough: float) -> GateState:
    """Bet once on the paired difference of the next task of the registered order.

    Args:
        state: The processes so far. A verdict that has fallen stands, whatever is bet later.
        rules: The registered rules.
        difference: Augmented minus base on that task, in [-1, 1].
        enough: E-value at which a candidate on probation needs no more tasks: cohort size / fdr
            passes e-BH whatever the others do. Stopping early never inflates error.
    """
    return bet_along(state, rules, np.array([difference]), enough=enough, stop=False)[0]


def bet_along(
    state: GateState, rules: GateRules, differences: FloatArray, *, enough: float, stop: bool
) -> tuple[GateState, int]:
    """Bet on paired differences in their order; see `bet`.

    Args:
        state: The processes so far.
        rules: The registered rules.
        differences: Augmented minus base of each task, in [-1, 1], shape (n,).
        enough: See `bet`.
        stop: Whether the first verdict ends the betting.

    Returns:
        The state after the last bet, and how many bets were made.
    """
    claim_bets = (
        lift_bet(differences)
        if state.basis is Basis.LIFT
        else non_inferiority_bet(differences, rules.margin)
    )
    claim = state.claim.path(claim_bets)
    harm = state.harm.path(harm_bet(differences))
    futility = state.futility.path(differences)
    on_probation, verdict, used = state.on_probation, state.verdict, 0
    values = zip(*(path.values[1:].tolist() for path in (claim, harm, futility)), strict=True)
    for e_claim, e_harm, e_futility in values:
        used += 1
        on_probation = on_probation or e_claim >= 1 / rules.alpha
        if verdict is None and on_probation:
            verdict = _on_probation(e_claim, e_harm, rules, enough)
        elif verdict is None:
            verdict = _unproven(e_harm, e_futility, rules, state.basis)
        if stop and verdict is not None:
            break
    after = GateState(
        basis=state.basis,
        claim=claim.at(used),
        harm=harm.at(used),
        futility=futility.at(used),
        on_probation=on_probation,
        verdict=verdict,
    )
    return after, used


def _on_probation(claim: float, harm: float, rules: GateRules, enough: float) -> Decision | None:
    if harm >= 1 / rules.harm_retire:
        return Decision.ROLLED_BACK
    return Decision.PROBATION if claim >= enough else None


def _unproven(harm: float, futility: float, rules: GateRules, basis: Basis) -> Decision | None:
    if harm >= 1 / rules.harm_stop:
        return Decision.REJECTED_HARM
    # A removal may be neutral and still right, so futility is a rule for lift alone.
    if basis is Basis.LIFT and futility >= 1 / rules.beta:
        return Decision.REJECTED_FUTILE
    return None


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
) -> GateResult:
    """Run the gate over the completed prefix of the registered order.

    Pure: the same prefix gives the same result, which is what `replay` relies on. Pairs after the
    verdict (in flight when it fell) are overshoot and not counted.

    Args:
        outcomes: One entry per task of the order, shape (n,), n ≥ 0.
        rules: The registered rules.
        basis: The registered claim.
        enough: See `bet`.
        stop: Whether a verdict ends the betting; a fixed-size study counts every pair.
        blocks: Sizes of the families along the order, for inference over families: a family bets
            once, when all of it is done. Empty where each task bets for itself.
    """
    places, stakes, done = _stakes(outcomes, blocks)
    state, bets = bet_along(start(rules, basis), rules, stakes, enough=enough, stop=stop)
    # A void after the last bet is used too, unless a verdict had fallen before.
    used = places[bets - 1] if stop and state.verdict is not None else done
    pairs = [o for o in outcomes[:used] if isinstance(o, Pair)]
    voids = [o for o in outcomes[:used] if isinstance(o, Void)]
    processes = (state.claim.value, state.harm.value, state.futility.value)
    evidence = weigh(pairs, stakes[:bets], voids=voids, e_values=processes, alpha=rules.alpha)
    decision, reasons = _withhold(state, evidence, rules, level=constant_score(pairs))
    return GateResult(
        decision=decision,
        basis=basis,
        evidence=evidence,
        used=used,
        final=state.verdict is not None,
        reasons=tuple(reasons),
    )


def _stakes(
    outcomes: Sequence[Pair | Void], sizes: Sequence[int]
) -> tuple[list[int], FloatArray, int]:
    """Return where along the order each bet ends, what is bet there, and where the last task ends.

    A bet is the difference of a task or the mean of a family. One that is void altogether bets
    nothing; an unfinished family at the end is left out.
    """
    ends = list(accumulate(sizes)) if sizes else range(1, len(outcomes) + 1)
    places, stakes, begin = [], [], 0
    for end in ends:
        if end > len(outcomes):
            break
        found = [o.difference for o in outcomes[begin:end] if isinstance(o, Pair)]
        if found:
            places.append(end)
            stakes.append(sum(found) / len(found))
        begin = end
    return places, np.array(stakes, dtype=np.float64), begin


def _withhold(
    state: GateState, evidence: Evidence, rules: GateRules, *, level: float | None
) -> tuple[Decision, list[str]]:
    """Name the reasons, and withhold a verdict that constant scores could fake."""
    table, decision = evidence.table, state.decision
    reasons = [_because(state, rules)]
    if level is not None:
        which = {0.0: "fails", 1.0: "passes"}.get(level, f"scores {level:g}")
        reasons.append(f"every task {which} in both arms: the tasks cannot tell the arms apart")
        if state.basis is Basis.NON_INFERIORITY and level == 0:
            decision = Decision.INSUFFICIENT_EVIDENCE
            reasons.append(
                "verdict withheld: a skill that never works cannot tell what a unit does"
            )
    if sum(table.dropped.values()):
        reasons.append(f"pairs voided by infrastructure failures, by arm: {dict(table.dropped)}")
    if table.dropped.get("base", 0) != table.dropped.get("augmented", 0) and table.pairs:
        share = abs(table.dropped.get("base", 0) - table.dropped.get("augmented", 0))
        if share > 0.1 * table.pairs and decision is Decision.PROBATION:
            decision = Decision.INSUFFICIENT_EVIDENCE
            reasons.append("verdict withheld: infrastructure failures differ between the arms")
    return decision, reasons


def _because(state: GateState, rules: GateRules) -> str:
    claim, harm, futility = state.claim.value, state.harm.value, state.futility.value
    match state.decision:
        case Decision.PROBATION:
            return f"evidence for {state.basis.value} reached 1/{rules.alpha:g}; now {claim:.3g}"
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
        case _:
            return f"evidence for {state.basis.value} is {claim:.3g}, short of 1/{rules.alpha:g}"


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


def basis_of(op: str) -> Basis:
    """Return what an edit operation claims: removals and merges must only not be worse."""
    return Basis.NON_INFERIORITY if op in ("PRUNE", "MERGE") else Basis.LIFT


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What is fixed in the ledger before the first confirm rollout of a candidate."""

    candidate: str
    skill: str
    base: str
    version: str
    basis: Basis
    rules: GateRules
    order: tuple[str, ...] = field(repr=False)
    """Task ids in betting order."""
    enough: float
    """E-value at which betting may stop; see `bet`."""
    lineage: str
    """Revisions of the same proposal share a lineage, and with it the tasks already spent."""
    blocks: tuple[int, ...] = ()
    """Sizes of the families along the order, where each family bets once; see `decide`."""

    def to_json(self) -> dict[str, Any]:
        """Return the registration as the JSON object that the ledger keeps."""
        return {
            "candidate": self.candidate,
            "skill": self.skill,
            "base": self.base,
            "version": self.version,
            "basis": self.basis.value,
            "rules": self.rules.to_json(),
            "order": list(self.order),
            "enough": self.enough,
            "lineage": self.lineage,
            "blocks": list(self.blocks),
            "estimand": f"mean paired difference over {self.rules.inference}, augmented minus base",
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Registration:
        """Read a registration back from the ledger."""
        return cls(
            candidate=data["candidate"],
            skill=data["skill"],
            base=data["base"],
            version=data["version"],
            basis=Basis(data["basis"]),
            rules=GateRules.from_json(data["rules"]),
            order=tuple(data["order"]),
            enough=data["enough"],
            lineage=data["lineage"],
            blocks=tuple(data.get("blocks", ())),
        )
