"""Replay: fold the ledger anew, check its chain, and recompute all that was decided.

Gate decisions (of candidates, of skills of the library, of edits taken together) are recomputed
from the rollouts along their registered order, screens and unit audits from those that their events
name; cohorts, screenings and retirements from the numbers that they rest on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skillforge.core.events import Event, check_chain
from skillforge.core.gate import CohortMember, Decision, Registration, promote
from skillforge.core.library import LibraryState
from skillforge.core.library_fold import FOLDED, fold
from skillforge.errors import LedgerError
from skillforge.ports import Ledger
from skillforge.workflows.cohorts import KINDS, Cohorts
from skillforge.workflows.confirm import read_result
from skillforge.workflows.contrast import Report
from skillforge.workflows.curate import load_state
from skillforge.workflows.measured import AUDIT, SCREEN, Numbers, measured_again
from skillforge.workflows.neighbour_verdict import read_verdict
from skillforge.workflows.screen import screened_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What replaying a ledger found."""

    events: int
    state_digest: str
    chain_ok: bool
    decisions: int
    """Gate decisions that were recomputed."""
    screens: int
    """Screens of candidates that were recomputed."""
    audits: int
    """Unit audits that were recomputed."""
    erased: tuple[dict[str, Any], ...]
    """What was erased on purpose: hashes and reason, once for each time."""
    problems: tuple[str, ...]
    """Numbers that the rollouts do not bear out, breaks of the chain, damaged payloads."""

    def to_json(self) -> Report:
        """Return the result as ``replay --json`` prints it."""
        return {
            "events": self.events,
            "state_digest": self.state_digest,
            "chain_ok": self.chain_ok,
            "decisions": self.decisions,
            "screens": self.screens,
            "audits": self.audits,
            "decisions_ok": not self.problems,
            "erased": list(self.erased),
            "problems": list(self.problems),
        }


def replay(ledger: Ledger) -> Replay:
    """Check chain, payloads and checkpoint; recompute the state and everything that was decided.

    Rollouts pass by one at a time: memory does not grow with their number.
    """
    problems: list[str] = []
    try:
        check_chain(ledger.events())
    except LedgerError as error:
        problems.append(str(error))
    chain_ok = not problems
    state = fold(ledger.events(kinds=FOLDED))
    seen: Counter[str] = Counter()
    for event in ledger.events(kinds=tuple(_CHECKS)):
        seen[event.kind] += 1
        problems += _CHECKS[event.kind](ledger, event)
    problems += _cohorts(ledger)
    problems += [*_checkpoint(ledger), *ledger.damaged_blobs()]
    return Replay(
        events=ledger.head,
        state_digest=state.digest,
        chain_ok=chain_ok,
        decisions=seen["gate.decided"],
        screens=seen[SCREEN],
        audits=seen[AUDIT],
        erased=tuple(dict(event.data) for event in ledger.events(kinds=("blob.erased",))),
        problems=tuple(problems),
    )


_YOUNGER = ("agent_failures",)
"""Numbers that decisions of earlier versions do not hold."""


