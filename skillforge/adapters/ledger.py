"""The ledger in one SQLite file: an append-only event chain, and blobs beside it.

Write-ahead logging with ``synchronous=FULL``: an append that has returned survives a crash of the
process or the machine. Triggers refuse UPDATE and DELETE of events. Blobs are content-addressed and
lie outside the chain, so that one can be erased (`skillforge.adapters.blobs`).

What an index says of an event is computed by SQLite from the event itself; nothing can part them.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import product
from pathlib import Path
from threading import RLock, Thread
from typing import Any

from skillforge.adapters.blobs import PAGE, Blobs, insert_rows
from skillforge.adapters.codec import train
from skillforge.adapters.tables import ABOUT, MIGRATIONS
from skillforge.core.digest import sha256
from skillforge.core.events import GENESIS, Event, NewEvent, event_hash, is_intact
from skillforge.core.records import reusable_key
from skillforge.errors import LedgerError

SELECT_EVENTS = "SELECT seq, at, kind, run, data, previous, hash FROM events"
"""Begins a query whose rows `read_event` reads."""

CACHE_KIB, WAL_PAGES = 65_536, 4_000
"""Memory for pages, and pages that the write-ahead log holds before they move to the file."""

LAST_ERASED = "SELECT coalesce(max(seq), 0) FROM events WHERE kind = 'blob.erased'"
"""The event after which pages may hold what was erased, until ``user_version`` is its number."""

Train = Callable[[Sequence[bytes], Sequence[bytes]], bytes | None]
"""See `skillforge.adapters.codec.train`."""


class SqliteLedger:
    """The event store in one file; see `skillforge.ports.Ledger` for the contract."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        patience: float = 5.0,
        train: Train = train,
    ) -> None:
        """Open or create the ledger, applying migrations that are missing.

        Args:
            path: The file; its folder is made if need be.
            clock: Where the time of events comes from, in seconds since the epoch.
            patience: Seconds to wait for another process that is writing.
            train: Makes a dictionary of a sample, in a thread of its own.

        Raises:
            LedgerError: The file is not a ledger, is damaged, locked, or cannot be written.
        """
        self.path, self._clock, self._train = path, clock, train
        self._turn = RLock()
        self._training: Thread | None = None
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path, isolation_level=None, timeout=patience, check_same_thread=False
            )
            try:
                self._migrate_patiently(patience)
                self._blobs = Blobs(self._db, str(self.path))
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Close the file; what was appended is already durable."""
        if self._training is not None:
            self._training.join()
        with self._turn:
            self._db.close()

    def append(self, events: Sequence[NewEvent]) -> tuple[Event, ...]:
        """Chain and store the events in one transaction."""
        with self._transaction():
            return tuple(read_event(row[:7]) for row in self._insert_events(events))

    def record(self, events: Sequence[NewEvent], *, blobs: Sequence[bytes]) -> None:
        """Store events and the blobs they name in one transaction: all of them or none."""
        with self._transaction():
            self._blobs.insert(blobs)
            self._insert_events(events)
            self._train_if_due()

    def _train_if_due(self) -> None:
        """Begin to train a dictionary, unless one is being trained; nothing waits for it."""
        if self._blobs.due and not (self._training and self._training.is_alive()):
            training = Thread(target=self._train_aside)
            with suppress(RuntimeError):  # no thread is to be had
                training.start()
                self._training = training

    def _train_aside(self) -> None:
        """Train a dictionary, with nothing locked meanwhile; blobs are only larger without it."""
        with suppress(LedgerError):
            sample = self._blobs.sample(self._explained)
            trained = self._train(sample.texts, sample.dictionaries)
            with self._transaction():
                self._blobs.adopt(trained, sample)

    @property
    def head(self) -> int:
        """Number of the last event; 0 where there is none."""
        with self._explained():
            return int(self._db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])

    def events(
        self,
        *,
        after: int = 0,
        kinds: Sequence[str] | None = None,
        run: str | None = None,
        about: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yield the events with ``seq > after`` in order, narrowed by kinds, run and subject.

        Those that are stored meanwhile are not among them. Each kind and subject is read along an
        index of its own, a page at a time, and they are merged by number.
        """
        with self._explained():
            last = self.head
            if run is not None and kinds is None:
                found = self._db.execute("SELECT DISTINCT kind FROM events WHERE run = ?", (run,))
                kinds = [kind for (kind,) in found.fetchall()]
        choices = product([None] if kinds is None else kinds, [None] if about is None else about)
        streams = [
            self._stream(after, last, {"kind": kind, "run": run, ABOUT: who})
            for kind, who in dict.fromkeys(choices)
        ]
        return map(read_event, merge(*streams))

    def _stream(self, after: int, last: int, wanted: Mapping[str, str | None]) -> Iterator[Any]:
        """Yield rows in order; no statement stays open between two pages."""
        narrow = {what: value for what, value in wanted.items() if value is not None}
        where = " AND ".join([f"{what} = ?" for what in narrow] + ["seq > ? AND seq <= ?"])
        by = " INDEXED BY events_by_about" if ABOUT in narrow else ""
        query = f"{SELECT_EVENTS}{by} WHERE {where} ORDER BY seq LIMIT {PAGE}"
        rows: list[Any] = []
        while True:
            with self._explained():
                rows = self._db.execute(query, [*narrow.values(), after, last]).fetchall()
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def find_rollouts(self, keys: Sequence[str]) -> dict[str, Event]:
        """Return the rollouts of those keys that stand and are what their hash covers."""
        found: dict[str, Event] = {}
        for some in (keys[i : i + PAGE] for i in range(0, len(keys), PAGE)):
            query = f"{SELECT_EVENTS} WHERE key IN ({','.join('?' * len(some))}) ORDER BY seq"
            with self._explained():
                rows = self._db.execute(query, some).fetchall()
            for event in map(read_event, rows):
                if is_intact(event):
                    found.setdefault(event.data["key"], event)
        wanted = set(keys)
        return {key: event for key, event in found.items() if key in wanted}

    def put_blob(self, data: bytes) -> str:
        """Store bytes under their SHA-256 and return it."""
        with self._transaction():
            self._blobs.insert([data])
        return sha256(data)

    def get_blob(self, digest: str) -> bytes:
        """Return the bytes stored under a hash, checked against it."""
        with self._explained():
            return self._blobs.get(digest)

    def damaged_blobs(self) -> list[str]:
        """Say of each blob that cannot be read what is wrong with it."""
        with self._explained():
            return list(self._blobs.damaged())

    def restore(self, events: Sequence[Event]) -> None:
        """Store events of another ledger as they are.

        Raises:
            LedgerError: They do not go on where this chain ends.
        """
        with self._transaction():
            previous = self._last()[1]
            for event in events:
                if event.previous != previous:
                    raise LedgerError(f"{self.path}: event {event.seq} does not go on with it")
                previous = event.hash
            self._insert([(*_row(event), reusable_key(event.kind, event.data)) for event in events])

    def _insert_events(self, events: Sequence[NewEvent]) -> list[_Row]:
        """Chain events to the last one and insert them; return their rows."""
        last, previous = self._last()
        rows = []
        for seq, new in enumerate(events, last + 1):
            at = float(self._clock())
            digest = event_hash(seq, at, new.kind, new.run, new.text, previous)
            key = reusable_key(new.kind, new.data)
            rows.append((seq, at, new.kind, new.run, new.text, previous, digest, key))
            previous = digest
        self._insert(rows)
        return rows

    def _last(self) -> tuple[int, str]:
        row = self._db.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return row or (0, GENESIS)

    def _insert(self, rows: Sequence[_Row]) -> None:
        insert_rows(self._db, "INSERT INTO events VALUES", rows)

    def erase(self, digests: Sequence[str], *, reason: str) -> None:
        """Erase blobs for good; see `skillforge.ports.Ledger`.

        The file is then rewritten and the write-ahead log emptied: no page keeps the bytes.

        Raises:
            LedgerError: A hash is unknown, or another process still reads the pages of before.
        """
        if digests:
            with self._transaction():
                self._blobs.erase(digests)
                data = {"blobs": list(digests), "reason": reason}
                self._insert_events([NewEvent(kind="blob.erased", data=data)])
        with self._explained():
            (last,) = self._db.execute(LAST_ERASED).fetchone()
            (rewritten,) = self._db.execute("PRAGMA user_version").fetchone()
            if last <= rewritten:
                return
            self._db.execute("VACUUM")
            (busy, *_) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise LedgerError(
                    f"{self.path}: erased, but another process still reads the pages of before: "
                    "end it, then run the same command again"
                )
            self._db.execute(f"PRAGMA user_version = {last}")

    def load_checkpoint(self) -> tuple[Event, bytes] | None:
        """Return what was kept at an event, if it is whole and that event is still there."""
        query = "SELECT seq, digest, checkpoint.data FROM checkpoint"
        with self._explained():
            kept = self._db.execute(query).fetchone()
            row = kept and self._db.execute(f"{SELECT_EVENTS} WHERE seq = ?", kept[:1]).fetchone()
        if not row:
            return None
        event, (_, digest, data) = read_event(row), kept
        return (event, data) if digest == sha256(event.hash.encode() + data) else None

    def save_checkpoint(self, event: Event, data: bytes) -> None:
        """Keep bytes that follow from the events up to one, in the place of those of before."""
        digest = sha256(event.hash.encode() + data)
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO checkpoint VALUES (1, ?, ?, ?)", (event.seq, digest, data)
            )

    def _migrate_patiently(self, patience: float) -> None:
        """Migrate, waiting for another process that opens the same new file.

        SQLite waits for writers by itself, but not while the journal mode is being changed.
        """
        deadline = time.monotonic() + patience
        while True:
            try:
                return self._migrate()
            except (sqlite3.OperationalError, LedgerError) as error:
                if "locked" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)

    def _migrate(self) -> None:
        """Bring the tables up to date; another process may be opening the same new file."""
        applied = self._applied()
        known = [name for name, _ in MIGRATIONS]
        if newer := [name for name in applied if name not in known]:
            raise LedgerError(
                f"{self.path}: it was written by a newer skillforge ({newer[-1]}): update this one"
            )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        self._db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
        if set(known) <= set(applied):
            return
        with self._transaction():
            applied = self._applied()
            self._db.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
            for name, statements in MIGRATIONS:
                if name not in applied:
                    for statement in statements:
                        self._db.execute(statement)
                    self._db.execute("INSERT INTO migrations VALUES (?)", (name,))
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a copy of the file alone is a ledger

    def _applied(self) -> list[str]:
        """Return the names of the migrations that the file has, in order.

        Raises:
            LedgerError: The file is a database of something else.
        """
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
        if tables and not {"events", "migrations"} <= tables:
            raise LedgerError(
                f"{self.path}: it holds tables of another program ({min(tables)}): move it away, "
                "or name another project folder"
            )
        if not tables:
            return []
        return [name for (name,) in self._db.execute("SELECT name FROM migrations ORDER BY name")]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite's errors into ones that say what to do; one thread at a time."""
        try:
            with self._turn:
                yield
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"{self.path}: {error}; {_advice(str(error))}") from error


def _advice(message: str) -> str:
    if "locked" in message:
        return "another process is writing to it: wait for that run to end, then try again"
    if "full" in message or "disk I/O" in message or "No space" in message:
        return "nothing was half written: free some disk space, then run the same command again"
    if "malformed" in message or "not a database" in message:
        return (
            "the file is damaged: restore it from a backup, or save what can be read with "
            "`skillforge log salvage --out FILE`"
        )
    return "check that the folder exists and can be written"


_Stored = tuple[int, float, str, str, str, str, str]
_Row = tuple[int, float, str, str, str, str, str, str | None]
"""What the table of events holds, without and with the key of a rollout that is finished."""


def read_event(row: _Stored) -> Event:
    """Return the event of a row that `SELECT_EVENTS` gives."""
    seq, at, kind, run, text, previous, digest = row
    return Event(seq=seq, at=at, kind=kind, run=run, text=text, previous=previous, hash=digest)


def _row(event: Event) -> _Stored:
    return event.seq, event.at, event.kind, event.run, event.text, event.previous, event.hash
