"""Programs that behave well and badly, and the traces that they could leave behind."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skillforge.adapters.limited import LimitedPrograms
from skillforge.core.package import PackageFile
from skillforge.core.program import Finished, Limits, Program

PYTHON = (sys.executable, "-I", "-S", "-c")

DETACH = """
import os, sys, time
seen, ready = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("detached", flush=True)
        os.write(ready, b"x")
        time.sleep(3600)
    os._exit(0)
os.read(seen, 1)
os.wait()
"""
"""Forks twice and detaches, as a daemon does; the original goes on with what follows."""


def marker() -> str:
    """Return a text that no other process on this machine has among its arguments."""
    return f"mark-{uuid.uuid4().hex}"


def running(mark: str) -> list[int]:
    """Return the processes that have a text among their arguments; zombies have none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def run(
    *argv: str,
    programs: LimitedPrograms | None = None,
    files: dict[str, bytes] | None = None,
    **limits: Any,
) -> Finished:
    """Run a program to its end, under limits that no good one reaches."""
    laid = {path: PackageFile(data=data) for path, data in (files or {}).items()}
    program = Program(argv=argv, files=laid, limits=Limits(**limits))
    return asyncio.run((programs or LimitedPrograms()).run(program))


def has_namespaces() -> bool:
    """Whether this machine lets users make namespaces."""
    return run(*PYTHON, "pass").confinement == "namespaces"


def needs_namespaces() -> None:
    """Skip a test of what only namespaces can do."""
    if not has_namespaces():
        pytest.skip("this system lets users make no namespaces")


def python(code: str, *arguments: str) -> Sequence[str]:
    """Return the command that runs some Python."""
    return (*PYTHON, code, *arguments)
