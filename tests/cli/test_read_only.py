"""Reading commands leave a project as it is, and read one that nothing can be written to."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from support.small_project import event_counts, folder_bytes, write_project, write_skill

import skillforge

EVAL = ("eval", "shout", "--suite", "small", "--tasks", "4")
READING = {
    "list": ("list", "--json"),
    "show": ("show", "shout", "--json"),
    "history": ("history", "shout", "--json"),
    "log": ("log", "--json"),
    "replay": ("replay", "--json"),
}


@pytest.fixture(scope="module")
def measured(server, processes, tmp_path_factory) -> Path:
    """A project with some rollouts."""
    root = write_project(tmp_path_factory.mktemp("measured") / "project", server.url)
    assert processes.run(*EVAL, cwd=root).code == 3
    return root


@pytest.fixture
def frozen(measured, tmp_path):
    """A copy of it that nothing may be written to, by its permissions."""
    root = tmp_path / "project"
    shutil.copytree(measured, root)
    forbid(root)
    yield root
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755)


def forbid(root: Path) -> None:
    """Take every permission to write away."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            (Path(folder) / name).chmod(0o444)
        Path(folder).chmod(0o555)


def stamps(root: Path) -> dict[str, tuple]:
    """Return what the disk says of every file and folder below a root."""
    found = (path.lstat() for path in sorted(root.rglob("*")))
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))
    return {
        name: (s.st_size, s.st_mode, s.st_ino, s.st_mtime_ns, s.st_ctime_ns)
        for name, s in zip(names, found, strict=True)
    }


@pytest.mark.parametrize("command", READING.values(), ids=READING)
def test_a_project_that_cannot_be_written_to_is_read(processes, measured, frozen, command):
    """What comes out is what comes out of one that can be; not a file, nor a time, has changed."""
    before = stamps(frozen)
    done = processes.run(*command, cwd=frozen)

    assert done.code == 0, done.stderr
    assert "cannot be written to; the ledger is read as it stands" in done.stderr
    assert done.stdout == processes.run(*command, cwd=measured).stdout
    assert stamps(frozen) == before


@pytest.mark.parametrize(
    "command",
    [pytest.param(("search", "capitals"), marks=pytest.mark.slow), ("export", "--out", "{out}")],
)
def test_what_is_made_from_it_lies_elsewhere(processes, frozen, tmp_path, command):
    """An index that has to be built and a pack leave nothing in the project."""
    before = stamps(frozen)
    done = processes.run(*[part.format(out=tmp_path / "out") for part in command], cwd=frozen)

    assert done.code == 0, done.stderr
    assert "shout" in done.stdout or (tmp_path / "out" / "claude").is_dir()
    assert stamps(frozen) == before


def test_what_a_kill_left_in_the_log_is_read(server, processes, tmp_path):
    """Rollouts that have not moved from the write-ahead log into the file are there."""
    root = write_project(tmp_path / "project", server.url)
    killed = processes.start(*EVAL[:-1], "40", cwd=root).kill_when(
        lambda: event_counts(root)["rollout.finished"] >= 4
    )
    assert killed.code == -signal.SIGKILL
    counts = event_counts(root)
    forbid(root)
    before = stamps(root)
    done = processes.run("log", "--kind", "rollout.finished", "--json", cwd=root)

    assert len(done.json["events"]) == counts["rollout.finished"] >= 4
    assert stamps(root) == before


def test_what_would_write_says_that_it_cannot(processes, frozen):
    """Nothing is half done, and the folder is named."""
    before = folder_bytes(frozen)
    for command in (EVAL, ("retire", "shout"), ("evolve", "shout", "--suite", "small")):
        done = processes.run(*command, cwd=frozen)

        assert done.code == 1
        assert f"{frozen / '.skillforge'} cannot be written to" in done.stderr
        assert "make it writable, or copy the project elsewhere" in done.stderr
    assert folder_bytes(frozen) == before


