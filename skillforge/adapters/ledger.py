"""The ledger in one SQLite file: an append-only event chain, and blobs beside it.

Write-ahead logging with ``synchronous=FULL``: an append that has returned survives a crash of the
process or the machine. Triggers refuse UPDATE and DELETE of events. Blobs are zstd-compressed and
content-addressed; they lie outside the chain, so that one can be erased.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from skillforge.core.digest import canonical_json, sha256
from skillforge.core.events import GENESIS, Event, NewEvent, is_intact, link
from skillforge.errors import LedgerError

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "0001_events_and_blobs",
        (
            """CREATE TABLE events (
                seq INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, run TEXT NOT NULL,
                data TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL, key TEXT)""",
            "CREATE INDEX events_by_key ON events (key) WHERE key IS NOT NULL",
            "CREATE INDEX events_by_kind ON events (kind, seq)",
            "CREATE INDEX events_by_run ON events (run, kind, seq)",
            "CREATE TABLE blobs (hash TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID",
            """CREATE TRIGGER events_keep BEFORE UPDATE ON events
                BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
            """CREATE TRIGGER events_stay BEFORE DELETE ON events
                BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
        ),
    ),
)
"""Name and statements; each is applied in one transaction together with its own record."""

_SELECT = "SELECT seq, at, kind, run, data, previous, hash FROM events"


class SqliteLedger:
    """The event store in one file; see `skillforge.ports.Ledger` for the contract."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, patience: float = 5.0
    ) -> None:
        """Open or create the ledger, applying migrations that are missing.

        Args:
            path: The file; its folder is made if need be.
            clock: Where the time of events comes from, in seconds since the epoch.
            patience: Seconds to wait for another process that is writing.

        Raises:
            LedgerError: The file is not a ledger, is damaged, locked, or cannot be written.
        """
        self.path, self._clock = path, clock
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=patience)
            try:
                self._migrate_patiently(patience)
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Close the file; what was appended is already durable."""
        self._db.close()

    def append(self, events: Sequence[NewEvent]) -> tuple[Event, ...]:
        """Chain and store the events in one transaction."""
        return self.record(events, blobs=())

    def record(self, events: Sequence[NewEvent], *, blobs: Sequence[bytes]) -> tuple[Event, ...]:
        """Store events and the blobs they name in one transaction: all of them or none."""
        with self._transaction():
            for blob in blobs:
                self._insert_blob(blob)
            return tuple(self._chain(events))

    def events(
        self, *, after: int = 0, kinds: Sequence[str] | None = None, run: str | None = None
    ) -> Iterator[Event]:
        """Yield the events with ``seq > after`` in order, of some kinds or one run if named."""
        where, values = ["seq > ?"], [after, *(kinds or ())]
        if kinds is not None:
            where.append(f"kind IN ({','.join('?' * len(kinds))})")
        if run is not None:
            where.append("run = ?")
            values.append(run)
        query = f"{_SELECT} WHERE {' AND '.join(where)} ORDER BY seq"
        with self._explained():
            for row in self._db.execute(query, values).fetchall():
                yield _event(row)

    def find_rollout(self, key: str) -> Event | None:
        """Return the finished rollout of that key, if it is what its hash covers, or None."""
        with self._explained():
            rows = self._db.execute(f"{_SELECT} WHERE key = ? ORDER BY seq", (key,)).fetchall()
        found = map(_event, rows)
        return next((e for e in found if is_intact(e) and e.data["key"] == key), None)

    def put_blob(self, data: bytes) -> str:
        """Store bytes under their SHA-256 and return it."""
        with self._transaction():
            return self._insert_blob(data)

    def get_blob(self, digest: str) -> bytes:
        """Return the bytes stored under a hash, checked against it."""
        import zstandard

        with self._explained():
            row = self._db.execute("SELECT data FROM blobs WHERE hash = ?", (digest,)).fetchone()
        if row is None or row[0] is None:
            raise LedgerError(
                f"{self.path}: nothing is stored under {digest[:12]}; it was erased, or the "
                "ledger was copied without it: restore ledger.db from a backup"
            )
        try:
            data = zstandard.ZstdDecompressor().decompress(row[0])
        except (zstandard.ZstdError, TypeError) as error:
            raise LedgerError(
                f"{self.path}: the bytes stored under {digest[:12]} cannot be read ({error}); "
                "restore ledger.db from a backup"
            ) from error
        if sha256(data) != digest:
            raise LedgerError(
                f"{self.path}: the bytes stored under {digest[:12]} hash to {sha256(data)[:12]}; "
                "restore ledger.db from a backup"
            )
        return data

    def _insert_blob(self, data: bytes) -> str:
        import zstandard

        digest = sha256(data)
        self._db.execute(
            "INSERT INTO blobs VALUES (?, ?) ON CONFLICT (hash) "
            "DO UPDATE SET data = excluded.data WHERE blobs.data IS NULL",
            (digest, zstandard.ZstdCompressor(level=6).compress(data)),
        )
        return digest

    def _chain(self, events: Iterable[NewEvent]) -> Iterator[Event]:
        last = self._db.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        seq, previous = last or (0, GENESIS)
        for new in events:
            seq += 1
            event = link(new, seq=seq, at=self._clock(), previous=previous)
            previous = event.hash
            key = event.data["key"] if event.kind == "rollout.finished" else None
            text = canonical_json(event.data)
            self._db.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (seq, event.at, event.kind, event.run, text, event.previous, event.hash, key),
            )
            yield event

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
        """Turn SQLite's errors into ones that say what to do."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"{self.path}: {error}; {_advice(str(error))}") from error


def _advice(message: str) -> str:
    if "locked" in message:
        return "another process is writing to it: wait for that run to end, then try again"
    if "full" in message or "disk I/O" in message or "No space" in message:
        return "nothing was half written: free some disk space, then run the same command again"
    if "malformed" in message or "not a database" in message:
        return "the file is damaged: restore it from a backup, or move it away to start anew"
    return "check that the folder exists and can be written"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _event(row: tuple[int, float, str, str, str, str, str]) -> Event:
    seq, at, kind, run, text, previous, digest = row
    try:
        data = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise LedgerError(
            f"event {seq} of the ledger is no JSON ({error}): it was changed from outside; "
            "restore ledger.db from a backup"
        ) from error
    return Event(seq=seq, at=at, kind=kind, run=run, data=data, previous=previous, hash=digest)
