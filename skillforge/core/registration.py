"""What is written down before a candidate's first confirm rollout, and cannot change after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from skillforge.core.rollout import refuse_repeats
from skillforge.core.rules import Basis, GateRules
from skillforge.errors import StatisticsError


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
    """E-value at which betting may stop; see `run_course`."""
    lineage: str
    """Revisions of the same proposal share a lineage, and with it the tasks already spent."""
    blocks: tuple[int, ...] = ()
    """Sizes of the families along the order, where each family bets once; see `run_course`."""
    pool: int = 0
    """Fresh tasks that the order was drawn from; counts where the rules name a finite pool."""

    def __post_init__(self) -> None:
        """Refuse an order that cannot be bet on.

        Raises:
            StatisticsError: A task stands twice, or blocks or pool do not fit the order.
        """
        refuse_repeats(self.order)
        if self.blocks and sum(self.blocks) != len(self.order):
            raise StatisticsError(
                f"candidate {self.candidate!r}: blocks of {sum(self.blocks)} tasks for an order of "
                f"{len(self.order)}, expected as many; name the size of every family of the order"
            )
        if self.rules.finite_pool and self.pool < len(self.order):
            raise StatisticsError(
                f"candidate {self.candidate!r}: a pool of {self.pool} tasks for an order of "
                f"{len(self.order)}, expected at least as many; count all that it was drawn from"
            )

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
            "pool": self.pool,
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
            pool=data.get("pool", 0),
        )
