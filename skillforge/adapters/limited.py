"""Limited subprocesses: a program in a fresh folder, under limits, with nothing left afterwards.

The work inside is done by `skillforge/adapters/supervisor.py`, a process of its own between this
one and the program. It is told to stop by the end of a socket, which the system closes also where
this process is killed: no program outlives whoever asked for it.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import marshal
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillforge.core.digest import sha256
from skillforge.core.package import PackageFile
from skillforge.core.program import SCRATCH, WORKSPACE, Finished, Limits, Program, Stop
from skillforge.errors import ConfigError

PROCESSES, DESCRIPTORS = 512, 4096
"""Processes and threads at once inside the namespaces, of which the system exempts root; open
files of each process."""

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_MIB = 1 << 20
_STDERR_TAIL = 4096
_PATIENCE = 30.0
"""Seconds for the supervisor to clear up after a program that was told to stop."""
_WEAKER = {
    "subreaper": "this system gives programs no namespaces: those of suites are ended with all "
    "they start, but can read and write what you can, and reach the network",
    "process group": "this system has no namespaces: programs of suites are ended as "
    "a process group, which one that detaches escapes, and can read and write what you can",
}
"""What confinement without namespaces does not prevent."""
_PASSED = ("PATH", "LANG", "TZ")


@dataclass(slots=True, kw_only=True)
class LimitedPrograms:
    """Runs programs in limited subprocesses, as the `Programs` port.

    Inside namespaces (Linux 5.12, where the system lets users make them) a program cannot write
    outside its fresh folder, see other processes, or leave one behind. Elsewhere its processes are
    still ended, but nothing keeps it from writing where the user may; `Finished.confinement`
    says which it was.
    """

    namespaces: bool = True
    """Whether to try namespaces at all."""
    hidden: tuple[Path, ...] = ()
    """Folders that a program inside namespaces sees as empty: library, ledger, suites."""
    note: Callable[[str], None] | None = None
    """Told once where namespaces cannot be had."""
    _noted: bool = False

    def identity(self, name: str) -> str:
        """Return the SHA-256 of the file that the name means; "" where there is none.

        The file of an installed Node package may be the same in all of its versions: its
        ``package.json``, which names the version, is digested with it.
        """
        found = shutil.which(name)
        if found is None:
            return ""
        file = Path(found).resolve()
        inside = "node_modules" in file.parts  # elsewhere a manifest may be of something else
        manifests = (folder / "package.json" for folder in file.parents if inside)
        manifest = next(filter(Path.is_file, manifests), None)
        with file.open("rb") as stream:  # it may be one of hundreds of megabytes
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if manifest is None:
            return digest
        return sha256(f"{digest} {sha256(manifest.read_bytes())}".encode())

    async def run(self, program: Program) -> Finished:
        """Run a program to its end, or until it passes a limit."""
        started = time.monotonic()
        try:
            with _fresh_folder() as scratch:
                argv = [part.replace(SCRATCH, str(scratch)) for part in program.argv]
                environment = _environment(scratch, program.limits)
                _require(argv[0], environment)
                _lay(scratch, program.files)
                order = self._order(scratch, argv, program.limits)
                done = await _supervised(order, environment, program.limits)
                self._say(done.confinement)
                return done
        except OSError as error:
            seconds = time.monotonic() - started
            return Finished(exit_code=None, host=error.strerror or str(error), seconds=seconds)

    def _say(self, confinement: str) -> None:
        """Tell once what namespaces would have prevented."""
        if confinement in _WEAKER and self.note is not None and not self._noted:
            self._noted = True
            self.note(_WEAKER[confinement])

    def _order(self, scratch: Path, argv: Sequence[str], limits: Limits) -> dict[str, Any]:
        """Return what the supervisor is told."""
        return {
            "argv": argv,
            "scratch": str(scratch),
            "workspace": str(scratch / WORKSPACE),
            "hidden": [str(path) for path in self._hideable(scratch)],
            "namespaces": self.namespaces,
            "network": limits.network,
            "timeout": limits.timeout,
            "cpu": int(limits.timeout * (os.cpu_count() or 1)) + 1,
            "disk": limits.disk_mib * _MIB,
            "memory": None if limits.memory_mib is None else limits.memory_mib * _MIB,
            "processes": PROCESSES,
            "descriptors": DESCRIPTORS,
        }

    def _hideable(self, scratch: Path) -> list[Path]:
        """Return what can be hidden: not a folder that holds what runs."""
        needed = [scratch, _SUPERVISOR, *map(Path, (sys.executable, sys.prefix, sys.base_prefix))]
        folders = {path.resolve() for path in self.hidden if path.is_dir()}
        folders = {f for f in folders if not any(n.is_relative_to(f) for n in needed)}
        return [f for f in folders if folders.isdisjoint(f.parents)]


@contextmanager
def _fresh_folder() -> Iterator[Path]:
    """Make the program's folder, outside any repository, and remove it afterwards."""
    scratch = Path(tempfile.mkdtemp(prefix="skillforge-")).resolve()
    try:
        for parent in scratch.parents:
            if (parent / ".git").exists():
                raise ConfigError(
                    f"programs run in fresh folders below {scratch.parent}, but {parent} is a git "
                    "repository, whose files they would find: set TMPDIR to a folder outside it"
                )
        for name in (WORKSPACE, "home", "tmp"):
            (scratch / name).mkdir()
        yield scratch
    finally:
        _remove(scratch)


