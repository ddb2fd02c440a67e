"""Opens a project: the one place where adapters are chosen and put together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.ledger import SqliteLedger
from skillforge.adapters.ledger_check import check_log
from skillforge.adapters.project import FILE, Project, find_project, load_project
from skillforge.adapters.stat_cache import StatCache
from skillforge.cli.lock import ProjectLock
from skillforge.errors import ConfigError, LedgerError
from skillforge.workflows.curate import Curator

if TYPE_CHECKING:
    from skillforge.core.package import Package
    from skillforge.core.task import Suite
    from skillforge.ports import ChatModel, Embedder
    from skillforge.workflows.retrieve import Retriever

CACHE_MIB = 256
"""Main memory for the prompt prefixes of arms that are not in a slot just now."""


@dataclass(slots=True, kw_only=True)
class Session:
    """An open project with its parts."""

    project: Project
    state: Path
    """Folder of ledger and index; of a project that is only to be read, a copy of it."""
    ledger: SqliteLedger
    library: FolderLibrary
    curator: Curator
    notes: tuple[str, ...] = field(default=())
    """What opening did to bring ledger and folder in step."""

    def suite(self, name: str) -> Suite:
        """Load a suite by name, from the project's folders or the shipped ones."""
        from skillforge.adapters.suites import find_suite, load_suite

        return load_suite(find_suite(name, self.suite_roots))

    @property
    def suite_roots(self) -> tuple[Path, ...]:
        """Folders that suites are looked for in."""
        from skillforge.adapters.shipped import shipped_suites

        mine = [self.project.root / path for path in self.project.settings.suites.paths]
        return (*[path for path in mine if path.is_dir()], shipped_suites())

    def retriever(self, packages: Mapping[str, Package] | None = None) -> Retriever:
        """Embed and index some packages, the served library by default.

        The index of the served library is kept in a file that knows what it was built from; a stale
        one is built anew.
        """
        from skillforge.adapters.index import load_index, open_index
        from skillforge.workflows.retrieve import Retriever, build_retriever, corpus_digest

        shown = self.curator.served() if packages is None else dict(packages)
        embedder = make_embedder(self.project.settings.embedding.model)
        path, fingerprint = self.state / "index.faiss", corpus_digest(shown, embedder)
        kept = load_index(path, fingerprint)
        if kept is not None:
            index, names = kept
            return Retriever(
                packages=shown, embedder=embedder, names=names, vectors=index.vectors, index=index
            )
        built = build_retriever(shown, embedder, open_index)
        if self._is_served(shown):  # not one that is only tried out
            open_index(built.vectors).save(path, ids=built.names, fingerprint=fingerprint)
        return built

    def _is_served(self, packages: Mapping[str, Package]) -> bool:
        state = self.curator.state
        served = {name: state.skill(name).current for name in state.served}
        return served == {name: package.version for name, package in packages.items()}


def make_model(
    project: Project,
    name: str | None,
    api_base: str | None,
    suite_prices: Mapping[str, Any] = MappingProxyType({}),
) -> ChatModel:
    """Return a chat model behind litellm; the embedded one is registered with it first.

    Args:
        project: Says what is not said here, and prices, which win over those of the suite, which
            win over litellm's list.
        name: A litellm name or ``local/…``; None is the project's worker.
        api_base: Address of an OpenAI-compatible endpoint; None is the project's, "" the
            provider's own.
        suite_prices: What a suite states, by model.
    """
    from skillforge.adapters.models import LitellmModel

    settings = project.settings
    chosen = name or settings.model.worker
    identity = ""
    if chosen.startswith("local/"):
        from skillforge.adapters import local_model

        served = local_model.LocalSettings(
            slots=settings.model.parallel,
            context=settings.model.context,
            cache_mib=CACHE_MIB,
            deterministic=settings.model.deterministic,
        )
        local_model.register(served)
        identity = local_model.identity(chosen, served)
    return LitellmModel(
        chosen,
        api_base=(settings.model.api_base if api_base is None else api_base) or None,
        prices=settings.prices.get(chosen) or suite_prices.get(chosen),
        identity=identity,
    )


