"""What differs between two versions of a skill: by unit for decisions, as a patch for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
    """Return a unified diff of all files, empty where the packages are equal.

    Binary files and changes of mode are named in one line each.
    """
    parts: list[str] = []
    for path in diff_units(a, b).files:
        old, new = a.files.get(path), b.files.get(path)
        if old and new and old.executable != new.executable:
            parts.append(f"mode of {path}: {_mode(old)} -> {_mode(new)}\n")
        parts.extend(_patch(path, old, new))
    return "".join(parts)


def _mode(file: PackageFile) -> str:
    return "executable" if file.executable else "plain"


def _patch(path: str, old: PackageFile | None, new: PackageFile | None) -> list[str]:
    try:
        before = split_lines(old.data.decode()) if old else []
        after = split_lines(new.data.decode()) if new else []
    except UnicodeDecodeError:
        return [f"binary file {path} differs\n"]
    source, target = f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null"
    return [_shown(line) for line in unified_diff(before, after, source, target)]


def _shown(line: str) -> str:
    """End the line with LF; mark a missing one as patch does, and show a CR that would be lost."""
    if line.endswith("\n"):
        return line
    if line.endswith("\r"):
        return line[:-1] + "␍\n"
    return line + "\n\\ No newline at end of file\n"
