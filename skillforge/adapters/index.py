"""The vector index: FAISS, exact inner product, kept in one file that knows what it was built from.

An index is a cache. Its file carries a fingerprint of the embedder and of what was embedded, and
`load_index` gives back nothing where that differs, so that a stale index is rebuilt and never
searched. The search is exhaustive: at 100,000 skills of 384 numbers it takes some 20 ms a query
and 150 MB, which is less trouble than an approximate index whose misses nobody notices.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skillforge.core.digest import sha256
from skillforge.errors import ConfigError

FORMAT = "skillforge-index-1"


class FaissIndex:
    """Nearest neighbours of unit vectors by inner product, which is their cosine."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        """Index the rows of an array of shape (n, dim).

        Raises:
            ConfigError: The array has not two dimensions or holds numbers that are not finite.
        """
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
        if rows.ndim != 2 or not np.isfinite(rows).all():
            raise ConfigError(
                f"index: got an array of shape {rows.shape}, expected (n, dim) finite numbers; "
                "embed the skills again"
            )
        self._index = _faiss().IndexFlatIP(rows.shape[1])
        self._index.add(rows)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The rows that were indexed, shape (n, dim)."""
        rows: NDArray[np.float32] = self._index.reconstruct_n(0, len(self))
        return rows

    def search(
        self, queries: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return cosines and row numbers, each of shape (n_queries, min(k, size)), best first.

        Equal scores are ordered by row number.

        Raises:
            ConfigError: The queries have another dimension than the index.
        """
        rows = np.ascontiguousarray(queries, dtype=np.float32)
        wanted = max(0, min(k, len(self)))
        if not wanted:
            empty = (len(rows), 0)
            return np.zeros(empty, dtype=np.float32), np.zeros(empty, dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != self._index.d:
            raise ConfigError(
                f"index: got queries of shape {rows.shape}, expected (n, {self._index.d}); the "
                "index was built with another embedding model, build it again"
            )
        scores, numbers = self._index.search(rows, wanted)
        order = np.lexsort((numbers, -scores))
        return np.take_along_axis(scores, order, 1), np.take_along_axis(numbers, order, 1)

    def save(self, path: Path, *, ids: Sequence[str], fingerprint: str) -> None:
        """Write the index, its ids and its fingerprint to one file, all of it or nothing.

        Raises:
            ConfigError: The number of ids is not the number of rows, or the disk is full.
        """
        if len(ids) != len(self):
            raise ConfigError(f"index: got {len(ids)} ids for {len(self)} rows; expected as many")
        data = _faiss().serialize_index(self._index).tobytes()
        header = {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "ids": list(ids),
            "sha256": sha256(data),
        }
        _write(path, json.dumps(header).encode() + b"\n" + data)

    @classmethod
    def _from_bytes(cls, data: bytes) -> FaissIndex:
        index = cls.__new__(cls)
        index._index = _faiss().deserialize_index(np.frombuffer(data, dtype=np.uint8))
        return index


def open_index(vectors: NDArray[np.float32]) -> FaissIndex:
    """Return an index of unit vectors of shape (n, dim); n may be 0."""
    return FaissIndex(vectors)


def load_index(path: Path, fingerprint: str) -> tuple[FaissIndex, tuple[str, ...]] | None:
    """Return a saved index with its ids, or None where it is missing, damaged or stale."""
    try:
        first, _, data = path.read_bytes().partition(b"\n")
        header = json.loads(first)
    except (OSError, ValueError):
        return None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return None
    if header.get("fingerprint") != fingerprint or header.get("sha256") != sha256(data):
        return None
    return FaissIndex._from_bytes(data), tuple(header["ids"])


def _write(path: Path, data: bytes) -> None:
    """Replace a file in one step; readers see the old bytes or the new ones."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{token_hex(4)}")
        try:
            with fresh.open("xb") as stream:  # readable by whom the rest of the project is
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
    except OSError as error:
        raise ConfigError(
            f"index: {path} cannot be written ({error}); check the folder and the free space"
        ) from error


def _faiss() -> Any:
    """Import FAISS, whose generated bindings warn about themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import faiss
    return faiss
