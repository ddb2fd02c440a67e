"""The evidence that travels with a skill."""

from __future__ import annotations

from typing import Any

from skillforge.core.library import LibraryState
from skillforge.ports import Ledger


def evidence_of(ledger: Ledger, state: LibraryState, skill: str) -> dict[str, Any]:
    """Return what stands behind the served version of a skill: every decision of its line.

    Walks from the served version to its parents; a version that was never measured says so.
    """
    record = state.skill(skill)
    decided = {
        event.data["candidate"]: dict(event.data)
        for event in ledger.events(kinds=("gate.decided",))
        if event.data["skill"] == skill
    }
    line, version = [], record.current
    seen: set[str] = set()
    while version and version not in seen:
        seen.add(version)
        found = state.versions[skill, version]
        decision = decided.get(found.candidate, {})
        line.append(
            {
                "version": version,
                "status": found.status.value,
                "decision": decision.get("decision", "unmeasured"),
                "basis": decision.get("basis"),
                "confirm": decision.get("confirm"),
                "reasons": decision.get("reasons", []),
            }
        )
        version = found.parent
    return {"version": record.current, "evidence": record.evidence, "line": line}
