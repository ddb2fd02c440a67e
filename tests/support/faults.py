"""File operations that end at the n-th one, and the writes of a library to try them on.

    dying = FaultyOps(5, die)            # at the fifth operation the process is no more: `Dead`
    full = FaultyOps(5, disk_full)       # at the fifth operation, and only there, ENOSPC

A write that is hit leaves half of its bytes. Run as a program, this file is a process that really
ends: for each way to change a library it forks a child per operation, which leaves through
``os._exit`` there, and keeps what each has left behind.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from support.world import World, skill

from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.folder_writes import FileOps
from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.events import NewEvent
from skillforge.core.package import Package
from skillforge.workflows.curate import Curator


class Dead(BaseException):
    """Stands for the end of the process: nothing is to catch it."""


def die() -> None:
    """End like a killed process, but in a way that a test can see."""
    raise Dead


def leave() -> None:
    """End the process at once."""
    os._exit(9)


def disk_full() -> None:
    """Refuse like a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def denied() -> None:
    """Refuse like a folder without rights."""
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


class FaultyOps:
    """`FileOps` with a fault at one operation; one that has died does nothing more."""

    def __init__(self, at: int, fault: Callable[[], None]) -> None:
        self.at, self.fault, self.count = at, fault, 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return an operation that counts itself."""

        def operation(*arguments: object, **named: object) -> None:
            self.count += 1
            hit = self.count == self.at
            if hit and name == "write":
                path, data = arguments
                path.write_bytes(data[: len(data) // 2])
            if hit or (self.count > self.at and self.fault is die):
                self.fault()
            getattr(FileOps(), name)(*arguments, **named)

        return operation


A = (
    skill("ask", "# One\n")
    .replace_file("scripts/run", b"#!/bin/sh\n" * 50, executable=True)
    .replace_file("references/deep/a.md", b"first\r\n")
)
B = (
    skill("ask", "# Two\n")
    .replace_file("scripts/run", b"#!/bin/sh\n" * 60, executable=False)
    .replace_file("assets/x.bin", bytes(range(256)))
)
OTHERS = {
    ".git/HEAD": b"ref: refs/heads/main\n",
    "node_modules/p/index.js": b"1",
    "references/node_modules/q.js": b"2",
    "sub/SKILL.md": skill("sub", "# Nested\n").files["SKILL.md"].data,
}
"""Files in the skill's folder that are no part of it."""


@contextmanager
def opened(root: Path, ops: object = None) -> Iterator[World]:
    """Open the library in a folder."""
    library = FolderLibrary(root / "skills", ops=ops)
    ledger = SqliteLedger(root / ".skillforge" / "ledger.db")
    try:
        yield World(
            root=root,
            ledger=ledger,
            library=library,
            curator=Curator(ledger=ledger, library=library),
        )
    finally:
        ledger.close()


def write_package(folder: Path, package: Package) -> None:
    """Put a package into a folder as a user's editor would."""
    for path, file in package.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file.data)
        (folder / path).chmod(0o755 if file.executable else 0o644)


def two_versions(root: Path) -> None:
    """Make a library whose skill has come from A to B, amid files that are not the skill's."""
    folder = root / "skills" / "ask"
    write_package(folder, A)
    for path, data in OTHERS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / ".git" / "refs").mkdir()  # git takes a repository without it for none
    (folder / "elsewhere").symlink_to("../nowhere")
    with opened(root) as world:
        world.curator.sync()
    for path in A.files:
        (folder / path).unlink()
    (folder / "references" / "deep").rmdir()
    write_package(folder, B)
    with opened(root) as world:
        world.curator.sync()
        assert world.curator.state.skill("ask").current == B.version


def stage(curator: Curator) -> None:
    """Stage A on B."""
    names = {"run": "r", "candidate": "c", "evidence": "probation"}
    curator.stage("ask", A.version, base=B.version, **names)


def adopt_without_writing(curator: Curator) -> None:
    """Leave the library as a crash between an adoption and its folder write does."""
    data = {"skill": "ask", "version": A.version, "parent": B.version, "evidence": "probation"}
    curator.ledger.append([NewEvent(kind="version.adopted", data=data)])


CHANGES: dict[str, tuple[Callable[[Curator], object], Callable[[Curator], object]]] = {
    "write": (lambda c: None, lambda c: c.bring_in(Package(name="more", files=A.files), {})),
    "replace": (adopt_without_writing, lambda c: c.sync()),
    "remove": (lambda c: None, lambda c: c.retire("ask", evidence={}, reason="test")),
    "restore": (lambda c: c.retire("ask", evidence={}, reason="test"), lambda c: c.restore("ask")),
    "rollback": (lambda c: None, lambda c: c.roll_back("ask", reason="test")),
    "adopt": (stage, lambda c: c.adopt("ask")),
}
"""What comes before each change of a library at version B, and the change itself."""


def prepare(root: Path, change: str) -> Path:
    """Make a library in which a change can be made; return its folder."""
    two_versions(root)
    with opened(root) as world:
        CHANGES[change][0](world.curator)
    return root


def tree(folder: Path) -> dict[str, object]:
    """Return all below a folder: bytes and mode of files, targets of links, empty folders."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        elif not any(path.iterdir()):
            found[name] = None
    return found


def recorded_tree(curator: Curator) -> dict[str, object]:
    """Return what the folder must hold: what the ledger serves, and what is no skill's."""
    found: dict[str, object] = {f"ask/{path}": (data, False) for path, data in OTHERS.items()}
    found |= {"ask/.git/refs": None, "ask/elsewhere": "../nowhere"}
    for name, package in curator.served().items():
        folder = "ask/sub" if name == "sub" else name
        for path, file in package.files.items():
            found[f"{folder}/{path}"] = (file.data, file.executable)
    return dict(sorted(found.items()))


def _fork_through(base: Path, out: Path) -> None:
    """Make each change again and again, one operation further every time, in children that end."""
    for change in CHANGES:
        for at in count(1):
            root = out / change / str(at)
            shutil.copytree(base / change, root, symlinks=True)
            pid = os.fork()
            if not pid:
                with opened(root, FaultyOps(at, leave)) as world:
                    CHANGES[change][1](world.curator)
                os._exit(0)
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
                break


if __name__ == "__main__":
    _fork_through(Path(sys.argv[1]), Path(sys.argv[2]))
