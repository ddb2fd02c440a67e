"""A program of somebody else: how it is run, within which limits, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from skillforge.core.package import PackageFile

SCRATCH = "\0"
"""Stands in an argument for the program's fresh folder, whose path is known only once it is made.

A NUL cannot occur in an argument otherwise. The folder holds ``workspace`` (where the program
starts), ``home``, ``tmp``, and whatever else the program's files name.
"""

WORKSPACE = "workspace"
"""Folder inside the fresh one in which the program starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a program may use; all of it ends when one is passed."""

    timeout: float = 120.0
    """Seconds, wall clock."""
    memory_mib: int | None = None
    """Memory that it and all it has started may hold together, in MiB; None for no limit. On Linux
    it is what they have written to, pages that they share counted once, looked at about five times
    a second; elsewhere the address space of each process."""
    disk_mib: int = 64
    """What it may add to its fresh folder, in MiB."""
    output_kib: int = 1024
    """What it may write to stdout, in KiB; of stderr only the end is kept."""
    network: bool = True
    """Whether it may reach the network, where the system can take it away."""
    environment: tuple[str, ...] = ()
    """Names of variables that it gets, besides PATH, LANG, LC_* and TZ."""

    def to_json(self) -> dict[str, Any]:
        """Return the limits as one JSON object."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run once, in a fresh folder."""

    argv: tuple[str, ...]
    """Program and arguments; never given to a shell. `SCRATCH` stands for the fresh folder."""
    files: Mapping[str, PackageFile] = field(default_factory=dict, hash=False)
    """What the fresh folder holds at the start, by relative path; see `WORKSPACE`."""
    limits: Limits = Limits()


Stop = Literal["", "timeout", "output", "disk", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What became of a program; nothing that it started is running any more."""

    exit_code: int | None
    """Its exit code, minus the number of the signal that ended it, or None if it never ran."""
    stdout: bytes = b""
    """What it wrote, cut at the limit."""
    stderr: str = ""
    """The end of what it wrote there."""
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """The workspace's regular files, by relative path; none if it passed the disk limit."""
    stopped: Stop = ""
    """The limit that ended it, or ""."""
    host: str = ""
    """Why this machine, and not the program, failed: memory, disk, processes; or ""."""
    left: int = 0
    """Processes that it left running, which were ended."""
    seconds: float = 0.0
    """Wall clock."""
    confinement: str = ""
    """What kept it in: ``namespaces``, ``subreaper`` or ``process group``."""

    def complaint(self, limits: Limits) -> str:
        """Return why the run counts as failed, or "" if the program ended with exit code 0."""
        if self.host:
            return f"this machine failed: {self.host}"
        passed = {
            "timeout": f"it ran longer than {limits.timeout:g} s",
            "output": f"it wrote more than {limits.output_kib} KiB to stdout",
            "disk": f"it wrote more than {limits.disk_mib} MiB to disk",
            "memory": f"it held more than {limits.memory_mib} MiB of memory",
        }
        if self.stopped:
            return passed[self.stopped]
        if not self.exit_code:
            return ""
        ended = f"exit code {self.exit_code}"
        if self.exit_code < 0:
            ended = f"ended by signal {-self.exit_code}"
        said = self.stderr.strip() or self.stdout[-4096:].decode(errors="replace").strip()
        last = said.rpartition("\n")[2]
        return f"{ended}: {last[-200:]}" if last else ended


def is_positive(value: object) -> bool:
    """Whether a value is a finite number above zero."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0  # type: ignore[arg-type, operator]
