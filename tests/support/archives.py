"""Archives made entry by entry, so that they can hold what no packing program would write."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SKILL = b"---\nname: %s\ndescription: Does a thing for a test.\n---\n\n# Rule\n\nBe brief.\n"
FORMATS = ("zip", "tar.gz")


@dataclass(frozen=True)
class Member:
    """One entry: a file unless it says otherwise."""

    name: str
    data: bytes = b""
    kind: str = "file"
    """``file``, ``folder``, ``link``, ``hardlink``, ``fifo`` or ``device``."""
    target: str = ""
    executable: bool = False


def skill(name: str, folder: str = "") -> Member:
    """Return the SKILL.md of a sound skill, in a folder of its name by default."""
    return Member(f"{folder or name}/SKILL.md", SKILL % name.encode())


def pack(path: Path, members: Sequence[Member]) -> Path:
    """Write an archive of the format that the path's name says."""
    if path.name.endswith((".zip", ".skill")):
        _zip(path, members)
    elif path.name.endswith(".tar"):
        path.write_bytes(tar_bytes(members))
    else:
        path.write_bytes(gzip.compress(tar_bytes(members), mtime=0))
    return path


_TAR_TYPES = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
}


def tar_bytes(members: Sequence[Member]) -> bytes:
    """Return a tar stream."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.type, info.linkname = _TAR_TYPES[member.kind], member.target
            info.size = len(member.data) if member.kind == "file" else 0
            info.mode = 0o755 if member.executable else 0o644
            archive.addfile(info, io.BytesIO(member.data))
    return out.getvalue()


_ZIP_TYPES = {
    "file": stat.S_IFREG,
    "folder": stat.S_IFDIR,
    "link": stat.S_IFLNK,
    "fifo": stat.S_IFIFO,
    "device": stat.S_IFCHR,
}


def _zip(path: Path, members: Sequence[Member]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            info = zipfile.ZipInfo("x")
            info.filename = member.name  # the constructor would mend it
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if member.executable else 0o644
            info.external_attr = (_ZIP_TYPES[member.kind] | mode) << 16
            data = member.target.encode() if member.kind == "link" else member.data
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # duplicate names are wanted
                archive.writestr(info, data)
