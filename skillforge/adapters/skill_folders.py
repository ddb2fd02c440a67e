"""Walk a folder for skills: which directories are skills, and which files are theirs.

A directory is a skill if it holds a ``SKILL.md``, in any case. Inside a skill's directory, another
one is a skill of its own, as in collections that nest them, unless a directory on the way to it is
named like a resource (``assets``, ``references``, ``templates`` …): then it is a template and part
of the outer package. A file belongs to the innermost skill around it.

Symbolic links are followed only to targets inside the root, after everything real, and no real
directory is entered twice: loops end, and a skill reached by two ways is found under its real name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from skillforge.core.package import Package, PackageFile
from skillforge.core.problem import Level, Problem
from skillforge.errors import SkillError

NO_SKILLS_IN = frozenset(
    {"node_modules", ".git", ".hg", ".svn", "vendor", ".venv", "venv", "__pycache__", ".skillforge"}
)
"""Directories that are never searched for skills."""
NOT_IN_PACKAGE = NO_SKILLS_IN - {"vendor"}
"""Directories inside a skill that are no part of it; its own ``vendor/`` is."""
RESOURCES = frozenset(
    f"{word}{ending}"
    for word in ("asset", "reference", "script", "template", "example", "eval", "resource")
    for ending in ("", "s")
)
"""Directories of a skill in which a nested ``SKILL.md`` is a template."""
SWAP_SUFFIXES = tuple(f".skillforge-{state}" for state in ("new", "kept", "old", "gone"))
"""What an interrupted write may leave beside a skill."""
MAX_FILE = 64 * 2**20
"""Bytes of one file above which a package is not loaded."""
_IGNORED_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})


@dataclass(slots=True, kw_only=True)
class Walk:
    """One search below a root: what it found, and what it could not read."""

    root: Path
    """The folder that is searched, with links resolved."""
    folders: list[Path] = field(default_factory=list)
    """Directories of the skills found, sorted by path."""
    problems: list[Problem] = field(default_factory=list)
    """What could not be read or was left out."""
    skills: set[str] = field(default_factory=set)
    """The same directories, to look one up."""
    leftovers: list[Path] = field(default_factory=list)
    """Directories that an interrupted write or removal has left."""

    def report(self, path: Path | str, code: str, message: str, *, warn: bool = False) -> None:
        """Note a problem about a path, shown relative to the root."""
        try:
            shown = Path(path).relative_to(self.root).as_posix()
        except ValueError:
            shown = str(path)
        # a name that is not UTF-8 must not make the report itself unprintable
        shown = shown.encode("utf-8", "replace").decode()
        level: Level = "warning" if warn else "error"
        self.problems.append(Problem(path=shown, line=0, code=code, level=level, message=message))


def is_skill_file(name: str) -> bool:
    """Tell whether a file name is ``SKILL.md`` in any case."""
    return name.lower() == "skill.md"


def is_swap(name: str) -> bool:
    """Tell whether a directory name is what a write leaves while it works."""
    return name.startswith(".") and name.endswith(SWAP_SUFFIXES)


def find_skills(root: Path) -> Walk:
    """Return the directories of all skills below ``root``.

    Raises:
        SkillError: The root is no folder.
    """
    if not root.is_dir():
        raise SkillError(f"{root} is no folder; name the folder that holds the skills")
    walk = Walk(root=root.resolve())
    # a link waits until all real directories are known, so that real names win
    real = [(walk.root, False, False)]
    linked: list[tuple[Path, bool, bool]] = []
    entered: set[Path] = set()
    while real or linked:
        directory, in_skill, in_resource = real.pop() if real else linked.pop()
        if directory in entered:
            continue
        entered.add(directory)
        entries = _entries(directory, walk)
        is_skill = any(is_skill_file(e.name) and _is_file(e, walk) for e in entries)
        if is_skill and not in_resource:
            walk.folders.append(directory)
            walk.skills.add(os.fspath(directory))
        inside = in_skill or is_skill
        for entry in entries:
            if entry.name in NO_SKILLS_IN or not _is_dir(entry, walk):
                continue
            if is_swap(entry.name):
                walk.leftovers.append(Path(entry.path))
                continue
            resource = in_resource or (inside and entry.name.lower() in RESOURCES)
            if entry.is_symlink():
                linked.append((Path(os.path.realpath(entry.path)), inside, resource))
            else:
                real.append((Path(entry.path), inside, resource))
    walk.folders.sort(key=lambda path: path.relative_to(walk.root).parts)
    return walk


def _entries(directory: Path, walk: Walk) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda entry: entry.name, reverse=True)
    except OSError as error:
        message = f"this folder cannot be read ({error.strerror}); what is in it is left out."
        walk.report(directory, "unreadable", message)
        return []


def _is_dir(entry: os.DirEntry[str], walk: Walk) -> bool:
    try:
        return entry.is_dir() and (not entry.is_symlink() or _is_inside(entry, walk))
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str], walk: Walk) -> bool:
    try:
        return entry.is_file() and (not entry.is_symlink() or _is_inside(entry, walk))
    except OSError:
        return False


def _is_inside(entry: os.DirEntry[str], walk: Walk) -> bool:
    """Tell whether a link leads to something inside the root; report it if it leads outside."""
    target = Path(os.path.realpath(entry.path))
    inside = target.is_relative_to(walk.root)
    if not inside:
        message = "this link leads out of the folder and is not followed; copy the files instead."
        walk.report(entry.path, "link-outside-root", message, warn=True)
    return inside


def load(folder: Path, walk: Walk) -> Package:
    """Read the package in ``folder``.

    Raises:
        SkillError: A file cannot be read, is too large, or has an unusable name.
    """
    files: dict[str, PackageFile] = {}
    for path, entry in package_files(folder, walk):
        try:
            status = entry.stat()
            if status.st_size > MAX_FILE:
                raise SkillError(f"{path} has {status.st_size} bytes, at most {MAX_FILE} are read")
            data = Path(entry.path).read_bytes()
        except OSError as error:
            raise SkillError(f"{path} cannot be read: {error.strerror}; mend its rights") from error
        files[path] = PackageFile(data=data, executable=bool(status.st_mode & 0o100))
    return Package(name=folder.name, files=files)


def package_files(folder: Path, walk: Walk) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield relative posix path and entry of every file that belongs to the skill in ``folder``."""
    real = [(os.fspath(folder), "")]
    linked: list[tuple[str, str]] = []
    entered: set[str] = set()
    while real or linked:
        directory, prefix = real.pop() if real else linked.pop()
        if directory in entered:
            continue
        entered.add(directory)
        for entry in _entries(Path(directory), walk):
            path = prefix + entry.name
            if _is_dir(entry, walk):
                target = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                if entry.name in NOT_IN_PACKAGE or is_swap(entry.name) or target in walk.skills:
                    continue
                (linked if entry.is_symlink() else real).append((target, path + "/"))
            elif entry.name not in _IGNORED_FILES and _is_file(entry, walk):
                yield path, entry
            elif entry.is_symlink() and not Path(entry.path).exists():
                message = "this link leads nowhere and is left out; delete it."
                walk.report(entry.path, "link-dangling", message, warn=True)
