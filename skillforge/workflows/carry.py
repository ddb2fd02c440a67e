"""Carry: the candidates of a skill that an earlier run left undecided, and what they stand on.

A candidate without a verdict goes on betting if it is proven or its E is above 1: below, E would
gain by beginning anew, which is what a new proposal of the same edit does. One that needs no more
tasks still goes on until it has been staged and its neighbours checked. Each goes on against
the base it was measured against and no other; while another version is served it waits, its E
frozen. If that is the user's own work and no accepted edit, the edit is proposed once more for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from skillforge.core.edits import apply_edit
from skillforge.core.gate import Decision, Registration
from skillforge.core.library import LibraryState, Status
from skillforge.core.package import Package
from skillforge.errors import EditError, LedgerError, SkillError
from skillforge.ports import Ledger
from skillforge.workflows.candidates import Candidate, Standing, candidate_id
from skillforge.workflows.confirm import read_result
from skillforge.workflows.curate import Curator
from skillforge.workflows.journal import Journal
from skillforge.workflows.neighbour_verdict import is_checked
from skillforge.workflows.propose import Proposal

_UNDECIDED = (Decision.PROBATION, Decision.INSUFFICIENT_EVIDENCE)


def undecided(curator: Curator, suite: str, skill: str, base: str) -> list[Candidate]:
    """Return the candidates that may go on against a base version, most evidence first.

    Those that need no more tasks come last, so that they take no place of one that does.
    """
    waiting = dict(_waiting(curator, suite, skill))
    rank = {name: (not s.satisfied, s.e_value) for name, s in waiting.items()}
    ranked = sorted(rank, key=lambda name: rank[name], reverse=True)
    mine = [name for name in ranked if waiting[name].registration.base == base]
    found = (_read(curator, name, waiting[name]) for name in mine)
    return [candidate for candidate in found if candidate is not None]


def rebased(curator: Curator, suite: str, base: Package) -> list[Proposal]:
    """Return the edits of undecided candidates of other versions, where the user wrote this one.

    After an accepted edit they wait: it may have made them pointless, and it may be taken back.
    """
    skill, state = base.name, curator.state
    if state.versions[skill, base.version].candidate:
        return []
    proposals = {
        name: _proposal(curator.ledger, name)
        for name, standing in _waiting(curator, suite, skill)
        if standing.registration.base != base.version
    }
    return [
        replace(proposal, again=name)
        for name, proposal in proposals.items()
        if proposal is not None and _is_new(state, base, proposal)
    ]


def watched(curator: Curator, suite: str, skill: str) -> Candidate | None:
    """Return the candidate whose version is served on probation, unless its evidence is enough."""
    current = curator.state.current(skill)
    if current.status is not Status.PROBATION:
        return None
    adopted = [
        event.data["candidate"]
        for event in curator.ledger.events(kinds=("version.adopted",))
        if (event.data["skill"], event.data["version"]) == (skill, current.version)
    ]
    standing = standing_of(curator.ledger, adopted[-1]) if adopted else None
    if standing is None or standing.satisfied or not _of_suite(standing, suite):
        return None
    return _read(curator, adopted[-1], standing)


def arms(curator: Curator, suite: str, skill: str, most: int) -> int:
    """Return how many rollouts of each task a run on a skill adds for what is carried, at most.

    Args:
        curator: Knows ledger and packages.
        suite: Name of the suite.
        skill: Name of the skill.
        most: Candidates that go on at once.
    """
    served = curator.state.skill(skill).current
    going = min(most, len(undecided(curator, suite, skill, served)))
    return going + (0 if watched(curator, suite, skill) is None else 2)


def recall(curator: Curator, candidate: str, *, run: str) -> Candidate | None:
    """Return a candidate as it stood before a run; None where that cannot be read any more."""
    standing = standing_of(curator.ledger, candidate, without=run)
    return None if standing is None else _read(curator, candidate, standing)


def take_back(curator: Curator, candidate: Candidate) -> None:
    """Roll a served version back to its parent, once, if its harm process has said so."""
    standing = candidate.standing
    if standing is None or standing.result.decision is not Decision.ROLLED_BACK:
        return
    skill, version = standing.registration.skill, standing.registration.version
    undone = curator.ledger.events(run=standing.run, kinds=("version.rolled_back",))
    if any(event.data["from"] == version for event in undone):
        return  # whoever serves it again since then knows
    if curator.state.skill(skill).current == version:
        reason, parent = "; ".join(candidate.reasons), standing.registration.base
        try:
            curator.roll_back(skill, to=parent, reason=reason, run=standing.run)
        except SkillError as error:
            candidate.reasons = (*candidate.reasons, f"not rolled back: {error}")


def standing_of(ledger: Ledger, candidate: str, *, without: str = "") -> Standing | None:
    """Return where the last run that bet on a candidate left it; None before it has decided.

    Args:
        ledger: What to read.
        candidate: Its id.
        without: A run whose bets are left out.
    """
    about = (candidate,)
    registered = [
        event
        for event in ledger.events(kinds=("gate.registered",), about=about)
        if event.run != without
    ]
    decided = {event.run for event in ledger.events(kinds=("gate.decided",), about=about)}
    if not registered or registered[-1].run not in decided:
        return None
    run, registration = registered[-1].run, Registration.from_json(dict(registered[-1].data))
    result = read_result(ledger, run, registration)
    return Standing(run=run, registration=registration, result=result)


def _waiting(curator: Curator, suite: str, skill: str) -> Iterator[tuple[str, Standing]]:
    """Yield the candidates without a verdict whose versions were never served or taken back."""
    state = curator.state
    for name, decision in state.decisions.items():
        if decision["skill"] != skill or decision["decision"] not in _UNDECIDED:
            continue
        version = state.versions.get((skill, decision.get("version", "")))
        if version is None or version.status is not Status.CANDIDATE or name in state.reserved:
            continue
        standing = standing_of(curator.ledger, name)
        ready = any(s.candidate == name for s in state.staged.get(skill, ()))
        ready = ready and is_checked(curator.ledger, name)
        if standing is not None and _of_suite(standing, suite) and _goes_on(standing, ready):
            yield name, standing


def _of_suite(standing: Standing, suite: str) -> bool:
    return standing.registration.lineage.startswith(f"{suite}/")


def _goes_on(standing: Standing, ready: bool) -> bool:
    if standing.result.decision is Decision.PROBATION:
        return not (ready and standing.satisfied)
    return not standing.result.withheld and standing.e_value > 1


def _read(curator: Curator, candidate: str, standing: Standing) -> Candidate | None:
    """Return the candidate of a standing; None where its edit or its package was erased."""
    proposal = _proposal(curator.ledger, candidate)
    if proposal is None:
        return None
    try:
        package = curator.package(standing.registration.skill, standing.registration.version)
    except LedgerError:
        return None
    found = Candidate(id=candidate, proposal=proposal, package=package)
    found.stand(standing)
    return found


def _proposal(ledger: Ledger, candidate: str) -> Proposal | None:
    """Return what a candidate was made from; None where it was erased."""
    for event in ledger.events(kinds=("candidate.proposed",), about=(candidate,)):
        skill, base = event.data["skill"], event.data["base"]
        try:
            made = Journal(ledger=ledger, run=event.run).proposals(skill) or []
        except LedgerError:
            return None
        return next((p for p in made if candidate_id(event.run, skill, base, p) == candidate), None)
    return None


def _is_new(state: LibraryState, base: Package, proposal: Proposal) -> bool:
    """Whether an edit can be made of a version, and gives one that was not tried before."""
    try:
        version = apply_edit(base, proposal.edit).package.version
    except EditError:
        return False
    return (base.name, version) not in state.versions
