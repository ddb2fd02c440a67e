"""Git repositories as a source of skills: where a checkout stands, and one commit as a tar stream.

Repositories are data. Nothing that one carries or configures is run: no hooks, filters, file
system monitors, submodules or helpers; nobody is asked for a password; the user's configuration is
not read; and every call has a time limit. A commit is never checked out: it is fetched without its
history into a bare repository and streamed, so that whoever reads it counts what comes.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from skillforge.core.file_tree import Limits
from skillforge.core.origin import without_credentials
from skillforge.errors import SkillError

FETCH_SECONDS = 300.0
LOCAL_SECONDS = 60.0
"""Time limits, in seconds, for a fetch and for anything else."""
MAX_PACK = Limits().total
"""Bytes of the largest file that git may write: what it fetches is one."""
_PROTOCOLS = "file:git:http:https:ssh"
_SAID = 2_000
"""Bytes of git's own message that are shown."""
_URL = re.compile(
    r"[a-z][a-z0-9+.-]*://|[\w.+-]+(?::[^/\s]*)?@[\w.-]+:(?!:)|[\w.-]{2,}:(?!:)", re.I
)
"""A scheme, or what ssh calls host and path; one letter before the colon is a drive."""
_PASSED_ON = frozenset(
    {
        *("PATH", "TMPDIR", "SYSTEMROOT", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    }
)
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "credential.helper": "",
    "fetch.unpackLimit": "1",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}
_BYTES_AS_STORED = (
    "* -export-ignore -export-subst -text -eol -ident -filter -working-tree-encoding\n"
)
"""Attributes of a repository of ours; they come before those that the commit brings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """Where a folder under git stands."""

    commit: str
    remote: str
    """Address of the remote named ``origin`` without credentials, or ""."""
    prefix: str
    """The folder's path inside the repository, with a slash at the end, or ""."""
    dirty: bool
    """Whether the folder holds changes that the commit does not."""


def is_address(source: str) -> bool:
    """Tell whether a source is written as the address of a repository.

    >>> [is_address(s) for s in ("https://host/x.git", "git@host:x", "./skills")]
    [True, True, False]
    """
    return bool(_URL.match(source))


def is_bare(folder: Path) -> bool:
    """Tell whether a folder is a bare repository."""
    return (folder / "HEAD").is_file() and all(
        (folder / name).is_dir() for name in ("objects", "refs")
    )


def checkout_root(folder: Path) -> Path | None:
    """Return the top of the working tree that a folder lies in, or None."""
    real = folder.resolve()
    return next((place for place in (real, *real.parents) if (place / ".git").exists()), None)


def read_checkout(folder: Path) -> Checkout | None:
    """Return where a folder stands, or None if its repository holds nothing of it.

    Raises:
        SkillError: git is missing, or cannot say.
    """
    options = {"settings": _without_filters(folder)}
    if not _ask(("ls-files", "-z", "--", "."), folder, **options):
        return None
    status = ("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=all")
    remote = _ask(("config", "--get", "remote.origin.url"), folder, none=1)
    return Checkout(
        commit=_ask(("rev-parse", "--verify", "HEAD^{commit}"), folder),
        remote=without_credentials(remote),
        prefix=_ask(("rev-parse", "--show-prefix"), folder),
        dirty=bool(_ask((*status, "--", "."), folder, **options)),
    )


@contextmanager
def fetch(
    address: str,
    ref: str | None,
    scratch: Path,
    *,
    seconds: float = FETCH_SECONDS,
    most: int = MAX_PACK,
) -> Iterator[tuple[str, IO[bytes]]]:
    """Fetch one commit and yield its hash, and its files byte for byte as a tar stream.

    Args:
        address: URL, or absolute path of a repository on disk.
        ref: Branch, tag or full commit hash; None is the repository's HEAD.
        scratch: A folder to work in, of which the caller disposes.
        seconds: Time limit of the fetch.
        most: Bytes that may be fetched.

    Raises:
        SkillError: git is missing, the repository or the ref is not there, or it took too long.
    """
    if ref is not None and (not ref or ref[0] in "-+^" or re.search(r"[\s:*?\[\\~^]", ref)):
        raise SkillError(f"--ref {ref!r} is no name of a branch, a tag or a commit; write one")
    bare = scratch / "repository"
    bare.mkdir()
    flags = ("--depth=1", "--no-tags", "--no-recurse-submodules", "--quiet")
    _ask(("init", "--quiet", "--bare", "--template=", "."), bare)
    (bare / "info").mkdir(exist_ok=True)
    (bare / "info" / "attributes").write_text(_BYTES_AS_STORED, encoding="utf-8")
    wanted = ("fetch", *flags, "--", address, ref or "HEAD")
    _ask(wanted, bare, seconds=seconds, protocols=_PROTOCOLS, most=most)
    commit = _ask(("rev-parse", "--verify", "FETCH_HEAD^{commit}"), bare)
    with _git(("archive", "--format=tar", commit), bare) as stream:
        yield commit, stream


