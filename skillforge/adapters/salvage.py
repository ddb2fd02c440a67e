"""What can still be read of a damaged ledger, as a new one: the intact beginning of its chain."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
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
    lost: frozenset[str]
    """Hashes of blobs that are named by what was saved, or were there, and could not be read."""


def salvage(damaged: Path, into: Path) -> Salvaged:
    """Write what can be read of a ledger into a new one; the damaged file is left as it is.

    Events behind the first one that is missing or changed cannot be vouched for and are left out;
    the commands that wrote them can be run again. Each blob is checked against its hash. The
    write-ahead log is left out where more can be read without it: it may be of another ledger.

    Raises:
        LedgerError: There is nothing to read, something already stands at ``into``, or its folder
            does not exist.
    """
    if into.exists():
        raise LedgerError(f"{into} exists already: name a new file")
    if not into.parent.is_dir():
        raise LedgerError(f"{into.parent} is no folder: make it, or name a file in one that exists")
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        copies = [_copied(damaged, Path(folder) / "alone.db", [""])]
        if damaged.with_name(f"{damaged.name}-wal").exists():
            copies.append(_copied(damaged, Path(folder) / "whole.db", ["", "-wal"]))
        best = max(copies[::-1], key=_intact)
        with closing(_opened(best)) as db:
            ledger = SqliteLedger(into)
            try:
                return _copy(db, ledger, str(damaged))
            finally:
                ledger.close()


def _copied(damaged: Path, copy: Path, endings: Sequence[str]) -> Path:
    for ending in endings:
        source = damaged.with_name(damaged.name + ending)
        if source.exists():
            shutil.copyfile(source, copy.with_name(copy.name + ending))
    return copy


def _opened(copy: Path) -> sqlite3.Connection:
    db = sqlite3.connect(copy, isolation_level=None)
    with suppress(sqlite3.Error):
        db.execute("PRAGMA writable_schema=ON")  # also reads a file that was cut short
    return db


def _intact(copy: Path) -> int:
    """Return the length of the intact beginning of a copy's chain."""
    with closing(_opened(copy)) as db:
        return sum(1 for _ in _chain(db))


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
    saved: set[str] = set()
    lost = _named(ledger)
    for digest, blob in _blobs(db, name):
        if blob is None:
            lost.add(digest)
        else:
            saved.add(ledger.put_blob(blob))
    return Salvaged(events=ledger.head, blobs=len(saved), lost=frozenset(lost - saved))


def _named(ledger: SqliteLedger) -> set[str]:
    """Return the hashes of the blobs that events name and nobody erased."""
    named: set[str] = set()
    erased: set[str] = set()
    for event in ledger.events():
        named.update(event.data[key] for key in ("blob", "output_blob") if event.data.get(key))
        erased.update(event.data["blobs"] if event.kind == "blob.erased" else ())
    return named - erased


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


def _blobs(db: sqlite3.Connection, name: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield hash and bytes of each blob that was not erased; None for one that cannot be read."""
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
                yield digest, blobs.checked(digest, frame)
            except LedgerError:
                yield digest, None
