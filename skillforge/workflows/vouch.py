"""What stands behind a skill: the evidence that travels with it, and its way back."""

from __future__ import annotations

from typing import Any

from skillforge.core.edits import apply_edit
from skillforge.core.gate import Decision
from skillforge.core.library import LibraryState
from skillforge.core.undo_check import UndoCheck, check_undo
from skillforge.errors import EditError, LedgerError
from skillforge.ports import Ledger
from skillforge.workflows.candidates import candidate_id
from skillforge.workflows.curate import Curator
from skillforge.workflows.journal import Journal


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
                "decision": decision.get("decision", Decision.UNMEASURED.value),
                "basis": decision.get("basis"),
                "confirm": decision.get("confirm"),
                "reasons": decision.get("reasons", []),
                "looks": decision.get("looks", 0),
                "tried": decision.get("tried"),
            }
        )
        version = found.parent
    return {"version": record.current, "evidence": record.evidence, "line": line}


def undo_is_proven(curator: Curator, candidate: str) -> bool:
    """Tell whether a candidate's edit was seen to be undone, and still is with what is archived.

    Promotion asks for it: the counts in the ledger must say so, and the edit is applied to the
    archived base and taken back in the same states once more. What cannot be read proves nothing.
    """
    for event in curator.ledger.events(kinds=("candidate.proposed",)):
        if event.data["candidate"] != candidate:
            continue
        counted, skill = event.data.get("undo"), event.data["skill"]
        if not counted or not UndoCheck.from_json(counted).verified:
            return False
        try:
            base = curator.package(skill, event.data["base"])
            made = Journal(ledger=curator.ledger, run=event.run).proposals(skill) or []
            ids = [candidate_id(event.run, skill, base.version, p) for p in made]
            edits = [p.edit for p, name in zip(made, ids, strict=True) if name == candidate]
            made_again = [apply_edit(base, edit).package.version for edit in edits]
            return made_again == [event.data["version"]] and check_undo(base, edits[0]).verified
        except (EditError, LedgerError):
            return False
    return False
