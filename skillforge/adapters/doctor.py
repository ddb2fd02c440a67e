"""Checks whether this machine has what skillforge needs, and says how to get what is missing.

Nothing heavy is loaded and nothing is spent unless ``deep`` is asked for. What other adapters
know (where weights lie, how to call a model) is handed in as functions and ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import io
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skillforge.core.chat import CallFailed, ChatRequest, Message
from skillforge.core.suite_catalog import SuiteEntry
from skillforge.errors import SkillforgeError
from skillforge.ports import ChatModel, Embedder, VectorIndex

PYTHON = (3, 11)
SQLITE = (3, 35, 0)
FREE_BYTES = 500_000_000
PACKAGES = {
    "click": "click",
    "faiss": "faiss-cpu",
    "filelock": "filelock",
    "jinja2": "jinja2",
    "litellm": "litellm",
    "markdown_it": "markdown-it-py",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "polars": "polars",
    "pydantic": "pydantic",
    "yaml": "PyYAML",
    "rich": "rich",
    "sklearn": "scikit-learn",
    "scipy": "scipy",
    "sentence_transformers": "sentence-transformers",
    "torch": "torch",
    "xllamacpp": "xllamacpp",
    "zstandard": "zstandard",
}
"""Import name → what to install."""
EXTRAS = {"ray": "skillforge-evolve[ray]"}
"""The same for what is needed only where it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    """What was found."""
    fix: str = ""
    """What to do; "" where nothing is wrong."""

    def to_json(self) -> dict[str, Any]:
        """Return the check under the names that the command prints."""
        return asdict(self)


def checks(
    *,
    model: str,
    state: Path,
    deep: bool = False,
    weights: Callable[[str], Path] | None = None,
    embedder_weights: Callable[[], Path] | None = None,
    chat: ChatModel | None = None,
    embedder: Embedder | None = None,
    index: Callable[[NDArray[np.float32]], VectorIndex] | None = None,
    packages: Mapping[str, str] = MappingProxyType(PACKAGES),
    extras: Mapping[str, str] = MappingProxyType(EXTRAS),
    needed: Collection[str] = (),
    suites: Sequence[SuiteEntry] = (),
) -> list[Check]:
    """Look at everything, whatever fails; never raises for what it finds.

    Args:
        model: litellm name of the model to check, or ``local/…``.
        state: Folder of the ledger; it need not exist yet, and is not created.
        deep: Also make one completion (which may cost money), one embedding and one search.
        weights: Finds the file of a local model or raises `ConfigError`.
        embedder_weights: Finds and verifies the embedder's files or raises `ConfigError`.
        chat: The model to ask when ``deep``.
        embedder: The embedder to use when ``deep``.
        index: Builds the index to search when ``deep``.
        packages: Import names that must be there → what to install for each.
        extras: The same for those that need not be there.
        needed: Import names of extras that this project asks for.
        suites: Suites that were found.
    """
    found = [_python(), *(_package(name, dist) for name, dist in packages.items())]
    found += [_extra(name, dist, needed=name in needed) for name, dist in extras.items()]
    if model.startswith("local/"):
        if weights is not None:
            found.append(_probe("model weights", lambda: str(weights(model))))
    else:
        found.append(_keys(model))
    if embedder_weights is not None:
        found.append(_probe("embedder weights", lambda: f"{embedder_weights()}, sha256 as pinned"))
    found += [_sqlite(state), _writable(state), _free(state), *map(_suite, suites)]
    if deep:
        found += _deep(chat, embedder, index)
    return found


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    fix = f"install Python {PYTHON[0]}.{PYTHON[1]} or later"
    ok = sys.version_info >= PYTHON
    return Check(name="python", ok=ok, detail=version, fix="" if ok else fix)


def _package(module: str, distribution: str) -> Check:
    if importlib.util.find_spec(module) is None:
        fix = f"run: pip install {distribution}"
        return Check(name=distribution, ok=False, detail="not installed", fix=fix)
    try:
        detail = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        detail = "importable, version unknown"
    return Check(name=distribution, ok=True, detail=detail)


def _extra(module: str, distribution: str, *, needed: bool) -> Check:
    """Look at a package that is needed only where it is asked for; nothing is started."""
    check = replace(_package(module, module), name=f"{module} (extra)")
    if check.ok:
        return check
    how = f"pip install '{distribution}'"
    if not needed:
        return replace(check, ok=True, detail=f"not installed; if you want it: {how}", fix="")
    return replace(check, detail="not installed, but the project asks for it", fix=f"run: {how}")


