"""What changed between two versions, for terminals: in colour there, plain in a pipe or file.

`NO_COLOR` and `TERM=dumb` are honoured. Skill text is not trusted: on a terminal, a control
character is shown as a picture of itself instead of being obeyed; in a pipe it stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

_SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_SHOWN |= dict.fromkeys(range(127, 160), 65533)
"""Picture of each control character."""

_CHANGES = {"added": "green", "removed": "red", "changed": "yellow", "files": "cyan"}
_HEADS = ("diff --git ", "old mode ", "new mode ", "new file ", "deleted file ", "Binary files ")
_LINES = {"+": "green", "-": "red", "@": "cyan"}


def print_changes(changes: Mapping[str, Sequence[str]]) -> None:
    """Print one line per unit and file that differs."""
    for what, names in changes.items():
        _print((f"{what}: {name}", _CHANGES[what]) for name in names)


def print_patch(patch: str) -> None:
    """Print a unified patch as `skillforge.core.skill_diff.unified_patch` makes it."""
    rows, in_hunk = [], False
    for line in patch.removesuffix("\n").split("\n") if patch else ():
        in_hunk = line.startswith("@@") or (in_hunk and not line.startswith("diff --git "))
        head = not in_hunk and line.startswith((*_HEADS, "--- ", "+++ "))
        rows.append((line, "yellow" if head else _LINES.get(line[:1], "")))
    _print(rows)


def print_body(text: str) -> None:
    """Print the text of a skill."""
    _print((line, "") for line in text.split("\n"))


def _print(rows: Iterable[tuple[str, str]]) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line, style in rows:
        if console.is_terminal:
            console.print(Text(line.translate(_SHOWN), style=style))
        else:
            console.file.write(line + "\n")