def _remove(scratch: Path) -> None:
    """Remove a folder, also what its program has made unreadable."""
    for folder, names, _ in os.walk(scratch):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(scratch)


def _lay(scratch: Path, files: Mapping[str, PackageFile]) -> None:
    for path, file in files.items():
        target = scratch / path
        if ".." in target.parts:
            raise ValueError(f"{path!r} leads out of the program's folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
        target.chmod(0o755 if file.executable else 0o644)


def _environment(scratch: Path, limits: Limits) -> dict[str, str]:
    """Return the variables that a program gets; any other of this process stays here."""
    listed = {*_PASSED, *limits.environment}
    given = {n: v for n, v in os.environ.items() if n in listed or n.startswith("LC_")}
    private = {"HOME": str(scratch / "home"), "TMPDIR": str(scratch / "tmp")}
    usual = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return usual | given | private


def _require(program: str, environment: Mapping[str, str], why: str = "") -> None:
    """Refuse a program that is not there; one by a relative path is for the system to find."""
    missing = "/" not in program and shutil.which(program, path=environment["PATH"]) is None
    if missing or why:
        raise ConfigError(
            f"program {program!r} cannot be run{why or ', it is not on PATH'}: install it, or "
            "correct `command` in the suite ({suite}/NAME for a file of its own)"
        )


async def _supervised(
    order: dict[str, Any], environment: Mapping[str, str], limits: Limits
) -> Finished:
    """Start the supervisor, gather what the program writes, and see that both have ended."""
    started = time.monotonic()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(_SUPERVISOR), str(theirs.fileno())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        try:
            told = marshal.dumps(order)
            await asyncio.get_running_loop().sock_sendall(ours, len(told).to_bytes(8) + told)
            stdout, stderr, report = await _gather(process, ours, limits)
        finally:
            await _end(process, ours)
    return _finished(order, report, stdout, stderr, limits, time.monotonic() - started)


async def _gather(
    process: asyncio.subprocess.Process, control: socket.socket, limits: Limits
) -> tuple[bytes, bytes, bytes]:
    """Return stdout up to one byte above its limit, the end of stderr, and the report."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = await asyncio.gather(
        _head(process.stdout, limits.output_kib * 1024, control), _tail(process.stderr)
    )
    report = bytearray()
    while chunk := await asyncio.get_running_loop().sock_recv(control, 4096):
        report += chunk
    return out, err, bytes(report)


async def _head(stream: asyncio.StreamReader, most: int, control: socket.socket) -> bytes:
    """Return what a stream brings; at one byte above the limit its writer is told to stop."""
    kept = bytearray()
    while chunk := await stream.read(1 << 16):
        if len(kept) <= most:
            kept += chunk[: most + 1 - len(kept)]
            if len(kept) > most:
                with suppress(OSError):  # it may have ended by itself just now
                    control.shutdown(socket.SHUT_WR)
    return bytes(kept)


async def _tail(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while chunk := await stream.read(1 << 16):
        kept = (kept + chunk)[-_STDERR_TAIL:]
    return kept


async def _end(process: asyncio.subprocess.Process, control: socket.socket) -> None:
    """Wait for the supervisor; telling it to stop is nothing where it has ended already."""
    control.close()
    try:
        await asyncio.wait_for(process.wait(), _PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()


def _finished(
    order: Mapping[str, Any],
    report: bytes,
    stdout: bytes,
    stderr: bytes,
    limits: Limits,
    seconds: float,
) -> Finished:
    """Turn the supervisor's report into what became of the program."""
    said = stderr.decode(errors="replace")
    if not report:  # it was killed, which nothing but the system does, or is broken
        why = f"the supervisor ended without a report: {said.strip()[-200:]}"
        return Finished(exit_code=None, host=why, seconds=seconds)
    found = marshal.loads(report)  # noqa: S302 - from our own process
    if found["errno"]:
        if found["errno"] not in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
            raise OSError(found["errno"], os.strerror(found["errno"]), order["argv"][0])
        _require(order["argv"][0], {}, f" ({os.strerror(found['errno'])})")
    most = limits.output_kib * 1024
    stopped: Stop = "output" if len(stdout) > most else found["stopped"]
    failed = found["exit_code"] != 0
    lacks = "out of memory" if found["memory"] else "out of disk" if found["full"] else ""
    return Finished(
        exit_code=found["exit_code"],
        stdout=stdout[:most],
        stderr=said,
        files={} if stopped == "disk" else _read(Path(order["workspace"])),
        stopped=stopped,
        host=lacks if failed else "",
        left=found["left"],
        seconds=seconds,
        confinement=found["confinement"],
    )


def _read(folder: Path) -> dict[str, bytes]:
    """Return the regular files below a folder; links are not followed, pipes not opened."""
    files: dict[str, bytes] = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return dict(sorted(files.items()))
