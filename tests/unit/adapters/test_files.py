"""The folder library: finding skills at any depth, and replacing them all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillforge.adapters.files import Discovery, FolderLibrary, discover
from skillforge.core.package import Package, PackageFile
from skillforge.errors import SkillError

HEAD = "---\nname: {}\ndescription: Does b.\n---\nBody of {}.\n"


def put(folder: Path, name: str | None = None, file: str = "SKILL.md") -> Path:
    """Write a skill into ``folder`` and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    name = name or folder.name
    (folder / file).write_bytes(HEAD.format(name, name).encode())
    return folder


def codes(found: Discovery) -> list[tuple[str, str]]:
    """Return path and code of each problem."""
    return [(problem.path, problem.code) for problem in found.problems]


def make(name: str, **files: bytes) -> Package:
    """Return a package in memory."""
    more = {key.replace("__", "/"): PackageFile(data=data) for key, data in files.items()}
    skill = PackageFile(data=HEAD.format(name, name).encode())
    return Package(name=name, files={"SKILL.md": skill, **more})


def names(root: Path) -> list[str]:
    """Return what lies in a folder, hidden or not."""
    return sorted(path.name for path in root.iterdir())


def snapshot(root: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_skills_are_found_at_any_depth_and_in_any_case(tmp_path: Path):
    """Hidden agent folders count; the lower-case file is found (laurigates/claude-plugins#1606)."""
    put(tmp_path / "a")
    put(tmp_path / ".claude" / "skills" / "b")
    put(tmp_path / "x" / "y" / "z" / "c", file="skill.md")
    found = discover(tmp_path)
    assert found.folders == (".claude/skills/b", "a", "x/y/z/c")
    assert [package.name for package in found.packages] == ["b", "a", "c"]
    assert found.packages[2].skill_file == "skill.md"
    assert found.problems == ()


@pytest.mark.parametrize("name", ["node_modules", ".git", "vendor", ".venv", "__pycache__"])
def test_folders_of_others_are_not_searched(tmp_path: Path, name: str):
    """What tools install is not the user's library."""
    put(tmp_path / name / "a")
    assert discover(tmp_path).packages == ()


def test_a_package_is_the_whole_folder_with_modes(tmp_path: Path):
    """Scripts, references and a vendored folder are part of it, caches are not."""
    skill = put(tmp_path / "a")
    for path in ("scripts/run.sh", "vendor/x.py", "deep/er/y.md", "__pycache__/z", ".git/config"):
        (skill / path).parent.mkdir(parents=True, exist_ok=True)
        (skill / path).write_bytes(b"x")
    (skill / "scripts/run.sh").chmod(0o755)
    (package,) = discover(tmp_path).packages
    assert list(package.files) == ["SKILL.md", "deep/er/y.md", "scripts/run.sh", "vendor/x.py"]
    assert [path for path, file in package.files.items() if file.executable] == ["scripts/run.sh"]


def test_a_template_inside_assets_is_part_of_the_package(tmp_path: Path):
    """A nested SKILL.md in a resource folder is no skill (bmad-code-org/BMAD-METHOD#2255)."""
    skill = put(tmp_path / "a")
    put(skill / "assets" / "setup", "{setup-skill-name}")
    found = discover(tmp_path)
    assert found.folders == ("a",)
    assert list(found.packages[0].files) == ["SKILL.md", "assets/setup/SKILL.md"]


def test_a_skill_nested_in_a_collection_is_its_own(tmp_path: Path):
    """Its files are not the outer one's."""
    put(put(tmp_path / "games") / "2d")
    found = discover(tmp_path)
    assert found.folders == ("games", "games/2d")
    assert list(found.packages[0].files) == ["SKILL.md"]


def test_the_root_may_be_a_skill_or_its_file(tmp_path: Path):
    """`validate PATH` takes all three."""
    skill = put(tmp_path / "a")
    for root in (tmp_path, skill, skill / "SKILL.md"):
        assert [package.name for package in discover(root).packages] == ["a"]
    with pytest.raises(SkillError, match="is no folder"):
        discover(tmp_path / "gone")


def test_links_are_followed_inside_the_root_only_and_loops_end(tmp_path: Path):
    """Loops and dangling links are harmless (vercel-labs/skills#965)."""
    root = tmp_path / "root"
    skill = put(root / "a")
    put(root / "node_modules" / "b")
    put(tmp_path / "outside" / "c")
    (skill / "up").symlink_to(root, target_is_directory=True)
    (skill / "gone.md").symlink_to("nowhere")
    (skill / "self").symlink_to("self")
    (root / "b").symlink_to("node_modules/b", target_is_directory=True)
    (root / "c").symlink_to(tmp_path / "outside" / "c", target_is_directory=True)
    (skill / "secret").symlink_to(tmp_path / "outside" / "c" / "SKILL.md")
    found = discover(root)
    assert [package.name for package in found.packages] == ["a", "b"]
    assert "secret" not in found.packages[0].files
    assert ("c", "link-outside-root") in codes(found)
    assert ("a/gone.md", "link-dangling") in codes(found)


def test_a_skill_reached_by_two_ways_is_counted_once(tmp_path: Path):
    """The real name wins over a link to it (initializ/forge#512)."""
    put(tmp_path / "z-real")
    (tmp_path / "a-link").symlink_to("z-real", target_is_directory=True)
    found = discover(tmp_path)
    assert found.folders == ("z-real",)
    assert found.problems == ()


def test_shared_files_behind_links_are_read_once_each(tmp_path: Path):
    """A linked folder inside the root is part of the package, under the link's name."""
    skill = put(tmp_path / "a")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "x.md").write_bytes(b"x")
    (skill / "references").symlink_to("../shared", target_is_directory=True)
    (package,) = discover(tmp_path).packages
    assert list(package.files) == ["SKILL.md", "references/x.md"]


