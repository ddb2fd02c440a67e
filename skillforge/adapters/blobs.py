"""The blobs of a ledger: content-addressed, compressed, and erasable without a trace.

Prompts and answers of one project have much in common, but not for good: skills are imported before
the first rollout, and later suites ask for other things. So a dictionary is trained again and again
as the ledger grows, on a random sample of the blobs that have come since the last time, and is kept
only where it is clearly better than those of before: a few of them serve a million blobs. Frames
stay as they were made.

The ledger knows what each dictionary was trained on: it goes when one of those blobs is erased.

What writes here works in the transaction of its caller. Training needs nothing but a sample, so it
can be done aside; whether that still holds when it has ended is for `Blobs.adopt` to see.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any

from skillforge.adapters.codec import Codec, dictionary_id, train
from skillforge.core.digest import sha256
from skillforge.errors import BlobErased, LedgerError

FEWEST, MOST = 512, 10_000
"""Blobs from one training to the next: half as many as are there, within these bounds."""

SAMPLE, PIECE, PIECES, LARGEST = 250_000, 16_384, 1_000, 65_536
"""Of a sample: bytes that are enough, bytes from the beginning of a blob, blobs at most, bytes of
the frame of one: a larger one gains next to nothing by a dictionary, and would be held in memory
several times over."""

PAGE, STATEMENT, READ = 500, 1024, 50
"""Rows that are read by one statement, that are written by one, blobs of a sample read by one."""

Turn = Callable[[], AbstractContextManager[None]]


def insert_rows(
    db: sqlite3.Connection, insert: str, rows: Sequence[tuple[Any, ...]], otherwise: str = ""
) -> None:
    """Insert rows, many in one statement: a thread that writes then gives way to others once.

    Args:
        db: The database, in a transaction.
        insert: Begins the statement; ends in VALUES.
        rows: All of the same length.
        otherwise: What to do about a row that is there already.
    """
    for some in (rows[i : i + STATEMENT] for i in range(0, len(rows), STATEMENT)):
        row = f"({','.join('?' * len(some[0]))})"
        values = ",".join([row] * len(some))
        db.execute(" ".join([insert, values, otherwise]), [*chain(*some)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Blobs to train on, and how the ledger stood when they were drawn."""

    texts: Sequence[bytes]
    """The beginnings of the blobs, in random order."""
    ids: Sequence[int]
    dictionaries: Sequence[bytes]
    """Those that compress."""
    known: Sequence[tuple[int, int]]
    """All dictionaries, each with the last blob that was there when it was last trained."""
    last: int
    """The last blob that is there now."""


