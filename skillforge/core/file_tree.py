"""What an archive may put on disk: files, and links that stay inside it, within limits.

Whoever reads the archive hands over each entry as it is spelled there. Whatever could land outside
the folder, hide another entry or exhaust the machine is refused, and with it the whole archive.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from skillforge.core.package import PackageFile
from skillforge.errors import SkillError

MAX_HOPS = 8
"""Links that following one link may lead through."""
_DRIVE = re.compile(r"[A-Za-z]:")
_SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one source may hold."""

    entries: int = 50_000
    """Entries of the archive."""
    links: int = 2_000
    """Symbolic links of the archive."""
    total: int = 256 * 2**20
    """Bytes of everything unpacked; also of the archive itself."""
    file: int = 64 * 2**20
    """Bytes of one file."""
    ratio: int = 100
    """Bytes unpacked for each byte of the archive."""
    slack: int = 2**20
    """Bytes unpacked below which the ratio does not count."""
    depth: int = 64
    """Names in one path."""

    def allowance(self, size: int) -> int:
        """Return the bytes that an archive of ``size`` bytes may unpack to."""
        return min(self.total, max(self.slack, self.ratio * size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of an archive."""

    name: str
    """The path as the archive spells it."""
    kind: Literal["file", "folder", "link", "hardlink"]
    data: bytes = b""
    """The content of a file."""
    target: str = ""
    """Where a link leads, relative to its folder; for a hard link, relative to the archive."""
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTree:
    """Files and symbolic links by relative posix path; none lies below a file or a link."""

    files: Mapping[str, PackageFile]
    links: Mapping[str, str]


def refusal(name: str, found: str, expected: str) -> SkillError:
    """Return the error for one entry, which costs the whole archive."""
    shown = name if len(name) <= _SHOWN else name[:_SHOWN] + "…"
    return SkillError(
        f"entry {shown!r} {found}; expected {expected}; nothing was taken: pack the source "
        "without it, or unpack it yourself and import the folder"
    )


def arrange(entries: Iterable[Entry], limits: Limits) -> FileTree:
    """Return the files and links that the entries make.

    Raises:
        SkillError: A path is absolute, leads out, is spelled for Windows, too deep, occurs twice
            or differs from another in case alone; a link leads out; or there is too much.
    """
    places = _Places(limits)
    files: dict[str, PackageFile] = {}
    links: dict[str, str] = {}
    total = 0
    for count, entry in enumerate(entries, 1):
        if count > limits.entries:
            raise refusal(entry.name, f"is number {count}", f"at most {limits.entries} entries")
        path = places.claim(entry)
        if entry.kind == "link":
            links[path] = entry.target
            if len(links) > limits.links:
                raise refusal(
                    entry.name, f"is link {len(links)}", f"at most {limits.links} symbolic links"
                )
        elif entry.kind != "folder":
            files[path] = _file(entry, files, limits)
            total += len(files[path].data)  # a hard link is a copy on disk
            if total > limits.total:
                raise refusal(entry.name, f"brings {total} bytes", f"at most {limits.total} in all")
    for path, target in links.items():
        _check_link(path, target, links, limits)
    return FileTree(files=files, links=links)


def split_path(name: str, path: str, limits: Limits) -> list[str]:
    """Return the parts of a relative path that an entry of that name states.

    Raises:
        SkillError: It is absolute, spelled for Windows or too deep.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for wrong, found in (
        (path.startswith("/"), f"states the absolute path {path[:_SHOWN]!r}"),
        ("\\" in path, "states a path with a backslash"),
        ("\0" in path, "states a path with a NUL"),
        (any(map(_DRIVE.match, parts)), "states a path with a drive letter"),
        (len(parts) > limits.depth, f"states a path of {len(parts)} names"),
    ):
        if wrong:
            raise refusal(name, found, f"a relative path with / of at most {limits.depth} names")
    return parts


class _Places:
    """Which paths are taken, and how their folders are spelled."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kinds: dict[str, str] = {}
        self._spelled: dict[str, str] = {}

    def claim(self, entry: Entry) -> str:
        """Return the path of an entry that nothing else stands at, above or too near."""
        parts = split_path(entry.name, entry.name, self._limits)
        if ".." in parts:
            raise refusal(entry.name, "leads out of its folder", "a path without `..`")
        if not parts and entry.kind != "folder":
            raise refusal(entry.name, "names no file", "a path")
        path = ""
        for number, part in enumerate(parts, 1):
            path = f"{path}/{part}" if path else part
            self._check_spelling(entry, path)
            if number < len(parts) and self._kinds.setdefault(path, "folder") != "folder":
                raise refusal(entry.name, f"lies below {path!r}", "no entry below a file or a link")
        if path in self._kinds and {self._kinds[path], entry.kind} != {"folder"}:
            raise refusal(entry.name, "occurs twice", "each path once")
        self._kinds[path] = entry.kind
        return path

    def _check_spelling(self, entry: Entry, path: str) -> None:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        other = self._spelled.setdefault(folded, path)
        if other != path:
            raise refusal(
                entry.name, f"differs from {other!r} in case alone", "names that differ on any disk"
            )


def _file(entry: Entry, files: Mapping[str, PackageFile], limits: Limits) -> PackageFile:
    """Return the file that an entry brings; a hard link brings that of an earlier entry."""
    if entry.kind == "file":
        return PackageFile(data=entry.data, executable=entry.executable)
    parts = split_path(entry.name, entry.target, limits)
    earlier = files.get("/".join(parts))
    if earlier is None:
        raise refusal(
            entry.name,
            f"is a hard link to {entry.target[:_SHOWN]!r}",
            "the path of an earlier file",
        )
    return earlier


def _check_link(path: str, target: str, links: Mapping[str, str], limits: Limits) -> None:
    """Follow a link as the system would, through other links, and refuse one that leads out."""
    found = f"is a link to {target[:_SHOWN]!r}"
    at = path.split("/")[:-1]
    pending = split_path(path, target, limits)[::-1]
    hops = 1
    while pending:
        part = pending.pop()
        if part == ".." and not at:
            raise refusal(path, f"{found}, which leads out", "a link to something in the archive")
        if part == "..":
            at.pop()
            continue
        at.append(part)
        onward = links.get("/".join(at))
        if onward is not None:
            hops += 1
            if hops > MAX_HOPS:
                raise refusal(path, f"{found}, on to ever more links", f"at most {MAX_HOPS} links")
            at.pop()
            pending += split_path(path, onward, limits)[::-1]