def test_one_file_behind_two_folders_is_counted_once(tmp_path: Path):
    """A linked SKILL.md is no second skill (initializ/forge#512); linked to a plain file it is."""
    put(tmp_path / "z-real")
    for name, target in (("a-link", "../z-real/SKILL.md"), ("b", "../AGENTS.md")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").symlink_to(target)
    (tmp_path / "AGENTS.md").write_bytes(HEAD.format("b", "b").encode())
    (tmp_path / "z-real" / "skill.md").symlink_to("SKILL.md")
    found = discover(tmp_path)
    assert found.folders == ("b", "z-real")
    assert codes(found) == [("a-link", "link-twice")]
    assert "z-real" in found.problems[0].message


def test_one_bad_skill_hides_no_other(tmp_path: Path):
    """The others load, the bad one is named (vercel-labs/skills#1058)."""
    put(tmp_path / "a")
    put(tmp_path / "c")
    bad = put(tmp_path / "b")
    (bad / "back\\slash").write_bytes(b"")
    (put(tmp_path / "d") / "SKILL.md").write_bytes(b"\xff---\nname: [")
    found = discover(tmp_path)
    assert [package.name for package in found.packages] == ["a", "c", "d"]
    assert codes(found) == [("b", "unreadable")]


def test_an_unreadable_file_is_a_problem(tmp_path: Path):
    """The rights are named and the others load; a superuser reads it all the same."""
    put(tmp_path / "a")
    locked = put(tmp_path / "b") / "SKILL.md"
    locked.chmod(0)
    found = discover(tmp_path)
    if os.access(locked, os.R_OK):
        assert codes(found) == []
    else:
        assert [package.name for package in found.packages] == ["a"]
        assert codes(found) == [("b", "unreadable")]


def test_names_that_are_not_utf8_are_reported(tmp_path: Path):
    """A folder from another encoding stops nothing."""
    put(tmp_path / "a")
    try:
        (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    put(tmp_path / os.fsdecode(b"caf\xe9"), "b")
    found = discover(tmp_path)
    assert [package.name for package in found.packages] == ["a"]
    assert [problem.code for problem in found.problems] == ["unreadable"]
    assert "caf" in str(found.problems[0]).encode().decode()


def test_a_library_writes_what_it_then_reads(tmp_path: Path):
    """Bytes and modes survive; nothing else is left on the disk."""
    library = FolderLibrary(tmp_path)
    package = make("a", references__x=b"\r\n\xff").replace_file("run", b"#!", executable=True)
    assert library.read("a") is None
    library.write(package)
    assert library.read("a") == package
    smaller = package.without_file("references/x")
    library.write(smaller)
    assert library.versions() == {"a": smaller.version}
    assert names(tmp_path) == ["a"]
    assert not (tmp_path / "a" / "references").exists()


def test_a_skill_is_replaced_where_it_lies(tmp_path: Path):
    """Nested layouts are kept, and what is no part of the package is carried over."""
    skill = put(tmp_path / "team" / "a")
    put(skill / "sub")
    (skill / ".git").mkdir()
    (skill / ".git" / "HEAD").write_bytes(b"x")
    library = FolderLibrary(tmp_path)
    package = make("a", scripts__x=b"1")
    library.write(package)
    assert FolderLibrary(tmp_path).read("a") == package
    assert (skill / ".git" / "HEAD").read_bytes() == b"x"
    assert list(FolderLibrary(tmp_path).versions()) == ["a", "sub"]


def test_writing_does_not_reach_through_links(tmp_path: Path):
    """A linked folder becomes the skill's own; what it pointed to stays as it was."""
    skill = put(tmp_path / "a")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "x.md").write_bytes(b"old")
    (skill / "references").symlink_to("../shared", target_is_directory=True)
    library = FolderLibrary(tmp_path)
    package = library.read("a")
    assert package is not None
    library.write(package.replace_file("references/x.md", b"new"))
    assert (tmp_path / "shared" / "x.md").read_bytes() == b"old"
    assert (skill / "references" / "x.md").read_bytes() == b"new"


def test_removing_takes_the_skill_and_nothing_else(tmp_path: Path):
    """Nested skills stay; an unknown name is an error."""
    put(put(tmp_path / "a") / "sub")
    put(tmp_path / "b")
    library = FolderLibrary(tmp_path)
    library.remove("a")
    library.remove("b")
    assert list(library.versions()) == ["sub"]
    assert names(tmp_path) == ["a"]
    with pytest.raises(SkillError, match="has no skill 'a'"):
        library.remove("a")


def test_a_write_that_fails_leaves_the_old_skill(tmp_path: Path):
    """A file name the disk refuses stops the write before anything is swapped."""
    put(tmp_path / "a")
    before = snapshot(tmp_path)
    library = FolderLibrary(tmp_path)
    with pytest.raises(SkillError, match="cannot be written"):
        library.write(make("a", **{"x" * 300: b""}))
    assert snapshot(tmp_path / "a") == {"SKILL.md": before["a/SKILL.md"]}
    assert list(FolderLibrary(tmp_path).versions()) == ["a"]
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("stage", ["before the swap", "between the renames", "after the swap"])
def test_a_crash_during_a_write_leaves_one_whole_skill(tmp_path: Path, stage: str):
    """What a killed process leaves on the disk is mended when the library is next opened."""
    put(tmp_path / "a")
    new, old = tmp_path / ".a.skillforge-new", tmp_path / ".a.skillforge-old"
    put(new, "a")
    (new / "extra").write_bytes(b"")
    if stage != "before the swap":
        (tmp_path / "a").rename(old)
    if stage == "after the swap":
        new.rename(tmp_path / "a")
    package = FolderLibrary(tmp_path).read("a")
    assert package is not None
    assert ("extra" in package.files) == (stage == "after the swap")
    assert names(tmp_path) == ["a"]


def test_a_crash_during_a_removal_is_completed(tmp_path: Path):
    """A half-deleted folder does not come back."""
    put(tmp_path / ".a.skillforge-gone")
    assert FolderLibrary(tmp_path).versions() == {}
    assert names(tmp_path) == []


def test_the_library_sees_changes_made_beside_it(tmp_path: Path):
    """A skill moved or added by hand is found at the next read."""
    library = FolderLibrary(tmp_path)
    put(tmp_path / "a")
    assert library.read("a") is not None
    (tmp_path / "team").mkdir()
    (tmp_path / "a").rename(tmp_path / "team" / "a")
    assert library.read("a") is not None
    put(tmp_path / "copy" / "a", "other")
    put(tmp_path / "b")
    assert list(library.versions()) == ["a", "b"]
    first = library.read("a")
    assert first is not None
    assert first.description == "Does b."
    assert library.versions()["a"] == first.version


def test_a_library_needs_a_folder_that_is_no_skill(tmp_path: Path):
    """The two mistakes of a first use have an answer."""
    with pytest.raises(SkillError, match="create it first"):
        FolderLibrary(tmp_path / "gone")
    skill = put(tmp_path / "a")
    with pytest.raises(SkillError, match="open its parent"):
        FolderLibrary(skill).write(make("a"))