class Blobs:
    """What one database holds in its tables ``blobs``, ``dictionaries`` and ``samples``."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        """Take the database, and the name of its file for messages."""
        self._db, self._name = db, name
        self._known: list[tuple[int, int]] = []
        self._loaded = Codec([])
        self._tried = 0
        self._codec()

    def _codec(self) -> Codec:
        """Return the codec of the dictionaries there are now; other processes change them too."""
        query = "SELECT {} FROM dictionaries ORDER BY sampled"
        known = self._db.execute(query.format("n, sampled")).fetchall()
        if known != self._known:
            found = self._db.execute(query.format("data")).fetchall()
            self._loaded, self._known = Codec([data for (data,) in found]), known
        return self._loaded

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read frames and dictionaries as they stood at one moment."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def insert(self, blobs: Sequence[bytes]) -> None:
        """Store blobs under their SHA-256; what is there already stays."""
        frames = self._codec().compress(blobs)
        insert_rows(
            self._db,
            "INSERT INTO blobs (hash, data) VALUES",
            list(zip(map(sha256, blobs), frames, strict=True)),
            "ON CONFLICT (hash) DO UPDATE SET data = excluded.data WHERE blobs.data IS NULL",
        )

    def get(self, digest: str) -> bytes:
        """Return the bytes stored under a hash, checked against it.

        Raises:
            BlobErased: They were erased.
            LedgerError: Nothing is stored under it, or it is damaged.
        """
        with self._snapshot():
            row = self._db.execute("SELECT data FROM blobs WHERE hash = ?", (digest,)).fetchone()
            if row is None:
                raise LedgerError(
                    f"{self._name}: nothing is stored under {digest[:12]}: if an event of this "
                    "ledger names it, restore ledger.db from a backup; if not, correct the hash"
                )
            if row[0] is None:
                raise BlobErased(
                    f"{self._name}: nothing is stored under {digest[:12]} any more: it was erased; "
                    "`skillforge log --kind blob.erased` says why"
                )
            return self.checked(digest, row[0])

    def damaged(self) -> Iterator[str]:
        """Say of each blob that cannot be read what is wrong with it."""
        for _, digest, frame in chain.from_iterable(self._pages()):
            try:
                self.checked(digest, frame)
            except LedgerError:  # or else its dictionary went after the frame was read
                try:
                    self.get(digest)
                except BlobErased:
                    pass
                except LedgerError as error:
                    yield str(error)

    def checked(self, digest: str, frame: bytes) -> bytes:
        """Return the data of a frame, checked against its hash.

        Raises:
            LedgerError: It is damaged.
        """
        try:
            data = self._codec().decompress(frame)
            fault = "" if sha256(data) == digest else f"hash to {sha256(data)[:12]}"
        except ValueError as error:
            data, fault = b"", f"cannot be read ({error})"
        if fault:
            raise LedgerError(
                f"{self._name}: the bytes stored under {digest[:12]} {fault}; "
                "restore ledger.db from a backup"
            )
        return data

    @property
    def due(self) -> bool:
        """Whether enough blobs have come since the last training that is known to train again."""
        since, last = self._since()
        return last - since >= min(max(since // 2, FEWEST), MOST)

    def _since(self) -> tuple[int, int]:
        """Return the last blob that was there at the last training, and the last of now."""
        since = max([self._tried, *(sampled for _, sampled in self._known)])
        (last,) = self._db.execute("SELECT coalesce(max(id), 0) FROM blobs").fetchone()
        return since, last

    def sample(self, turn: Turn = nullcontext, reader: Codec | None = None) -> Sample:
        """Draw from the blobs that have come since the last training; this counts as one.

        Args:
            turn: What to be in while the database is read; others may write in between.
            reader: Decompresses them, where the dictionary of some is no longer in the ledger.
        """
        with turn():
            codec = self._codec()
            since, last = self._since()
            known, self._tried = self._known, last
        reader = reader or codec
        draw = Random(last)  # noqa: S311 - keeps no secret
        drawn = draw.sample(range(since + 1, last + 1), min(last - since, PIECES))
        texts: dict[int, bytes] = {}
        for ids in (drawn[i : i + READ] for i in range(0, len(drawn), READ)):
            with turn():
                frames = self._frames(ids)
            for at, frame in frames.items():
                with suppress(ValueError):  # damaged
                    texts[at] = reader.decompress(frame)[:PIECE]
            if sum(map(len, texts.values())) >= SAMPLE:
                break
        return Sample(
            texts=[*texts.values()],
            ids=[*texts],
            dictionaries=codec.recent,
            known=known,
            last=last,
        )

    def _frames(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Return the frames of blobs, but for large and erased ones, in the order of their ids.

        They come as one row: a thread that reads gives way to others at each.
        """
        query = (
            "SELECT json_group_object(id, hex(data)) FROM blobs"
            " WHERE length(data) <= ? AND id IN (SELECT value FROM json_each(?))"
        )
        (row,) = self._db.execute(query, (LARGEST, json.dumps(ids))).fetchone()
        frames = {int(at): bytes.fromhex(frame) for at, frame in json.loads(row).items()}
        return {at: frames[at] for at in ids if at in frames}

    def adopt(self, trained: bytes | None, sample: Sample) -> None:
        """Compress by a dictionary from now on, or note that none was worth it.

        Nothing is done where somebody has trained, or has erased a blob of the sample, meanwhile.
        """
        self._codec()
        erased = "SELECT 1 FROM blobs, json_each(?) WHERE blobs.id = value AND data IS NULL"
        drawn = json.dumps(sample.ids)
        if self._known != sample.known or self._db.execute(erased, (drawn,)).fetchone():
            return
        if trained is not None:
            n = dictionary_id(trained)  # not one by one: a number must not come again
            self._db.execute("INSERT INTO dictionaries VALUES (?, ?, ?)", (n, trained, sample.last))
            insert_rows(self._db, "INSERT INTO samples VALUES", [(at, n) for at in sample.ids])
        elif sample.known:
            n, _ = sample.known[-1]
            self._db.execute("UPDATE dictionaries SET sampled = ? WHERE n = ?", (sample.last, n))

    def erase(self, digests: Sequence[str]) -> None:
        """Take blobs away for good.

        A dictionary that was trained on one of them holds pieces of it: it goes too, and what was
        compressed by it is compressed anew.

        Raises:
            LedgerError: Nothing is stored under one of the hashes.
        """
        ids = []
        for digest in digests:
            found = self._db.execute("SELECT id FROM blobs WHERE hash = ?", (digest,)).fetchone()
            if found is None:
                raise LedgerError(
                    f"{self._name}: nothing is stored under {digest}, so nothing was erased; "
                    "give whole hashes, as `output_blob` and `blob` stand in `skillforge log`"
                )
            ids.append(found)
        before = self._codec()
        for statement in (
            "UPDATE blobs SET data = NULL WHERE id = ?",
            "DELETE FROM dictionaries WHERE n IN (SELECT dictionary FROM samples WHERE blob = ?)",
        ):
            self._db.executemany(statement, ids)
        self._db.execute("DELETE FROM samples WHERE dictionary NOT IN (SELECT n FROM dictionaries)")
        if self._codec() is not before:
            self._compress_anew(before)

    def _compress_anew(self, before: Codec) -> None:
        """Free the blobs from dictionaries that have gone."""
        self._tried = 0
        if self.due:
            sample = self.sample(reader=before)
            self.adopt(train(sample.texts, sample.dictionaries), sample)
        codec = self._codec()
        for page in self._pages():
            freed = {}
            for blob_id, _, frame in page:
                if not codec.knows(frame):
                    with suppress(ValueError):  # damaged already
                        freed[blob_id] = before.decompress(frame)
            again = zip(codec.compress([*freed.values()]), freed, strict=True)
            self._db.executemany("UPDATE blobs SET data = ? WHERE id = ?", again)

    def _pages(self) -> Iterator[list[tuple[int, str, bytes]]]:
        """Yield id, hash and compressed bytes of the blobs that are not erased, in order."""
        query = "SELECT id, hash, data FROM blobs WHERE id > ? ORDER BY id LIMIT ?"
        last = 0
        while rows := self._db.execute(query, (last, PAGE)).fetchall():
            yield [row for row in rows if row[2] is not None]
            last = rows[-1][0]
