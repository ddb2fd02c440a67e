"""Versions from the command line: staged, adopted, named by hash or date, by many at once."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from filelock import FileLock
from support.loopback import LoopbackServer
from support.small_project import (
    answer,
    event_counts,
    event_kinds,
    folder_bytes,
    write_project,
    write_skill,
)
from support.world import skill

from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.library_fold import FOLDED, fold
from skillforge.workflows.curate import Curator

SKILL = "mumble"
EVOLVE = ("evolve", SKILL, "--suite", "small", "--json")
MANY = 3
"""Skills that each kind of command is given at once."""


@pytest.fixture(scope="module")
def evolved(server, processes, tmp_path_factory) -> tuple[Path, dict]:
    """Return a project in which `evolve` has only staged, and what it reported."""
    root = write_project(tmp_path_factory.mktemp("evolved") / "project", server.url)
    before = folder_bytes(root / "skills")
    done = processes.run(*EVOLVE, "--stage-only", cwd=root)
    assert done.code == 0, done.stderr
    assert folder_bytes(root / "skills") == before
    return root, done.json


@pytest.fixture
def staged(evolved, tmp_path) -> Path:
    """Return a copy of that project."""
    return Path(shutil.copytree(evolved[0], tmp_path / "project"))


def row(processes, root: Path, name: str = SKILL) -> dict:
    """Return a skill's row of `list`."""
    rows = processes.run("list", "--all", "--json", cwd=root).json["skills"]
    return next(r for r in rows if r["skill"] == name)


def test_what_is_staged_leaves_the_folder_alone_until_adopt(processes, evolved, staged):
    """What is proven is listed, shown and told; `adopt` writes it; then nothing is staged."""
    report = evolved[1]
    version = report["staged"]
    assert report["adopted"] is None
    assert row(processes, staged)["staged"] == [version]
    for command in ("show", "history"):
        (waiting,) = processes.run(command, SKILL, "--json", cwd=staged).json["staged"]
        assert waiting["version"] == version
        assert waiting["base"] == report["base"] == row(processes, staged)["version"]
        assert waiting["ready"]
        said = processes.run(command, SKILL, cwd=staged).stdout
        assert f"skillforge adopt {SKILL} {version[:10]}" in said

    done = processes.run("adopt", SKILL, "--json", cwd=staged)
    assert done.code == 0, done.stderr
    assert (done.json["version"], done.json["evidence"]) == (version, "probation")
    after = row(processes, staged)
    assert (after["version"], after["status"], after["staged"]) == (version, "probation", [])
    text = (staged / "skills" / SKILL / "SKILL.md").read_text()
    assert processes.run("show", SKILL, "--json", cwd=staged).json["body"] in text
    again = processes.run("adopt", SKILL, cwd=staged)
    assert (again.code, "nothing is staged" in again.stderr) == (1, True)
    assert processes.run("replay", cwd=staged).code == 0


def test_a_flag_overrides_what_the_project_says_of_staging(server, processes, evolved, tmp_path):
    """With `--adopt` what is proven is written at once, in a project that only stages."""
    root = write_project(tmp_path / "project", server.url)
    setting = {"SKILLFORGE_EVOLVE_STAGE_ONLY": "true"}
    writes = processes.run(*EVOLVE, "--adopt", cwd=root, env=setting)
    assert (writes.json["adopted"], writes.json["staged"]) == (evolved[1]["staged"], None)
    kinds = [kind for kind in event_kinds(root) if kind.startswith("version.")]
    assert kinds == ["version.staged", "version.adopted"]


