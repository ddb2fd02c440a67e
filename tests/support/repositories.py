"""Real git repositories for tests, made by the git program without the user's configuration."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": f"{who.lower()}@example.org" for who in ("AUTHOR", "COMMITTER")
       for what in ("NAME", "EMAIL")},
}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return what it says."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit_all(folder: Path, message: str = "State") -> str:
    """Commit everything below a folder, making it a repository if need be; return the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def bare_copy(folder: Path, target: Path) -> Path:
    """Return a bare clone of a repository."""
    git(folder, "clone", "--quiet", "--bare", ".", os.fspath(target))
    return target
