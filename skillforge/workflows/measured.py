"""Screens and unit audits as the ledger keeps them: their numbers, and the rollouts they rest on.

Several arms are measured against one that they share, on the same tasks. Their rollouts may come
from an earlier run, so the event names each by its key; `replay` reads them again and recomputes
every number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from skillforge.core.events import Event, NewEvent
from skillforge.core.intervals import betting_interval
from skillforge.core.package import Package
from skillforge.core.paired_table import tabulate
from skillforge.core.records import read_rollout
from skillforge.core.rollout import Pair, Rollout, pair_up
from skillforge.ports import Ledger
from skillforge.workflows.contrast import by_task
from skillforge.workflows.trial import Bench

SCREEN = "screen.measured"
"""Candidates against the version that they would replace."""
AUDIT = "audit.measured"
"""A version against itself without one unit."""

Numbers = Mapping[str, Any]
"""``lift`` and ``interval``, None where undefined, and ``outcomes``: the counts of the four."""


def measure(kind: str, shared: Sequence[Rollout], arm: Sequence[Rollout]) -> Numbers:
    """Return the numbers of one arm against the shared one, task by task.

    Args:
        kind: `SCREEN`, where the shared arm is the base; `AUDIT`, where it is the augmented one,
            for a unit is worth what the whole has over the rest. Its rollouts say ``base`` either
            way: both share them.
        shared: Rollouts of the shared arm, one for each task.
        arm: Rollouts of the other, in the same order.
    """
    base, augmented = (shared, arm) if kind == SCREEN else (arm, shared)
    joined = pair_up([r.task for r in shared], by_task(base), by_task(augmented))
    pairs = [outcome for outcome in joined if isinstance(outcome, Pair)]
    d = np.array([pair.difference for pair in pairs])
    return {
        "lift": float(d.mean()) if d.size else None,
        "interval": list(betting_interval(d, alpha=0.05)) if d.size >= 2 else None,
        "outcomes": tabulate(pairs).to_json(),
    }


def record(
    bench: Bench,
    kind: str,
    base: Package,
    shared: Sequence[Rollout],
    arms: Mapping[str, Sequence[Rollout]],
    **settings: Any,
) -> dict[str, Numbers]:
    """Measure some arms against the shared one, and write down what came of it.

    A run that goes on after a crash writes nothing that it has written before.

    Args:
        bench: Its ledger and run are written to.
        kind: See `measure`.
        base: The version that the arms change.
        shared: Rollouts of the shared arm, one for each task.
        arms: Those of each other arm, by what it is named for: a candidate or a unit.
        settings: What else is to be known for recomputing what follows from the numbers.

    Returns:
        The numbers of each arm.
    """
    found = {name: measure(kind, shared, arm) for name, arm in arms.items()}
    data = {
        "skill": base.name,
        "subject": base.version,
        **settings,
        "shared": _keys(shared),
        "arms": [{"id": name, "rollouts": _keys(arms[name]), **found[name]} for name in arms],
    }
    about = (base.version,)
    earlier = [e.data for e in bench.ledger.events(run=bench.run, kinds=(kind,), about=about)]
    if arms and data not in earlier:
        bench.ledger.append([NewEvent(kind=kind, data=data, run=bench.run)])
    return found


def measured_again(ledger: Ledger, event: Event) -> Iterator[tuple[str, Numbers, Numbers]]:
    """Yield for each arm of an event its name, what was written, and what its rollouts say."""
    arms = event.data["arms"]
    keys = {key for keys in (event.data["shared"], *(a["rollouts"] for a in arms)) for key in keys}
    found = ledger.find_rollouts(sorted(filter(None, keys)))
    rollouts = {key: read_rollout(stored) for key, stored in found.items()}
    for arm in arms:
        both = [
            (rollouts[a], rollouts[b])
            for a, b in zip(event.data["shared"], arm["rollouts"], strict=True)
            if a in rollouts and b in rollouts
        ]
        again = measure(event.kind, [a for a, _ in both], [b for _, b in both])
        yield arm["id"], {name: arm[name] for name in again}, again


def _keys(rollouts: Sequence[Rollout]) -> list[str]:
    """Return the keys of the rollouts; "" for one that failed, which a later one may replace."""
    return ["" if rollout.score is None else rollout.key for rollout in rollouts]
