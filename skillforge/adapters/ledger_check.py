"""Whether the files of a ledger belong together: its write-ahead log, and its indexes.

SQLite takes a log for what it is by checksums of the log alone. One of an older copy, or of another
ledger, is taken too: its pages hide newer ones, and are written over them when the file is closed.
So what the file holds by itself must still be there with the log applied. A row that a damaged
index does not lead to is not found either, though the row and its hash are whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from skillforge.errors import LedgerError

_LAST = "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1"
_SAID = 5
"""Most disagreements that are named."""
_SAME = "SELECT count(*) FROM events WHERE seq = ? AND hash = ?"


def check_log(path: Path) -> None:
    """Refuse to open a ledger with a log that hides what its file holds; nothing is written.

    Args:
        path: The ledger's file, which no other process is changing.

    Raises:
        LedgerError: The log is not the ledger's, or of an earlier state.
    """
    log = path.with_name(f"{path.name}-wal")
    if not path.is_file() or not log.is_file() or not log.stat().st_size:
        return
    try:
        with closing(_read(path, "immutable=1")) as alone:
            last = alone.execute(_LAST).fetchone()
    except sqlite3.Error:
        return  # a new ledger, or a log that was being moved into the file when its process died
    if last is None:
        return
    try:
        with closing(_read(path, "mode=ro")) as whole:
            seq, same = whole.execute(_LAST).fetchone()[0], whole.execute(_SAME, last).fetchone()[0]
    except (sqlite3.DatabaseError, TypeError) as error:
        if "locked" in str(error):
            return  # whoever opens it waits, and says for whom
        seq, same = "none", False
    if not same:
        raise LedgerError(
            f"{log} is no log of {path.name} as it is now: the file alone ends with event "
            f"{last[0]}, which must still be there with the log, but that ends with {seq} or with "
            f"other events; move {log.name} to another folder, then run the same command again"
        )


def index_problems(path: Path) -> Iterator[str]:
    """Say where tables and indexes disagree, in SQLite's words; reads all of the file."""
    try:
        with closing(_read(path, "mode=ro")) as db:
            found = [row for (row,) in db.execute(f"PRAGMA integrity_check({_SAID})")]
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    for row in found:
        if row != "ok":
            yield (
                f"{path.name}: {row}, expected tables and indexes that agree; save what it holds "
                "with `skillforge log salvage --out FILE`, which builds the indexes anew"
            )


def _read(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)
