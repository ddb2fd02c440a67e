"""`skillforge import` from every kind of source: what is taken, and what is not and why."""

import json
import os
import signal
import tarfile
from pathlib import Path

import pytest
from support.archives import SKILL, Member, pack, skill
from support.processes import Done
from support.repositories import bare_copy, commit_all, git
from support.small_project import (
    SKILLS,
    event_counts,
    events,
    folder_bytes,
    write_project,
    write_skill,
)

from skillforge.core.digest import sha256

LICENSE = Member("LICENSE", b"Do what you like.\n")


@pytest.fixture
def root(server, tmp_path) -> Path:
    """A project whose library holds one skill."""
    return write_project(tmp_path / "project", server.url, skills={"idle": SKILLS["idle"]})


def imported(done: Done, code: int = 0) -> dict:
    """Return the report of an import that ended with this code."""
    assert done.code == code, done.stdout + done.stderr
    return done.json


def names(report: dict) -> list[str]:
    """Return what was taken."""
    return [entry["skill"] for entry in report["taken"]]


def codes(report: dict) -> dict[str, str]:
    """Return why each skill was skipped, by its path."""
    return {entry["path"]: entry["code"] for entry in report["skipped"]}


def origins(root: Path) -> dict[str, dict]:
    """Return what the ledger keeps of each skill that came from outside."""
    found = events(root, "skill.imported")
    return {data["skill"]: data["origin"] for data in found if data["origin"]}


# --- kinds of source ---


@pytest.mark.parametrize("name", ["ask.skill", "pack.zip", "pack.tar.gz", "pack.tgz", "pack.tar"])
def test_an_archive_is_imported_with_its_origin(processes, root, tmp_path, name):
    """Bytes and modes arrive; digest, path and the nearest licence file are kept per skill."""
    members = [
        LICENSE,
        skill("ask", "skills/ask"),
        Member("skills/ask/scripts/run.sh", b"#!/bin/sh\n", executable=True),
        Member(
            "skills/tell/SKILL.md", SKILL.replace(b"---\n\n", b"license: MIT\n---\n\n") % b"tell"
        ),
        Member("skills/tell/COPYING.txt", b"All yours.\n"),
    ]
    path = pack(tmp_path / name, members)
    report = imported(processes.run("import", str(path), "--json", cwd=root))
    assert names(report) == ["ask", "tell"]
    assert (root / "skills" / "ask" / "SKILL.md").read_bytes() == SKILL % b"ask"
    assert os.access(root / "skills" / "ask" / "scripts" / "run.sh", os.X_OK)
    common = {"source": str(path), "kind": "archive", "sha256": sha256(path.read_bytes())}
    assert origins(root) == {
        "ask": {
            **common,
            "path": "skills/ask",
            "license": {"file": "LICENSE", "sha256": sha256(LICENSE.data)},
        },
        "tell": {
            **common,
            "path": "skills/tell",
            "license": {
                "stated": "MIT",
                "file": "skills/tell/COPYING.txt",
                "sha256": sha256(b"All yours.\n"),
            },
        },
    }
    assert processes.run("replay", cwd=root).code == 0


def test_a_skill_at_the_root_of_an_archive_bears_the_file_s_name(processes, root, tmp_path):
    """Such archives are published too; their name is all there is for the folder."""
    path = pack(tmp_path / "ask.zip", [Member("SKILL.md", SKILL % b"ask")])
    assert names(imported(processes.run("import", str(path), "--json", cwd=root))) == ["ask"]


def test_a_repository_is_imported_at_a_ref(processes, root, tmp_path):
    """Bare by path and by URL, or a commit of a checkout: the commit is kept."""
    work = tmp_path / "work"
    write_skill(work / "skills", "ask", "Asks.", "Old.\n")
    old = commit_all(work)
    git(work, "tag", "v1")
    write_skill(work / "skills", "tell", "Tells.", "New.\n")
    new = commit_all(work)
    bare = bare_copy(work, tmp_path / "team.git")
    call = ("import", str(bare), "--ref", "v1", "--json")
    assert names(imported(processes.run(*call, cwd=root))) == ["ask"]
    done = processes.run("import", bare.as_uri(), "--json", cwd=root)
    assert names(imported(done)) == ["tell"]
    assert codes(done.json) == {"skills/ask": "same"}
    found = origins(root)
    assert (found["ask"]["commit"], found["ask"]["ref"]) == (old, "v1")
    assert (found["tell"]["commit"], found["tell"]["source"]) == (new, bare.as_uri())
    below = processes.run(
        "import", str(work / "skills"), "--ref", "v1", "--dry-run", "--json", cwd=root
    )
    assert imported(below)["source"]["prefix"] == "skills"
    assert codes(below.json) == {"ask": "same"}


