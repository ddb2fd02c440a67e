"""One thing that is wrong with a skill, as data: reading a bad file never raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """A finding about one file of a skill."""

    path: str
    """The file, relative to the skill or to the folder that was searched; posix."""
    line: int
    """1-based line the finding is about; 0 where it is about the file or folder as a whole."""
    code: str
    """Stable short name such as ``yaml-unquoted``, for tools and for tests."""
    level: Level
    """``error``: the specification or its reader refuses it; ``warning``: it works, but badly."""
    message: str
    """What was found, what was expected and what to do, in one sentence or two."""

    def to_json(self) -> dict[str, str | int]:
        """Return the five fields as one JSON object."""
        return {
            "path": self.path,
            "line": self.line,
            "code": self.code,
            "level": self.level,
            "message": self.message,
        }

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        return f"{where}: {self.level}: {self.message} [{self.code}]"
