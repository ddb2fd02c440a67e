"""What is fixed before the first bet: the claim, the error rates, and the words for the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from skillforge.core.eprocess import DEFAULT_LAMBDAS
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
    """Most fresh confirm tasks that one candidate may use in one run."""
    replicates: int = 1
    """Rollouts of each task and arm; a task bets the difference of its means."""
    inference: Inference = "tasks"
    """``families``: the estimand is the mean lift over families, each of which bets once, by the
    mean over its tasks; for tasks of one family that win and lose together."""
    finite_pool: bool = False
    """Bet without replacement on the fresh confirm tasks as a pool of known size; for deterministic
    workers only, see `skillforge.core.finite_pool`."""
    deterministic: bool = False
    """Whether the worker is declared to answer a task with a skill the same way every time."""
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
        self._check_pool()
        if not self.lambdas or not all(0 < stake < 1 for stake in self.lambdas):
            raise ConfigError(
                f"[gate] lambdas are {list(self.lambdas)}; expected one or more numbers between 0 "
                f"and 1, such as {list(DEFAULT_LAMBDAS)}"
            )

    def _check_pool(self) -> None:
        if self.finite_pool and not self.deterministic:
            raise ConfigError(
                "[gate] finite_pool is true, but the worker is not declared deterministic: betting "
                "without replacement certifies the one outcome that each task happened to have, "
                "and would let up to half of the edits through that do nothing; set finite_pool = "
                "false, or [model] deterministic = true with temperature = 0 in the suite"
            )
        if self.finite_pool and self.inference == "families":
            raise ConfigError(
                "[gate] finite_pool is true with inference = 'families'; expected 'tasks': the "
                "pool is one of tasks, each of which bets once"
            )

    @property
    def fewest_tasks(self) -> int:
        """Straight wins that 1/alpha takes: with fewer tasks no lift can be proven.

        >>> GateRules().fewest_tasks
        7
        """
        wins, wealths = 0, [1.0] * len(self.lambdas)
        while sum(wealths) < len(self.lambdas) / self.alpha:
            wins += 1
            wealths = [w * (1 + stake) for w, stake in zip(wealths, self.lambdas, strict=True)]
        return wins

    def to_json(self) -> dict[str, Any]:
        """Return the rules as a JSON object, for the registration event."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "lambdas": list(self.lambdas)
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GateRules:
        """Read the rules back from a registration event."""
        return cls(**{**data, "lambdas": tuple(data["lambdas"])})


def basis_of(op: str) -> Basis:
    """Return what an edit operation claims: removals and merges must only not be worse."""
    return Basis.NON_INFERIORITY if op in ("PRUNE", "MERGE") else Basis.LIFT