def test_a_checkout_says_its_commit_and_whether_it_is_dirty(processes, root, tmp_path):
    """The files are those of the folder; what the commit has not is said."""
    work = tmp_path / "work"
    write_skill(work / "skills", "ask", "Asks.", "Old.\n")
    commit = commit_all(work)
    git(work, "remote", "add", "origin", "https://me:secret@example.org/team.git")
    clean = processes.run("import", str(work), "--dry-run", "--json", cwd=root)
    assert imported(clean)["source"]["dirty"] is False
    assert "changes" not in clean.stderr
    write_skill(work / "skills", "tell", "Tells.", "New.\n")
    done = processes.run("import", str(work), "--json", cwd=root)
    assert names(imported(done)) == ["ask", "tell"]
    assert f"has changes that commit {commit} has not" in done.stderr
    assert origins(root)["tell"] == {
        "source": str(work),
        "kind": "checkout",
        "commit": commit,
        "remote": "https://example.org/team.git",
        "prefix": "",
        "dirty": True,
        "path": "skills/tell",
        "license": {},
    }


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (("absent",), ["absent", "does not exist", ".tar.gz"]),
        (("x" * 5000,), ["does not exist"]),
        (("notes.txt",), ["notes.txt", "no source of skills", ".skill"]),
        (("empty",), ["no SKILL.md"]),
        (("empty", "--ref", "v1"), ["no git repository", "--ref"]),
        (("file:///nowhere/at/all.git",), ["git fetch failed"]),
        (("ftp://host/x.git",), ["git fetch failed", "ftp"]),
    ],
)
def test_a_source_that_is_none_is_named(processes, root, source, words):
    """One line says what was found and what would do."""
    (root / "notes.txt").write_text("no archive")
    (root / "empty").mkdir()
    done = processes.run("import", *source, cwd=root)
    assert done.code == 1
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr


# --- refusal ---


@pytest.mark.parametrize(
    "member",
    [
        Member("../evil", b"!"),
        Member("ask/link", kind="link", target="../../../project/skillforge.toml"),
        Member("zeros", bytes(80 * 2**20)),
        Member("ASK/SKILL.md", b"!"),
    ],
    ids=["traversal", "link", "bomb", "case"],
)
@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_an_unsafe_archive_leaves_no_trace(processes, root, tmp_path, member, ending):
    """One bad entry costs the whole source; library, ledger, temporary files stay as they are."""
    assert processes.run("list", cwd=root).code == 0
    path = pack(tmp_path / f"bad.{ending}", [skill("ask"), member])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = folder_bytes(tmp_path)
    done = processes.run("import", str(path), cwd=root, env={"TMPDIR": str(scratch)})
    assert done.code == 1
    assert done.stderr.count("\n") == 1
    assert path.name in done.stderr
    assert "nothing was taken" in done.stderr
    assert folder_bytes(tmp_path) == before
    assert list(scratch.iterdir()) == []


def test_links_that_multiply_what_is_read_are_refused(processes, root, tmp_path):
    """Every skill may link to one large folder, which would then be read for each of them."""
    members = [Member(f"shared/{i}.bin", os.urandom(2**20)) for i in range(8)]
    for i in range(40):
        members += [skill(f"s{i}"), Member(f"s{i}/references", kind="link", target="../shared")]
    done = processes.run("import", str(pack(tmp_path / "many.tar", members)), cwd=root)
    assert done.code == 1
    assert "links" in done.stderr
    assert "at most" in done.stderr


# --- the report ---