def test_a_hand_edit_in_between_is_kept_and_adopting_says_what_to_do(processes, staged):
    """The edit is a version of its own; the staged one waits, and stands after a roll-back."""
    version, base = row(processes, staged)["staged"][0], row(processes, staged)["version"]
    path = staged / "skills" / SKILL / "SKILL.md"
    path.write_text(path.read_text() + "\nMine.\n")
    mine = path.read_bytes()
    for arguments in (("adopt", SKILL), ("adopt", SKILL, version[:12])):
        refused = processes.run(*arguments, cwd=staged)
        assert refused.code == 1
        assert path.read_bytes() == mine
        for word in (version[:10], base[:10], f"skillforge rollback {SKILL} --to {base[:10]}"):
            assert word in refused.stderr
    edited = row(processes, staged)
    assert (edited["staged"], edited["evidence"]) == ([version], "unmeasured")
    assert "is not served now" in processes.run("show", SKILL, cwd=staged).stdout

    assert processes.run("rollback", SKILL, "--to", base[:10], cwd=staged).code == 0
    assert processes.run("adopt", SKILL, version[:10], cwd=staged).code == 0
    assert row(processes, staged)["version"] == version
    kept = processes.run("show", SKILL, "--version", edited["version"], "--json", cwd=staged)
    assert kept.json["body"].endswith("\nMine.\n")


def test_adopt_takes_a_date_and_refuses_what_was_never_staged(processes, staged):
    """A day that was too early has nothing; today's newest is taken; another version is named."""
    version = row(processes, staged)["staged"][0]
    early = processes.run("adopt", SKILL, "2001-02-03", cwd=staged)
    assert (early.code, "nothing is staged from 2001-02-03 or before" in early.stderr) == (1, True)
    other = processes.run("adopt", SKILL, row(processes, staged)["version"], cwd=staged)
    assert (other.code, f"use one of {version[:10]}" in other.stderr) == (1, True)
    today = processes.run("adopt", SKILL, "9999-12-30", "--json", cwd=staged)
    assert today.json["version"] == version


# --- By date ------------------------------------------------------------------------------------

DAYS = ("2006-11-29T23:59:59.5", "2006-11-30T12:00:00.25", "2006-12-01T00:00:00")
TEXTS = ("# One\n", "# Two\n", "# Three\n")


@pytest.fixture
def dated(tmp_path) -> Path:
    """Return a project whose skill came to a new version at three times, and was then retired."""
    root = write_project(tmp_path / "project", "http://127.0.0.1:9", skills={})
    now = [0.0]
    ledger = SqliteLedger(root / ".skillforge" / "ledger.db", clock=lambda: now[0])
    with closing(ledger):
        library = FolderLibrary(root / "skills")
        curator = Curator(ledger=ledger, library=library)
        for day, text in zip(DAYS, TEXTS, strict=True):
            now[0] = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
            library.write(skill("ask", text))
            curator.sync()
        now[0] += 60
        curator.retire("ask", evidence={}, reason="test")
    return root


VERSIONS = [skill("ask", text).version for text in TEXTS]


@pytest.mark.parametrize(
    ("date", "number"),
    [
        ("2006-11-29", 0),
        ("2006-11-29T23:59:59", 0),
        ("2006-11-30T11:59", 0),
        ("2006-11-30T12:00", 1),
        ("2006-11-30T12:00:00Z", 1),
        ("2006-11-30T13:00:00+01:00", 1),
        ("2006-11-30", 1),
        ("2006-12-01", 2),
        ("2007-01-01", 2),
    ],
)
def test_a_date_names_the_version_that_was_current_at_its_end(processes, dated, date, number):
    """Days, minutes and seconds count to their end, in UTC unless they say otherwise."""
    shown = processes.run("show", "ask", "--version", date, "--json", cwd=dated)
    assert shown.json["version"] == VERSIONS[number]
    listed = processes.run("list", "--version", date, "--all", "--json", cwd=dated).json["skills"]
    assert [r["version"] for r in listed] == [VERSIONS[number]]
    changed = processes.run("diff", "ask", VERSIONS[number][:9], date, "--json", cwd=dated).json
    assert changed["patch"] == ""


