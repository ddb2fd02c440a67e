"""One command at a time changes a project; the others are told which one it is."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skillforge.errors import LedgerError

if TYPE_CHECKING:
    from filelock import BaseFileLock

NOTICE = 1.0
"""Seconds of waiting after which it is said who is waited for."""


class ProjectLock:
    """The lock file of a project and, beside it, a note of who holds it.

    The operating system ends the lock with the process, so a crash blocks nobody. The note only
    informs: one that a crash has left behind is never taken for a lock.
    """

    def __init__(self, state: Path) -> None:
        """Name the lock of the project whose state lies in a folder."""
        from filelock import FileLock

        self._lock: BaseFileLock = FileLock(state / "lock")
        self._note = state / "lock.json"

    def acquire(self, patience: float) -> bool:
        """Take the lock; return False where another process still holds it after some seconds.

        Raises:
            LedgerError: The folder cannot be written.
        """
        from filelock import Timeout

        try:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=min(patience, NOTICE))
            except Timeout:
                if patience <= NOTICE:
                    raise
                click.echo(f"note: waiting for {self.holder()}", err=True)
                self._lock.acquire(timeout=patience - NOTICE)
        except Timeout:
            return False
        except OSError as error:
            raise LedgerError(
                f"{self._note.parent}: {error}; check that the folder can be written"
            ) from error
        with suppress(OSError):  # a full disk keeps nobody from reading
            self._sign()
        return True

    def release(self) -> None:
        """Give the lock back; without it, nothing happens."""
        if self._lock.is_locked:
            with suppress(OSError):
                self._note.unlink(missing_ok=True)
            self._lock.release()

    def holder(self) -> str:
        """Say who holds the lock, as far as the note of a living process tells."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            if os.name == "posix":
                os.kill(note["pid"], 0)  # asks whether the process is there, and sends nothing
            return f"`{note['command']}` (process {note['pid']}, since {note['since']})"
        except PermissionError:
            return f"`{note['command']}` (process {note['pid']} of another user)"
        except (OSError, ValueError, KeyError, TypeError):
            return "another skillforge command"

    def _sign(self) -> None:
        """Leave the note; written aside and renamed, so that nobody reads half of it."""
        context = click.get_current_context(silent=True)
        note = {
            "pid": os.getpid(),
            "command": context.command_path if context else "skillforge (Python)",
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        draft = self._note.with_suffix(".new")
        draft.write_text(json.dumps(note), encoding="utf-8")
        draft.replace(self._note)
