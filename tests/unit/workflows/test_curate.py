"""The life of skills: ledger and folder stay in step, and nothing the user wrote is lost."""

import random
import sqlite3
from contextlib import closing

import pytest
from support.faults import FaultyOps, disk_full
from support.world import make_world, skill

from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.folder_writes import FileOps
from skillforge.core.digest import sha256
from skillforge.core.events import NewEvent
from skillforge.core.package import Package, PackageFile
from skillforge.errors import LedgerError, SkillError
from skillforge.workflows.curate import Curator
from skillforge.workflows.erase import plan_erasure

A, B, MINE = skill("ask", "# One\n"), skill("ask", "# Two\n"), skill("ask", "# Mine\n")


def adopted_but_not_written(world):
    """Leave the world as a crash between the adoption and the folder write would."""
    world.curator.take_in(B)
    world.curator.roll_back("ask", to=A.version, reason="start from A")
    world.ledger.append(
        [
            NewEvent(
                kind="version.adopted",
                data={"skill": "ask", "version": B.version, "parent": A.version, "evidence": "x"},
            )
        ]
    )


def test_an_interrupted_folder_write_is_finished(tmp_path):
    """The ledger says B, the folder holds A: the next command writes B."""
    world = make_world(tmp_path, [A])
    world.library.write(B)
    adopted_but_not_written(world)
    assert world.library.read("ask").version == A.version

    notes = world.curator.sync()
    assert "finished a folder write" in notes[0]
    assert world.library.read("ask").version == B.version
    assert world.curator.sync() == ()


def test_a_hand_edit_after_a_crash_is_kept(tmp_path):
    """What the user wrote between the crash and the next command becomes the current version."""
    world = make_world(tmp_path, [A])
    world.library.write(B)
    adopted_but_not_written(world)
    world.library.write(MINE)

    world.curator.sync()
    assert world.library.read("ask").version == MINE.version
    assert world.curator.state.skill("ask").current == MINE.version
    assert world.curator.package("ask", B.version).version == B.version


class DiesAtTheSwap:
    """A library folder that dies when everything is laid out and only the swap is left."""

    def read(self, name):
        """Hold nothing."""
        del name

    def write(self, package, *, ready):
        """Say that nothing can be refused any more, and end there."""
        ready()
        raise SkillError(f"died before {package.name} was swapped in")


def test_what_is_brought_in_is_recorded_before_it_is_written(tmp_path):
    """An import that ends between ledger and folder is finished by the next command."""
    world = make_world(tmp_path, [])
    with pytest.raises(SkillError, match="died before ask"):
        Curator(ledger=world.ledger, library=DiesAtTheSwap()).bring_in(A, {"source": "x"})
    assert world.library.read("ask") is None
    assert not world.curator.state.skill("ask").written

    assert "finished a folder write" in world.curator.sync()[0]
    assert world.library.read("ask") == A
    assert world.curator.state.skill("ask").written
    with pytest.raises(SkillError, match="holds another skill"):
        world.curator.bring_in(B, {"source": "y"})
    assert world.library.read("ask") == A


def test_a_hand_edit_becomes_a_version(tmp_path):
    """Editing a file by hand makes a new, unmeasured version whose parent is the old one."""
    world = make_world(tmp_path, [A])
    world.library.write(MINE)
    world.curator.sync()

    record = world.curator.state.skill("ask")
    assert (record.current, record.evidence) == (MINE.version, "unmeasured")
    assert world.curator.state.versions["ask", MINE.version].parent == A.version


def test_rollback_goes_to_the_parent_and_writes_it(tmp_path):
    """Rolling back serves the parent's bytes again, and the later version stays in the ledger."""
    world = make_world(tmp_path, [A])
    world.library.write(B)
    world.curator.sync()

    assert world.curator.roll_back("ask", reason="test") == A.version
    assert world.library.read("ask").version == A.version
    assert world.curator.package("ask", B.version[:8]).version == B.version


def test_rollback_without_a_parent_says_so(tmp_path):
    """An imported version has nothing before it."""
    world = make_world(tmp_path, [A])
    with pytest.raises(SkillError, match="no parent to roll back to"):
        world.curator.roll_back("ask", reason="test")


def test_retire_and_restore_keep_every_byte(tmp_path):
    """The whole package comes back, and retiring twice is refused."""
    world = make_world(tmp_path, [A])
    world.curator.retire("ask", evidence={}, reason="test")
    assert world.library.read("ask") is None
    with pytest.raises(SkillError, match="retired already"):
        world.curator.retire("ask", evidence={}, reason="test")

    world.curator.restore("ask")
    assert world.library.read("ask") == A


