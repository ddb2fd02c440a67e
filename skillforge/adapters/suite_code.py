"""The files of a suite's folder besides its two tables: the tasks' own, and the code that may run.

They are read once, with the suite. What was digested, and trusted, is then what runs, whatever
happens to the folder meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from skillforge.core.committee import members
from skillforge.core.digest import json_digest, sha256
from skillforge.core.package import PackageFile
from skillforge.core.program import Limits
from skillforge.core.task import Code, Suite, Task, VerifierSpec, WorkerSpec
from skillforge.core.verify import CODE_KINDS, limits_of, runs_code
from skillforge.errors import SuiteError

MAX_CODE = 64 * 1024 * 1024
"""Bytes of a folder whose code runs: it is copied anew for each program."""

SUITE_TABLES = ("suite.toml", "tasks.jsonl")
"""The two tables of a suite: no program gets to see them, for they hold the answers."""


def read_task_file(folder: Path, name: str) -> bytes:
    """Return the content of a file that a task names.

    Raises:
        SuiteError: The path is absolute, leads out of the folder (also over a link), names one of
            the suite's own two files, or nothing that can be read.
    """
    path, root = PurePosixPath(name), folder.resolve()
    found = (root / path).resolve()
    if path.is_absolute() or ".." in path.parts or "\\" in name or not found.is_relative_to(root):
        raise SuiteError(
            f"file {name!r} leads out of the suite's folder; expected a relative path inside it; "
            "copy the file there"
        )
    if found.relative_to(root).as_posix() in SUITE_TABLES:
        raise SuiteError(f"file {name!r} holds the suite's answers; give the task another file")
    if not found.is_file():
        raise SuiteError(f"file {name!r} is not in the suite's folder; add it, or correct the path")
    try:
        return found.read_bytes()
    except OSError as error:
        raise SuiteError(f"file {name!r} cannot be read ({error.strerror}); mend that") from error


def bind_code(folder: Path, suite: Suite, tables: Mapping[str, bytes]) -> Suite:
    """Bind the suite, and each verifier that runs its code, to that code and the tasks' files.

    Args:
        folder: Folder of the suite.
        suite: The suite as it was read.
        tables: The bytes that it was read from, by file name.

    Raises:
        SuiteError: As `read_code` does.
    """
    code = read_code(folder, suite.worker, suite.tasks, tables)
    own = files_digest(code.files) if code is not None else ""
    tasks = [
        replace(task, verifier=replace(task.verifier, code=own))
        if runs_code(task.verifier)
        else task
        for task in suite.tasks
    ]
    bound = [own, *(task.digest for task in tasks if task.files)]
    digest = json_digest([suite.digest, *bound]) if any(bound) else suite.digest
    return replace(suite, tasks=tuple(tasks), code=code, digest=digest)


def read_code(
    folder: Path,
    worker: WorkerSpec,
    tasks: Sequence[Task],
    tables: Mapping[str, bytes] = MappingProxyType({}),
) -> Code | None:
    """Return what of a suite runs on this machine, or None if nothing does.

    Args:
        folder: Folder of the suite.
        worker: Its worker.
        tasks: Its tasks.
        tables: The bytes that these two were read from, by file name.

    Raises:
        SuiteError: Code would run, and the folder holds a link out of it, is too large, cannot be
            read or changes meanwhile, or a function's module is not in it.
    """
    verifiers = {json_digest(m.to_json()): m for t in tasks for m in members(t.verifier)}
    running = [spec for spec in verifiers.values() if spec.kind in CODE_KINDS]
    parts = [*_worker_parts(worker), *map(_verifier_part, running)]
    if not parts:
        return None
    every = _folder_files(folder)
    _require_unchanged(folder, every, tables, tasks)
    files = {path: file for path, file in every.items() if path not in SUITE_TABLES}
    for spec in running:
        if spec.kind == "python":
            _require_module(folder, files, spec.options["function"])
    return Code(
        parts=tuple(dict.fromkeys(parts)),
        folder=str(folder.resolve()),
        files=files,
        digest=files_digest(every),
    )


def files_digest(files: Mapping[str, PackageFile]) -> str:
    """Return the SHA-256 over paths, contents and executable bits."""
    return json_digest({path: [sha256(f.data), f.executable] for path, f in files.items()})


def _require_unchanged(
    folder: Path,
    every: Mapping[str, PackageFile],
    tables: Mapping[str, bytes],
    tasks: Sequence[Task],
) -> None:
    """Refuse a folder in which something is no more what has been read: digests cover both."""
    read = [*tables.items(), *(item for task in tasks for item in task.files.items())]
    for path, data in read:
        found = every.get(PurePosixPath(path).as_posix())
        if found is None or found.data != data:
            raise SuiteError(
                f"{folder / path} changed while the suite was being read; run the command again"
            )


def _verifier_part(spec: VerifierSpec) -> str:
    what = spec.options["function"] if spec.kind == "python" else spec.options["command"]
    return f"verifier {spec.kind}: {_shown(what)}{_reach(limits_of(spec.options))}"


def _reach(limits: Limits) -> str:
    """Say what a program gets of the outside."""
    given = [*limits.environment, *(["the network"] if limits.network else [])]
    return f" (gets {', '.join(given)})" if given else ""


def _worker_parts(worker: WorkerSpec) -> list[str]:
    parts = []
    if worker.command:
        parts.append(f"worker {worker.kind}: {_shown(worker.command)}{_reach(worker.limits)}")
    if worker.function is not None:
        parts.append(f"worker {worker.kind}: {worker.function}")
    tools = (*worker.tools, *([worker.state] if worker.state else []))
    return parts + [f"tool: {tool}" for tool in tools]


def _shown(what: str | Sequence[str]) -> str:
    return what if isinstance(what, str) else " ".join(map(repr, what))


def _require_module(folder: Path, files: Mapping[str, PackageFile], function: str) -> None:
    module = function.partition(":")[0].replace(".", "/")
    if f"{module}.py" not in files and f"{module}/__init__.py" not in files:
        raise SuiteError(
            f"verifier 'python' calls {function!r}, but {folder} holds no {module}.py; add it, or "
            "correct `function`"
        )


def _folder_files(folder: Path) -> dict[str, PackageFile]:
    """Return every file of a folder but compiled ones, sorted by path."""
    files: dict[str, PackageFile] = {}
    root, left = folder.resolve(), MAX_CODE
    for parent, folders, names in os.walk(root):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        for path in (Path(parent, name) for name in [*names, *folders]):
            if path.is_symlink():
                _check_link(root, path)
            if path.is_dir():
                continue
            file = _read(path, left)
            left -= len(file.data)
            files[path.relative_to(root).as_posix()] = file
    return dict(sorted(files.items()))


def _check_link(root: Path, path: Path) -> None:
    target = path.resolve()
    if not target.is_relative_to(root) or not target.is_file():
        raise SuiteError(
            f"{path} is a link to {target}; a suite whose code runs may link to files of its own "
            "folder only; copy what it needs there"
        )


def _read(path: Path, left: int) -> PackageFile:
    try:
        found = path.stat()
        if not path.is_file() or found.st_size > left:
            raise SuiteError(
                f"{path} is no regular file, or brings the suite's folder above "
                f"{MAX_CODE >> 20} MiB, all of which is copied for each program; move it elsewhere"
            )
        return PackageFile(data=path.read_bytes(), executable=bool(found.st_mode & 0o100))
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}; expected a readable file") from error
