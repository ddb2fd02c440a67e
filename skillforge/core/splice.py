"""Byte-exact inverses: what has to be put back to undo an edit of a whole package."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skillforge.core.package import Package, PackageFile
from skillforge.errors import EditError


@dataclass(frozen=True, slots=True, kw_only=True)
class Splice:
    """One replacement inside one file, as seen after the edit."""

    path: str
    """The file."""
    start: int
    """Byte offset at which it begins."""
    old: bytes
    """What stood there before."""
    new: bytes
    """What stands there now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverse:
    """The way back from one version to the one before it, with both named."""

    before: str
    """Version that `undo` restores."""
    after: str
    """Version that it applies to; no other is touched."""
    splices: tuple[Splice, ...]
    """Replacements to take back, last first."""
    removed: Mapping[str, PackageFile]
    """Files that the edit deleted."""
    added: tuple[str, ...]
    """Files that the edit created."""

    def to_json(self) -> dict[str, Any]:
        """Return the inverse as one JSON object, bytes in base64."""
        return {
            "before": self.before,
            "after": self.after,
            "splices": [[s.path, s.start, _text(s.old), _text(s.new)] for s in self.splices],
            "removed": [[p, f.executable, _text(f.data)] for p, f in self.removed.items()],
            "added": list(self.added),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Inverse:
        """Read what `to_json` wrote.

        Raises:
            EditError: A key is missing or of the wrong type.
        """
        try:
            return cls(
                before=value["before"],
                after=value["after"],
                splices=tuple(
                    Splice(path=path, start=start, old=_bytes(old), new=_bytes(new))
                    for path, start, old, new in value["splices"]
                ),
                removed={
                    path: PackageFile(data=_bytes(data), executable=executable)
                    for path, executable, data in value["removed"]
                },
                added=tuple(value["added"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise EditError(f"this is no recorded inverse of an edit: {error!r}") from error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def invert(before: Package, after: Package) -> Inverse:
    """Return the inverse of the change from ``before`` to ``after``, one splice a changed file."""
    both = [path for path in before.files if path in after.files]
    for path in both:
        if before.files[path].executable != after.files[path].executable:
            raise EditError(f"an edit may not change the executable bit of {path!r}")
    changed = [path for path in both if before.files[path].data != after.files[path].data]
    return Inverse(
        before=before.version,
        after=after.version,
        splices=tuple(_splice(p, before.files[p].data, after.files[p].data) for p in changed),
        removed={p: f for p, f in before.files.items() if p not in after.files},
        added=tuple(p for p in after.files if p not in before.files),
    )


def _splice(path: str, old: bytes, new: bytes) -> Splice:
    shorter = min(len(old), len(new))
    start = _common(old, new, shorter)
    tail = _common(old[::-1], new[::-1], shorter - start)
    return Splice(
        path=path, start=start, old=old[start : len(old) - tail], new=new[start : len(new) - tail]
    )


def _common(a: bytes, b: bytes, limit: int) -> int:
    """Return the length of the common prefix, at most ``limit``, by bisection on slices."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def undo(package: Package, inverse: Inverse) -> Package:
    """Return the package as it was before the edit, byte for byte.

    Raises:
        EditError: The package is not the version that the edit made, or the inverse is damaged.
    """
    if package.version != inverse.after:
        raise EditError(
            f"skill {package.name!r} is at version {package.short}, but the edit to undo made "
            f"{inverse.after[:10]}; undo the later edits first"
        )
    files = {p: f for p, f in package.files.items() if p not in inverse.added}
    for splice in reversed(inverse.splices):
        files[splice.path] = _take_back(files, splice)
    files.update(inverse.removed)
    restored = Package(name=package.name, files=files)
    if restored.version != inverse.before:
        raise EditError(
            f"undoing the edit of skill {package.name!r} gave version {restored.short}, expected "
            f"{inverse.before[:10]}; the recorded inverse is damaged, restore the archived package"
        )
    return restored


def _take_back(files: Mapping[str, PackageFile], splice: Splice) -> PackageFile:
    file = files.get(splice.path)
    end = splice.start + len(splice.new)
    if file is None or file.data[splice.start : end] != splice.new:
        raise EditError(
            f"{splice.path} does not hold at byte {splice.start} what the edit wrote there; the "
            "recorded inverse is damaged, restore the archived package"
        )
    data = file.data[: splice.start] + splice.old + file.data[end:]
    return PackageFile(data=data, executable=file.executable)
