"""Events and the hash chain that binds them.

Each event's hash covers its own content and the hash of the event before it, so that a change
anywhere breaks every later link. Payloads that may hold prompts, outputs or files are stored
outside the chain and named by hash; erasing one leaves the chain intact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from skillforge.core.digest import canonical_json, sha256
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
    text: str = field(init=False, repr=False)
    """The data as canonical JSON, made at once: later changes of the data do not reach it."""

    def __post_init__(self) -> None:
        """Encode the data.

        Raises:
            ValueError: They hold NaN or an infinity.
            TypeError: They hold something that JSON cannot.
        """
        object.__setattr__(self, "text", canonical_json(self.data))


@dataclass(frozen=True, kw_only=True)
class Event:
    """A stored event."""

    seq: int
    """1-based position in the ledger."""
    at: float
    """Seconds since the epoch."""
    kind: str
    run: str
    text: str
    """The data as canonical JSON: what is stored, and what the hash covers."""
    previous: str
    hash: str

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The data, read from the text when they are first asked for.

        Raises:
            LedgerError: The text is no JSON.
        """
        try:
            data: dict[str, Any] = _DECODER.decode(self.text)
        except ValueError as error:
            raise LedgerError(
                f"event {self.seq} of the ledger is no JSON ({error}): it was changed from "
                "outside; restore ledger.db from a backup"
            ) from error
        return data


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def link(new: NewEvent, *, seq: int, at: float, previous: str) -> Event:
    """Give a new event its place in the chain."""
    at = float(at)
    return Event(
        seq=seq,
        at=at,
        kind=new.kind,
        run=new.run,
        text=new.text,
        previous=previous,
        hash=event_hash(seq, at, new.kind, new.run, new.text, previous),
    )


def event_hash(seq: int, at: float, kind: str, run: str, text: str, previous: str) -> str:
    """Return the hash that an event of this content must carry.

    It is the digest of the JSON array of all six; the data come as the JSON that is stored.

    >>> from skillforge.core.digest import json_digest
    >>> event_hash(1, 2.0, "k", "r", '{"a":1}', "") == json_digest([1, 2.0, "k", "r", {"a": 1}, ""])
    True
    """
    return sha256(f'[{seq},{at!r},{_quoted(kind)},{_quoted(run)},{text},"{previous}"]'.encode())


_quoted = lru_cache(maxsize=64)(canonical_json)


def is_intact(event: Event) -> bool:
    """Whether the event's content is what its hash covers."""
    return event.hash == _expected(event, event.previous)


def _expected(event: Event, previous: str) -> str:
    return event_hash(event.seq, event.at, event.kind, event.run, event.text, previous)


def check_chain(events: Iterable[Event]) -> int:
    """Check every link and return how many events there are.

    Raises:
        LedgerError: An event is missing, out of order or changed; names the first bad one.
    """
    count, previous = 0, GENESIS
    for event in events:
        count += 1
        expected = _expected(event, previous)
        if event.seq != count or event.previous != previous or event.hash != expected:
            raise LedgerError(
                f"the ledger's chain is broken at event {count}: found seq {event.seq} with hash "
                f"{event.hash[:12]}, expected {expected[:12]}; restore ledger.db from a backup, or "
                "save what stands before it with `skillforge log salvage --out FILE`"
            )
        previous = event.hash
    return count
