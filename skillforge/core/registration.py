"""What is written down before a candidate's first confirm rollout, and cannot change after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
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
    """E-value at which betting may stop; see `skillforge.core.gate.find_stop`."""
    lineage: str
    """Revisions of the same proposal share a lineage, and with it the tasks already spent."""
    blocks: tuple[int, ...] = ()
    """Sizes of the families along the order, where each family bets once; see `run_course`."""
    pool: int = 0
    """Fresh tasks that the order was drawn from; counts where the rules name a finite pool."""
    carried: tuple[tuple[str, int], ...] = ()
    """Earlier runs whose bets stand at the head of the order, oldest first, and how many tasks of
    it each of them bet on; what follows is bet on in the run of this registration."""
    restarted: str = ""
    """Why E begins at 1 though an earlier run had bet on this edit; "" where none had."""
    on_probation: bool = False
    """Whether the version is served and watched: see `skillforge.core.gate.find_stop`."""
    worker: str = ""
    """Fingerprint of the worker, with its model and every sampling setting."""
    tasks: str = ""
    """Digest of what the tasks of the order are: input, verifier, skills shown beside."""
    tried: int = 1
    """Candidates that its cohort had started by then, this one included."""

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

    @property
    def looks(self) -> int:
        """Runs that stand behind the evidence, at least 1."""
        return len(self.carried) + 1

    @property
    def fresh(self) -> tuple[str, ...]:
        """The part of the order that is bet on in the run of this registration."""
        return self.order[sum(bets for _, bets in self.carried) :]

    def legs(self, run: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the order in parts, each with the run whose rollouts are its evidence.

        Args:
            run: The run of this registration.
        """
        start = 0
        for earlier, bets in self.carried:
            yield earlier, self.order[start : start + bets]
            start += bets
        yield run, self.order[start:]

    def bets_until(self, run: str, used: int) -> tuple[tuple[str, int], ...]:
        """Return what a continuation carries if so many tasks of the order were used by now.

        Args:
            run: The run of this registration.
            used: Tasks used, those of earlier runs included.
        """
        new = used - sum(bets for _, bets in self.carried)
        return (*self.carried, (run, new)) if new else self.carried

    def blocks_until(self, used: int) -> tuple[int, ...]:
        """Return the sizes of the families that make up the first so many tasks of the order."""
        ends = accumulate(self.blocks)
        return tuple(size for size, end in zip(self.blocks, ends, strict=True) if end <= used)

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
            "carried": [list(leg) for leg in self.carried],
            "restarted": self.restarted,
            "on_probation": self.on_probation,
            "worker": self.worker,
            "tasks": self.tasks,
            "tried": self.tried,
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
            carried=tuple((run, bets) for run, bets in data.get("carried", ())),
            **{name: data[name] for name in _LATER if name in data},
        )


_LATER = ("restarted", "on_probation", "worker", "tasks", "tried")
"""What older records lack; the defaults say what they meant."""
