"""`kill -9` at any moment, then the same command again: nothing is lost, repeated or half done."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support import small_project
from support.processes import ProcessServer
from support.small_project import (
    SKILLS,
    event_counts,
    events,
    folder_bytes,
    write_project,
    write_skill,
)

from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.library_fold import FOLDED, fold
from skillforge.core.package import unpack

PARALLEL, WAVE = 4, 8
EVOLVE = ("evolve", "mumble", "--suite", "small", "--json")
STEPS = (
    "skill.imported",
    "proposals.made",
    "candidate.screened",
    "gate.registered",
    "gate.decided",
    "neighbours.registered",
    "neighbours.decided",
    "version.staged",
    "version.adopted",
    "folder.written",
)
"""Events at which a step of `evolve` ends and the next one begins."""
FILES = 150
"""Files of a skill that is large enough for a kill to come while its folder is being written."""


@pytest.fixture(scope="module")
def undisturbed(server, processes, tmp_path_factory) -> Path:
    """A project in which `evolve` has run to its end in one go."""
    root = write_project(tmp_path_factory.mktemp("undisturbed") / "project", server.url)
    done = processes.run(*EVOLVE, cwd=root)
    assert done.code == 0, done.stderr
    assert done.json["adopted"]
    return root


def moments(root: Path) -> list[tuple[str, int, float]]:
    """Return when to kill, in the order in which a whole run meets the moments.

    Each is kind and number of the event to wait for, and seconds to wait after it: nine random
    rollouts, and the first event of each step.
    """
    rng = random.Random(20240601)
    kinds = small_project.event_kinds(root)
    rollouts = [at for at, kind in enumerate(kinds) if kind == "rollout.finished"]
    at = rng.sample(range(1, len(rollouts)), 9)
    found = [(rollouts[n - 1], "rollout.finished", n, rng.uniform(0, 0.03)) for n in at]
    found += [(kinds.index(kind), kind, 1, rng.uniform(0, 0.003)) for kind in STEPS]
    return [(kind, number, delay) for _, kind, number, delay in sorted(found)]


def after(root: Path, kind: str, number: int, delay: float) -> Callable[[], bool]:
    """Return a moment: some seconds after a ledger holds a number of events of a kind."""

    def come() -> bool:
        if event_counts(root)[kind] < number:
            return False
        time.sleep(delay)
        return True

    return come


def state(processes: ProcessServer, root: Path) -> dict:
    """Return what must be equal after the same work: digest of the state, decisions, skills."""
    replayed = processes.run("replay", "--json", cwd=root)
    assert replayed.code == 0, replayed.stdout
    assert replayed.json["chain_ok"]
    assert replayed.json["decisions_ok"]
    return {
        "digest": replayed.json["state_digest"],
        "decisions": {
            data["candidate"]: data for data in events(root, "gate.decided", "candidate.closed")
        },
        "skills": processes.run("list", "--json", cwd=root).json["skills"],
        "folder": folder_bytes(root / "skills"),
    }


def test_evolve_killed_again_and_again_ends_as_if_undisturbed(
    server, processes, undisturbed, tmp_path
):
    """The next call goes on, repeats no finished rollout, and ends in the same state.

    Report: gepa-ai/gepa#227.
    """
    root = write_project(tmp_path / "project", server.url)
    before, killed = len(server.requests), 0
    for kind, number, delay in moments(undisturbed):
        command = processes.start(*EVOLVE, cwd=root)
        killed += command.kill_when(after(root, kind, number, delay)).code == -signal.SIGKILL
        keys = Counter(data["key"] for data in events(root, "rollout.finished"))
        assert set(keys.values()) <= {1}
        if event_counts(root)["run.finished"]:
            break
    else:
        assert processes.run(*EVOLVE, cwd=root).code == 0

    assert killed >= 10
    finished = {data["key"] for data in events(root, "rollout.finished")}
    whole = {data["key"] for data in events(undisturbed, "rollout.finished")}
    assert finished <= whole
    # What was in flight when a verdict fell counts for nothing: the gate's, and the neighbours'.
    assert len(whole - finished) < 3 * WAVE
    asked_in_vain = len(server.requests) - before - len(finished)
    assert asked_in_vain <= killed * PARALLEL + 2
    for kind, count in event_counts(undisturbed).items():
        assert kind == "rollout.finished" or event_counts(root)[kind] == count
    assert state(processes, root) == state(processes, undisturbed)


def test_a_killed_night_goes_on_as_it_was_planned(server, processes, tmp_path):
    """Whatever would come first by now (what it adopted changes that), it keeps its own order."""
    shout, *others = SKILLS
    few = {name: SKILLS[name] for name in others}
    root = write_project(tmp_path / "project", server.url, skills=few)
    night = ("nightly", "--suite", "small", "--json")
    killed = processes.start(*night, cwd=root).kill_when(
        lambda: event_counts(root)["rollout.finished"] > 0
    )
    assert killed.code == -signal.SIGKILL
    write_skill(root / "skills", shout, *SKILLS[shout])
    again = processes.start(*night, cwd=root)
    ended = again.kill_when(lambda: "evolving" in again.stderr)

    assert "going on with" in ended.stderr
    assert event_counts(root)["run.started"] == 1
    (planned,) = events(root, "night.planned")
    assert planned["skills"] == ["mumble", "yell"]
    assert sorted(planned["library"]) == sorted(others)


def large_project(root: Path, url: str) -> Path:
    """Write a project with one skill of many files, in two versions; return its folder."""
    write_project(root, url, skills={"idle": small_project.SKILLS["idle"]})
    for i in range(FILES):
        path = root / "skills" / "idle" / "references" / f"{i}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"Page {i}, first edition.\n" * 20, encoding="utf-8")
    return root


def second_edition(root: Path) -> None:
    """Edit every file of the large skill by hand."""
    for path in (root / "skills" / "idle" / "references").iterdir():
        path.write_text(path.read_text().replace("first", "second"), encoding="utf-8")


def swap(root: Path, ending: str, files: int) -> Callable[[], bool]:
    """Return a moment: a folder that a write works in is there and holds some files."""
    folder = root / "skills" / f".idle.skillforge-{ending}"
    # os.walk passes over a folder that vanishes while it looks; Path.rglob raises.
    return lambda: folder.is_dir() and sum(len(names) for *_, names in os.walk(folder)) >= files


def recorded(root: Path) -> dict[str, bytes]:
    """Return the files that the library folder must hold, as the ledger has them."""
    ledger = SqliteLedger(root / ".skillforge" / "ledger.db")
    try:
        found = fold(ledger.events(kinds=FOLDED))
        packages = {
            name: unpack(ledger.get_blob(found.current(name).blob), ledger.get_blob)
            for name in found.served
        }
    finally:
        ledger.close()
    return {
        f"{name}/{path}": file.data
        for name, package in packages.items()
        for path, file in package.files.items()
    }


@pytest.mark.parametrize(
    ("arguments", "before", "ending", "files", "certain"),
    [
        (("rollback", "idle"), (), "new", 1, True),
        (("rollback", "idle"), (), "new", FILES // 2, True),
        (("rollback", "idle"), (), "old", 1, False),
        (("restore", "idle"), (("retire", "idle"),), "new", FILES // 2, True),
        (("retire", "idle"), (), "gone", 1, False),
    ],
)
def test_a_folder_write_that_is_killed_is_ended_by_the_next_command(
    server, processes, tmp_path, arguments, before, ending, files, certain
):
    """After the next command, the folder is the ledger's version byte for byte, never a mixture.

    A command killed before all was laid out has changed nothing, and can be repeated.
    """
    root = large_project(tmp_path / "project", server.url)
    assert processes.run("list", cwd=root).code == 0
    second_edition(root)
    for earlier in (("list",), *before):
        assert processes.run(*earlier, cwd=root).code == 0
    command = processes.start(*arguments, cwd=root)
    ended = command.kill_when(swap(root, ending, files))

    assert ended.code == -signal.SIGKILL or not certain
    assert processes.run("list", cwd=root).code == 0
    assert folder_bytes(root / "skills") == recorded(root)
    assert processes.run("replay", cwd=root).code == 0
    wanted = "skill.restored" if arguments[0] == "restore" else f"skill.{arguments[0]}d"
    kind = "version.rolled_back" if arguments[0] == "rollback" else wanted
    if not event_counts(root)[kind]:
        assert ending == "new"
        assert processes.run(*arguments, cwd=root).code == 0
        assert folder_bytes(root / "skills") == recorded(root)
    assert event_counts(root)[kind] == 1


def test_a_reader_beside_a_folder_write_disturbs_nothing(server, processes, tmp_path):
    """`list` while another command replaces a folder does not break the write."""
    root = large_project(tmp_path / "project", server.url)
    assert processes.run("list", cwd=root).code == 0
    second_edition(root)
    assert processes.run("list", cwd=root).code == 0
    command = processes.start("rollback", "idle", cwd=root)
    readers = 0
    while command.poll() is None:
        if swap(root, "new", 1)():
            readers += 1
            assert processes.run("list", cwd=root).code == 0

    done = command.wait()
    assert done.code == 0, done.stderr
    assert readers
    assert event_counts(root)["skill.imported"] == 2
    assert folder_bytes(root / "skills") == recorded(root)