def test_one_bad_skill_hides_no_other(processes, root, tmp_path):
    """Every skill has its line, every file its problems; the first sound one of a name counts."""
    source = tmp_path / "source"
    write_skill(source / "a", "ask", "", "No description.\n")
    write_skill(source / "b", "ask", "Asks.", "Sound.\n")
    write_skill(source / "c", "ask", "Asks.", "Sound.\n")
    write_skill(source / "d", "ask", "Asks.", "Other.\n")
    write_skill(source / "e", "idle", *SKILLS["idle"])
    write_skill(source / "f", "Not A Name", "x" * 2000, "Text.\n")
    call = ("import", str(source), "--json")
    report = imported(processes.run(*call, cwd=root))
    assert [(t["skill"], t["path"]) for t in report["taken"]] == [("ask", "b/ask")]
    assert codes(report) == {
        "a/ask": "lint",
        "c/ask": "copy",
        "d/ask": "name-twice",
        "e/idle": "same",
        "f/Not A Name": "lint",
    }
    paths = {problem["path"] for problem in report["problems"] if problem["level"] == "error"}
    assert {"a/ask/SKILL.md", "f/Not A Name/SKILL.md"} <= paths
    bad = [p["code"] for p in report["problems"] if p["path"] == "f/Not A Name/SKILL.md"]
    assert {"name-case", "name-characters", "description-long"} <= set(bad)
    again = imported(processes.run(*call, cwd=root), 1)
    assert again["taken"] == []
    assert codes(again)["d/ask"] == "name-served"
    shown = processes.run("import", str(source), cwd=root).stdout
    for entry in again["skipped"]:
        assert f"skipped {entry['skill']} ({entry['path']}): {entry['reason']}" in shown
    for problem in again["problems"]:
        assert f"{problem['path']}:{problem['line']}: {problem['level']} {problem['code']}" in shown


def test_a_folder_that_cannot_be_read_is_not_written_over(processes, root, tmp_path):
    """A broken skill of the user's keeps its name and its bytes."""
    mine = root / "skills" / "ask"
    mine.mkdir()
    (mine / "SKILL.md").write_bytes(SKILL % b"ask")
    (mine / "back\\slash.md").write_text("mine")
    before = folder_bytes(mine)
    path = pack(tmp_path / "a.zip", [skill("ask"), skill("tell")])
    for option in ("--dry-run", "--json"):
        report = imported(processes.run("import", str(path), "--json", option, cwd=root))
        assert (names(report), codes(report)) == (["tell"], {"ask": "name-served"})
        assert folder_bytes(mine) == before


def test_names_are_shown_without_control_characters(processes, root, tmp_path):
    """A name in an archive neither moves the cursor nor breaks the report."""
    members = [skill("a\x1b[2Jb"), skill("ask", "\udcff/ask")]
    path = pack(tmp_path / "a.tar", members)
    shown = processes.run("import", str(path), "--dry-run", cwd=root)
    assert shown.code == 0, shown.stderr
    assert "\x1b" not in shown.stdout
    report = imported(processes.run("import", str(path), "--json", cwd=root))
    assert names(report) == ["ask"]
    assert processes.run("replay", cwd=root).code == 0


def test_what_is_there_already_is_no_error(processes, root):
    """Importing the library into itself takes nothing and is fine."""
    report = imported(processes.run("import", "skills", "--json", cwd=root))
    assert (names(report), codes(report)) == ([], {"idle": "same"})


def test_a_retired_skill_comes_back_by_restore_alone(processes, root, tmp_path):
    """The same bytes are not served again by accident; new ones are."""
    source = tmp_path / "source"
    write_skill(source, "idle", *SKILLS["idle"])
    assert processes.run("retire", "idle", cwd=root).code == 0
    report = imported(processes.run("import", str(source), "--json", cwd=root))
    assert codes(report) == {"idle": "retired"}
    assert "skillforge restore idle" in report["skipped"][0]["reason"]
    (source / "idle" / "more.md").write_text("More.")
    assert names(imported(processes.run("import", str(source), "--json", cwd=root))) == ["idle"]


def test_a_dry_run_writes_nothing_at_all(processes, root, tmp_path):
    """It says what would be taken, from a project no command has seen as from one in use."""
    write_skill(root / "skills", "tell", "Tells.", "By hand.\n")
    path = pack(tmp_path / "a.zip", [skill("ask"), skill("tell")])
    call = ("import", str(path), "--dry-run", "--json")
    for _ in range(2):
        before = folder_bytes(root)
        report = imported(processes.run(*call, cwd=root))
        assert report["dry_run"]
        assert (names(report), codes(report)) == (["ask"], {"tell": "name-served"})
        assert folder_bytes(root) == before
        assert processes.run("list", cwd=root).code == 0
    assert "would take ask" in processes.run(*call[:-1], cwd=root).stdout


