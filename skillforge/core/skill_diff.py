"""What differs between two versions of a skill: by unit for decisions, as a patch for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff

from skillforge.core.lines import split_lines
from skillforge.core.package import Package, PackageFile
from skillforge.core.units import parse_units


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDiff:
    """Ids and paths that differ between two versions of a skill."""

    added: tuple[str, ...]
    """Units that only the second has."""
    removed: tuple[str, ...]
    """Units that only the first has."""
    changed: tuple[str, ...]
    """Units of both whose text differs."""
    files: tuple[str, ...]
    """Paths whose content, mode or presence differs."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.files)


def diff_units(a: Package, b: Package) -> UnitDiff:
    """Compare two versions unit by unit.

    A numbered part (``item:rules/3``) that only moved within its section is not reported: such
    parts are matched by their text first, and by id only where the text is new.
    """
    old = {unit.id: unit.text_digest for unit in parse_units(a)}
    new = {unit.id: unit.text_digest for unit in parse_units(b)}
    gone = _unmatched(old, new)
    come = _unmatched(new, old)
    paths = sorted({*a.files, *b.files})
    return UnitDiff(
        added=_in_order(new, come - gone),
        removed=_in_order(old, gone - come),
        changed=_in_order(new, gone & come),
        files=tuple(path for path in paths if a.files.get(path) != b.files.get(path)),
    )


def _unmatched(units: Mapping[str, str], others: Mapping[str, str]) -> set[str]:
    """Return the ids whose text has no partner among the others; equal ids are matched first."""
    left = Counter(others.values())
    for key, digest in units.items():
        left[digest] -= others.get(key) == digest
    unmatched = set()
    for key, digest in units.items():
        if others.get(key) == digest:
            continue
        if left[digest] > 0:
            left[digest] -= 1
        else:
            unmatched.add(key)
    return unmatched


def _in_order(units: Iterable[str], chosen: set[str]) -> tuple[str, ...]:
    return tuple(unit for unit in units if unit in chosen)


def unified_patch(a: Package, b: Package) -> str:
    """Return a unified diff of all files in git's form, empty where the packages are equal.

    Binary files are named, and so are changes of mode. A carriage return that a terminal would
    swallow is shown as ␍; where there is none, `git apply` takes the patch.
    """
    parts: list[str] = []
    for path in diff_units(a, b).files:
        parts.extend(_file_patch(path, a.files.get(path), b.files.get(path)))
    return "".join(parts)


def _file_patch(path: str, old: PackageFile | None, new: PackageFile | None) -> Iterator[str]:
    source, target = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    yield f"diff --git {source} {target}\n"
    if old is None and new is not None:
        yield f"new file mode {_mode(new)}\n"
    elif new is None and old is not None:
        yield f"deleted file mode {_mode(old)}\n"
    elif old and new and old.executable != new.executable:
        yield f"old mode {_mode(old)}\nnew mode {_mode(new)}\n"
    source, target = source if old else "/dev/null", target if new else "/dev/null"
    try:
        before, after = _text(old), _text(new)
    except UnicodeDecodeError:
        if not (old and new and old.data == new.data):
            yield f"Binary files {source} and {target} differ\n"
        return
    for line in unified_diff(before, after, _ended(source), _ended(target)):
        yield _shown(line)


def _mode(file: PackageFile) -> str:
    return "100755" if file.executable else "100644"


def _text(file: PackageFile | None) -> list[str]:
    """Return the lines of a text file; one with a NUL byte is binary, as for git."""
    data = file.data if file else b""
    if b"\0" in data:
        raise UnicodeDecodeError("utf-8", data, data.index(0), data.index(0) + 1, "a NUL byte")
    return split_lines(data.decode())


def _quoted(path: str) -> str:
    """Quote a path that holds quotes or what a terminal would obey."""
    return json.dumps(path) if '"' in path or not path.isprintable() else path


def _ended(path: str) -> str:
    """End a name that holds a space with a tab, so that what follows is no part of it."""
    return f"{path}\t" if " " in path else path


def _shown(line: str) -> str:
    """End the line with LF; mark a missing one as patch does, and show a CR that would be lost."""
    if line.endswith("\n"):
        return line
    if line.endswith("\r"):
        return line[:-1] + "␍\n"
    return line + "\n\\ No newline at end of file\n"
