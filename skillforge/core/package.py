"""A skill package in memory: every file of the folder, byte for byte, under one content address."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from skillforge.core.digest import canonical_json, json_digest, sha256
from skillforge.core.document import Document, parse_document
from skillforge.core.lines import to_lf
from skillforge.errors import SkillError

_MAGIC = b"skillforge-package 2\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFile:
    """One file of a package."""

    data: bytes
    """The content."""
    executable: bool = False
    """Whether the owner may run it; the only mode bit that counts."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Package:
    """An immutable skill: a name and its files.

    Two packages are equal if name and files are. The version covers the files alone, so that a
    renamed copy is seen to be a copy.

    Raises:
        SkillError: The name or a path is unsafe, two paths collide, or there is no ``SKILL.md``.
    """

    name: str
    """The name of the folder, which by the specification is the skill's name."""
    files: Mapping[str, PackageFile]
    """Relative posix path to file, sorted by path; read-only."""
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        files = dict(sorted(self.files.items()))
        _check_name(self.name)
        for path in files:
            _check_path(self.name, path, files)
        if not any(_is_skill_file(path) for path in files):
            raise SkillError(
                f"skill {self.name!r} has no SKILL.md; add one at the top of its folder"
            )
        object.__setattr__(self, "files", MappingProxyType(files))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.name, dict(self.files))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Package):
            return NotImplemented
        return self.name == other.name and self.files == other.files

    def __hash__(self) -> int:
        return hash((self.name, self.version))

    @property
    def version(self) -> str:
        """64 hex digits over every path, executable bit and content."""
        if "version" not in self._cache:
            rows = [[path, f.executable, sha256(f.data)] for path, f in self.files.items()]
            self._cache["version"] = json_digest(rows)
        return str(self._cache["version"])

    @property
    def short(self) -> str:
        """The first ten digits of the version, for people."""
        return self.version[:10]

    @property
    def skill_file(self) -> str:
        """The path of the ``SKILL.md``: the exact spelling if it is there, else another case."""
        found = [path for path in self.files if _is_skill_file(path)]
        return "SKILL.md" if "SKILL.md" in found else found[0]

    @property
    def document(self) -> Document:
        """The parsed ``SKILL.md``."""
        if "document" not in self._cache:
            path = self.skill_file
            self._cache["document"] = parse_document(self.files[path].data, path)
        document: Document = self._cache["document"]
        return document

    @property
    def description(self) -> str:
        """The description without outer white space; empty if there is none or it is no string."""
        value = self.document.frontmatter.get("description", "")
        return value.strip() if isinstance(value, str) else ""

    @property
    def body(self) -> str:
        """The text of ``SKILL.md`` without frontmatter, line ends as LF: for prompts only."""
        return to_lf(self.document.body)

    def replace_file(self, path: str, data: bytes, *, executable: bool | None = None) -> Package:
        """Return the package with that file added or replaced; its mode is kept unless given."""
        old = self.files.get(path)
        mode = executable if executable is not None else (old.executable if old else False)
        new = PackageFile(data=data, executable=mode)
        return Package(name=self.name, files={**self.files, path: new})

    def without_file(self, path: str) -> Package:
        """Return the package without that file.

        Raises:
            SkillError: There is no such file, or it is the only ``SKILL.md``.
        """
        if path not in self.files:
            raise SkillError(f"skill {self.name!r} has no file {path!r}; it has {list(self.files)}")
        rest = {p: f for p, f in self.files.items() if p != path}
        return Package(name=self.name, files=rest)


def _rebuild(name: str, files: dict[str, PackageFile]) -> Package:
    return Package(name=name, files=files)


def _is_skill_file(path: str) -> bool:
    return path.lower() == "skill.md"


def _check_name(name: str) -> None:
    if not name or name in {".", ".."} or any(c in name for c in "/\\\0") or not _is_text(name):
        raise SkillError(f"{name!r} cannot be the name of a skill; use letters, digits and hyphens")


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _check_path(name: str, path: str, files: Mapping[str, PackageFile]) -> None:
    unsafe = any(part in {"", ".", ".."} for part in path.split("/"))
    if unsafe or "\\" in path or "\0" in path or not _is_text(path):
        raise SkillError(
            f"skill {name!r} holds the path {path!r}; expected a relative path in UTF-8 with "
            "forward slashes and no `..`; rename the file"
        )
    if any(parent in files for parent in _parents(path)):
        raise SkillError(f"skill {name!r} holds {path!r} below another file; rename one of them")


def pack(package: Package) -> tuple[bytes, ...]:
    """Return the package as blobs for a content-addressed store: a manifest, then its files.

    What two versions share is stored once. Nothing is compressed: the output of a compressor
    changes between its versions, and a content address must not. A store may compress.
    """
    rows = [[path, f.executable, sha256(f.data)] for path, f in package.files.items()]
    manifest = canonical_json({"files": rows, "name": package.name}).encode()
    return (_MAGIC + manifest, *(f.data for f in package.files.values()))


def unpack(manifest: bytes, blob: Callable[[str], bytes]) -> Package:
    """Return the package that `pack` wrote.

    Args:
        manifest: The first of its blobs.
        blob: Returns the bytes stored under a SHA-256; what it raises is passed on.

    Raises:
        SkillError: The manifest is none, or is cut or changed.
    """
    name, rows = _read_manifest(manifest)
    files = {path: PackageFile(data=blob(digest), executable=run) for path, run, digest in rows}
    return Package(name=name, files=files)


def manifest_files(blob: bytes) -> tuple[str, ...]:
    """Return the hashes of the files that a manifest of `pack` names; none for any other bytes."""
    if not blob.startswith(_MAGIC):
        return ()
    _, rows = _read_manifest(blob)
    return tuple(digest for _, _, digest in rows)


def _read_manifest(manifest: bytes) -> tuple[str, list[tuple[str, bool, str]]]:
    """Return the name of a package, and path, executable bit and hash of each of its files."""
    try:
        if not manifest.startswith(_MAGIC):
            raise ValueError(f"expected it to start with {_MAGIC.decode().strip()!r}")
        header = json.loads(manifest.removeprefix(_MAGIC))
        rows = [
            (str(path), bool(executable), digest) for path, executable, digest in header["files"]
        ]
        return str(header["name"]), rows
    except (ValueError, TypeError, KeyError) as error:
        raise SkillError(
            f"these {len(manifest)} bytes are no manifest of a skill ({error}); restore them from "
            "a backup"
        ) from error