def test_origin_is_shown_with_the_skill_and_its_history(processes, root, tmp_path):
    """A hand edit of an imported skill still says where it came from."""
    path = pack(tmp_path / "a.zip", [LICENSE, skill("ask")])
    assert processes.run("import", str(path), cwd=root).code == 0
    (root / "skills" / "ask" / "more.md").write_text("More.")
    origin = origins(root)["ask"]
    assert processes.run("show", "ask", "--json", cwd=root).json["origin"] == origin
    shown = processes.run("show", "ask", cwd=root).stdout
    for word in (str(path), origin["sha256"], "LICENSE", origin["license"]["sha256"]):
        assert word in shown
    life = processes.run("history", "ask", "--json", cwd=root).json["events"]
    assert [event["origin"] for event in life] == [origin, {}]
    assert processes.run("show", "idle", "--json", cwd=root).json["origin"] == {}


def test_what_a_skill_carries_stays_data(processes, root, tmp_path):
    """Evaluations, scripts and modules inside a skill arrive byte for byte and are not used."""
    marker = tmp_path / "ran"
    evil = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n".encode()
    evals = {
        "skill_name": "ask",
        "evals": [{"id": 1, "prompt": "x", "verifier": {"kind": "python"}}],
    }
    members = [
        skill("ask"),
        Member("ask/evals/evals.json", json.dumps(evals).encode()),
        *[
            Member(f"ask/{name}.py", evil, executable=True)
            for name in ("conftest", "sitecustomize")
        ],
        Member("ask/suites/own/suite.toml", b'name = "own"\n'),
    ]
    suites = processes.run("suite", "list", "--json", cwd=root).stdout
    path = pack(tmp_path / "a.tar.gz", members)
    assert names(imported(processes.run("import", str(path), "--json", cwd=root))) == ["ask"]
    assert folder_bytes(root / "skills" / "ask")["evals/evals.json"] == members[1].data
    for command in (("list",), ("show", "ask"), ("replay",)):
        assert processes.run(*command, cwd=root).code == 0
    assert processes.run("suite", "list", "--json", cwd=root).stdout == suites
    assert not marker.exists()


def test_pointers_of_git_lfs_are_said(processes, root, tmp_path):
    """A file that is only named, not there, is a warning."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    path = pack(tmp_path / "a.zip", [skill("ask"), Member("ask/model.bin", pointer)])
    report = imported(processes.run("import", str(path), "--json", cwd=root))
    found = {(p["path"], p["code"]) for p in report["problems"]}
    assert ("ask/model.bin", "lfs-pointer") in found


# --- interruption ---


@pytest.mark.parametrize("moment", [1, 2, 5])
def test_an_import_that_is_killed_is_finished_by_the_next_command(
    processes, root, tmp_path, moment
):
    """The ledger comes first: what it holds is in the folder after the next command, whole."""
    members = [skill(f"s{i}") for i in range(6)]
    members += [
        Member(f"s{i}/references/{k}.md", b"Page.\n" * 50) for i in range(6) for k in range(40)
    ]
    path = pack(tmp_path / "many.tar.gz", members)
    assert processes.run("list", cwd=root).code == 0
    before = event_counts(root)["skill.imported"]
    command = processes.start("import", str(path), cwd=root)
    ended = command.kill_when(lambda: event_counts(root)["skill.imported"] >= before + moment)

    assert processes.run("list", cwd=root).code == 0
    there = {p.name for p in (root / "skills").iterdir() if not p.name.startswith(".")}
    recorded = {data["skill"] for data in events(root, "skill.imported")}
    assert there == recorded
    assert ended.code == -signal.SIGKILL or len(recorded) == 7
    done = imported(processes.run("import", str(path), "--json", cwd=root))
    assert {entry["code"] for entry in done["skipped"]} == {"same"}
    assert len(done["taken"]) + len(recorded) == 7
    with tarfile.open(path) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}
    found = folder_bytes(root / "skills")
    assert {name: found.get(name) for name in files} == files
    assert processes.run("replay", cwd=root).code == 0
