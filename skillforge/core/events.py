"""Events and the hash chain that binds them.

Each event's hash covers its own content and the hash of the event before it, so that a change
anywhere breaks every later link. Payloads that may hold prompts, outputs or files are stored
outside the chain and named by hash; erasing one leaves the chain intact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skillforge.core.digest import canonical_json, json_digest
from skillforge.errors import LedgerError

GENESIS = "0" * 64
"""The hash before the first event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event that has not been stored yet."""

    kind: str
    """Dotted name, noun first: ``rollout.finished``, ``gate.decided``."""
    data: Mapping[str, Any] = field(hash=False)
    """JSON object; small, and free of prompt, output and file text."""
    run: str = ""
    """The run it belongs to, or ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A stored event."""

    seq: int
    """1-based position in the ledger."""
    at: float
    """Seconds since the epoch."""
    kind: str
    run: str
    data: Mapping[str, Any] = field(hash=False)
    previous: str
    hash: str


def link(new: NewEvent, *, seq: int, at: float, previous: str) -> Event:
    """Give a new event its place in the chain.

    What is hashed is the event as a store gives it back: tuples are lists, keys are text, the time
    is a float.

    Raises:
        ValueError: The data hold NaN or an infinity.
        TypeError: The data hold something that JSON cannot.
    """
    data = json.loads(canonical_json(new.data))
    digest = event_hash(seq, float(at), new.kind, new.run, data, previous)
    return Event(
        seq=seq,
        at=float(at),
        kind=new.kind,
        run=new.run,
        data=data,
        previous=previous,
        hash=digest,
    )


def event_hash(
    seq: int, at: float, kind: str, run: str, data: Mapping[str, Any], previous: str
) -> str:
    """Return the hash that an event of this content must carry."""
    return json_digest([seq, at, kind, run, data, previous])


def is_intact(event: Event) -> bool:
    """Whether the event's content is what its hash covers."""
    expected = event_hash(event.seq, event.at, event.kind, event.run, event.data, event.previous)
    return event.hash == expected


def check_chain(events: Iterable[Event]) -> int:
    """Check every link and return how many events there are.

    Raises:
        LedgerError: An event is missing, out of order or changed; names the first bad one.
    """
    count, previous = 0, GENESIS
    for event in events:
        count += 1
        expected = event_hash(event.seq, event.at, event.kind, event.run, event.data, previous)
        if event.seq != count or event.previous != previous or event.hash != expected:
            raise LedgerError(
                f"the ledger's chain is broken at event {count}: found seq {event.seq} with hash "
                f"{event.hash[:12]}, expected {expected[:12]}; restore ledger.db from a backup"
            )
        previous = event.hash
    return count