@lru_cache(maxsize=2)
def make_embedder(model: str) -> Embedder:
    """Return the embedder of that name; its weights are loaded once per process."""
    from skillforge.adapters.embedder import SentenceEmbedder
    from skillforge.workflows.retrieve import KeptEmbedder

    return KeptEmbedder(SentenceEmbedder(model))


@contextmanager
def open_session(
    folder: Path | None, *, write: bool = False, dry_run: bool = False
) -> Iterator[Session]:
    """Open the project at or above a folder and bring its ledger and folder in step.

    Args:
        folder: The project's folder; None looks from the working directory upwards.
        write: Whether the command changes anything; then it must be the only one that does. A
            reading command goes on without bringing things in step where another one writes or
            where nothing can be written, and keeps no other from writing once things are in step.
        dry_run: Whether it only says what it would do: then it is a reading command, and where
            there is no state yet, or none that can be written, things are in step in a copy.

    Raises:
        ConfigError: There is no project here.
        LedgerError: Another command is writing, or the ledger cannot be opened.
    """
    project, write = open_project(folder), write and not dry_run
    with ExitStack() as stack:
        state, lock, alone = project.state, ProjectLock(project.state), False
        if is_read_only(state) or (dry_run and not state.exists()):
            state = stack.enter_context(copy_to_read(state, write=write))
        else:
            stack.callback(lock.release)
            alone = lock.acquire(project.settings.library.lock_seconds if write else 0)
            if write and not alone:
                raise LedgerError(
                    f"{state}: {lock.holder()} is writing to this project; wait for it to end, "
                    "then repeat, or set SKILLFORGE_LIBRARY_LOCK_SECONDS to wait for longer"
                )
        if alone or state != project.state:
            check_log(state / "ledger.db")
        ledger = SqliteLedger(state / "ledger.db")
        stack.callback(ledger.close)
        library = FolderLibrary(project.library, mend=alone, stats=StatCache(state / "stats.json"))
        session = Session(
            project=project,
            state=state,
            ledger=ledger,
            library=library,
            curator=Curator(ledger=ledger, library=library),
        )
        if alone:
            session.notes = session.curator.sync()
            for note in session.notes:
                click.echo(f"note: {note}", err=True)
            if not write:
                lock.release()
        elif dry_run and state != project.state:
            session.curator.sync(finish=False)
        yield session


def is_read_only(state: Path) -> bool:
    """Whether nothing can, or by its permissions may, be written: those bind no superuser."""
    places = [place for place in (state, state / "ledger.db") if place.exists()] or [state.parent]
    return any(not os.access(p, os.W_OK) or not p.stat().st_mode & 0o222 for p in places)


@contextmanager
def copy_to_read(state: Path, *, write: bool = False) -> Iterator[Path]:
    """Copy the state of a project that cannot be written to, for as long as it is read.

    SQLite reads a file in place only where it may write beside it, or if nothing is left in its
    write-ahead log; and an older ledger is migrated when it is opened.

    Raises:
        LedgerError: The command would write.
    """
    if write:
        raise LedgerError(
            f"{state} cannot be written to: make it writable, or copy the project elsewhere"
        )
    with TemporaryDirectory(prefix="skillforge-") as copy:
        for file in state.iterdir() if state.is_dir() else ():
            if file.is_file():
                copyfile(file, Path(copy) / file.name)
        if state.is_dir():
            said = f"note: {state} cannot be written to; the ledger is read as it stands"
            click.echo(said, err=True)
        yield Path(copy)


def open_project(folder: Path | None) -> Project:
    """Read the project at or above a folder; None looks from the working directory upwards.

    Raises:
        ConfigError: There is no project here, or its file is wrong.
    """
    root = folder or find_project(Path.cwd())
    if root is None:
        raise ConfigError(
            f"no {FILE} in {Path.cwd()} or above it: run `skillforge init`, or name the folder "
            "with --project"
        )
    return load_project(root, os.environ)
