"""Packages: content addresses, views, and the packed form."""

from __future__ import annotations

import pickle

import pytest

from skillforge.core.digest import sha256
from skillforge.core.package import Package, PackageFile, pack, unpack
from skillforge.errors import SkillError

SKILL = b"---\r\nname: a\r\ndescription: ' does b '\r\n---\r\nBody\r\nmore\r\n"


def make(name: str = "a", **files: bytes) -> Package:
    """Return a package with a SKILL.md and the given files below references/."""
    more = {f"references/{key}.md": PackageFile(data=data) for key, data in files.items()}
    return Package(name=name, files={"SKILL.md": PackageFile(data=SKILL), **more})


def test_views_of_the_skill_file():
    """Description is stripped; the prompt body has LF ends and never a frontmatter fence."""
    package = make()
    assert package.description == "does b"
    assert package.body == "Body\nmore\n"
    assert package.document.body == "Body\r\nmore\r\n"
    assert package.short == package.version[:10]
    assert len(package.version) == 64


def test_version_covers_paths_modes_and_bytes_but_not_the_name_or_the_order():
    """Equal content has one version, any difference another."""
    package = make(x=b"1", y=b"2")
    shuffled = Package(name="b", files=dict(reversed(package.files.items())))
    assert shuffled.version == package.version
    assert shuffled != package
    path = "references/x.md"
    changed = [
        package.replace_file(path, b"3"),
        package.replace_file(path, b"1", executable=True),
        package.without_file(path),
        package.without_file(path).replace_file("references/z.md", b"1"),
    ]
    assert len({package.version, *(p.version for p in changed)}) == 5


def test_replacing_keeps_the_mode_and_the_original():
    """A changed package is a new one; the executable bit stays unless given."""
    script = make().replace_file("scripts/run", b"#!", executable=True)
    newer = script.replace_file("scripts/run", b"#!/bin/sh")
    assert newer.files["scripts/run"].executable
    assert script.files["scripts/run"].data == b"#!"


@pytest.mark.parametrize("name", ["SKILL.md", "skill.md", "Skill.MD"])
def test_the_skill_file_is_found_in_any_case(name: str):
    """The exact spelling wins where there are two (anthropics/claude-code#16983)."""
    assert Package(name="a", files={name: PackageFile(data=SKILL)}).skill_file == name
    both = Package(name="a", files={name: PackageFile(data=b""), "SKILL.md": PackageFile(data=b"")})
    assert both.skill_file == "SKILL.md"


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a//b", "a/./b", "", "a\\b", "a\0b", "\udcff", "SKILL.md/x"]
)
def test_unsafe_paths_are_refused(path: str):
    """No path escapes, collides or cannot be written elsewhere."""
    with pytest.raises(SkillError, match="rename"):
        make().replace_file(path, b"")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b"])
def test_unsafe_names_are_refused(name: str):
    """A name is one folder."""
    with pytest.raises(SkillError, match="cannot be the name"):
        make(name)


def test_a_package_needs_its_skill_file():
    """Without SKILL.md there is no skill, and the only one cannot be taken away."""
    with pytest.raises(SkillError, match=r"no SKILL\.md"):
        Package(name="a", files={"sub/SKILL.md": PackageFile(data=SKILL)})
    with pytest.raises(SkillError, match=r"no SKILL\.md"):
        make().without_file("SKILL.md")
    with pytest.raises(SkillError, match="no file 'x'"):
        make().without_file("x")


def test_files_are_read_only_and_packages_can_be_pickled():
    """A package can be sent to another process and be a key, but not be changed."""
    package = make(x=b"\0\xff")
    with pytest.raises(TypeError):
        package.files["x"] = PackageFile(data=b"")  # type: ignore[index]
    copy = pickle.loads(pickle.dumps(package))
    assert copy == package
    assert {package: 1}[copy] == 1


def test_packing_is_exact_and_deterministic():
    """Bytes, modes and name come back; order does not matter."""
    package = make(x=b"\0\xff\r\n").replace_file("scripts/run", b"", executable=True)
    shuffled = Package(name="a", files=dict(reversed(package.files.items())))
    manifest, *files = pack(package)
    assert unpack(manifest, {sha256(data): data for data in files}.__getitem__) == package
    assert pack(shuffled) == pack(package)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:40],
        lambda data: data.replace(b"false,", b""),
        lambda data: data.replace(b"SKILL.md", b"../kl.md"),
        lambda data: b"PK" + data,
    ],
)
def test_a_damaged_manifest_is_refused(damage):
    """What is cut or changed is never half a skill."""
    manifest, *_ = pack(make(x=b"1"))
    with pytest.raises(SkillError):
        unpack(damage(manifest), lambda digest: b"")
