"""Patches of packages, with git as the judge of their form."""

import shutil
import subprocess
from pathlib import Path

import pytest

from skillforge.core.package import Package, PackageFile
from skillforge.core.skill_diff import unified_patch

SKILL = b"---\nname: a\ndescription: Does b.\n---\n\n# Ask\n\nOne.\nTwo.\nThree.\n"


def package(**files: bytes) -> Package:
    """Return a skill; two underscores stand for a slash, one for a space."""
    named = {key.replace("__", "/").replace("_", " "): data for key, data in files.items()}
    stored = {path: PackageFile(data=data) for path, data in named.items()}
    return Package(name="a", files={"SKILL.md": PackageFile(data=SKILL), **stored})


def write(folder: Path, shown: Package) -> None:
    """Write a package to a folder."""
    for path, file in shown.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file.data)
        (folder / path).chmod(0o755 if file.executable else 0o644)


def read(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Return content and executable bit of every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


OLD = package(
    gone=b"x\n", empty=b"", in_a__name=b"1\n", run=b"#!/bin/sh\n", both=b"a\nb", crlf=b"a\r\n"
)
NEW = (
    package(in_a__name=b"2\n", both=b"a\nb\n", crlf=b"a\r\nb\r\n", new__deep=b"y", hollow=b"")
    .replace_file("SKILL.md", SKILL.replace(b"Two", b"2"))
    .replace_file("run", b"#!/bin/sh\n", executable=True)
    .replace_file("tool", b"echo\n", executable=True)
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the judge here")
@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)])
def test_git_applies_the_patch(tmp_path, before, after):
    """Changed, new, deleted and empty files, modes, names with spaces, missing line ends."""
    write(tmp_path, before)
    patch = unified_patch(before, after).encode()
    subprocess.run(["git", "apply", "-"], input=patch, cwd=tmp_path, check=True)
    assert read(tmp_path) == {p: (f.data, f.executable) for p, f in after.files.items()}


def test_binary_files_and_modes_are_named_as_git_names_them(tmp_path):
    """What cannot be shown as text is one line, and a mode is two."""
    old = package(logo=b"\x00\x01", run=b"\xff\xfe", gone=b"\x00")
    new = package(logo=b"\x00\x02", run=b"\xff\xfe", more=b"\xff")
    new = new.replace_file("run", b"\xff\xfe", executable=True)
    assert unified_patch(old, new) == (
        "diff --git a/gone b/gone\ndeleted file mode 100644\n"
        "Binary files a/gone and /dev/null differ\n"
        "diff --git a/logo b/logo\nBinary files a/logo and b/logo differ\n"
        "diff --git a/more b/more\nnew file mode 100644\nBinary files /dev/null and b/more differ\n"
        "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
    )


def test_a_file_name_is_no_command_to_the_terminal():
    """Control characters and quotes in a name are escaped; equal packages have no patch."""
    evil = package().replace_file("x\x1b[31m\ny", b"1\n")
    assert "\x1b" not in unified_patch(package(), evil)
    assert unified_patch(evil, evil) == ""
