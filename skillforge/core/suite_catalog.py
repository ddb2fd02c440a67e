"""Which suites there are, and the one that a name means."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skillforge.errors import SuiteError


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteEntry:
    """A suite folder that was found, whether or not its head can be read."""

    name: str
    """The name in its ``suite.toml``; that of the folder where this cannot be read."""
    path: str
    """The folder."""
    version: str
    """The version in its ``suite.toml``, or an empty text."""
    problem: str
    """Why its ``suite.toml`` cannot be read; empty if it can."""
    worker: str = ""
    """The kind of worker that performs its tasks; empty where its head cannot be read."""


def pick_suite(name: str, found: Mapping[str, Sequence[SuiteEntry]]) -> SuiteEntry:
    """Return the suite of that name; an earlier root wins over a later one.

    Args:
        name: The name of the suite.
        found: The suites under each root, in order of the roots.

    Raises:
        SuiteError: There is none, or one root holds several.
    """
    for entries in found.values():
        matches = [entry for entry in entries if entry.name == name]
        if len(matches) > 1:
            shown = ", ".join(entry.path for entry in matches)
            raise SuiteError(f"several suites are called {name!r}: {shown}; rename all but one")
        if matches:
            return matches[0]
    known = sorted({entry.name for entries in found.values() for entry in entries})
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise SuiteError(
        f"no suite {name!r} in {', '.join(found) or 'no folder'}{hint}; "
        f"there are: {', '.join(known) or 'none'}; name one of them, or add its folder"
    )
