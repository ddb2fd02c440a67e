"""Replacing a folder: what the disk refuses, and what is not the skill's to touch."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from support import faults
from support.faults import CHANGES, FaultyOps, denied, disk_full, opened, recorded_tree, tree

import skillforge
from skillforge.adapters.files import FolderLibrary
from skillforge.core.package import Package, PackageFile
from skillforge.errors import SkillError

HEAD = b"---\nname: a\ndescription: Does b.\n---\n"
NOBODY = 65534


def package(**files: bytes) -> Package:
    """Return a skill called ``a``; two underscores stand for a slash."""
    more = {key.replace("__", "/"): PackageFile(data=data) for key, data in files.items()}
    return Package(name="a", files={"SKILL.md": PackageFile(data=HEAD), **more})


@pytest.mark.parametrize(
    ("change", "fault", "words"),
    [
        ("rollback", disk_full, "free some disk space"),
        ("remove", denied, "make the folder writable"),
    ],
)
def test_a_disk_that_refuses_any_operation_leaves_one_state(tmp_path, change, fault, words):
    """The error says what, where and what to do; what is not recorded has not begun."""
    base, recorded = faults.prepare(tmp_path / "base", change), []
    old = tree(base / "skills")
    for at in count(1):
        root = tmp_path / str(at)
        shutil.copytree(base, root, symlinks=True)
        with opened(root, ops := FaultyOps(at, fault)) as world:
            before, error = world.curator.state, None
            try:
                CHANGES[change][1](world.curator)
            except SkillError as refused:
                error = str(refused)
            if error is not None:
                recorded.append(world.curator.state != before)
                assert words in error
                assert f" {root / 'skills' / 'ask'}: " in error
                assert recorded[-1] or tree(root / "skills") == old
        with opened(root) as world:
            world.curator.sync()
            assert tree(root / "skills") == recorded_tree(world.curator)
        if ops.count < at:
            break

    assert recorded == sorted(recorded)  # what is refused early on is not in the ledger either
    assert set(recorded) == {False, True}


@pytest.fixture
def users() -> Iterator[Path]:
    """Return a library with a skill, owned by a user who is not the superuser."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        FolderLibrary(root).write(package(x=b"1", deep__y=b"1"))
        if os.getuid() == 0:
            for path in (root, *root.rglob("*")):
                os.chown(path, NOBODY, NOBODY)
        yield root
        root.chmod(0o755)


def as_user(code: str, root: Path) -> str:
    """Run code on a library in a process without the superuser's rights; return what it prints."""
    frame = f"""
import os, sys
from skillforge.adapters.files import FolderLibrary
from skillforge.errors import SkillError
if os.getuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
library = FolderLibrary(sys.argv[1])
new = library.read("a").replace_file("x", b"2")
try:
    {code}
    print("done")
except SkillError as error:
    print(error)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(skillforge.__file__).parents[1])}
    command = [sys.executable, "-c", frame, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("code", ["library.write(new)", "library.remove('a')"])
def test_a_read_only_library_is_named_and_stays_as_it_is(users, code):
    """Missing rights are said with the folder; neither files nor rights change."""
    users.chmod(0o555)
    before = tree(users)
    said = as_user(code, users)

    assert "Permission denied" in said
    assert str(users / "a") in said
    assert "make the folder writable" in said
    assert tree(users) == before
    assert users.stat().st_mode & 0o777 == 0o555


def test_a_skill_with_read_only_folders_is_replaced(users):
    """What a checkout has made read-only is the user's own to replace; nothing is left over."""
    (users / "a" / "deep").chmod(0o555)
    assert as_user("library.write(new.without_file('deep/y'))", users) == "done\n"
    assert tree(users) == {"a/SKILL.md": (HEAD, False), "a/x": (b"2", False)}


