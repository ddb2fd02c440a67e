"""Byte-exact inverses: what has to be put back to undo an edit of a whole package."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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


def invert(stages: Sequence[Package]) -> Inverse:
    """Return the inverse of a change that went through ``stages``, from the first to the last.

    Each step gives one splice a changed file, so that a change in several places stays several
    splices, and what stands between them is not part of it.

    Raises:
        EditError: A step changes the executable bit of a file.
    """
    before, after = stages[0], stages[-1]
    splices: list[Splice] = []
    for old, new in pairwise(stages):
        splices += _splices({p: f for p, f in old.files.items() if p in after.files}, new.files)
    return Inverse(
        before=before.version,
        after=after.version,
        splices=tuple(splices),
        removed={p: f for p, f in before.files.items() if p not in after.files},
        added=tuple(p for p in after.files if p not in before.files),
    )


def _splices(old: Mapping[str, PackageFile], new: Mapping[str, PackageFile]) -> Iterator[Splice]:
    for path, file in old.items():
        if path not in new or file == new[path]:
            continue
        if file.executable != new[path].executable:
            raise EditError(f"an edit may not change the executable bit of {path!r}")
        yield _splice(path, file.data, new[path].data)


def _splice(path: str, old: bytes, new: bytes) -> Splice:
    """Return the run of whole lines that differ, so that an edit of the next line stays apart."""
    shorter = min(len(old), len(new))
    start = _line_start(old, _common(old, new, shorter))
    end = len(old) - _common(old[::-1], new[::-1], shorter - start)
    grown = len(new) - len(old)
    if not (_line_start(old, end) == end and _line_start(new, end + grown) == end + grown):
        breaks = [at for at in (old.find(b"\n", end), old.find(b"\r", end)) if at >= 0]
        end = min(breaks, default=len(old) - 1) + 1
    return Splice(path=path, start=start, old=old[start:end], new=new[start : end + grown])


def _line_start(data: bytes, at: int) -> int:
    """Return where the line begins that holds the byte before ``at``, or ``at`` at a beginning."""
    return max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1


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


def undo(package: Package, inverse: Inverse, later: Sequence[Inverse] = ()) -> Package:
    """Return the package as it was before the edit, byte for byte.

    Args:
        package: The version that the edit made, or one that later edits made of that.
        inverse: The way back of the edit.
        later: The ways back of every edit since, oldest first. What they changed is kept.

    Raises:
        EditError: The package is not the version that these edits lead to, a later edit touches
            what this one wrote, or an inverse is damaged.
    """
    _check_line(package, [inverse, *later])
    files = dict(package.files)
    for path in inverse.added:
        _check_untouched(package, path, later)
        del files[path]
    above = [splice for edit in later for splice in edit.splices]
    gone = {path for edit in later for path in edit.removed}
    for splice in reversed(inverse.splices):
        if splice.path in gone:
            raise _overlap(package, splice.path)
        moved, above = _past(package, splice, above)
        files[splice.path] = _take_back(files, moved)
    for path, file in inverse.removed.items():
        _check_untouched(package, path, later)
        files[path] = file
    restored = Package(name=package.name, files=files)
    if not later and restored.version != inverse.before:
        raise EditError(
            f"undoing the edit of skill {package.name!r} gave version {restored.short}, expected "
            f"{inverse.before[:10]}; the recorded inverse is damaged, restore the archived package"
        )
    return restored


def _check_line(package: Package, line: Sequence[Inverse]) -> None:
    """Refuse edits that do not follow each other up to this version."""
    for earlier, follower in pairwise(line):
        if earlier.after != follower.before:
            raise EditError(
                f"an edit that made version {earlier.after[:10]} of skill {package.name!r} is "
                f"followed by one of version {follower.before[:10]}; pass every edit since, "
                "oldest first"
            )
    if package.version != line[-1].after:
        raise EditError(
            f"skill {package.name!r} is at version {package.short}, but the edit to undo made "
            f"{line[-1].after[:10]}; undo the later edits first, or pass them as `later`"
        )


def _check_untouched(package: Package, path: str, later: Sequence[Inverse]) -> None:
    for edit in later:
        if path in edit.removed or path in edit.added or any(s.path == path for s in edit.splices):
            raise _overlap(package, path)


def _overlap(package: Package, path: str) -> EditError:
    return EditError(
        f"a later edit of skill {package.name!r} changed in {path} what this one wrote; undo the "
        "later edit first"
    )


def _past(package: Package, splice: Splice, above: Sequence[Splice]) -> tuple[Splice, list[Splice]]:
    """Carry the taking back of ``splice`` past the splices that were made on top of it.

    Returns the splice where it stands now, and those above as they stand without it.
    """
    kept: list[Splice] = []
    for other in above:
        if other.path != splice.path:
            kept.append(other)
            continue
        end, other_end = splice.start + len(splice.new), other.start + len(other.old)
        # two insertions in one place have no order of their own
        same_place = splice.start == end == other.start == other_end
        if same_place or (other_end > splice.start and other.start < end):
            raise _overlap(package, splice.path)
        if other_end <= splice.start:
            kept.append(other)
            grown = len(other.new) - len(other.old)
            splice = replace(splice, start=splice.start + grown)
        else:
            kept.append(replace(other, start=other.start + len(splice.old) - len(splice.new)))
    return splice, kept


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