def test_retire_keeps_a_hand_edit_first(tmp_path):
    """An edit that no command has seen yet is taken in instead of being removed."""
    world = make_world(tmp_path, [A])
    world.library.write(MINE)
    with pytest.raises(SkillError, match="edited by hand"):
        world.curator.retire("ask", evidence={}, reason="test")
    assert world.library.read("ask").version == MINE.version
    assert world.curator.package("ask", MINE.version).version == MINE.version


def test_a_missing_folder_is_named_and_can_be_restored(tmp_path):
    """A served skill whose folder is gone is not silently dropped."""
    world = make_world(tmp_path, [A])
    world.library.remove("ask")
    (note,) = world.curator.sync()
    assert "skillforge restore ask" in note
    world.curator.restore("ask")
    assert world.library.read("ask") == A


@pytest.mark.parametrize(("prefix", "message"), [("zz", "no version"), ("", "several versions")])
def test_a_version_must_be_named_unambiguously(tmp_path, prefix, message):
    """Unknown and ambiguous prefixes list what there is."""
    world = make_world(tmp_path, [A])
    world.library.write(B)
    world.curator.sync()
    with pytest.raises(SkillError, match=message):
        world.curator.package("ask", prefix)


def stage(world, version, *, base=None):
    """Stage a version on the current one, or on another."""
    current = world.curator.state.skill("ask").current
    names = {"run": "r", "candidate": "c", "evidence": "probation"}
    world.curator.stage("ask", version, base=base or current, **names)


def in_two_versions(root):
    """Return a world that came from A to B, with A staged on B."""
    world = make_world(root, [A])
    world.library.write(B)
    world.curator.sync()
    stage(world, A.version)
    return world


def test_staging_touches_no_folder_and_is_done_once(tmp_path):
    """A rerun after a crash stages nothing twice; adopting takes it off the list."""
    world = in_two_versions(tmp_path)
    stage(world, A.version)
    assert len(list(world.ledger.events(kinds=("version.staged",)))) == 1
    assert world.library.read("ask").version == B.version

    assert world.curator.adopt("ask") == A.version
    assert world.library.read("ask").version == A.version
    record = world.curator.state.skill("ask")
    assert (record.current, record.evidence, record.written) == (A.version, "probation", True)
    assert world.curator.state.staged == {}


def test_a_hand_edit_that_no_command_has_seen_is_never_adopted_over(tmp_path):
    """The edit becomes a version; asked again, adopting names the base that is gone."""
    world = in_two_versions(tmp_path)
    world.library.write(MINE)
    with pytest.raises(SkillError, match="edited by hand"):
        world.curator.adopt("ask")
    with pytest.raises(SkillError, match=f"decided against {B.short}, but {MINE.short} is served"):
        world.curator.adopt("ask")
    assert world.library.read("ask").version == MINE.version
    assert [s.version for s in world.curator.state.staged["ask"]] == [A.version]


def test_a_hand_edit_made_while_a_write_is_laid_out_is_kept(tmp_path):
    """Even an edit in the last moment before the folder is swapped ends the change."""
    world = in_two_versions(tmp_path)
    path = tmp_path / "skills" / "ask" / "SKILL.md"

    class Slow(FileOps):
        def sync(self, folder):
            path.write_bytes(MINE.files["SKILL.md"].data)

    world.curator.library = FolderLibrary(tmp_path / "skills", ops=Slow())
    for change in (world.curator.adopt, lambda name: world.curator.roll_back(name, reason="test")):
        path.write_bytes(B.files["SKILL.md"].data)
        world.curator.sync()
        with pytest.raises(SkillError, match="edited by hand"):
            change("ask")
        assert path.read_bytes() == MINE.files["SKILL.md"].data
        assert world.curator.state.skill("ask").current == MINE.version


def test_adopting_needs_the_folder_that_was_decided_on(tmp_path):
    """A folder that is gone, a retired skill, and nothing staged each say what to do."""
    world = in_two_versions(tmp_path)
    world.library.remove("ask")
    with pytest.raises(SkillError, match=r"folder is gone; `skillforge restore ask` first"):
        world.curator.adopt("ask")
    world.curator.restore("ask")
    world.curator.retire("ask", evidence={}, reason="test")
    with pytest.raises(SkillError, match="ask is retired"):
        world.curator.adopt("ask")
    world.curator.restore("ask", A.version)
    assert world.curator.state.staged == {}
    with pytest.raises(SkillError, match="nothing is staged"):
        world.curator.adopt("ask")


