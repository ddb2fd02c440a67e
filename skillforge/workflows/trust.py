"""Trust: a suite's code runs only after somebody has looked at it and said so.

What is trusted is the digest of every file of the suite's folder, so that any change needs a new
look. It is an event of the project's ledger: who clones the project decides for themselves.
"""

from __future__ import annotations

from typing import Any

from skillforge.core.events import NewEvent
from skillforge.core.task import Code, Suite
from skillforge.errors import SuiteError
from skillforge.ports import Ledger

TRUSTED = "suite.trusted"
"""Kind of the event that records a trusted digest."""


def require_trust(ledger: Ledger, suite: Suite) -> None:
    """Let a suite pass whose code is trusted, or that has none.

    Raises:
        SuiteError: Its code was never trusted, or something in its folder has changed since.
    """
    if suite.code is None:
        return
    seen = [event.data for event in ledger.events(kinds=(TRUSTED,))]
    if any(data["digest"] == suite.code.digest for data in seen):
        return
    known = any(data["suite"] == suite.name for data in seen)
    why = "has changed since it was trusted" if known else "is not trusted"
    raise SuiteError(
        f"suite {suite.name} {why}, and would run code of its own on this machine "
        f"({'; '.join(suite.code.parts[:3])}): look at {suite.code.folder} and at what "
        f"`skillforge suite trust {suite.name} --show` prints, then trust it with "
        f"`skillforge suite trust {suite.name}`"
    )


def trust(ledger: Ledger, suite: Suite) -> None:
    """Record that a suite's code may run as it is now; nothing where it has none."""
    if suite.code is not None:
        data = {"suite": suite.name, "digest": suite.code.digest, "parts": list(suite.code.parts)}
        ledger.append([NewEvent(kind=TRUSTED, data=data)])


def what_runs(code: Code) -> dict[str, Any]:
    """Return what would run, and the files and their sizes in bytes, as a JSON object."""
    return {
        "digest": code.digest,
        "folder": code.folder,
        "parts": list(code.parts),
        "files": [{"path": path, "bytes": len(f.data)} for path, f in code.files.items()],
    }
