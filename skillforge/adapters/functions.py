"""Functions that a suite names: ``module:function``, found in its folder first."""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import inspect
import platform
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from skillforge.core.digest import json_digest, sha256
from skillforge.errors import ConfigError

_OWN = "skillforge_suite_"
"""What the names of imported suite modules begin with."""
_folders: set[Path] = set()
"""Of the suites that code was loaded from in this process."""
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of a suite. In another process it is imported there."""

    reference: str
    folder: Path
    setting: str
    call: Callable[..., Awaitable[Any]]
    """Asynchronous, whatever the function is: a plain one runs in a thread of its own."""
    source: str
    """Digest of its module's file; where this stands in the suite's folder, of all code there."""

    @property
    def name(self) -> str:
        """Name of the function within its module."""
        return self.reference.partition(":")[2]

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_again, (self.reference, self.folder, self.setting, self.source)


def load_function(reference: str, folder: Path, setting: str) -> Function:
    """Import a function.

    Args:
        reference: ``module:function``.
        folder: Folder of the suite, searched before everything else.
        setting: What names the function, for messages.

    Raises:
        ConfigError: The module cannot be imported, or it has no such function.
    """
    if not _REFERENCE.fullmatch(reference):
        raise ConfigError(
            f"[worker] {setting} is {reference!r}; expected module:function, such as "
            f"mine:work for the function `work` in {folder / 'mine.py'}"
        )
    module_name, name = reference.split(":")
    module = _import(module_name, folder, f"[worker] {setting} {reference!r}")
    function = getattr(module, name, None)
    if not callable(function):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ConfigError(
            f"[worker] {setting} {reference!r}: {module.__file__} has no function {name!r}; "
            f"it has: {', '.join(known) or 'none'}"
        )
    return Function(
        reference=reference,
        folder=folder,
        setting=setting,
        call=_asynchronous(function),
        source=_source(module, folder.resolve()),
    )


def _load_again(reference: str, folder: Path, setting: str, source: str) -> Function:
    """Import a function in another process, which may be on another machine.

    Raises:
        ConfigError: Its code there is not the code that was trusted.
    """
    function = load_function(reference, folder, setting)
    if function.source != source:
        raise ConfigError(
            f"[worker] {setting} {reference!r}: the code in {folder} on {platform.node()} differs "
            "from the code that the command has loaded; make the folders equal"
        )
    return function


def _import(name: str, folder: Path, what: str) -> ModuleType:
    folder = folder.resolve()
    file = folder / f"{name}.py"
    try:
        with _searched_first(folder):
            return _import_file(name, file) if file.is_file() else importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever a module may do while it is loaded
        raise ConfigError(
            f"{what}: module {name!r} cannot be imported ({type(error).__name__}: {error}); it was "
            f"looked for in {folder}, then in {', '.join(filter(None, sys.path))}; correct its "
            "name or the module"
        ) from error


def _import_file(name: str, file: Path) -> ModuleType:
    """Import a file under a name that tells it from those of other suites and other states."""
    mark = json_digest([str(file.parent), _code_digest(file.parent)])[:16]
    unique = f"{_OWN}{mark}_{name}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = importlib.util.spec_from_file_location(unique, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[unique] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique]
        raise
    return module


@contextmanager
def _searched_first(folder: Path) -> Iterator[None]:
    """Search a folder first, and last from then on, where it can hide no other module.

    What was imported by plain name from the folders of suites is forgotten: it may be another
    suite's, or edited since. Nothing is written into the folder.
    """
    _folders.add(folder)
    others = [entry for entry in sys.path if entry != str(folder)]
    sys.path[:] = [str(folder), *others]
    importlib.invalidate_caches()
    hidden = _take_out({file.stem for file in folder.glob("*.py")})
    writing, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writing
        sys.modules.update(hidden)
        sys.path[:] = [*others, str(folder)]


def _take_out(names: set[str]) -> dict[str, ModuleType]:
    """Take modules of suites out of what is imported, and of others those with these names.

    Returns the latter, to be put back.
    """
    hidden: dict[str, ModuleType] = {}
    for name, module in list(sys.modules.items()):
        suites = Path(getattr(module, "__file__", None) or "/").parent in _folders
        if name.startswith(_OWN) or not (suites or name in names):
            continue
        del sys.modules[name]
        if not suites:
            hidden[name] = module
    return hidden


def _source(module: ModuleType, folder: Path) -> str:
    file = Path(module.__file__ or ".")
    if file.is_relative_to(folder):
        return _code_digest(folder)
    return sha256(file.read_bytes()) if file.is_file() else module.__name__


def _code_digest(folder: Path) -> str:
    files = sorted(folder.rglob("*.py"))
    return json_digest([[f.relative_to(folder).as_posix(), sha256(f.read_bytes())] for f in files])


def _asynchronous(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    if inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        result = await asyncio.wrap_future(_in_thread(functools.partial(function, *args, **kwargs)))
        return await result if inspect.isawaitable(result) else result

    return call


def _in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Run work in a thread of its own, which keeps neither the loop nor the process from ending."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except StopIteration as error:  # a future cannot hold it
            future.set_exception(RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:  # noqa: BLE001 - goes on to whoever waits
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="skillforge-function", daemon=True).start()
    return future
