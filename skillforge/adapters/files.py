"""Skill packages on disk: read them, find them at any depth, and replace them all or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from skillforge.adapters.skill_folders import (
    Walk,
    find_skills,
    is_skill_file,
    load,
    package_files,
)
from skillforge.adapters.stat_cache import StatCache
from skillforge.core.package import Package
from skillforge.core.problem import Problem
from skillforge.errors import SkillError

_REBUILT = frozenset({"node_modules", "__pycache__", ".venv", "venv"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The skills found below a folder."""

    packages: tuple[Package, ...]
    """Every loadable package, sorted by folder."""
    folders: tuple[str, ...]
    """The folder of each package, relative to the root; ``.`` for the root itself."""
    problems: tuple[Problem, ...]
    """What could not be loaded or was left out."""


def discover(root: str | os.PathLike[str]) -> Discovery:
    """Find and load every skill below ``root``; the root may be a skill or a ``SKILL.md`` itself.

    A skill that cannot be loaded is a problem and hides no other. What is wrong inside the loaded
    skills is for `skillforge.core.lint` to say. Which folders are skills: see
    `skillforge.adapters.skill_folders`.

    Raises:
        SkillError: There is no such folder.
    """
    path = Path(root)
    if path.is_file() and is_skill_file(path.name):
        path = path.parent
    walk = find_skills(path)
    found: list[tuple[str, Package]] = []
    for folder in walk.folders:
        try:
            found.append((folder.relative_to(walk.root).as_posix(), load(folder, walk)))
        except SkillError as error:
            walk.report(folder, "unreadable", f"this skill is left out: {error}.")
    return Discovery(
        packages=tuple(package for _, package in found),
        folders=tuple(folder for folder, _ in found),
        problems=tuple(dict.fromkeys(walk.problems)),
    )


