"""Candidates of a planted world that nobody had to think of: each adds one text to a skill."""

from __future__ import annotations

from collections.abc import Sequence

from support.world import World

from skillforge.core.edits import Edit, apply_edit
from skillforge.core.package import Package
from skillforge.workflows.candidates import Candidate, candidate_id
from skillforge.workflows.journal import Journal
from skillforge.workflows.propose import Proposal


def propose(
    world: World, run: str, base: Package, contents: Sequence[str], proposers: Sequence[str] = ()
) -> list[Candidate]:
    """Write one candidate for each text into the ledger, as a run of `evolve` does.

    Of one author, unless a proposer is named for each.
    """
    journal = Journal(ledger=world.ledger, run=run)
    edits = [Edit(op="CREATE", content=content, summary="a text") for content in contents]
    names = proposers or ["author"] * len(edits)
    proposals = [Proposal(proposer=n, edit=e) for n, e in zip(names, edits, strict=True)]
    journal.remember(base.name, proposals, {})
    candidates = [
        Candidate(
            id=candidate_id(run, base.name, base.version, proposal),
            proposal=proposal,
            package=apply_edit(base, proposal.edit).package,
        )
        for proposal in proposals
    ]
    for candidate in candidates:
        journal.proposed(base, candidate)
    return candidates
