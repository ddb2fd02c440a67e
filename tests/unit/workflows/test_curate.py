"""The life of skills: ledger and folder stay in step, and nothing the user wrote is lost."""

import pytest
from support.world import make_world, skill

from skillforge.core.events import NewEvent
from skillforge.errors import SkillError
from skillforge.workflows.curate import Curator

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
