"""Rollouts as the ledger's events hold them, and the contrasts that are read back from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from skillforge.core.events import Event
from skillforge.core.gate import Registration
from skillforge.core.rollout import Cause, Failure, FailureKind, Pair, Rollout, Void, pair_up

ROLLOUTS = ("rollout.finished", "rollout.failed")
"""Kinds of event that hold a rollout."""


def reusable_key(kind: str, data: Mapping[str, Any]) -> str | None:
    """Return the key under which a rollout is found again; None where it is to be made again.

    A failure is, but for one: that the model was away is the word of the program that the skill
    steers. Where what is under test was shown, or what it is compared with, an attempt that ends so
    stands, or a skill that makes the program say it where it would lose had its losses drawn again
    until they are gains.

    Args:
        kind: Of the event that holds the rollout.
        data: Of that event.
    """
    if kind == "rollout.failed":
        outage = data.get("failure", {}).get("cause") == Cause.OUTAGE
        return data["key"] if outage and data["subject"] else None
    return data["key"] if kind == "rollout.finished" else None


def write_rollout(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as the JSON object that the ledger keeps."""
    data = rollout._asdict()
    if rollout.failure is not None:
        failure = rollout.failure
        data["failure"] = {
            "kind": failure.kind.value,
            "message": failure.message[:300],
            "where": failure.where,
            "cause": failure.cause.value,
        }
    return data


def read_rollout(event: Event) -> Rollout:
    """Read a rollout back from its event.

    What an older record does not hold has its default; what a newer one holds besides is passed
    over.
    """
    kept = event.data
    data = {name: kept[name] for name in Rollout._fields if name in kept}
    data["uses"] = tuple(data.get("uses", ()))
    if (failure := data["failure"]) is not None:
        data["failure"] = Failure(
            kind=FailureKind(failure["kind"]),
            message=failure["message"],
            where=failure["where"],
            cause=Cause(failure.get("cause", Cause.OTHER)),
        )
    return Rollout(**data)


def registered_outcomes(
    events: Callable[..., Iterable[Event]],
    run: str,
    registration: Registration,
    *,
    decided: str = "gate.decided",
) -> list[Pair | Void]:
    """Join the two arms of a registration along its order, over the completed prefix.

    The two rollouts of a pair are always of one run: base rollouts are shared within a run only.
    What a run does after its decision counts for nothing, such as the retry, for another candidate,
    of a rollout that failed.

    Args:
        events: Reads events as `skillforge.ports.Ledger.events` does.
        run: The run of the registration.
        registration: What was registered; earlier runs that it carries are read as well.
        decided: Kind of the event that holds the decision.
    """
    arms, about = (registration.base, registration.version), (registration.candidate,)
    joined: list[Pair | Void] = []
    for leg, order in registration.legs(run):
        ends = [event.seq for event in events(run=leg, kinds=(decided,), about=about)]
        stored = events(run=leg, kinds=ROLLOUTS, about=arms)
        before = (e for e in stored if not ends or e.seq < ends[0])
        found = _join(map(read_rollout, before), registration, order)
        joined += found
        if len(found) < len(order):
            break
    return joined


def _join(
    rollouts: Iterable[Rollout], registration: Registration, order: Sequence[str]
) -> list[Pair | Void]:
    arms: dict[str, dict[str, dict[int, Rollout]]] = {
        registration.base: {},
        registration.version: {},
    }
    for rollout in rollouts:
        if rollout.purpose == "confirm" and rollout.subject in arms:
            # A later rollout of the same cell is the retry of a failed one.
            arms[rollout.subject].setdefault(rollout.task, {})[rollout.replicate] = rollout
    base, augmented = (
        {task: list(replicates.values()) for task, replicates in arms[subject].items()}
        for subject in (registration.base, registration.version)
    )
    return pair_up(order, base, augmented, replicates=registration.rules.replicates)
