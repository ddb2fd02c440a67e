"""Walk a folder for skills: which directories are skills, and which files are theirs.

A directory is a skill if it holds a ``SKILL.md``, in any case. Inside a skill's directory, another
one is a skill of its own, as in collections that nest them, unless a directory on the way to it is
named like a resource (``assets``, ``references``, ``templates`` …): then it is a template and part
of the outer package. A file belongs to the innermost skill around it.

Symbolic links are followed only to targets inside the root, after everything real, and no real
directory is entered twice: loops end, and a skill reached by two ways is found under its real name.
A directory whose ``SKILL.md`` is a link to that of another skill is not counted again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
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
        level: Level = "warning" if warn else "error"
        shown = self.shown(path)
        self.problems.append(Problem(path=shown, line=0, code=code, level=level, message=message))

    def shown(self, path: Path | str) -> str:
        """Return a path relative to the root; a name that is not UTF-8 is made printable."""
        shown = Path(os.path.relpath(path, self.root)).as_posix()
        return shown.encode("utf-8", "replace").decode()


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
    real = [(os.fspath(walk.root), False, False)]
    linked: list[tuple[str, bool, bool]] = []
    entered: set[str] = set()
    by_file: dict[str, str] = {}
    by_link: list[tuple[str, str]] = []
    while real or linked:
        directory, in_skill, in_resource = real.pop() if real else linked.pop()
        if directory in entered:
            continue
        entered.add(directory)
        entries = _entries(directory, walk)
        own = [e for e in entries if is_skill_file(e.name) and _is_file(e, walk)]
        if own and not in_resource:
            held = [entry.path for entry in own if not entry.is_symlink()]
            by_file.update(dict.fromkeys(held, directory))
            if not held:
                by_link.append((directory, os.path.realpath(own[-1].path)))
        _report_no_file([] if own or in_resource else entries, walk)
        inside = in_skill or bool(own)
        for entry in entries:
            if entry.name in NO_SKILLS_IN or not _is_dir(entry, walk):
                continue
            if is_swap(entry.name):
                walk.leftovers.append(Path(entry.path))
                continue
            resource = in_resource or (inside and entry.name.lower() in RESOURCES)
            if entry.is_symlink():
                linked.append((os.path.realpath(entry.path), inside, resource))
            else:
                real.append((entry.path, inside, resource))
    _add_linked(by_file, by_link, walk)
    walk.skills.update(by_file.values())
    walk.folders += sorted(map(Path, walk.skills), key=lambda folder: folder.parts)
    return walk


def _report_no_file(entries: Sequence[os.DirEntry[str]], walk: Walk) -> None:
    """Report what has the name of a skill file but is a folder, or a link that leads nowhere."""
    for entry in entries:
        if is_skill_file(entry.name) and (entry.is_dir() or not os.path.exists(entry.path)):  # noqa: PTH110
            kind = "a folder" if entry.is_dir() else "a link that leads nowhere"
            walk.report(entry.path, "unreadable", f"this skill is left out: its file is {kind}.")


def _add_linked(by_file: dict[str, str], by_link: list[tuple[str, str]], walk: Walk) -> None:
    """Add the directories whose skill file is a link, unless the file is counted already."""
    for directory, target in sorted(by_link):
        first = by_file.setdefault(target, directory)
        if first != directory:
            walk.report(
                directory,
                "link-twice",
                f"its skill file is a link to that of {walk.shown(first)}, which counts once; "
                "copy the file to make it a skill of its own.",
                warn=True,
            )


def _entries(directory: str, walk: Walk) -> list[os.DirEntry[str]]:
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
    inside = Path(os.path.realpath(entry.path)).is_relative_to(walk.root)
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
        for entry in _entries(directory, walk):
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
