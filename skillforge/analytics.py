"""The ledger as polars frames: what was run, what was decided, on which evidence, at what cost.

Every frame has the same columns whether or not there is anything to fill it with. Nothing is
estimated here: numbers are those of the ledger's events, and the running evidence is what the gate
computes from the same pairs. Building a frame takes time and memory in proportion to the events
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skillforge.core.course import run_course
from skillforge.core.events import Event
from skillforge.core.gate import Registration, find_stop
from skillforge.core.library import LibraryState, suggest
from skillforge.core.records import ROLLOUTS, read_rollout, registered_outcomes
from skillforge.core.rollout import Pair, Void
from skillforge.errors import SkillError
from skillforge.ports import Ledger

if TYPE_CHECKING:
    import polars as pl

LIFE = (
    "skill.imported",
    "candidate.proposed",
    "candidate.closed",
    "gate.decided",
    "neighbours.decided",
    "version.staged",
    "version.adopted",
    "version.rolled_back",
    "skill.retired",
    "skill.restored",
)
"""Kinds of event that make up the history of a skill."""

# fmt: off
_SKILLS = {
    "skill": "String", "version": "String", "status": "String", "evidence": "String",
    "served": "Boolean",
}
_HISTORY = {
    "seq": "Int64", "at": "Datetime", "event": "String", "version": "String",
    "decision": "String", "what": "String",
}
_ROLLOUTS = {
    "seq": "Int64", "at": "Datetime", "run": "String", "purpose": "String",
    "task": "String", "family": "String", "arm": "String", "subject": "String",
    "replicate": "Int64", "score": "Float64",
    "failure": "String", "failure_where": "String", "failure_message": "String",
    "finish_reason": "String", "prompt_tokens": "Int64", "completion_tokens": "Int64",
    "cost_usd": "Float64", "seconds": "Float64",
}
_DECISIONS = {
    "run": "String", "skill": "String", "candidate": "String",
    "proposer": "String", "op": "String", "unit": "String", "summary": "String",
    "version": "String", "screen_reward": "Float64", "screen_pairs": "Int64", "basis": "String",
    "pairs": "Int64", "gains": "Int64", "regressions": "Int64", "residual": "Int64",
    "retained": "Int64", "dropped": "Int64",
    "lift": "Float64", "lift_low": "Float64", "lift_high": "Float64",
    "e_value": "Float64", "e_harm": "Float64", "e_futility": "Float64", "mde": "Float64",
    "looks": "Int64", "tried": "Int64", "decision": "String", "reasons": "Strings",
}
_PAIRS = {
    "position": "Int64", "task": "String", "family": "String",
    "base": "Float64", "augmented": "Float64", "difference": "Float64", "outcome": "String",
    "e_value": "Float64", "e_harm": "Float64", "e_futility": "Float64",
    "proven_at": "Float64", "harm_at": "Float64",
}
_SPEND = {
    "run": "String", "command": "String", "started": "Datetime", "stopped_by": "String",
    "usd": "Float64", "tokens": "Int64", "rollouts": "Int64", "unsettled": "Int64",
    "cached": "Int64",
    "seconds": "Float64", "model_seconds": "Float64", "rollout_seconds": "Float64",
}
# fmt: on


def skills_frame(state: LibraryState, *, every: bool = False) -> pl.DataFrame:
    """Return one row per skill: served version, status, evidence.

    Args:
        state: The library.
        every: Retired skills too.
    """
    return _frame(state.listing(every=every), _SKILLS)


def history_frame(ledger: Ledger, skill: str) -> pl.DataFrame:
    """Return one row per event in the life of a skill, oldest first; empty for an unknown name.

    ``at`` is UTC.
    """
    rows = [
        {
            "seq": event.seq,
            "at": event.at,
            "event": event.kind,
            "version": event.data.get("version") or None,
            "decision": event.data.get("decision"),
            "what": event.data.get("summary") or event.data.get("reason"),
        }
        for event in ledger.events(kinds=LIFE)
        if event.data.get("skill") == skill
    ]
    return _frame(rows, _HISTORY)


def rollouts_frame(ledger: Ledger, *, run: str | None = None) -> pl.DataFrame:
    """Return one row per rollout that was run, oldest first; reused ones are not repeated.

    ``score`` is in [0, 1], null where an infrastructure failure left nothing to score; ``subject``
    is the version that the arm stands for, "" where no skill was shown; ``seconds`` were spent
    inside the model; ``at`` is UTC.

    Args:
        ledger: What to read.
        run: Only the rollouts of this run.
    """
    return _frame([_rollout_row(e) for e in ledger.events(kinds=ROLLOUTS, run=run)], _ROLLOUTS)


def _rollout_row(event: Event) -> dict[str, Any]:
    rollout = read_rollout(event)
    row = {name: getattr(rollout, name) for name in _ROLLOUTS if hasattr(rollout, name)}
    failure = rollout.failure
    return row | {
        "seq": event.seq,
        "at": event.at,
        "run": event.run,
        "failure": failure and failure.kind.value,
        "failure_where": failure and failure.where,
        "failure_message": failure and failure.message,
    }


def decisions_frame(ledger: Ledger) -> pl.DataFrame:
    """Return one row per candidate in the order in which they were proposed.

    The screen's reward and the confirm numbers are null for candidates that did not come so far;
    ``decision`` is null while there is none, and `promoted` once a cohort has promoted the
    candidate. An audit of a whole skill is a candidate too, of the proposer `library-audit`.
    ``lift``, its 95 % interval and the MDE are differences of scores in [-1, 1]; ``looks`` counts
    the runs that bet on it, ``tried`` the candidates that its cohort had started by then.
    """
    rows: dict[str, dict[str, Any]] = {}
    for event in ledger.events(kinds=tuple(_CANDIDATE_STEPS)):
        for candidate, values in _CANDIDATE_STEPS[event.kind](event):
            row = rows.setdefault(candidate, {"candidate": candidate, "run": event.run})
            if event.kind == "gate.registered":  # what the proposal says of itself stands
                values = {**values, **row}
            row.update({k: v for k, v in values.items() if k in _DECISIONS})
    return _frame(list(rows.values()), _DECISIONS)


_Step = Iterator[tuple[str, Mapping[str, Any]]]


def _proposed(event: Event) -> _Step:
    data = event.data
    yield data["candidate"], {**data, "version": data["version"] or None}


def _screened(event: Event) -> _Step:
    data = event.data
    pairs = data["screen"].get("pairs")
    yield data["candidate"], {"screen_reward": data["rollback_reward"], "screen_pairs": pairs}


def _closed(event: Event) -> _Step:
    data = event.data
    yield data["candidate"], {"decision": data["decision"], "reasons": data["reasons"]}


def _registered(event: Event) -> _Step:
    data = event.data
    own = {name: data[name] for name in ("skill", "version", "basis")}
    yield data["candidate"], own | {"proposer": data["lineage"].rpartition("/")[2]}


def _decided(event: Event) -> _Step:
    data, numbers = event.data, event.data["confirm"]
    low, high = numbers["lift_interval"] or (None, None)
    values = {"lift_low": low, "lift_high": high, "dropped": sum(numbers["dropped"].values())}
    names = ("decision", "basis", "reasons", "looks", "tried")
    known = {name: data[name] for name in names if name in data}
    yield data["candidate"], {**numbers, **known, **values}


def _beside(event: Event) -> _Step:
    if event.data["decision"] != "probation":
        yield from _closed(event)


def _promoted(event: Event) -> _Step:
    for member in event.data["promoted"]:
        yield member["candidate"], {"decision": "promoted"}


_CANDIDATE_STEPS = {
    "candidate.proposed": _proposed,
    "candidate.screened": _screened,
    "candidate.closed": _closed,
    "gate.registered": _registered,
    "gate.decided": _decided,
    "neighbours.decided": _beside,
    "cohort.closed": _promoted,
}


def pairs_frame(ledger: Ledger, candidate: str) -> pl.DataFrame:
    """Return the confirm pairs of a candidate in registered order, with the running evidence.

    One row per task that was bet on or voided before the verdict. ``e_value`` (the claim),
    ``e_harm`` and ``e_futility`` are the values of the gate's processes after that task;
    ``proven_at`` and ``harm_at`` are the values at which the claim counts as proven and an unproven
    candidate is stopped for harm. ``outcome`` is `void`, with null scores, where an infrastructure
    failure took the pair. Empty for a candidate that did not come to the gate.

    Raises:
        SkillError: The ledger knows no such candidate.
    """
    rows: list[dict[str, Any]] = []
    for event in _about(ledger, candidate):
        if event.kind == "gate.registered":
            registration = Registration.from_json(dict(event.data))
            outcomes = registered_outcomes(ledger.events, event.run, registration)
            rows = list(_running(outcomes, registration))
    return _frame(rows, _PAIRS)


def _about(ledger: Ledger, candidate: str) -> list[Event]:
    kinds = ("candidate.proposed", "gate.registered")
    found = list(ledger.events(kinds=kinds, about=(candidate,)))
    if not found:
        known = dict.fromkeys(event.data["candidate"] for event in ledger.events(kinds=kinds))
        hint = suggest(candidate, known) if known else "nothing has been proposed yet"
        raise SkillError(
            f"no candidate {candidate!r} in the ledger; {hint} (`decisions` lists the candidates)"
        )
    return found


def _running(outcomes: Sequence[Pair | Void], registration: Registration) -> Iterator[Any]:
    """Yield a row per outcome up to the verdict; a void moves no process."""
    rules, basis, position = registration.rules, registration.basis, 0
    course = run_course(outcomes, rules, basis, blocks=registration.blocks, pool=registration.pool)
    stop = find_stop(
        course, rules, basis, registration.enough, on_probation=registration.on_probation
    )
    for bet in range(stop.bets):
        for outcome in outcomes[position : course.used[bet]]:
            position += 1
            row: dict[str, Any] = {"position": position, "task": outcome.task, "outcome": "void"}
            if isinstance(outcome, Pair):
                row |= {
                    "family": outcome.family,
                    "base": outcome.base,
                    "augmented": outcome.augmented,
                    "difference": outcome.difference,
                    "outcome": outcome.outcome.value,
                }
            yield row | {
                "e_value": float(course.claim[bet]),
                "e_harm": float(course.harm[bet]),
                "e_futility": float(course.futility[bet]),
                "proven_at": 1 / rules.alpha,
                "harm_at": 1 / rules.harm_stop,
            }


def spend_frame(ledger: Ledger) -> pl.DataFrame:
    """Return one row per run, oldest first; amounts are null while a run is open.

    ``usd`` in USD; ``rollouts`` were run, ``unsettled`` of them without a record, ``cached`` ones
    reused; ``seconds`` are wall clock, ``model_seconds`` those of them with a call in flight.
    ``started`` is UTC.
    """
    rows: dict[str, dict[str, Any]] = {}
    for event in ledger.events(kinds=("run.started", "run.finished")):
        row = rows.setdefault(event.run, {"run": event.run})
        if event.kind == "run.started":
            row |= {"command": event.data["command"], "started": event.at}
        else:
            row |= {"stopped_by": event.data["stopped_by"], **event.data["spend"]}
    return _frame(list(rows.values()), _SPEND)


def _frame(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, str]) -> pl.DataFrame:
    """Return the rows under exactly these columns; what a row lacks is null."""
    import polars as pl

    types = {"Datetime": pl.Datetime("us", "UTC"), "Strings": pl.List(pl.String)}
    columns = []
    for name, kind in schema.items():
        values = [row.get(name) for row in rows]
        if kind == "Datetime":  # seconds since the epoch, as microseconds
            values = [None if value is None else round(value * 1e6) for value in values]
        columns.append(pl.Series(name, values, dtype=types.get(kind) or getattr(pl, kind)))
    return pl.DataFrame(columns)
