"""Functions that a suite names: ``module:function``, found in its code first.

That code is what was read and digested with the suite, and so what was trusted: it is imported from
a private copy, whatever happens to the suite's folder meanwhile, and goes along to other processes.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from skillforge.core.digest import json_digest, sha256
from skillforge.core.task import Code
from skillforge.errors import ConfigError

_OWN = "skillforge_suite_"
"""What the names of imported suite modules begin with."""
_copies: dict[str, TemporaryDirectory[str]] = {}
"""Of the code that this process has loaded functions from; they go with the process."""
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of a suite. In another process it is imported there, from the same code."""

    reference: str
    code: Code
    setting: str
    call: Callable[..., Awaitable[Any]]
    """Asynchronous, whatever the function is: a plain one runs in a thread of its own."""
    source: str
    """Digest of its module's file; where this is the suite's, of all Python code of the suite."""

    @property
    def name(self) -> str:
        """Name of the function within its module."""
        return self.reference.partition(":")[2]

    def __reduce__(self) -> tuple[Any, ...]:
        return load_function, (self.reference, self.code, self.setting)


def load_function(reference: str, code: Code, setting: str) -> Function:
    """Import a function.

    Args:
        reference: ``module:function``.
        code: Code of the suite, which must be trusted; searched before everything else.
        setting: What names the function, for messages.

    Raises:
        ConfigError: The module cannot be imported, or it has no such function.
    """
    if not _REFERENCE.fullmatch(reference):
        raise ConfigError(
            f"[worker] {setting} is {reference!r}; expected module:function, such as "
            f"mine:work for the function `work` in {Path(code.folder) / 'mine.py'}"
        )
    module_name, name = reference.split(":")
    folder = _copy_of(code)
    module = _import(module_name, folder, f"[worker] {setting} {reference!r}", code.folder)
    function = getattr(module, name, None)
    if not callable(function):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ConfigError(
            f"[worker] {setting} {reference!r}: module {module_name!r} in {code.folder} has no "
            f"function {name!r}; it has: {', '.join(known) or 'none'}"
        )
    return Function(
        reference=reference,
        code=code,
        setting=setting,
        call=_asynchronous(function),
        source=_source(module, folder, code),
    )


def _copy_of(code: Code) -> Path:
    """Return a folder of this process alone that holds some code as it was digested."""
    key = json_digest([code.folder, code.digest])
    if key not in _copies:
        copy = TemporaryDirectory(prefix="skillforge-code-", ignore_cleanup_errors=True)
        for name, file in code.files.items():
            path = Path(copy.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            path.chmod(0o700 if file.executable else 0o600)
        _copies[key] = copy
    return Path(_copies[key].name).resolve()


def _import(name: str, folder: Path, what: str, origin: str) -> ModuleType:
    file = folder / f"{name}.py"
    try:
        with _searched_first(folder), redirect_stdout(sys.stderr):
            return _import_file(name, file) if file.is_file() else importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever a module may do while it is loaded
        raise ConfigError(
            f"{what}: module {name!r} cannot be imported ({type(error).__name__}: {error}); it was "
            f"looked for in {origin}, then in {', '.join(filter(None, sys.path))}; correct its "
            "name or the module"
        ) from error


def _import_file(name: str, file: Path) -> ModuleType:
    """Import a file under a name that tells it from those of other suites and other states."""
    unique = f"{_OWN}{sha256(str(file.parent).encode())[:16]}_{name}"
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

    What was imported by plain name from the code of suites is forgotten: it may be another suite's,
    or this one's before it was edited.
    """
    others = [entry for entry in sys.path if entry != str(folder)]
    sys.path[:] = [str(folder), *others]
    importlib.invalidate_caches()
    hidden = _take_out({file.stem for file in folder.glob("*.py")})
    try:
        yield
    finally:
        sys.modules.update(hidden)
        sys.path[:] = [*others, str(folder)]


def _take_out(names: set[str]) -> dict[str, ModuleType]:
    """Take modules of suites out of what is imported, and of others those with these names.

    Returns the latter, to be put back.
    """
    hidden: dict[str, ModuleType] = {}
    folders = {Path(copy.name).resolve() for copy in _copies.values()}
    for name, module in list(sys.modules.items()):
        suites = Path(getattr(module, "__file__", None) or "/").parent in folders
        if name.startswith(_OWN) or not (suites or name in names):
            continue
        del sys.modules[name]
        if not suites:
            hidden[name] = module
    return hidden


def _source(module: ModuleType, folder: Path, code: Code) -> str:
    file = Path(module.__file__ or ".")
    if file.is_relative_to(folder):
        python = {name: sha256(f.data) for name, f in code.files.items() if name.endswith(".py")}
        return json_digest(sorted(python.items()))
    return sha256(file.read_bytes()) if file.is_file() else module.__name__


def _asynchronous(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    plain = not inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        work = functools.partial(function, *args, **kwargs)
        try:
            result = await asyncio.wrap_future(_in_thread(work)) if plain else work()
            return await result if inspect.isawaitable(result) else result
        except BaseException as error:
            task, told = asyncio.current_task(), _for_a_loop(error)
            if told is error or (task is not None and task.cancelling()):
                raise  # as it is, and where whoever waits was called off
            raise told from error

    return call


def _for_a_loop(error: BaseException) -> BaseException:
    """Return what a function raised, as an error where it means something else to an event loop.

    A function that raises `CancelledError` cancels nobody.
    """
    passes = isinstance(error, (Exception, SystemExit, KeyboardInterrupt))
    if passes and not isinstance(error, StopIteration):  # a future cannot hold that
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def _in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Run work in a thread of its own, which keeps neither the loop nor the process from ending."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - goes on to whoever waits
            future.set_exception(_for_a_loop(error))
        else:
            future.set_result(result)

    threading.Thread(target=run, name="skillforge-function", daemon=True).start()
    return future