def _differences(what: str, said: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """Name each number that is not what it should be."""
    for key, value in again.items():
        if key in _YOUNGER and key not in said:
            continue
        if isinstance(value, Mapping) and isinstance(said.get(key), Mapping):
            yield from _differences(f"{what}: {key}", said[key], value)
        elif said.get(key) != value:
            yield f"{what}: the ledger says {key} = {said.get(key)!r}, recomputed it is {value!r}"


def _decision(ledger: Ledger, event: Event) -> Iterator[str]:
    """Say where a decision differs from what its rollouts say."""

    def again(registered: Event) -> Numbers:
        registration = Registration.from_json(dict(registered.data))
        return read_result(ledger, event.run, registration).to_json()

    return _registered(ledger, event, "gate.registered", "decision", again)


def _neighbours(ledger: Ledger, event: Event) -> Iterator[str]:
    """Say where the verdict on an edit's neighbours differs from what the rollouts say."""

    def again(registered: Event) -> Numbers:
        return read_verdict(ledger, registered, event.data["found"]["stopped_by"]).to_json()

    return _registered(ledger, event, "neighbours.registered", "neighbours", again)


def _registered(
    ledger: Ledger, event: Event, kind: str, what: str, again: Callable[[Event], Numbers]
) -> Iterator[str]:
    """Hold what was decided against what follows from its registration."""
    candidate = event.data["candidate"]
    for registered in ledger.events(run=event.run, kinds=(kind,), about=(candidate,)):
        yield from _differences(f"{what} of {candidate}", event.data, again(registered))
        return
    yield f"{what} of {candidate}: it was never registered"


def _measured(ledger: Ledger, event: Event) -> Iterator[str]:
    """Say where a screen or a unit audit differs from what its rollouts say."""
    what = f"{'screen' if event.kind == SCREEN else 'audit'} of {event.data['skill']}"
    for name, said, again in measured_again(ledger, event):
        yield from _differences(f"{what}, {name}", said, again)


def _screen(ledger: Ledger, event: Event) -> tuple[dict[str, Numbers], int]:
    """Return what the last screen before an event found of each candidate, and how many it kept.

    Nothing where the candidate never came to a screen, or to one that named no rollouts.
    """
    found: dict[str, Numbers] = {}
    keep, candidate = 0, event.data["candidate"]
    for proposed in ledger.events(run=event.run, kinds=("candidate.proposed",), about=(candidate,)):
        about = (proposed.data["base"],)
        for screen in ledger.events(run=event.run, kinds=(SCREEN,), about=about):
            arms = {arm["id"]: arm for arm in screen.data["arms"]}
            if screen.seq < event.seq and candidate in arms:
                found, keep = arms, screen.data["keep"]
    return found, keep


def _screened(ledger: Ledger, event: Event) -> Iterator[str]:
    """Say where the reward or the end of a candidate differs from what its screen found."""
    candidate = event.data["candidate"]
    found, keep = _screen(ledger, event)
    if not found:
        return
    numbers = found[candidate]
    again = {"rollback_reward": numbers["lift"], "screen": numbers["outcomes"]}
    yield from _differences(f"screen of {candidate}", event.data, again)
    if event.kind != "candidate.closed":
        return
    said, screened = event.data["decision"], screened_out(found, keep).get(candidate)
    if screened and said != screened[0].value:
        yield f"decision of {candidate}: the ledger says {said}, its screen {screened[0].value}"
    elif said == Decision.SCREENED_OUT.value and not screened:
        yield f"decision of {candidate}: the ledger says {said}, its screen lets it go on"


def _cohorts(ledger: Ledger) -> Iterator[str]:
    """Say where a cohort was closed on other members or E-values than the events before it give."""
    cohorts = Cohorts()
    for event in ledger.events(kinds=KINDS):
        if event.kind == "cohort.closed":
            counted = {m.candidate: m.e_value for m in cohorts.members(cohorts.closed_by(event))}
            said = {m["candidate"]: m["e_value"] for m in event.data["members"]}
            if said != counted:
                yield (
                    f"cohort closed by event {event.seq}: the ledger says its members and their E "
                    f"are {said}, the decisions before it say {counted}"
                )
            yield from _promotions(event)
        cohorts.add(event)


def _promotions(event: Event) -> Iterator[str]:
    members = [
        CohortMember(
            candidate=m["candidate"], decision=Decision(m["decision"]), e_value=m["e_value"]
        )
        for m in event.data["members"]
    ]
    expected = promote(members, event.data["fdr"])
    if tuple(p["candidate"] for p in event.data["promoted"]) != expected:
        yield f"cohort of {event.run}: e-BH promotes {expected}"


def _retired(ledger: Ledger, event: Event) -> Iterator[str]:
    """Say where a skill was retired on other numbers than those of its audit."""
    evidence, skill, version = (event.data[name] for name in ("evidence", "skill", "version"))
    if "confirm" not in evidence:
        return  # the user asked for it
    for decided in ledger.events(run=event.run, kinds=("gate.decided",)):
        if (decided.data["skill"], decided.data["version"]) == (skill, f"without:{version}"):
            audit = {name: decided.data.get(name) for name in evidence}
            yield from _differences(f"retirement of {skill}", evidence, audit)
            return
    yield f"retirement of {skill}: no audit of {version[:10]} was decided in its run"


_CHECKS: Mapping[str, Callable[[Ledger, Event], Iterator[str]]] = {
    "gate.decided": _decision,
    "neighbours.decided": _neighbours,
    SCREEN: _measured,
    AUDIT: _measured,
    "candidate.screened": _screened,
    "candidate.closed": _screened,
    "skill.retired": _retired,
}
"""By kind of event, what it is held against."""


def _checkpoint(ledger: Ledger) -> Iterator[str]:
    """Say whether the checkpoint differs from the fold of the events it stands for."""
    kept, seq = load_state(ledger)
    before = (event for event in ledger.events(kinds=FOLDED) if event.seq <= seq)
    if seq and kept != fold(before, LibraryState()):
        yield f"the checkpoint at event {seq} is not what the events before it add up to"
