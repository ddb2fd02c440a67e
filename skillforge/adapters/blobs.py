"""The blobs of a ledger: content-addressed, compressed, and erasable without a trace.

They are compressed with zstd, by a dictionary that is trained on the ledger's own blobs once there
are enough of them: prompts and answers of one project have much in common. Frames name their
dictionary; blobs of before it was trained stay as they are.

All of this works in the transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from skillforge.core.digest import sha256
from skillforge.errors import BlobErased, LedgerError

TRAIN_AT, SAMPLED, DICTIONARY = 200_000, 500_000, 65_536
"""Bytes: of compressed blobs that are enough to train on, of text to train on, of a dictionary."""

PAGE = 500
"""Rows that are read, or written, by one statement."""


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
    for some in (rows[i : i + PAGE] for i in range(0, len(rows), PAGE)):
        row = f"({','.join('?' * len(some[0]))})"
        values = ",".join([row] * len(some))
        db.execute(" ".join([insert, values, otherwise]), [*chain(*some)])


class Blobs:
    """What one database holds in its tables ``blobs`` and ``dictionaries``."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        """Take the database, and the name of its file for messages."""
        self._db, self._name = db, name
        self._known: list[tuple[int]] = []
        self._loaded = _Codec([])
        self._untrained, self._train_at = 0, TRAIN_AT
        if not self._codec.dictionaries:
            stored = "SELECT CAST(total(length(data)) AS INTEGER) FROM blobs"
            (self._untrained,) = db.execute(stored).fetchone()

    @property
    def _codec(self) -> _Codec:
        """The codec of the dictionaries that are there now; other processes train and drop too."""
        known = self._db.execute("SELECT n FROM dictionaries ORDER BY n").fetchall()
        if known != self._known:
            found = self._db.execute("SELECT data FROM dictionaries ORDER BY n").fetchall()
            self._loaded, self._known = _Codec([data for (data,) in found]), known
        return self._loaded

    def insert(self, blobs: Sequence[bytes]) -> None:
        """Store blobs under their SHA-256; what is there already stays."""
        frames = self._codec.compress_all(blobs)
        insert_rows(
            self._db,
            "INSERT INTO blobs (hash, data) VALUES",
            list(zip(map(sha256, blobs), frames, strict=True)),
            "ON CONFLICT (hash) DO UPDATE SET data = excluded.data WHERE blobs.data IS NULL",
        )
        self._untrained += sum(map(len, frames))

    def get(self, digest: str) -> bytes:
        """Return the bytes stored under a hash, checked against it.

        Raises:
            BlobErased: They were erased.
            LedgerError: Nothing is stored under it, or it is damaged.
        """
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
        for _, digest, frame in self._frames():
            try:
                self.checked(digest, frame)
            except LedgerError as error:
                yield str(error)

    def checked(self, digest: str, frame: bytes) -> bytes:
        """Return the data of a frame, checked against its hash.

        Raises:
            LedgerError: It is damaged.
        """
        try:
            data = self._codec.decompress(frame)
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
        """Whether there is no dictionary yet and enough to train one on."""
        return not self._codec.dictionaries and self._untrained >= self._train_at

    def train(self) -> None:
        """Train a dictionary on the first blobs, if they have enough in common."""
        import zstandard

        self._train_at *= 2
        codec = self._codec
        samples: list[bytes | bytearray | memoryview] = []
        size = last = 0
        for blob_id, _, frame in self._frames():
            samples.append(codec.decompress(frame)[:DICTIONARY])
            size, last = size + len(samples[-1]), blob_id
            if size > SAMPLED:
                break
        try:
            trained = zstandard.train_dictionary(DICTIONARY, samples).as_bytes()
        except zstandard.ZstdError:
            return
        insert = "INSERT INTO dictionaries (data, sampled) VALUES (?, ?)"
        self._db.execute(insert, (trained, last))

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
        self._db.executemany("UPDATE blobs SET data = NULL WHERE id = ?", ids)
        before = self._codec
        self._db.execute("DELETE FROM dictionaries WHERE sampled >= ?", min(ids))
        if self._codec is not before:
            self._compress_anew(before)

    def _compress_anew(self, before: _Codec) -> None:
        """Free the blobs from dictionaries that have gone."""
        gone = before.dictionaries - self._codec.dictionaries
        self.train()
        codec = self._codec
        for blob_id, _, frame in self._frames():
            if before.dictionary_of(frame) in gone:
                again = codec.compress(before.decompress(frame))
                self._db.execute("UPDATE blobs SET data = ? WHERE id = ?", (again, blob_id))

    def _frames(self) -> Iterator[tuple[int, str, bytes]]:
        """Yield id, hash and compressed bytes of the blobs that are not erased, in order."""
        query = "SELECT id, hash, data FROM blobs WHERE id > ? ORDER BY id LIMIT ?"
        last = 0
        while rows := self._db.execute(query, (last, PAGE)).fetchall():
            yield from (row for row in rows if row[2] is not None)
            last = rows[-1][0]


class _Codec:
    """Compresses by the newest of some dictionaries; decompresses by whichever was used."""

    def __init__(self, dictionaries: Sequence[bytes]) -> None:
        import zstandard

        self._zstd = zstandard
        known = [zstandard.ZstdCompressionDict(data) for data in dictionaries]
        newest = known[-1] if known else None
        self._compressor = zstandard.ZstdCompressor(level=3, dict_data=newest)
        self._decompressors = {0: zstandard.ZstdDecompressor()}
        for one in known:
            self._decompressors[one.dict_id()] = zstandard.ZstdDecompressor(dict_data=one)
        self.dictionaries = self._decompressors.keys() - {0}
        """Their ids."""

    def compress(self, data: bytes) -> bytes:
        """Return the data as one frame that names its dictionary."""
        return bytes(self._compressor.compress(data))

    def compress_all(self, blobs: Sequence[bytes]) -> list[bytes]:
        """Return the frames of many blobs, made in one call during which other threads run."""
        if not any(blobs):
            return [self.compress(blob) for blob in blobs]  # the call refuses to do nothing
        frames = self._compressor.multi_compress_to_buffer([*blobs])
        return [frames[i].tobytes() for i in range(len(frames))]

    def dictionary_of(self, frame: bytes) -> int:
        """Return the id of the dictionary that a frame was made with; 0 is none."""
        return int(self._zstd.get_frame_parameters(frame).dict_id)

    def decompress(self, frame: bytes) -> bytes:
        """Return the data of a frame.

        Raises:
            ValueError: It is no frame, or it is damaged, or its dictionary is not known.
        """
        try:
            return bytes(self._decompressors[self.dictionary_of(frame)].decompress(frame))
        except (self._zstd.ZstdError, TypeError) as error:
            raise ValueError(str(error)) from error
        except KeyError as error:
            raise ValueError(f"its dictionary {error} is not in the ledger") from error