def _probe(name: str, look: Callable[[], str]) -> Check:
    """Turn a function that returns what it found, or raises what to do, into a check."""
    try:
        return Check(name=name, ok=True, detail=look())
    except (SkillforgeError, CallFailed) as error:
        return Check(name=name, ok=False, detail="failed", fix=str(error))


def _keys(model: str) -> Check:
    """Say which environment variables a provider needs and whether they are set."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    name = f"API key for {model}"
    with contextlib.redirect_stdout(io.StringIO()):  # litellm prints a list of providers
        try:
            litellm.get_llm_provider(model)
        except litellm.exceptions.BadRequestError:
            fix = "use PROVIDER/MODEL as litellm names it, such as openai/gpt-4o-mini"
            return Check(name=name, ok=False, detail="unknown provider", fix=fix)
        missing = litellm.validate_environment(model)["missing_keys"]
    if missing:
        names = ", ".join(missing)
        fix = f"set {names} in the environment"
        return Check(name=name, ok=False, detail=f"not set: {names}", fix=fix)
    return Check(name=name, ok=True, detail="set, or none needed")


def _suite(entry: SuiteEntry) -> Check:
    """Say which worker a suite asks for."""
    name = f"suite {entry.name}"
    if entry.problem:
        return Check(name=name, ok=False, detail="cannot be read", fix=entry.problem)
    return Check(name=name, ok=True, detail=f"{entry.worker} worker, {entry.path}")


def _nearest(path: Path) -> Path:
    """Return the path or the first folder above it that exists."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _sqlite(state: Path) -> Check:
    """Open a throw-away database beside the ledger: WAL depends on the file system."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < SQLITE:
        fix = "use a Python built with SQLite 3.35 or later"
        return Check(name="sqlite", ok=False, detail=version, fix=fix)
    try:
        with tempfile.TemporaryDirectory(dir=_nearest(state), prefix=".doctor-") as folder:
            database = sqlite3.connect(Path(folder) / "wal.db")
            try:
                (mode,) = database.execute("PRAGMA journal_mode=WAL").fetchone()
            finally:
                database.close()
    except (OSError, sqlite3.Error) as error:
        mode = str(error)
    ok = mode == "wal"
    fix = "" if ok else f"put the project on a local file system; {_nearest(state)} has no WAL"
    return Check(name="sqlite", ok=ok, detail=f"{version}, journal mode {mode}", fix=fix)


def _writable(state: Path) -> Check:
    folder = _nearest(state)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            pass
    except OSError as error:
        fix = f"make {folder} writable for this user"
        return Check(name="state folder", ok=False, detail=f"{folder}: {error}", fix=fix)
    return Check(name="state folder", ok=True, detail=f"{folder} is writable")


def _free(state: Path) -> Check:
    folder = _nearest(state)
    free = shutil.disk_usage(folder).free
    ok = free >= FREE_BYTES
    fix = "" if ok else f"free some space on the disk of {folder}: at least {FREE_BYTES / 1e9} GB"
    return Check(name="free disk", ok=ok, detail=f"{free / 1e9:.1f} GB", fix=fix)


def _deep(
    chat: ChatModel | None,
    embedder: Embedder | None,
    index: Callable[[NDArray[np.float32]], VectorIndex] | None,
) -> list[Check]:
    found = []
    if chat is not None:
        found.append(_probe("completion", lambda: _complete(chat)))
    if embedder is not None:
        found.append(
            _probe("embedding", lambda: f"{embedder.encode(['one skill']).shape[1]} numbers")
        )
        if index is not None:
            found.append(_probe("index", lambda: _search(embedder, index)))
    return found


def _complete(chat: ChatModel) -> str:
    """Ask for a few tokens; in a thread, since a notebook has an event loop of its own."""
    request = ChatRequest(messages=(Message(role="user", content="Say hello."),), max_tokens=8)
    with ThreadPoolExecutor(max_workers=1) as thread:
        reply = thread.submit(lambda: asyncio.run(_await(chat, request))).result()
    return f"{reply.completion_tokens} tokens in {reply.seconds:.1f} s, {reply.cost_usd:.6f} USD"


async def _await(chat: ChatModel, request: ChatRequest) -> Any:
    return await chat.complete(request)


def _search(embedder: Embedder, index: Callable[[NDArray[np.float32]], VectorIndex]) -> str:
    """Look for a text among others and expect to find it first."""
    vectors = embedder.encode(["dates in ISO form", "an order number", "a polite reply"])
    _, rows = index(vectors).search(vectors[1:2], 1)
    if int(rows[0, 0]) != 1:
        raise SkillforgeError("the index did not find a vector that it holds; reinstall faiss-cpu")
    return "finds what it holds"
