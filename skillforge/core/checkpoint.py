"""A library state as bytes, so that opening a long ledger need not fold it from the beginning.

A checkpoint is a cache: whoever keeps one binds it to the event that it stands at, and `replay`
compares it with the fold of the whole ledger.
"""

from __future__ import annotations

import json
from typing import Any

from skillforge.core.digest import canonical_json
from skillforge.core.library import LibraryState, SkillRecord, Staged, Status, VersionRecord

FOLD = 2
"""Number of the fold's rules; raise it with any change to what an event makes of the state."""


def write_state(state: LibraryState) -> bytes:
    """Return a state as bytes."""
    return canonical_json(
        {
            "fold": FOLD,
            "skills": [_fields(record) for record in state.skills.values()],
            "versions": [_fields(record) for record in state.versions.values()],
            "staged": {n: [_fields(s) for s in waiting] for n, waiting in state.staged.items()},
            "decisions": state.decisions,
            "spent": {lineage: sorted(tasks) for lineage, tasks in state.spent.items()},
            "reserved": {c: [line, sorted(tasks)] for c, (line, tasks) in state.reserved.items()},
            "open_runs": state.open_runs,
        }
    ).encode()


def read_state(data: bytes) -> LibraryState | None:
    """Read a state back; None where it was folded by other rules."""
    kept = json.loads(data)
    if kept["fold"] != FOLD:
        return None
    versions = [VersionRecord(**v | {"status": Status(v["status"])}) for v in kept["versions"]]
    return LibraryState(
        skills={record["name"]: SkillRecord(**record) for record in kept["skills"]},
        versions={(record.skill, record.version): record for record in versions},
        staged={n: tuple(Staged(**s) for s in waiting) for n, waiting in kept["staged"].items()},
        decisions=kept["decisions"],
        spent={lineage: frozenset(tasks) for lineage, tasks in kept["spent"].items()},
        reserved={c: (line, frozenset(tasks)) for c, (line, tasks) in kept["reserved"].items()},
        open_runs=kept["open_runs"],
    )


def _fields(record: SkillRecord | VersionRecord | Staged) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}