def test_every_command_takes_a_date_and_says_so(processes, dated):
    """Restore, roll back, retire and history by date; each help names the form."""
    run = processes.run
    assert run("list", "--json", cwd=dated).json["skills"] == []
    assert run("list", "--version", "2006-11-30", "--json", cwd=dated).json["skills"]
    back = run("restore", "ask", "--version", "2006-11-30", "--json", cwd=dated)
    assert back.json["version"] == VERSIONS[1]
    assert (dated / "skills/ask/SKILL.md").read_bytes().endswith(b"# Two\n\n")
    assert run("retire", "ask", "--version", "2006-12-01", cwd=dated).code == 1
    back = run("rollback", "ask", "--to", "2006-11-29", "--json", cwd=dated)
    assert back.json["version"] == VERSIONS[0]
    events = run("history", "ask", "--version", "2006-11-29", "--json", cwd=dated).json["events"]
    assert [e["kind"] for e in events] == ["skill.imported", "version.rolled_back"]
    assert run("retire", "ask", "--version", VERSIONS[0][:8], cwd=dated).code == 0
    early = run("show", "ask", "--version", "2001-01-01", cwd=dated)
    assert (early.code, "did not have it yet on 2001-01-01" in early.stderr) == (1, True)
    for command in ("list", "show", "history", "diff", "rollback", "adopt", "retire", "restore"):
        assert "2026-11-30" in run(command, "--help", cwd=dated).stdout