def test_what_is_no_part_of_the_skill_is_never_rewritten(tmp_path):
    """Files of others keep their identity on the disk, empty folders of a repository included."""
    folder = tmp_path / "a"
    FolderLibrary(tmp_path).write(package(scripts__run=b"1"))
    (folder / ".git" / "refs").mkdir(parents=True)
    (folder / "scripts" / "node_modules").mkdir()
    mine = [folder / ".git" / "HEAD", folder / "scripts" / "node_modules" / "m.js"]
    for path in mine:
        path.write_bytes(b"mine")
    numbers = [path.stat().st_ino for path in mine]
    library = FolderLibrary(tmp_path)
    library.write(package(scripts__run=b"2"))
    library.write(package(other=b"3"))
    library.remove("a")
    library.write(package(scripts__run=b"4"))

    assert [path.stat().st_ino for path in mine] == numbers
    assert (folder / ".git" / "refs").is_dir()
    assert library.read("a") == package(scripts__run=b"4")


def test_caches_and_empty_folders_go_with_the_skill(tmp_path):
    """What comes back by itself neither stays behind nor stands in the way."""
    folder = tmp_path / "a"
    FolderLibrary(tmp_path).write(package(scripts__run=b"1"))
    (folder / "scripts" / "__pycache__").mkdir()
    (folder / "scripts" / "__pycache__" / "run.pyc").write_bytes(b"")
    (folder / ".DS_Store").write_bytes(b"")
    (folder / "assets" / "empty").mkdir(parents=True)
    library = FolderLibrary(tmp_path)
    library.write(package(assets=b"a file where an empty folder was"))
    assert sorted(path.name for path in folder.iterdir()) == ["SKILL.md", "assets"]
    library.remove("a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("theirs", "files"),
    [
        ("sub/SKILL.md", {"sub__x": b"a file of ours below a nested skill"}),
        (".git/HEAD", {".git": b"a file of ours in the place of a folder"}),
        ("node_modules/m.js", {"node_modules__m.js": b"a file of ours in the place of a file"}),
    ],
)
def test_what_is_in_the_way_is_named_before_anything_moves(tmp_path, theirs, files):
    """A version that would write over what is not the skill's is refused, with the path."""
    library = FolderLibrary(tmp_path)
    library.write(package())
    (tmp_path / "a" / theirs).parent.mkdir()
    (tmp_path / "a" / theirs).write_bytes(HEAD)
    before = tree(tmp_path)
    with pytest.raises(SkillError, match="in the way of a file that is; move it away") as caught:
        library.write(package(**files))
    assert str(tmp_path / "a" / theirs.partition("/")[0]) in str(caught.value)
    assert tree(tmp_path) == before


def test_what_a_crash_has_left_and_cannot_be_put_back_is_named(tmp_path):
    """Two files that claim one place are both kept, and the error says where they lie."""
    FolderLibrary(tmp_path).write(package())
    for folder in ("a", ".a.skillforge-kept"):
        (tmp_path / folder / ".git").mkdir(parents=True)
        (tmp_path / folder / ".git" / "HEAD").write_bytes(folder.encode())
    before = tree(tmp_path)
    with pytest.raises(SkillError, match=r"cut short.*\.a\.skillforge-\*: move it back by hand"):
        FolderLibrary(tmp_path)
    assert tree(tmp_path) == before
    FolderLibrary(tmp_path, mend=False)


def test_what_ready_raises_ends_the_write(tmp_path):
    """If the change cannot be recorded, the folder stays as it was and nothing is left over."""
    library = FolderLibrary(tmp_path)
    library.write(package())
    before = tree(tmp_path)

    def refuse() -> None:
        assert (tmp_path / ".a.skillforge-new" / "x").read_bytes() == b"1"
        raise LookupError

    with pytest.raises(LookupError):
        library.write(package(x=b"1"), ready=refuse)
    with pytest.raises(ZeroDivisionError):
        library.remove("a", ready=lambda: 1 / 0)
    assert tree(tmp_path) == before
