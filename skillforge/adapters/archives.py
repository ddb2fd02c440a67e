"""Archives of skills, read into memory with every byte counted as it is decompressed.

What an archive declares of itself is never believed: sizes are counted, names and links are
checked by `skillforge.core.file_tree`, and only plain files, folders and links that stay inside
get through. An archive that breaks one rule is refused whole, before anything is written.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from skillforge.core.file_tree import Entry, FileTree, Limits, arrange, refusal
from skillforge.errors import SkillError

SUFFIXES = (".skill", ".zip", ".tar.gz", ".tgz", ".tar")
"""Endings of file names that are read as archives, in any case."""
_CHUNK = 64 * 2**10
_BLOCK = 512
_LARGEST_READ = 16 * 2**20
"""Bytes asked for at once; only a zip's directory comes near, at 46 and more for each entry."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compression that can be undone piece by piece; the others of a zip have no bound."""
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    ArithmeticError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,  # also too deep a recursion, and what zipfile does not implement
    ValueError,
)
"""What the readers of the standard library raise on bytes that nobody wrote in good faith."""


class Stream(Protocol):
    """Something to read bytes from."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive that was read to its end."""

    tree: FileTree
    sha256: str
    """Of the file itself, 64 hex digits."""


def archive_stem(name: str) -> str | None:
    """Return a file's name without its ending if that is one of an archive, or None.

    >>> archive_stem("pdf-tools.TAR.gz"), archive_stem("notes.txt")
    ('pdf-tools', None)
    """
    ending = next((end for end in SUFFIXES if name.lower().endswith(end)), None)
    return None if ending is None else name[: -len(ending)]


