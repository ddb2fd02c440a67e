"""A change of the library that dies at any file operation is finished or was never begun."""

import os
import re
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from support import faults
from support.faults import CHANGES, Dead, FaultyOps, die, opened, recorded_tree, tree

from skillforge.adapters.files import FolderLibrary
from skillforge.core.events import check_chain

DROPPED = re.compile(r"(\.skillforge-(?:new|gone)).*")
ROOT = Path(faults.__file__).parents[2]


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> Path:
    """Return a folder with one library per change, in which the change can be made."""
    base = tmp_path_factory.mktemp("bases")
    for change in CHANGES:
        faults.prepare(base / change, change)
    return base


def outcome(root: Path) -> str:
    """Open a library after a crash; check that all of it is one state, and return a name for it."""
    with opened(root) as world:
        notes = world.curator.sync()
        assert not any("hand edit" in note or "gone" in note for note in notes)
        assert tree(root / "skills") == recorded_tree(world.curator)
        assert all(record.written for record in world.curator.state.skills.values())
        assert world.curator.sync() == ()
        assert check_chain(world.ledger.events())
        return world.curator.state.library_digest


def copy(base: Path, root: Path) -> Path:
    """Copy a library."""
    shutil.copytree(base, root, symlinks=True)
    return root


def killed(root: Path, change: str, at: int) -> bool:
    """Make a change that dies at one file operation; return whether it came so far."""
    try:
        with opened(root, FaultyOps(at, die)) as world:
            CHANGES[change][1](world.curator)
    except Dead:
        return True
    return False


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_killed_at_any_operation_is_whole_or_was_never_begun(bases, tmp_path, change):
    """Whatever the operation, the next opening finds the ledger's version and nothing else."""
    found = []
    for at in count(1):
        root = copy(bases / change, tmp_path / str(at))
        alive = not killed(root, change, at)
        found.append(outcome(root))
        if alive:
            break

    assert len(found) > 8
    before, after = found[0], found[-1]
    turn = found.index(after)
    assert found == [before] * turn + [after] * (len(found) - turn)
    if change != "replace":  # what was recorded before is made good at once
        assert before != after


def test_a_process_that_leaves_at_any_operation_leaves_nothing_half_done(bases, tmp_path):
    """The same with processes that really end, at each operation of each change."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, faults.__file__, str(bases), str(tmp_path)]
    subprocess.run(command, env=environment, check=True)
    for change in CHANGES:
        left = sorted((tmp_path / change).iterdir(), key=lambda path: int(path.name))
        assert len(left) > 8
        assert len({outcome(root) for root in left}) == (1 if change == "replace" else 2)


@pytest.mark.parametrize("change", ["rollback", "remove"])
def test_a_recovery_that_is_killed_too_is_ended_by_the_next(bases, tmp_path, change):
    """A second crash, at any operation by which opening ends the first write, changes nothing.

    What follows on opening is the change called `replace`, which dies at every operation above.
    """
    seen, number = set(), count()
    for first in count(1):
        crashed = copy(bases / change, tmp_path / f"first-{first}")
        if not killed(crashed, change, first):
            break
        # what is only to be dropped is dropped alike, however much of it there is
        left = frozenset(DROPPED.sub(r"\1", path) for path in tree(crashed / "skills"))
        if left in seen:
            continue
        seen.add(left)
        wanted = outcome(copy(crashed, tmp_path / f"wanted-{first}"))
        for second in count(1):
            root = copy(crashed, tmp_path / str(next(number)))
            try:
                FolderLibrary(root / "skills", ops=FaultyOps(second, die))
            except Dead:
                assert outcome(root) == wanted
            else:
                break
    assert len(seen) > 6
    assert next(number) > 3 * len(seen)