def test_a_write_that_cannot_be_finished_is_no_hand_edit(tmp_path):
    """While the disk refuses, each opening says so; once it does not, the write is finished."""
    world = in_two_versions(tmp_path)
    data = {"skill": "ask", "version": A.version, "parent": B.version, "evidence": "probation"}
    world.ledger.append([NewEvent(kind="version.adopted", data=data)])
    world.curator.library = FolderLibrary(tmp_path / "skills", ops=FaultyOps(1, disk_full))
    (note,) = world.curator.sync()
    assert "still unfinished" in note
    assert "free some disk space" in note
    assert world.curator.state.skill("ask").current == A.version
    assert world.library.read("ask").version == B.version
    world.curator.library = world.library
    world.curator.sync()
    assert world.library.read("ask").version == A.version


def test_versions_share_the_files_that_they_have_in_common(tmp_path):
    """A second version of a 1 MB package costs what differs; every byte and mode comes back.

    Roll-backs that lose scripts or references are NousResearch/hermes-agent#96962.
    """
    noise = random.Random(7).randbytes(900_000)
    first = (
        A.replace_file("assets/logo.bin", noise)
        .replace_file("references/table.csv", b"1,2,3,4\n" * 12_500)
        .replace_file("scripts/run", b"\x7fELF\x00", executable=True)
    )
    second = first.replace_file("scripts/run", b"\x7fELF\x01", executable=True)
    world = make_world(tmp_path, [first])
    sizes = [stored(world)]
    world.library.write(second)
    world.curator.sync()
    sizes.append(stored(world))

    assert sum(len(file.data) for file in first.files.values()) > 1_000_000
    assert sizes[0] < 905_000
    assert sizes[1] - sizes[0] < 2_000
    assert world.curator.package("ask", first.version) == first
    world.curator.roll_back("ask", reason="test")
    assert world.library.read("ask") == first


def stored(world):
    """Return the bytes that the ledger's blobs take."""
    with closing(sqlite3.connect(world.ledger.path)) as db:
        return db.execute("SELECT sum(length(data)) FROM blobs").fetchone()[0]


def test_what_lies_in_a_folder_without_a_skill_file_is_the_users(tmp_path):
    """A restore beside a draft keeps the draft; what is in the way of a file is refused."""
    world = make_world(tmp_path, [A])
    folder = tmp_path / "skills" / "ask"
    (folder / "SKILL.md").rename(folder / "SKILL.md.draft")
    world.curator.sync()
    world.curator.restore("ask")
    assert (folder / "SKILL.md.draft").is_file()
    assert world.library.read("ask").files.keys() == {"SKILL.md", "SKILL.md.draft"}


def test_nothing_is_written_through_a_link_out_of_the_library(tmp_path):
    """A folder that a link leads to outside stays as it is, and the error says what to do."""
    world = make_world(tmp_path, [A])
    world.curator.retire("ask", evidence={}, reason="test")
    outside = tmp_path / "outside"
    (outside / ".git").mkdir(parents=True)
    (outside / ".git" / "HEAD").write_text("ref")
    (tmp_path / "skills" / "ask").symlink_to(outside)
    with pytest.raises(SkillError, match="link out of the library"):
        world.curator.restore("ask")
    assert (outside / ".git" / "HEAD").read_text() == "ref"


def test_a_second_folder_of_a_name_does_not_take_its_place(tmp_path):
    """The skill nearest to the root stays, and a note names the other."""
    world = make_world(tmp_path, [A])
    copy = tmp_path / "skills" / "a-archive" / "ask"
    copy.mkdir(parents=True)
    (copy / "SKILL.md").write_bytes(B.files["SKILL.md"].data)
    (note,) = world.curator.sync()
    assert note.startswith("a-archive/ask: the skill of that name is ask")
    assert world.curator.state.skill("ask").current == A.version


def test_a_retired_skill_is_not_rolled_back(tmp_path):
    """It is not served; the error names the command that serves it again."""
    world = make_world(tmp_path, [A])
    world.library.write(B)
    world.curator.sync()
    world.curator.retire("ask", evidence={}, reason="test")
    with pytest.raises(SkillError, match="skillforge restore ask"):
        world.curator.roll_back("ask", reason="test")


def test_erasing_a_version_takes_along_the_files_it_alone_has(tmp_path):
    """A leaked line in a file of a version is gone with it; what others hold too stays."""
    world = make_world(tmp_path, [A])
    shared = next(iter(A.files.values()))
    leak = Package(
        name="ask", files={**A.files, "leak.md": PackageFile(data=b"SECRET-sk-1"), "s.md": shared}
    )
    world.library.write(leak)
    world.curator.sync()
    blob = world.curator.state.versions["ask", leak.version].blob
    plan = plan_erasure(world.ledger, [blob])
    assert plan.shared == (sha256(shared.data),)
    world.ledger.erase(plan.blobs, reason="leaked")
    with pytest.raises(LedgerError):
        world.ledger.get_blob(sha256(b"SECRET-sk-1"))
    assert world.curator.package("ask", A.version) == A
