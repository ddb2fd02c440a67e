"""What a run may spend and what it has spent: caps, bills by role, and their sums."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, NamedTuple, TypeVar

from skillforge.errors import ConfigError

Amount = TypeVar("Amount", int, float)
UNSETTLED = "unsettled"
"""Role of what was claimed before a start was cut off and is in no bill; see
`skillforge.workflows.account`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a run may spend; None is no cap."""

    usd: float | None = None
    tokens: int | None = None
    rollouts: int | None = None
    minutes: float | None = None
    """Of one start: a run that is gone on with has them anew."""

    def __post_init__(self) -> None:
        """Check the caps: nothing passes one that is infinite or no number.

        Raises:
            ConfigError: One is below 0, infinite, or no number.
        """
        for name, cap in asdict(self).items():
            if cap is not None and not 0 <= cap < inf:
                raise ConfigError(
                    f"the cap of {name} is {cap}; expected a finite number of at least 0, or none"
                )

    def less(self, spend: Spend) -> Caps:
        """Return what is left of the caps; never below 0."""

        def left(cap: Amount | None, used: Amount) -> Amount | None:
            return None if cap is None else max(cap - used, cap * 0)

        return Caps(
            usd=left(self.usd, spend.usd),
            tokens=left(self.tokens, spend.tokens),
            rollouts=left(self.rollouts, spend.rollouts),
            minutes=left(self.minutes, spend.seconds / 60),
        )


class Claim(NamedTuple):
    """The most that a run may have cost in all when the next record of it is made."""

    usd: float = 0.0
    tokens: int = 0
    rollouts: int = 0

    def most(self, other: Claim) -> Claim:
        """Return the larger of each."""
        return Claim._make(map(max, self, other))


NOTHING = Claim()


@dataclass(slots=True)
class Bill:
    """What the calls of one role have cost."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    """Attempts, those that failed included."""
    at_bound: int = 0
    """Those of them that were booked at the most that they could cost, for nobody told."""

    def add(self, other: Bill) -> None:
        """Add another bill."""
        self.usd += other.usd
        self.tokens += other.tokens
        self.calls += other.calls
        self.at_bound += other.at_bound

    def to_json(self) -> dict[str, Any]:
        """Return the bill under the names that events carry."""
        return {
            "usd": self.usd,
            "tokens": self.tokens,
            "calls": self.calls,
            "at_bound": self.at_bound,
        }


def add_bill(bills: dict[str, Bill], role: str, bill: Bill) -> None:
    """Add a bill to those of its role."""
    if role not in bills:
        bills[role] = Bill()
    bills[role].add(bill)


@dataclass(slots=True, kw_only=True)
class Spend:
    """What a run has spent."""

    usd: float = 0.0
    tokens: int = 0
    rollouts: int = 0
    """Attempts made in this run, also those of which no rollout could be stored; not one that the
    budget refused. Reused ones are counted in ``cached``."""
    unsettled: int = 0
    """Those of them that an earlier start may have made and has left no record of: it was cut off,
    or the disk was full. What they cost may be in a bill; the role of that name is what is not."""
    cached: int = 0
    seconds: float = 0.0
    """Seconds, wall clock, since the run was started or gone on with."""
    model_seconds: float = 0.0
    """Seconds of the rollout phases during which at least one model call was in flight."""
    rollout_seconds: float = 0.0
    """Seconds, wall clock, of the phases that ran rollouts."""
    roles: dict[str, Bill] = field(default_factory=dict)
    """``usd``, ``tokens``, ``calls`` and ``at_bound`` (see `Bill`) by what they were spent for."""

    def to_json(self) -> dict[str, Any]:
        """Return the spend under the names that the commands print."""
        return asdict(self)

    def book(self, role: str, bill: Bill) -> None:
        """Add what calls have cost."""
        self.usd += bill.usd
        self.tokens += bill.tokens
        add_bill(self.roles, role, bill)

    def plus(self, other: Spend) -> Spend:
        """Return the spend of two runs together."""
        mine, its = asdict(self), asdict(other)
        roles = mine.pop("roles")
        both = Spend(**{name: value + its[name] for name, value in mine.items()})
        for role, bill in (*roles.items(), *its["roles"].items()):
            add_bill(both.roles, role, Bill(**bill))
        return both