DRY = {
    "eval": ("eval", "shout", "--suite", "small"),
    "evolve": ("evolve", "shout", "--suite", "small"),
    "nightly": ("nightly", "--suite", "small"),
    "audit": ("audit", "units", "shout", "--suite", "small"),
    "calibrate": ("calibrate", "--suite", "small"),
    "import": ("import", "{offered}"),
}


@pytest.mark.parametrize("state", ["state", "no state"])
@pytest.mark.parametrize("command", DRY.values(), ids=DRY)
def test_a_dry_run_needs_to_write_nothing(server, processes, frozen, tmp_path, command, state):
    """It says the same of a project that is read-only, also of one that has no state yet."""
    offered = tmp_path / "offered"
    write_skill(offered, "whisper", "Writes a word in small letters.", "## Rule\n\nBe quiet.\n")
    root = frozen
    if state == "no state":
        root = write_project(tmp_path / "fresh", server.url)
        forbid(root)
    before = stamps(root)
    call = [part.format(offered=offered) for part in command]
    done = processes.run(*call, "--dry-run", "--json", cwd=root)

    assert done.code == 0, done.stderr
    assert done.json["dry_run"] is True
    assert [taken["skill"] for taken in done.json.get("taken", [])] in ([], ["whisper"])
    assert stamps(root) == before


def test_a_dry_run_sees_what_the_folder_holds_by_now(frozen, processes):
    """A skill that no command has taken in yet is estimated, and the copy alone knows of it."""
    skills = frozen / "skills"
    skills.chmod(0o755)
    write_skill(skills, "late", "Writes names in capitals.", "## Rule\n\nUse capitals.\n")
    skills.chmod(0o555)
    done = processes.run("eval", "late", "--suite", "small", "--dry-run", cwd=frozen)

    assert "has no tasks for late" in done.stderr  # it is known, and this is what it lacks
    assert "late" not in processes.run("list", cwd=frozen).stdout


def test_an_export_that_cannot_be_recorded_says_so(processes, measured, frozen, tmp_path):
    """The pack is written elsewhere, byte for byte the same; only the ledger lacks its event."""
    there, here = (
        processes.run("export", "--out", str(tmp_path / name), "--json", cwd=root)
        for name, root in (("there", frozen), ("here", measured))
    )

    assert there.code == here.code == 0
    assert "the ledger has no record of this export" in there.stderr
    assert "no record" not in here.stderr
    assert {pack["recorded"] for pack in there.json["packs"]} == {False}
    assert {pack["recorded"] for pack in here.json["packs"]} == {True}
    assert folder_bytes(tmp_path / "there") == folder_bytes(tmp_path / "here")
    assert "pack.exported" not in event_counts(frozen)
    assert "pack.exported" in event_counts(measured)


def test_python_reads_it_too(frozen):
    """The API stands beside the command line."""
    before = stamps(frozen)
    with skillforge.open_project(frozen) as project:
        assert len(project.rollouts()) == 8
        assert project.replay().chain_ok

    assert stamps(frozen) == before


def test_a_project_without_state_is_read_and_gets_none(server, processes, tmp_path):
    """Where nothing was ever recorded, nothing is listed and no folder is made."""
    root = write_project(tmp_path / "project", server.url)
    forbid(root)
    done = processes.run("list", "--json", cwd=root)

    assert (done.code, done.json["skills"]) == (0, [])
    assert not (root / ".skillforge").exists()


@pytest.mark.parametrize("command", READING.values(), ids=READING)
def test_reading_changes_no_event_and_leaves_nothing_behind(processes, measured, command):
    """Where it may write, a reading command has nothing to write once folder and ledger agree."""
    before = event_counts(measured)
    done = processes.run(*command, cwd=measured)
    left = {path.name for path in (measured / ".skillforge").iterdir()}

    assert done.code == 0, done.stderr
    assert event_counts(measured) == before
    assert left <= {"ledger.db", "lock", "stats.json"}
