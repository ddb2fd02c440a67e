"""Replace or remove a skill's folder: at whatever moment the process dies, all of it or nothing.

The next state is laid out beside the folder and put in its place by renames. What lies in the
folder but is no part of the skill is moved aside and back, never copied or rewritten. Each step
leaves names that say how far it came, and `settle` ends from there what was begun:

    .NAME.skillforge-new    the next state, being laid out: dropped
    .NAME.skillforge-kept   what is not the skill's, moved aside: put back
    .NAME.skillforge-old    the state before: put back, or dropped where the next one is in place
    .NAME.skillforge-gone   a state that has been replaced: dropped
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path, PurePosixPath

from skillforge.core.package import PackageFile

_CACHES = frozenset({"__pycache__", ".DS_Store", "Thumbs.db", "desktop.ini"})
"""What comes back by itself and is not kept."""


class FileOps:
    """Every operation by which a write changes the disk, one method each.

    Tests pass an object of the same methods that fails, or dies, at the n-th one.
    """

    def make_folder(self, path: Path) -> None:
        """Make one folder."""
        path.mkdir()

    def write(self, path: Path, data: bytes, *, executable: bool) -> None:
        """Write a new file so that it survives a power failure."""
        with path.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        path.chmod(0o755 if executable else 0o644)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or folder to a name that is free."""
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "something of that name is in the way", str(target))
        source.rename(target)

    def delete(self, path: Path) -> None:
        """Delete a file or link."""
        path.unlink()

    def delete_folder(self, path: Path) -> None:
        """Delete an empty folder."""
        path.rmdir()

    def unlock(self, path: Path) -> None:
        """Make a folder that is to be deleted one that can be emptied."""
        path.chmod(0o700)

    def sync(self, folder: Path) -> None:
        """Make the names in a folder durable; some file systems cannot, and need not."""
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def replace(
    target: Path,
    files: Mapping[str, PackageFile],
    *,
    own: Callable[[], Set[str]],
    ready: Callable[[], object],
    ops: FileOps,
) -> None:
    """Give a folder other files, all of them or none; without any the skill goes.

    Args:
        target: The folder; need not exist.
        files: What it is to hold, by relative posix path.
        own: Returns the paths in the folder that are the skill's now; all else stays there.
        ready: Called once nothing but renames is left to do; what it raises ends the write, and
            the folder stays as it was.
        ops: How the disk is changed.

    Raises:
        OSError: The disk refused, or something that stays is in the way of a file.
    """
    new, old, gone = (_beside(target, state) for state in ("new", "old", "gone"))
    settle(target, ops)
    try:
        _refuse_clashes(target, files.keys(), _unmanaged(target, own(), files.keys()))
        ops.make_folder(new)
        _lay_out(new, files, ops)
        ready()
        _move_aside(target, _unmanaged(target, own(), files.keys()), ops)
        if target.exists():
            ops.rename(target, old if files else gone)
        if files:
            ops.rename(new, target)
        ops.sync(target.parent)
    except Exception:
        settle(target, ops)
        raise
    settle(target, ops)


def settle(target: Path, ops: FileOps) -> None:
    """End a write or removal that was cut short: the folder is then its old state, or its new one.

    Raises:
        OSError: Something cannot be put back in its place.
    """
    new, old, gone, kept = (_beside(target, state) for state in ("new", "old", "gone", "kept"))
    if old.exists() and target.exists():
        ops.rename(old, gone)
        ops.sync(target.parent)
    elif old.exists():
        ops.rename(old, target)
        ops.sync(target.parent)
    if kept.exists():
        _put_back(kept, target, ops)
        ops.sync(target.parent)
    with suppress(OSError):  # what cannot be dropped now is dropped the next time
        _clear(new, ops)
        _clear(gone, ops)


def target_of(leftover: Path) -> Path:
    """Return the folder whose write has left a folder behind."""
    return leftover.with_name(leftover.name[1:].rpartition(".skillforge-")[0])


def _beside(target: Path, state: str) -> Path:
    return target.with_name(f".{target.name}.skillforge-{state}")


def _unmanaged(target: Path, own: Set[str], files: Set[str]) -> list[str]:
    """Return the outermost paths in a folder that stay there when its skill is replaced.

    Those are what holds nothing of the skill's own, now or then, but caches and empty folders. A
    link to a folder with files of the skill is the skill's.
    """
    now, then = _folders_of(own), _folders_of(files)
    found: list[str] = []

    def look(below: str) -> None:
        for entry in _entries(target / below):
            path = below + entry.name
            if path in now or (path in then and not _is_skill(entry)):
                if not entry.is_symlink():
                    look(path + "/")
            elif path not in own and _holds_something(entry):
                found.append(path)

    if target.is_dir():
        look("")
    return found


def _entries(folder: str | Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _is_skill(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() and any(inner.name.lower() == "skill.md" for inner in _entries(entry))


def _holds_something(entry: os.DirEntry[str]) -> bool:
    if entry.name in _CACHES:
        return False
    return not entry.is_dir(follow_symlinks=False) or any(map(_holds_something, _entries(entry)))


def _folders_of(paths: Iterable[str]) -> set[str]:
    return {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}


def _refuse_clashes(target: Path, files: Set[str], unmanaged: Sequence[str]) -> None:
    """Refuse a package with a file at, below or above something that stays where it is."""
    folders = _folders_of(files)
    for path in unmanaged:
        if path in folders or not files.isdisjoint({path, *_folders_of([path])}):
            raise FileExistsError(
                errno.EEXIST,
                "it is no part of the skill and in the way of a file that is; move it away",
                str(target / path),
            )


def _lay_out(new: Path, files: Mapping[str, PackageFile], ops: FileOps) -> None:
    """Write the files, then make their folders durable from the innermost outwards."""
    folders = sorted(_folders_of(files))  # "." and others above come before what is below
    for folder in folders:
        if folder != ".":
            ops.make_folder(new / folder)
    for path, file in files.items():
        ops.write(new / path, file.data, executable=file.executable)
    for folder in reversed(folders):
        ops.sync(new / folder)


def _move_aside(target: Path, paths: Sequence[str], ops: FileOps) -> None:
    if not paths:
        return
    kept = _beside(target, "kept")
    for path in paths:
        for parent in reversed(PurePosixPath(path).parents):
            if not (kept / parent).exists():
                ops.make_folder(kept / parent)
        ops.rename(target / path, kept / path)
    ops.sync(target.parent)


def _put_back(kept: Path, target: Path, ops: FileOps) -> None:
    """Move what was moved aside to where it was; folders that are in both places are joined."""
    if not target.exists():
        return ops.rename(kept, target)
    for entry in sorted(kept.iterdir()):
        goal = target / entry.name
        if _is_real(entry) and _is_real(goal):
            _put_back(entry, goal, ops)
        else:
            ops.rename(entry, goal)
    return ops.delete_folder(kept)


def _clear(path: Path, ops: FileOps) -> None:
    if _is_real(path):
        ops.unlock(path)
        for entry in sorted(path.iterdir()):
            _clear(entry, ops)
        ops.delete_folder(path)
    elif os.path.lexists(path):
        ops.delete(path)


def _is_real(path: Path) -> bool:
    """Whether this is a folder and no link to one."""
    return path.is_dir() and not path.is_symlink()
