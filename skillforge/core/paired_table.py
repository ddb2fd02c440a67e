"""What the pairs of a contrast come to, in counts: outcomes, and what failed in which arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skillforge.core.rollout import Outcome, Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTable:
    """Counts of the four outcomes over the tasks of a contrast, and of failures by arm."""

    pairs: int
    gains: int
    regressions: int
    residual: int
    retained: int
    dropped: Mapping[str, int] = field(hash=False)
    """Pairs voided by an infrastructure failure, counted by the arm that failed."""
    agent_failures: Mapping[str, Mapping[str, int]] = field(hash=False)
    """Attempts that the agent failed, counted by arm and by cause; each scored 0 in its pair."""

    def to_json(self) -> dict[str, Any]:
        """Return the counts under the names that the commands print."""
        return {
            "pairs": self.pairs,
            "gains": self.gains,
            "regressions": self.regressions,
            "residual": self.residual,
            "retained": self.retained,
            "dropped": dict(self.dropped),
            "agent_failures": {arm: dict(causes) for arm, causes in self.agent_failures.items()},
        }


def in_words(causes: Mapping[str, int]) -> str:
    """Return how many attempts the agent failed, and by what.

    >>> in_words({"timeout": 3, "empty_answer": 1}), in_words({})
    ('4 (empty answer 1, timeout 3)', '0')
    """
    parts = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in sorted(causes.items()))
    return f"{sum(causes.values())} ({parts})" if parts else "0"


def tabulate(pairs: Iterable[Pair], dropped: Mapping[str, int] | None = None) -> PairedTable:
    """Count the four outcomes, and what the agent failed by.

    >>> table = tabulate([Pair(task="a", family="f", base=0.0, augmented=1.0)])
    >>> table.gains, table.regressions
    (1, 0)
    """
    known = list(pairs)
    outcomes = [pair.outcome for pair in known]
    return PairedTable(
        pairs=len(outcomes),
        gains=outcomes.count(Outcome.GAIN),
        regressions=outcomes.count(Outcome.REGRESSION),
        residual=outcomes.count(Outcome.RESIDUAL),
        retained=outcomes.count(Outcome.RETAINED),
        dropped=dict(dropped or {}),
        agent_failures={
            arm: dict(Counter(cause.value for pair in known for cause in pair.failed[i]))
            for i, arm in enumerate(("base", "augmented"))
        },
    )