# --- Diffs --------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str, cwd: Path, env: dict[str, str]) -> str:
    """Run a command whose output is a terminal; return what the terminal received."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "skillforge", *arguments]
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(command, cwd=cwd, stdout=theirs, env={**plain, **env})
    os.close(theirs)
    received = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        if not data:
            break
        received += data
    os.close(ours)
    assert process.wait() == 0
    return received.decode().replace("\r\n", "\n")


def test_diffs_are_coloured_on_a_terminal_only(processes, dated):
    """Added green, removed red; plain with NO_COLOR and in a pipe; the same text in all three."""
    term = {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}
    call = ("diff", "ask", *(v[:12] for v in VERSIONS[:2]))
    for arguments in (call, (*call, "--patch")):
        plain = processes.run(*arguments, cwd=dated).stdout
        assert "\x1b" not in plain
        assert on_a_terminal(*arguments, cwd=dated, env=term | {"NO_COLOR": "1"}) == plain
        coloured = on_a_terminal(*arguments, cwd=dated, env=term)
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
        assert "\x1b[" in coloured
    assert "\x1b[31m-# One\x1b[0m" in coloured
    assert "\x1b[32m+# Two\x1b[0m" in coloured


def test_a_terminal_obeys_no_skill_text(processes, dated):
    """Control characters in a skill are shown on a terminal; a pipe gets the bytes."""
    write_skill(dated / "skills", "evil", "Tries things.", "\x1b]0;owned\x07 and \x9b31m\n")
    term = {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = on_a_terminal("show", "evil", cwd=dated, env=term)
    assert "␛]0;owned␇ and �31m" in shown
    assert "\x1b]0;owned\x07" in processes.run("show", "evil", cwd=dated).stdout


# --- Many at once -------------------------------------------------------------------------------


def test_many_processes_at_once_lose_nothing(processes, tmp_path):
    """Roll-backs, retirements, restorations, adoptions and imports together all take effect."""
    root = write_project(tmp_path / "project", "http://127.0.0.1:9", skills={})
    kinds = ("rollback", "retire", "restore", "adopt", "import")
    calls, old, new = [], {}, {}
    with closing(SqliteLedger(root / ".skillforge" / "ledger.db")) as ledger:
        library = FolderLibrary(root / "skills")
        curator = Curator(ledger=ledger, library=library)
        for kind in kinds:
            for i in range(MANY):
                name = f"{kind}-{i}"
                old[name], new[name] = skill(name, "# Old\n"), skill(name, "# New\n")
                if kind == "import":
                    FolderLibrary(tmp_path).write(new[name])
                    calls.append(("import", str(tmp_path / name)))
                    continue
                calls.append((kind, name))
                for package in (new[name], old[name]):
                    library.write(package)
                    curator.sync()
                if kind == "restore":
                    curator.retire(name, evidence={}, reason="test")
                if kind == "adopt":
                    names = {"run": "r", "candidate": name, "evidence": "probation"}
                    curator.stage(name, new[name].version, base=old[name].version, **names)

    patient = {"SKILLFORGE_LIBRARY_LOCK_SECONDS": "600"}
    started = [processes.start(*call, cwd=root, env=patient) for call in calls]
    for call, done in zip(calls, [command.wait() for command in started], strict=True):
        assert done.code == 0, (call, done.stderr)

    wanted = {}
    for name in old:
        kind = name.partition("-")[0]
        package = {"restore": old, "retire": {}}.get(kind, new).get(name)
        if package is not None:
            wanted[f"{name}/SKILL.md"] = package.files["SKILL.md"].data
    assert folder_bytes(root / "skills") == dict(sorted(wanted.items()))
    with closing(SqliteLedger(root / ".skillforge" / "ledger.db")) as ledger:
        state = fold(ledger.events(kinds=FOLDED))
    assert set(state.served) == {name for name in old if not name.startswith("retire")}
    replayed = processes.run("replay", "--json", cwd=root)
    assert (replayed.code, replayed.json["chain_ok"]) == (0, True)
    assert not (root / ".skillforge" / "lock.json").exists()


def test_who_holds_the_project_is_told_and_can_be_waited_for(processes, tmp_path):
    """A writer is told command, process and time; with patience it waits and then does its work."""
    go = threading.Event()

    def held(body):
        go.wait()
        return answer(body)

    with LoopbackServer(held) as server:
        root = write_project(tmp_path / "project", server.url)
        note = root / ".skillforge" / "lock.json"
        holder = processes.start("eval", "shout", "--suite", "small", "--tasks", "2", cwd=root)
        try:
            while not note.exists():
                assert holder.poll() is None
                time.sleep(0.01)
            soon, late = ({"SKILLFORGE_LIBRARY_LOCK_SECONDS": s} for s in ("0", "600"))
            refused = processes.run("retire", "idle", cwd=root, env=soon)
            assert refused.code == 1
            signed = json.loads(note.read_text())
            assert signed["pid"] == holder.pid
            for word in ("`skillforge eval`", f"process {holder.pid}", signed["since"]):
                assert word in refused.stderr
            assert processes.run("list", cwd=root).code == 0
            waiter = processes.start("retire", "idle", cwd=root, env=late)
            while "waiting for `skillforge eval`" not in (waiter.folder / "stderr").read_text():
                assert waiter.poll() is None
                time.sleep(0.01)
        finally:
            go.set()
        assert holder.wait().code in (0, 3)
        assert waiter.wait().code == 0
    assert event_counts(root)["skill.retired"] == 1


def test_a_note_that_a_crash_left_behind_blocks_nobody(processes, tmp_path):
    """The note alone is no lock, and a dead process is not blamed for another's."""
    root = write_project(tmp_path / "project", "http://127.0.0.1:9")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert processes.run("list", cwd=root).code == 0
    note = {"pid": gone.pid, "command": "skillforge nightly", "since": "2026-11-30"}
    path = root / ".skillforge" / "lock.json"
    path.write_text(json.dumps(note))
    with FileLock(root / ".skillforge" / "lock"):
        soon = {"SKILLFORGE_LIBRARY_LOCK_SECONDS": "0"}
        refused = processes.run("retire", "idle", cwd=root, env=soon)
        assert "another skillforge command is writing" in refused.stderr
        assert "nightly" not in refused.stderr
    assert processes.run("retire", "idle", cwd=root).code == 0
    path.write_text("{ half a no")
    assert processes.run("restore", "idle", cwd=root).code == 0
    assert not path.exists()
