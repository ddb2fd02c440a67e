"""`skillforge` commands as processes of their own, forked from one that has imported litellm once.

    with ProcessServer({"OPENAI_API_KEY": "test"}) as processes:
        command = processes.start("evolve", "shout", "--suite", "small", cwd=project)
        command.kill()                       # SIGKILL, as `kill -9` sends it
        done = processes.run("replay", "--json", cwd=project)
        done.code, done.stdout, done.stderr

Importing litellm takes seconds; a fork of a process that has done so starts at once. Where the
start of Python itself matters (consoles, signals), tests start ``python -m skillforge`` instead.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

PAUSE, PATIENCE = 0.005, 24_000
"""Seconds between two looks at a command, and looks after which it is killed and the test fails.

Looks are counted and not seconds, so that a machine that was suspended meanwhile fails nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A command that has ended."""

    code: int
    """Exit code, or minus the signal that ended it."""
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that is running."""

    pid: int
    server: ProcessServer
    folder: Path

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; a command that has ended already takes no notice."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def stderr(self) -> str:
        """What the command has printed on stderr so far."""
        return (self.folder / "stderr").read_text(errors="replace")

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        code: int | None = self.server.ask({"poll": self.pid})
        return code

    def kill_when(self, moment: Callable[[], bool], number: int = signal.SIGKILL) -> Done:
        """Send a signal once ``moment`` is true, or the command has ended; return how it ended."""
        while not moment() and self.poll() is None:
            time.sleep(0.0002)
        self.kill(number)
        return self.wait()

    def wait(self) -> Done:
        """Wait for the end and return what was printed."""
        for _ in range(PATIENCE):
            code = self.poll()
            if code is not None:
                out, err = ((self.folder / name).read_text() for name in ("stdout", "stderr"))
                return Done(code=code, stdout=out, stderr=err)
            time.sleep(PAUSE)
        self.kill()
        raise TimeoutError((self.folder / "stderr").read_text(errors="replace"))


class ProcessServer:
    """The process that commands are forked from.

    Args:
        environment: Environment variables of all commands, on top of the present ones.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="skillforge-commands-")
        self._codes: dict[int, int] = {}
        self._started = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def start(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        file_limit: int | None = None,
    ) -> Command:
        """Start a command.

        Args:
            arguments: What follows ``skillforge`` on the command line.
            cwd: Working directory.
            env: Environment variables on top of the present ones.
            file_limit: Bytes beyond which no file of the command can grow, as on a full disk.
        """
        self._started += 1
        folder = Path(self._folder.name) / str(self._started)
        folder.mkdir()
        for name in ("stdout", "stderr"):
            (folder / name).touch()
        order = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "env": dict(env or {}),
            "file_limit": file_limit,
            "folder": str(folder),
        }
        return Command(pid=self.ask(order), server=self, folder=folder)

    def run(self, *arguments: str, cwd: Path, **settings: Any) -> Done:
        """Run a command to its end."""
        return self.start(*arguments, cwd=cwd, **settings).wait()

    def start_call(self, module: str, *arguments: str, cwd: Path, **settings: Any) -> Command:
        """Start the function ``main(arguments)`` of a module in the place of a command."""
        return self.start(*arguments, cwd=cwd, env={"SUPPORT_CALL": module}, **settings)

    def ask(self, order: Mapping[str, Any]) -> Any:
        """Send one order to the process and return its reply."""
        pid = order.get("poll")
        if pid in self._codes:
            return self._codes[pid]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        if pid is not None and reply is not None:
            self._codes[pid] = reply
        return reply

    def __enter__(self) -> ProcessServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()


def _serve() -> None:
    """Fork a command for each order on stdin, and tell how those asked about have ended."""
    from skillforge.adapters.models import load_litellm
    from skillforge.cli.main import COMMANDS

    load_litellm()
    for module, _ in COMMANDS.values():
        importlib.import_module(f"skillforge.cli.{module}")
    gc.collect()
    gc.freeze()  # else each fork goes through, and so copies, what was imported: 0.3 s of CPU
    for line in sys.stdin:
        order = json.loads(line)
        reply = _poll(order["poll"]) if "poll" in order else _fork(order)
        print(json.dumps(reply), flush=True)
    os._exit(0)


def _poll(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def _fork(order: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _perform(order)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _perform(order: Mapping[str, Any]) -> int:
    from skillforge.cli.main import run

    folder = Path(order["folder"])
    for number, name in ((0, os.devnull), (1, "stdout"), (2, "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY
        os.dup2(os.open(name if number == 0 else folder / name, flags), number)
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    if order["file_limit"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_limit"],) * 2)
    if module := order["env"].get("SUPPORT_CALL"):
        return int(importlib.import_module(module).main(order["arguments"]))
    return run(order["arguments"])


if __name__ == "__main__":
    _serve()
