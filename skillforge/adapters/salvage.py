"""What can still be read of a damaged ledger, as a new one: the intact beginning of its chain."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from skillforge.adapters.blobs import Blobs
from skillforge.adapters.ledger import SELECT_EVENTS, SqliteLedger, read_event
from skillforge.core.events import GENESIS, Event, is_intact
from skillforge.errors import LedgerError

GIVE_UP = 10_000
"""Blobs in a row that cannot be read, after which there are no more."""

BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What was saved."""

    events: int
    """Length of the chain's intact beginning, all of which was saved."""
    blobs: int
    lost_blobs: int
    """Blobs that were there and could not be read."""


def salvage(damaged: Path, into: Path) -> Salvaged:
    """Write what can be read of a ledger into a new one; the damaged file is left as it is.

    Events behind the first one that is missing or changed cannot be vouched for and are left out;
    the commands that wrote them can be run again. Each blob is checked against its hash.

    Raises:
        LedgerError: There is nothing to read, or something already stands at ``into``.
    """
    if into.exists():
        raise LedgerError(f"{into} exists already: name a new file")
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        copy = Path(folder) / damaged.name
        for ending in ("", "-wal"):
            source = damaged.with_name(damaged.name + ending)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + ending))
        with closing(sqlite3.connect(copy, isolation_level=None)) as db:
            db.execute("PRAGMA writable_schema=ON")  # also reads a file that was cut short
            ledger = SqliteLedger(into)
            try:
                return _copy(db, ledger, str(damaged))
            finally:
                ledger.close()


def _copy(db: sqlite3.Connection, ledger: SqliteLedger, name: str) -> Salvaged:
    events: list[Event] = []
    for event in _chain(db):
        events.append(event)
        if len(events) == BATCH:
            ledger.restore(events)
            events.clear()
    ledger.restore(events)
    if not ledger.head:
        raise LedgerError(f"{name}: not even its first event can be read: restore it from a backup")
    saved = lost = 0
    for blob in _blobs(db, name):
        if blob is None:
            lost += 1
        else:
            ledger.put_blob(blob)
            saved += 1
    return Salvaged(events=ledger.head, blobs=saved, lost_blobs=lost)


def _chain(db: sqlite3.Connection) -> Iterator[Event]:
    """Yield events up to the first that is missing, unreadable or not what its hash covers."""
    previous = GENESIS
    for seq in range(1, 2**62):
        try:
            row = db.execute(f"{SELECT_EVENTS} WHERE seq = ?", (seq,)).fetchone()
            event = None if row is None else read_event(row)
            if event is None or event.previous != previous or not is_intact(event):
                return
        except (sqlite3.Error, TypeError):
            return
        previous = event.hash
        yield event


def _blobs(db: sqlite3.Connection, name: str) -> Iterator[bytes | None]:
    """Yield each blob that was not erased; None for one that cannot be read."""
    query = "SELECT id, hash, data FROM blobs WHERE id > ? ORDER BY id LIMIT 1"
    try:
        blobs = Blobs(db, name)
    except sqlite3.Error:
        return
    last = failures = 0
    while failures < GIVE_UP:
        try:
            row = db.execute(query, (last,)).fetchone()
            if row is not None and row[0] <= last:
                raise sqlite3.DatabaseError("a page that is cut off leads back")
        except sqlite3.Error:
            last, failures = last + 1, failures + 1
            continue
        if row is None:
            return
        last, digest, frame = row
        failures = 0
        if frame is not None:
            try:
                yield blobs.checked(digest, frame)
            except LedgerError:
                yield None
