"""A node of a Ray cluster that is lost in the middle of a command."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.light_ray import light_path
from support.small_project import SUITE, event_counts, events, task_rows, write_project, write_suite

EVAL = ("eval", "shout", "--suite", "work", "--tasks", "8", "--json")
PATIENCE = 120.0
"""Seconds after which a test fails instead of waiting for ever."""
HEAD = ("--head", "--port=0", "--include-dashboard=false")
WORKER = """kind = "python"
function = "work:perform"
usd_per_attempt = 0.25
"""
WORK = '''
import json, os, tempfile, time
from pathlib import Path

def perform(text, skills, seed):
    """Tell where the attempt is performed, wait until it may end, and answer by the seed."""
    notes = Path(os.environ["NOTES"])
    where = {"node": os.environ["NODE"], "cwd": os.getcwd(), "home": os.environ["HOME"]}
    handle, path = tempfile.mkstemp(dir=notes)
    with os.fdopen(handle, "w") as note:
        json.dump({**where, "attempt": [text, seed]}, note)
    os.rename(path, path + ".begun")
    while not (notes / "go").exists():
        time.sleep(0.02)
    word = text.split()[-1]
    return word.upper() if seed % 3 else word
'''


def until(met):
    """Wait until a condition is met, and return what it says."""
    end = time.monotonic() + PATIENCE
    while not (found := met()):
        if time.monotonic() > end:
            raise TimeoutError("the condition was never met")
        time.sleep(0.02)
    return found


OPEN = {"RAY_AUTH_MODE": "disabled"}
"""A cluster started before in this process has left it with tokens, of which no HOME here knows."""


class Node:
    """A node of a cluster: a session of processes in a folder of its own, which is its HOME."""

    def __init__(self, name, notes, folder, *arguments):
        self.folder = folder
        self._log = folder.with_suffix(".log")
        folder.mkdir()
        own = {
            "HOME": str(folder),
            "NODE": name,
            "NOTES": str(notes),
            "PYTHONPATH": light_path(notes),
            **OPEN,
        }
        with self._log.open("w") as log:
            self._first = subprocess.Popen(
                [
                    Path(sys.executable).with_name("ray"),
                    "start",
                    "--block",
                    "--disable-usage-stats",
                    "--node-ip-address=127.0.0.1",
                    "--num-cpus=2",
                    f"--object-store-memory={80 << 20}",
                    *arguments,
                ],
                cwd=folder,
                env=os.environ | own,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def started(self):
        """Wait until the node has started, or has given up; return whether it has started."""
        until(lambda: "Ray runtime started" in self.log or self._first.poll() is not None)
        return self._first.poll() is None

    @property
    def log(self):
        """What the node has said."""
        return self._log.read_text()

    def pids(self):
        """Return the processes of the node."""
        listed = subprocess.run(["ps", "-eo", "pid=,sid=,stat="], capture_output=True, text=True)
        rows = [line.split() for line in listed.stdout.splitlines()]
        return [int(p) for p, sid, state in rows if int(sid) == self._first.pid and state[0] != "Z"]

    def kill(self):
        """End all its processes at once, and wait until there are none."""

        def gone():
            for pid in (pids := self.pids()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not pids

        until(gone)
        self._first.wait()


@pytest.fixture
def cluster(tmp_path):
    """Address and second node of a cluster of two, with the folder of what its attempts note."""
    notes = tmp_path / "notes"
    notes.mkdir()
    with ExitStack() as stack:
        short = Path(stack.enter_context(TemporaryDirectory(prefix="ray-")))  # sockets want that
        head = Node("head", notes, tmp_path / "head", *HEAD, f"--temp-dir={short}")
        stack.callback(head.kill)
        if not head.started():
            pytest.skip(f"no node of Ray starts here: {head.log[-300:]}")
        address = re.search(r"--address='([^']+)'", head.log)[1]
        second = Node("second", notes, tmp_path / "second", f"--address={address}")
        stack.callback(second.kill)
        if not second.started():
            pytest.skip(f"no second node of Ray starts beside the first: {second.log[-300:]}")
        yield address, second, notes


def write_work(root, processes):
    """Write a project with a suite of code, trusted; return its folder."""
    write_project(root, "http://127.0.0.1:1", parallel=4)
    head = SUITE.replace('"small"', '"work"').partition("[worker]")[0]
    verifier = '\n[verifier]\nkind = "exact"\n'
    rows = task_rows(["shout"], {"confirm": 8})
    suite = write_suite(root / "suites" / "work", rows, f"{head}[worker]\n{WORKER}{verifier}")
    (suite / "work.py").write_text(WORK, encoding="utf-8")
    trusted = processes.run("suite", "trust", "work", cwd=root)
    assert trusted.code == 0, trusted.stderr
    return root


def noted(notes):
    """Return what attempts have told of where they are performed."""
    return [json.loads(path.read_text()) for path in notes.glob("*.begun")]


def scores(root):
    """Return the score of each rollout, in order of their keys."""
    return sorted((r["key"], r["arm"], r["score"]) for r in events(root, "rollout.finished"))


@pytest.mark.slow
def test_a_node_lost_in_the_middle_of_a_batch_changes_no_result(processes, cluster, tmp_path):
    """What was in flight there is sent again; nothing is lost, nothing counted twice.

    Code of the suite runs on a node that has neither the suite nor a HOME of the user.
    """
    address, second, notes = cluster
    here, there = (write_work(tmp_path / name, processes) for name in ("here", "there"))
    calm = tmp_path / "calm"
    calm.mkdir()
    (calm / "go").touch()
    alone = processes.run(*EVAL, cwd=here, env={"NOTES": str(calm), "NODE": "driver"})

    options = ("--executor", "ray", "--address", address)
    settings = {"SKILLFORGE_EXECUTOR_PROCESSES": "2", **OPEN}
    command = processes.start(*EVAL, *options, cwd=there, env=settings)
    try:
        until(lambda: len(noted(notes)) == 4 or command.poll() is not None)
        before = noted(notes)
        second.kill()
        (notes / "go").touch()
        done = command.wait()
    finally:
        command.kill()

    assert (alone.code, done.code) == (3, 3), done.stderr
    assert {note["node"] for note in before} == {"head", "second"}
    own = str(second.folder)
    lost = [tuple(note["attempt"]) for note in before if note["node"] == "second"]
    assert all((n["cwd"], n["home"]) == (own, own) for n in before if n["node"] == "second")
    tries = Counter(tuple(note["attempt"]) for note in noted(notes))
    assert tries == Counter({attempt: 1 + (attempt in lost) for attempt in tries})
    assert len(tries) == 16
    assert scores(there) == scores(here)
    assert event_counts(there)["rollout.finished"] == 16
    assert done.json["spend"]["usd"] >= (16 + len(lost)) * 0.25
    assert not list(second.folder.rglob("ledger.db"))