class FolderLibrary:
    """The user's folder of skills, as the `Library` port.

    Where two folders have one name, the first by path is the library's. One writer at a time is
    assumed; an interrupted write is taken back, and an interrupted removal completed, when the
    library is next looked at.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, mend: bool = True, stats: StatCache | None = None
    ) -> None:
        """Open the library.

        Args:
            root: The folder.
            mend: Whether to end what a crash has cut short; not while another process writes.
            stats: Says which folders have not changed since they were read.

        Raises:
            SkillError: There is no such folder.
        """
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise SkillError(f"the library folder {self.root} does not exist; create it first")
        self._mend = mend
        self._stats = stats or StatCache()
        self._walk: Walk | None = None
        self._by_name: dict[str, Path] = {}

    def read(self, name: str) -> Package | None:
        """Return the package that the folder holds under that name, or None.

        Raises:
            SkillError: It is there but cannot be read.
        """
        folder = self._folder(name)
        return load(folder, self._index()) if folder else None

    def versions(self) -> dict[str, str]:
        """Return the version of every loadable package by name, sorted; read what has changed."""
        self._walk = None  # what has changed beside us is to be seen
        walk, found = self._index(), {}
        for name, folder in sorted(self._by_name.items()):
            try:
                found[name] = self._version(folder, walk)
            except (SkillError, OSError):
                continue
        self._stats.save()
        return found

    def _version(self, folder: Path, walk: Walk) -> str:
        stamp = self._stats.stamp(package_files(folder, walk))
        known = self._stats.get(os.fspath(folder), stamp)
        if known is None:
            known = load(folder, walk).version
            self._stats.put(os.fspath(folder), stamp, known)
        return known

    def write(self, package: Package) -> None:
        """Replace the folder of that package, all of it or nothing.

        What lies in the folder but is no part of the package (nested skills, ``.git``,
        ``node_modules``) is carried over.

        Raises:
            SkillError: The disk refused, or the library's root is itself the skill.
        """
        target = self._folder(package.name) or self.root / package.name
        self._refuse_root(target)
        try:
            fresh = _swap_path(target, "new")
            _clear(fresh)
            fresh.mkdir(parents=True)
            self._carry_over(target, fresh, frozenset())
            for path, file in package.files.items():
                _write_file(fresh / path, file.data, executable=file.executable)
            _swap(target, fresh)
        except OSError as error:
            raise SkillError(
                f"skill {package.name!r} cannot be written to {target}: {error}"
            ) from error
        if package.name not in self._by_name:
            walk = self._index()
            walk.folders.append(target)
            walk.skills.add(os.fspath(target))
            self._by_name[package.name] = target

    def remove(self, name: str) -> None:
        """Remove the folder of that skill, all of it or nothing; nested skills and ``.git`` stay.

        Raises:
            SkillError: There is no such skill, or the disk refused.
        """
        target = self._folder(name)
        if target is None:
            raise SkillError(f"the library {self.root} has no skill {name!r}; see `list`")
        self._refuse_root(target)
        try:
            fresh = _swap_path(target, "new")
            _clear(fresh)
            fresh.mkdir()
            self._carry_over(target, fresh, _REBUILT)
            if any(fresh.iterdir()):
                _swap(target, fresh)
            else:
                fresh.rmdir()
                gone = _swap_path(target, "gone")
                _clear(gone)
                target.rename(gone)
                _sync(target.parent)
                _clear(gone)
        except OSError as error:
            raise SkillError(f"skill {name!r} cannot be removed from {target}: {error}") from error
        self._walk = None

    def _index(self) -> Walk:
        if self._walk is None:
            self._walk = find_skills(self.root)
            if self._walk.leftovers and self._mend:
                _recover(self._walk.leftovers)
                self._walk = find_skills(self.root)
            self._by_name = {}
            for folder in self._walk.folders:
                self._by_name.setdefault(folder.name, folder)
        return self._walk

    def _folder(self, name: str) -> Path | None:
        """Return where the skill lies; look again if the folders have changed since."""
        self._index()
        folder = self._by_name.get(name)
        if folder is None or not _holds_skill(folder):
            self._walk = None
            self._index()
            folder = self._by_name.get(name)
        return folder

    def _refuse_root(self, target: Path) -> None:
        if target == self.root:
            raise SkillError(
                f"the library folder {self.root} is itself a skill; open its parent as the library"
            )

    def _carry_over(self, target: Path, fresh: Path, without: frozenset[str]) -> None:
        """Copy what lies in ``target`` but is no part of its package into ``fresh``."""
        if not target.is_dir():
            return
        walk = self._index()
        own = {path for path, _ in package_files(target, walk)}
        folders = {parent.as_posix() for path in own for parent in PurePosixPath(path).parents}
        links = {folder for folder in folders if (target / folder).is_symlink()}

        def skip(directory: str, names: list[str]) -> set[str]:
            below = Path(directory).relative_to(target)
            at = {name: (below / name).as_posix() for name in names}
            # a link into a shared folder becomes a folder of its own: nothing is written through it
            return {
                name for name in names if at[name] in own or name in without or at[name] in links
            }

        shutil.copytree(target, fresh, symlinks=True, ignore=skip, dirs_exist_ok=True)
        for directory, _, _ in os.walk(fresh, topdown=False):
            if directory != os.fspath(fresh) and not any(Path(directory).iterdir()):
                Path(directory).rmdir()


def _holds_skill(folder: Path) -> bool:
    try:
        return any(is_skill_file(path.name) for path in folder.iterdir())
    except OSError:
        return False


def _swap_path(target: Path, state: str) -> Path:
    return target.with_name(f".{target.name}.skillforge-{state}")


def _swap(target: Path, fresh: Path) -> None:
    """Put ``fresh`` in the place of ``target``; a crash in between is mended by `_recover`."""
    for directory, _, _ in os.walk(fresh, topdown=False):
        _sync(Path(directory))
    old = _swap_path(target, "old")
    _clear(old)
    if target.exists():
        target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    _sync(target.parent)
    _clear(old)


def _recover(leftovers: Iterable[Path]) -> None:
    """Take back writes, and complete removals, that a crash has cut short."""
    for path in leftovers:
        skill, _, state = path.name[1:].rpartition(".skillforge-")
        target = path.with_name(skill)
        if state == "old" and not target.exists():
            path.rename(target)
        else:
            _clear(path)


def _clear(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _write_file(path: Path, data: bytes, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    path.chmod(0o755 if executable else 0o644)


def _sync(directory: Path) -> None:
    """Make renames durable; some file systems cannot sync a directory, and need not."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