def _without_filters(folder: Path) -> dict[str, str]:
    """Return settings that switch off the programs a checkout passes its files through."""
    names = ("config", "--name-only", "-z", "--get-regexp", r"^filter\.")
    found = [name for name in _ask(names, folder, none=1).split("\0") if name]
    if odd := [name for name in found if "=" in name]:
        raise SkillError(f"{folder} configures {odd[0]!r}, which cannot be switched off")
    return {name: "false" if name.endswith(".required") else "" for name in found}


def _ask(arguments: Sequence[str], folder: Path, **options: Any) -> str:
    """Run git and return what it says; for the options see `_git`."""
    with _git(arguments, folder, **options) as stream:
        return stream.read().decode(errors="surrogateescape").rstrip("\n")


@contextmanager
def _git(
    arguments: Sequence[str],
    folder: Path,
    *,
    settings: Mapping[str, str] | None = None,
    seconds: float = LOCAL_SECONDS,
    protocols: str = "none",
    most: int = MAX_PACK,
    none: int = 0,
) -> Iterator[IO[bytes]]:
    """Run git in a folder and yield its output. Whatever it is doing, it ends with the block.

    Args:
        arguments: What follows ``git``.
        folder: Where it runs.
        settings: Configuration on top of `_SETTINGS`.
        seconds: Time limit.
        protocols: What it may fetch by.
        most: Bytes of the largest file that it may write.
        none: Exit code, beside 0, that is no error.
    """
    with tempfile.TemporaryFile() as said:
        configured = _SETTINGS | dict(settings or {})
        process = _start(arguments, folder, said, configured, protocols, most)
        timer = threading.Timer(seconds, _kill, [process])
        timer.start()
        try:
            with cast("IO[bytes]", process.stdout) as stream:
                yield stream
            code = process.wait()
        finally:
            timer.cancel()
            _kill(process)
            process.wait()
        if code not in (0, none):
            raise _failed(arguments[0], code, said, seconds)


def _start(
    arguments: Sequence[str],
    folder: Path,
    said: IO[bytes],
    settings: Mapping[str, str],
    protocols: str,
    most: int,
) -> subprocess.Popen[bytes]:
    program = shutil.which("git")
    if program is None:
        raise SkillError("the program git is not on the PATH; install it, then repeat")
    configured = [word for key in settings for word in ("-c", f"{key}={settings[key]}")]
    try:
        return subprocess.Popen(  # noqa: S603 - one argument each, no shell
            [program, *configured, *arguments],
            cwd=folder,
            env=_environment(protocols),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
            preexec_fn=lambda: _limit_files(most),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SkillError(f"{program} cannot be run in {folder}: {error}") from error


def _limit_files(most: int) -> None:
    """Let this process, which is to become git, write no larger file."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _environment(protocols: str) -> dict[str, str]:
    """Return the variables that git gets: few of ours, none of the user's for git."""
    kept = {name: value for name, value in os.environ.items() if name.upper() in _PASSED_ON}
    return kept | {
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill git and the helpers it has started, if it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _failed(what: str, code: int, said: IO[bytes], seconds: float) -> SkillError:
    said.seek(0)
    text = without_credentials(" ".join(said.read(_SAID).decode(errors="replace").split()))
    if code == -signal.SIGKILL:
        text = f"it was stopped after {seconds:g} seconds"
    return SkillError(
        f"git {what} failed: {text or f'exit code {code}'}; check the address, the ref and your "
        "rights (no password is asked for), or import a checkout of your own"
    )
