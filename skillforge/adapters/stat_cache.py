"""What version each folder held when it was last read, so that an unchanged one is not read again.

A folder counts as unchanged if its files have the same paths, sizes, modes, inodes and times as
when it was read. Times have a grain of up to two seconds, so a folder is remembered only if nothing
in it was touched within two seconds of the look. A cache that is missing, torn or from another
release only costs the time to read everything once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillforge.core.digest import json_digest, sha256

GRAIN_NS = 2_000_000_000
"""Nanoseconds within which a second change of a file may leave its times as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the disk says about the files of a folder without opening them."""

    digest: str
    """Covers path, size, mode, inode, mtime and ctime of every file."""
    settled: bool
    """Whether all of them were last touched more than two seconds before the look."""


class StatCache:
    """Folder to stamp and version, in one file; see the module for what it promises."""

    def __init__(self, path: Path | None = None, now: Callable[[], int] = time.time_ns) -> None:
        """Open the cache.

        Args:
            path: Its file, which need not exist; None keeps nothing beyond this object.
            now: Nanoseconds since the epoch.
        """
        self._path = path
        self._now = now
        self._old = _load(path) if path is not None else {}
        self._new: dict[str, list[str]] = {}

    def stamp(self, files: Iterable[tuple[str, os.DirEntry[str]]]) -> Stamp:
        """Look at the files of a folder; raises OSError where one is gone."""
        rows, newest = [], 0
        for path, entry in files:
            found = entry.stat()
            times = (found.st_mtime_ns, found.st_ctime_ns)
            rows.append((path, found.st_size, found.st_mode, found.st_ino, *times))
            newest = max(newest, *times)
        text = repr(sorted(rows)).encode("utf-8", "surrogateescape")
        return Stamp(digest=sha256(text), settled=newest < self._now() - GRAIN_NS)

    def get(self, folder: str, stamp: Stamp) -> str | None:
        """Return the version that the folder held under that stamp, or None."""
        known = self._old.get(folder)
        if known is None or known[0] != stamp.digest or not stamp.settled:
            return None
        self._new[folder] = known
        return known[1]

    def put(self, folder: str, stamp: Stamp, version: str) -> None:
        """Remember what was read after the stamp was taken, unless it is too fresh to tell."""
        if stamp.settled:
            self._new[folder] = [stamp.digest, version]

    def save(self) -> None:
        """Keep what was looked up or read since the last time; a disk that refuses is no matter."""
        changed = self._new != self._old
        self._old, self._new = self._new, {}
        if self._path is None or not changed:
            return
        text = json.dumps({"folders": self._old, "digest": json_digest(self._old)})
        fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self._path)


def _load(path: Path) -> dict[str, list[str]]:
    """Return what was saved, or nothing if any of it is missing or changed."""
    try:
        found: Any = json.loads(path.read_bytes())
        folders: dict[str, list[str]] = found["folders"]
        return folders if found["digest"] == json_digest(folders) else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