def read_archive(path: Path, limits: Limits | None = None) -> Archive:
    """Read a zip or tar file, whichever its name says.

    Raises:
        SkillError: It is damaged, breaks a rule or a limit; names the entry.
    """
    limits = limits or Limits()
    with _explained(path.name), _Bounded(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limits.total:
            raise SkillError(
                f"the archive has {size} bytes, at most {limits.total} are read; unpack it "
                "yourself and import the folder"
            )
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        meter = _Meter(limits.allowance(size), f"from an archive of {size} bytes")
        if path.name.lower().endswith((".zip", ".skill")):
            entries = _zip_entries(file, meter, limits)
        elif path.name.lower().endswith("gz"):
            entries = _tar_entries(gzip.GzipFile(fileobj=file), meter, limits)
        else:
            entries = _tar_entries(file, meter, limits)
        return Archive(tree=arrange(entries, limits), sha256=digest)


def read_tar(stream: Stream, source: str, limits: Limits | None = None) -> FileTree:
    """Read a tar stream that another program makes.

    Raises:
        SkillError: As `read_archive`.
    """
    limits = limits or Limits()
    with _explained(source):
        return arrange(_tar_entries(stream, _Meter(limits.total, "in all"), limits), limits)


def write_tree(tree: FileTree, folder: Path) -> None:
    """Write a tree into a new folder; links come last, so that nothing is written through one.

    Raises:
        SkillError: The folder exists, or the disk refused.
    """
    try:
        folder.mkdir(parents=True)
        for path, file in tree.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as stream:
                stream.write(file.data)
            target.chmod(0o755 if file.executable else 0o644)
        for path, leads_to in tree.links.items():
            link = folder / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(leads_to)
    except OSError as error:
        raise SkillError(f"the source cannot be unpacked to {folder}: {error}") from error


@dataclass(slots=True)
class _Meter:
    """Counts what comes out of an archive."""

    allowed: int
    of: str
    entry: str = ""
    """The entry that is being read, or the one before while a header is."""
    found: int = 0

    def count(self, size: int) -> None:
        self.found += size
        if self.found > self.allowed:
            raise refusal(
                self.entry,
                f"brings the sum to {self.found} bytes",
                f"at most {self.allowed} {self.of}",
            )


@dataclass(slots=True)
class _Counted:
    """A stream that counts what is read from it, headers included."""

    stream: Stream
    meter: _Meter

    def read(self, size: int) -> bytes:
        data = self.stream.read(size)
        self.meter.count(len(data))
        return data


class _Bounded(io.FileIO):
    """A file of which nobody reads too much at once, as zipfile does with a zip's directory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LARGEST_READ:
            raise SkillError(
                f"the directory of the zip has {size} bytes; expected at most {_LARGEST_READ}; "
                "nothing was taken: unpack it yourself and import the folder"
            )
        return super().read(size) or b""


def _zip_entries(file: IO[bytes], meter: _Meter, limits: Limits) -> Iterator[Entry]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = meter.entry = info.orig_filename  # `filename` is mended already
            mode = info.external_attr >> 16
            kind = stat.S_IFMT(mode)
            if info.flag_bits & _ENCRYPTED:
                raise refusal(name, "is encrypted", "plain files")
            if info.compress_type not in _METHODS:
                raise refusal(name, f"is compressed by method {info.compress_type}", "0 or 8")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                raise refusal(name, "is a device, pipe or socket", "files, folders and links")
            if name.endswith("/") or kind == stat.S_IFDIR:
                yield Entry(name=name, kind="folder")
                continue
            data = _unzip(archive, info, meter, limits)
            if kind == stat.S_IFLNK:
                yield Entry(name=name, kind="link", target=data.decode())
            else:
                yield Entry(name=name, kind="file", data=data, executable=bool(mode & 0o100))


def _unzip(archive: zipfile.ZipFile, info: zipfile.ZipInfo, meter: _Meter, limits: Limits) -> bytes:
    content, most = bytearray(), f"at most {limits.file} in one file"
    with archive.open(info) as stream:
        while chunk := stream.read(_CHUNK):
            meter.count(len(chunk))
            content += chunk
            if len(content) > limits.file:
                raise refusal(info.orig_filename, f"has {len(content)} bytes and more", most)
    return bytes(content)


def _tar_entries(stream: Stream, meter: _Meter, limits: Limits) -> Iterator[Entry]:
    counted: Any = _Counted(stream, meter)  # tarfile asks for more methods than it calls
    with tarfile.open(fileobj=counted, mode="r|", bufsize=_BLOCK) as archive:
        for member in archive:
            meter.entry = member.name
            yield _tar_entry(archive, member, limits)
    # The reader ends at the first block that is no header; what follows must be padding.
    while rest := counted.read(_CHUNK):
        if rest.strip(b"\0"):
            raise refusal(meter.entry, "is followed by bytes that are no entry", "a sound archive")


def _tar_entry(archive: tarfile.TarFile, member: tarfile.TarInfo, limits: Limits) -> Entry:
    name = member.name
    if member.isdir():
        return Entry(name=name, kind="folder")
    if member.issym():
        return Entry(name=name, kind="link", target=member.linkname)
    if member.islnk():
        return Entry(name=name, kind="hardlink", target=member.linkname)
    if not member.isreg() or member.issparse():
        raise refusal(name, "is a device, pipe or sparse file", "files, folders and links")
    if member.size > limits.file:
        raise refusal(name, f"has {member.size} bytes", f"at most {limits.file} in one file")
    content = archive.extractfile(member)
    data = content.read() if content else b""
    return Entry(name=name, kind="file", data=data, executable=bool(member.mode & 0o100))


@contextmanager
def _explained(source: str) -> Iterator[None]:
    """Name the source in every error, and turn those of the readers into ones that say it."""
    try:
        yield
    except SkillError as error:
        raise SkillError(f"{source}: {error}") from error
    except _DAMAGED as error:
        raise SkillError(
            f"{source}: this is no sound archive ({type(error).__name__}: {error}); nothing was "
            "taken: fetch or pack it again"
        ) from error
