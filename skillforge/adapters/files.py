"""Skill packages on disk: read them, find them at any depth, and replace them all or nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from skillforge.adapters.folder_writes import FileOps, replace, settle, target_of
from skillforge.adapters.skill_folders import (
    Walk,
    find_skills,
    is_skill_file,
    load,
    package_files,
)
from skillforge.adapters.stat_cache import StatCache
from skillforge.core.package import Package, PackageFile
from skillforge.core.problem import Problem
from skillforge.errors import SkillError


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

    Where two folders have one name, the one nearest to the root is the library's. One writer at a
    time is assumed; what a crash has cut short is ended when the library is next opened, see
    `skillforge.adapters.folder_writes`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        mend: bool = True,
        stats: StatCache | None = None,
        ops: FileOps | None = None,
    ) -> None:
        """Open the library.

        Args:
            root: The folder.
            mend: Whether to end what a crash has cut short; not while another process writes.
            stats: Says which folders have not changed since they were read.
            ops: How the disk is changed; as usual by default.

        Raises:
            SkillError: There is no such folder, or what a crash has left cannot be mended.
        """
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise SkillError(f"the library folder {self.root} does not exist; create it first")
        self._ops, self._stats = ops or FileOps(), stats or StatCache()
        self._walk: Walk | None = None
        self._by_name: dict[str, Path] = {}
        self.passed_over: dict[str, str] = {}
        leftovers = self._index().leftovers
        if leftovers and mend:
            self._settle(leftovers)

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
            except (SkillError, OSError) as error:
                self.passed_over[name] = f"it cannot be read: {error}"
        self._stats.save()
        return found

    def _version(self, folder: Path, walk: Walk) -> str:
        stamp = self._stats.stamp(package_files(folder, walk))
        known = self._stats.get(os.fspath(folder), stamp)
        if known is None:
            known = load(folder, walk).version
            self._stats.put(os.fspath(folder), stamp, known)
        return known

    def write(self, package: Package, *, ready: Callable[[], object] = lambda: None) -> None:
        """Replace the folder of that package, all of it or nothing.

        What lies in the folder but is no part of the package (nested skills, ``.git``,
        ``node_modules``) stays as it is; caches are dropped.

        Args:
            package: What the folder is to hold.
            ready: Called once all is laid out and only renames are left to do; what it raises ends
                the write, and the folder stays as it was.

        Raises:
            SkillError: The disk refused, something is in the way, or the library's root is itself
                the skill. The folder is then as it was, or the next opening makes it whole.
        """
        target = self._folder(package.name) or self.root / package.name
        self._replace(target, package.files, "written to", ready)
        if package.name not in self._by_name:
            walk = self._index()
            walk.folders.append(target)
            walk.skills.add(os.fspath(target))
            self._by_name[package.name] = target

    def remove(self, name: str, *, ready: Callable[[], object] = lambda: None) -> None:
        """Remove the files of that skill, all of them or none; what else is there stays.

        Args:
            name: The skill.
            ready: As in `write`.

        Raises:
            SkillError: There is no such skill, or the disk refused.
        """
        target = self._folder(name)
        if target is None:
            raise SkillError(f"the library {self.root} has no skill {name!r}; see `list`")
        self._replace(target, {}, "removed from", ready)
        self._walk = None

    def _replace(
        self,
        target: Path,
        files: Mapping[str, PackageFile],
        verb: str,
        ready: Callable[[], object],
    ) -> None:
        if target == self.root:
            raise SkillError(
                f"the library folder {self.root} is itself a skill; open its parent as the library"
            )
        if not target.resolve().is_relative_to(self.root):
            raise SkillError(
                f"{target} is a link out of the library folder, and nothing is written there; put "
                "a folder in its place"
            )
        try:
            own = partial(self._own_paths, target, files)
            replace(target, files, own=own, ready=ready, ops=self._ops)
        except OSError as error:
            raise SkillError(
                f"skill {target.name!r} cannot be {verb} {target}: {error}; {_advice(error)}"
            ) from error

    def _own_paths(self, target: Path, files: Mapping[str, PackageFile]) -> set[str]:
        """Return what the skill's files are just now, in a folder that may not be there yet.

        Without a skill file it is no skill, and nothing in it is the skill's but what equals the
        ``files`` that are to be written.
        """
        if not target.is_dir():
            return set()
        if not _holds_skill(target):
            return {path for path, file in files.items() if _holds(target / path, file.data)}
        walk = Walk(root=self.root, skills=self._index().skills | find_skills(target).skills)
        return {path for path, _ in package_files(target, walk)}

    def _index(self) -> Walk:
        if self._walk is None:
            self._walk = find_skills(self.root)
            self._by_name, self.passed_over = {}, {}
            for folder in sorted(self._walk.folders, key=lambda f: (len(f.parts), f.parts)):
                first = self._by_name.setdefault(folder.name, folder)
                if first != folder:
                    self.passed_over[folder.relative_to(self.root).as_posix()] = (
                        f"the skill of that name is {first.relative_to(self.root).as_posix()}; "
                        "rename one of them"
                    )
        return self._walk

    def _settle(self, leftovers: Iterable[Path]) -> None:
        self._walk = None
        for target in dict.fromkeys(map(target_of, leftovers)):
            try:
                settle(target, self._ops)
            except OSError as error:
                raise SkillError(
                    f"a write of {target} was cut short and cannot be ended: {error}; what is "
                    f"missing lies beside it in .{target.name}.skillforge-*: move it back by hand"
                ) from error

    def _folder(self, name: str) -> Path | None:
        """Return where the skill lies; look again if the folders have changed since."""
        self._index()
        folder = self._by_name.get(name)
        if folder is None or not _holds_skill(folder):
            self._walk = None
            self._index()
            folder = self._by_name.get(name)
        return folder


def _holds_skill(folder: Path) -> bool:
    try:
        return any(is_skill_file(path.name) for path in folder.iterdir())
    except OSError:
        return False


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free some disk space, then repeat"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "make the folder writable, then repeat"
    return "mend that, then repeat"
