"""Whatever an archive holds: nothing is written outside its folder, and nothing on refusal."""

import os
import tempfile
from pathlib import Path

from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.archives import FORMATS, Member, pack, skill

from skillforge.adapters.archives import read_archive, write_tree
from skillforge.adapters.files import discover
from skillforge.core.file_tree import Limits
from skillforge.errors import SkillError

EXAMPLES = 100
SMALL = Limits(entries=8, total=40_000, file=3000, ratio=50, slack=40_000, depth=5)
PARTS = st.sampled_from(
    ["a", "b", "A", "SKILL.md", "link", "..", ".", "", "c:", "x\\y", "é", "e\u0301"]
)
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
TAME = st.lists(st.sampled_from(["a", "b", "link"]), min_size=1, max_size=3).map("/".join)
UPS = st.integers(0, 3).map(lambda count: "../" * count)
TARGETS = st.one_of(PATHS, st.builds("{}{}".format, UPS, TAME), st.just("/etc"))
KINDS = st.sampled_from(["file", "file", "folder", "link", "link", "hardlink", "fifo"])
MEMBERS = st.builds(
    Member,
    name=st.one_of(TAME, TAME, PATHS),
    data=st.one_of(st.binary(max_size=40), st.integers(0, 5000).map(bytes)),
    kind=KINDS,
    target=TARGETS,
)


def snapshot(root: Path) -> dict[str, object]:
    """Return every path below a folder with its content, links unfollowed."""
    found: dict[str, object] = {}
    for directory, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(directory) / name
            if path.is_symlink():
                found[os.fspath(path)] = path.readlink()
            else:
                found[os.fspath(path)] = path.read_bytes() if path.is_file() else None
    return found


def unpack(root: Path, path: Path) -> bool:
    """Unpack an archive below ``root`` and check all that must hold; tell whether it was taken."""
    target = root / "deep" / "target"
    before = snapshot(root)
    try:
        tree = read_archive(path, SMALL).tree
    except SkillError:
        assert snapshot(root) == before
        return False
    write_tree(tree, target)
    inside = os.path.realpath(target)
    written = snapshot(target)
    for name in written:
        assert os.path.realpath(name).startswith(inside)
    for name, file in tree.files.items():
        assert written[os.fspath(target / name)] == file.data
    assert sum(len(file.data) for file in tree.files.values()) <= SMALL.total
    outside = {k: v for k, v in snapshot(root).items() if not k.startswith(os.fspath(target))}
    assert outside == before
    for package in discover(target).packages:
        assert b"secret" not in b"".join(file.data for file in package.files.values())
    return True


def lay_out(root: Path) -> None:
    """Put something around the target that must neither change nor be read."""
    (root / "deep").mkdir()
    for folder in (root, root / "deep"):
        for name in ("a", "b", "link"):
            (folder / name).mkdir()
            (folder / name / "SKILL.md").write_text("secret")


@settings(max_examples=EXAMPLES, deadline=None)
@given(members=st.lists(MEMBERS, max_size=9), ending=st.sampled_from(FORMATS))
def test_a_hostile_archive_writes_inside_or_not_at_all(members, ending):
    """Any mixture of names, kinds and links is unpacked inside its folder or refused whole."""
    if ending == "zip":
        members = [member for member in members if member.kind != "hardlink"]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        lay_out(root)
        taken = unpack(root, pack(root / f"x.{ending}", members))
        event(f"{'taken' if taken else 'refused'} {ending}")


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), ending=st.sampled_from([*FORMATS, "tar"]))
def test_a_damaged_archive_is_read_or_refused(data, ending):
    """Bytes changed, cut or doubled anywhere end in one clean error or in sound files."""
    members = [skill("ask"), Member("ask/x", bytes(90)), Member("ask/y", kind="link", target="x")]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        lay_out(root)
        path = pack(root / f"x.{ending}", members)
        raw = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(raw) - 1))
            raw[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b"\x00\xff01xgL")))
        cut = data.draw(st.one_of(st.just(len(raw)), st.integers(1, len(raw))))
        path.write_bytes(raw[:cut])
        event(f"{'taken' if unpack(root, path) else 'refused'} {ending}")
