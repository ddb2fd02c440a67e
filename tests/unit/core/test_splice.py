"""Inverses: taking one edit back while others stand on top of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skillforge.core.edits import Edit, Inverse, apply_edit, undo
from skillforge.core.package import Package, PackageFile
from skillforge.errors import EditError

TEXT = """---
name: a
description: does b
---
# Title

Intro.

## Rules

- one
- two
- three

## Notes

Some text.
"""
LATE = Edit(op="CREATE", content="## Late\n\nText.")


def make(newline: str = "\n", bom: bool = False) -> Package:
    """Return a skill with a script that nothing points to."""
    data = (b"\xef\xbb\xbf" if bom else b"") + TEXT.replace("\n", newline).encode()
    files = {
        "SKILL.md": PackageFile(data=data),
        "scripts/run": PackageFile(data=b"#!\nx\n", executable=True),
    }
    return Package(name="a", files=files)


def stack(package: Package, *edits: Edit) -> tuple[Package, list[Inverse]]:
    """Apply edits one on top of the other; return the result and the ways back, oldest first."""
    inverses = []
    for edit in edits:
        applied = apply_edit(package, edit)
        package = applied.package
        inverses.append(Inverse.from_json(applied.inverse.to_json()))
    return package, inverses


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (Edit(op="CREATE", content="## New\n\nx"), LATE),
        (Edit(op="PRUNE", unit="item:rules/1"), LATE),
        (LATE, Edit(op="PRUNE", unit="item:rules/1")),
        (
            Edit(op="UPDATE", unit="item:rules/1", content="uno, one"),
            Edit(op="PRUNE", unit="intro"),
        ),
        (
            Edit(op="CREATE", after="item:rules/1", content="- new"),
            Edit(op="UPDATE", unit="item:rules/3", content="- next"),
        ),
        (
            Edit(op="MERGE", units=("item:rules/1", "section:notes"), content="one, and notes"),
            Edit(op="UPDATE", unit="item:rules/2", content="- second"),
        ),
        (
            Edit(op="UPDATE", target="description", content="other: words"),
            Edit(op="UPDATE", unit="section:notes", content="New."),
        ),
        (Edit(op="PRUNE", unit="file:scripts/run"), LATE),
        (LATE, Edit(op="PRUNE", unit="file:scripts/run")),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [False, True])
def test_an_earlier_edit_is_undone_under_a_later_one(
    earlier: Edit, later: Edit, newline: str, bom: bool
):
    """What is left is the later edit made alone, and undoing that gives the base."""
    base = make(newline, bom)
    top, inverses = stack(base, earlier, later)
    # the new item gave the one after it another number
    alone = replace(later, unit="item:rules/2") if later.unit == "item:rules/3" else later
    only, (way_back,) = stack(base, alone)
    assert undo(top, inverses[0], inverses[1:]) == only
    assert undo(only, way_back) == base
    assert undo(undo(top, inverses[1]), inverses[0]) == base


def test_an_earlier_edit_is_undone_under_two_later_ones():
    """Every later edit is carried past."""
    base = make()
    edits = [
        Edit(op="UPDATE", unit="item:rules/2", content="- a longer second rule"),
        Edit(op="UPDATE", unit="intro", content="# Title\n\nA longer introduction."),
        Edit(op="UPDATE", unit="section:notes", content="N."),
    ]
    top, inverses = stack(base, *edits)
    for i in range(3):
        others = [edit for j, edit in enumerate(edits) if j != i]
        assert undo(top, inverses[i], inverses[i + 1 :]) == stack(base, *others)[0]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (
            Edit(op="UPDATE", unit="item:rules/2", content="- zwei"),
            Edit(op="UPDATE", unit="item:rules/2", content="- deux"),
        ),
        (
            Edit(op="UPDATE", unit="item:rules/2", content="- 2"),
            Edit(op="PRUNE", unit="section:rules"),
        ),
        (LATE, Edit(op="UPDATE", unit="section:late", content="Other.")),
        (
            Edit(op="UPDATE", unit="file:scripts/run", content="#!\ny"),
            Edit(op="PRUNE", unit="file:scripts/run"),
        ),
        (
            Edit(op="UPDATE", target="description", content="x"),
            Edit(op="UPDATE", target="description", content="y"),
        ),
        (
            Edit(op="PRUNE", unit="item:rules/2"),
            Edit(op="CREATE", after="item:rules/1", content="- between"),
        ),
    ],
)
def test_an_edit_that_a_later_one_changed_is_not_undone_alone(earlier: Edit, later: Edit):
    """Nothing is guessed: the later one must go first."""
    base = make()
    top, inverses = stack(base, earlier, later)
    with pytest.raises(EditError, match="undo the later edit first"):
        undo(top, inverses[0], inverses[1:])
    assert undo(undo(top, inverses[1]), inverses[0]) == base


def test_the_line_of_edits_must_be_whole():
    """A missing edit in between, or another version, is an error."""
    base = make()
    top, inverses = stack(
        base, LATE, Edit(op="PRUNE", unit="intro"), Edit(op="PRUNE", unit="section:notes")
    )
    with pytest.raises(EditError, match="pass every edit since"):
        undo(top, inverses[0], inverses[2:])
    with pytest.raises(EditError, match="undo the later edits first"):
        undo(top, inverses[0])


def test_what_stands_between_two_places_of_an_edit_is_not_part_of_it():
    """A merge of the first and the last item has a way back of two splices."""
    edit = Edit(op="MERGE", units=("item:rules/1", "item:rules/3"), content="one and three")
    inverse = apply_edit(make(), edit).inverse
    assert [splice.old for splice in inverse.splices] == [b"- three\n", b"- one\n"]
