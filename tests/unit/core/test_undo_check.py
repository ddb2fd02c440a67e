"""The count of round trips that a promotion asks for."""

from __future__ import annotations

import pytest

from skillforge.core.edits import Edit
from skillforge.core.intervals import wilson_interval
from skillforge.core.package import Package, PackageFile
from skillforge.core.undo_check import (
    MIN_LOWER,
    MIN_STATES,
    UndoCheck,
    check_undo,
    undo_states,
)

TEXT = """---
name: a
description: does b
---
# Title

Intro.

## Rules

- one
- two
- two

## Notes

See references/x.md.
"""
EDITS = [
    Edit(op="CREATE", content="## New\n\nx"),
    Edit(op="CREATE", after="item:rules/1", content="- new"),
    Edit(op="UPDATE", unit="item:rules/1", content="uno"),
    Edit(op="UPDATE", target="description", content="other: words"),
    Edit(op="UPDATE", unit="file:scripts/run", content="#!\ny"),
    Edit(op="MERGE", units=("item:rules/3", "item:rules/1"), content="all"),
    Edit(op="PRUNE", unit="item:rules/2"),
    Edit(op="PRUNE", units=("section:notes", "file:references/x.md")),
]


def make(text: str = TEXT) -> Package:
    """Return a skill with a reference and a script."""
    files = {
        "SKILL.md": PackageFile(data=text.encode()),
        "references/x.md": PackageFile(data=b"old\r\ntext"),
        "scripts/run": PackageFile(data=b"#!\n", executable=True),
    }
    return Package(name="a", files=files)


def test_twenty_two_of_twenty_two_is_the_least_that_bounds_the_rate_at_085():
    """The limits are those of Wilson's interval at 95 %."""
    assert wilson_interval(MIN_STATES, MIN_STATES)[0] >= MIN_LOWER
    assert wilson_interval(MIN_STATES - 1, MIN_STATES - 1)[0] < MIN_LOWER
    assert UndoCheck(states=22, passed=22).verified
    assert not UndoCheck(states=21, passed=21).verified
    assert not UndoCheck(states=40, passed=39).verified
    assert not UndoCheck(states=0, passed=0).verified
    assert UndoCheck(states=22, passed=22).to_json() == {
        "states": 22,
        "passed": 22,
        "lower": 0.8513,
    }
    assert UndoCheck.from_json({"states": 3, "passed": 2, "lower": 1.0}).lower < 0.5


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.op}-{edit.subject}")
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_op_is_undone_in_all_states(edit: Edit, newline: str):
    """Whatever the base looks like, 22 states are found and all come back."""
    check = check_undo(make(TEXT.replace("\n", newline)), edit)
    assert (check.states, check.passed) == (22, 22)
    assert check.verified


def test_a_skill_of_bare_text_has_enough_states_too():
    """Without frontmatter and other files there is less to vary, and still enough."""
    bare = Package(name="a", files={"SKILL.md": PackageFile(data=b"# A\n\nText.")})
    assert check_undo(bare, Edit(op="CREATE", content="More.")).verified


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.op}-{edit.subject}")
def test_states_differ_and_are_the_same_every_time(edit: Edit):
    """They show other line ends, marks, files, neighbours and later edits, the first being real."""
    package = make()
    states = undo_states(package, edit, {})
    assert states == undo_states(package, edit, {})
    kinds = {(tuple(s.skills.items()), s.later) for s in states}
    assert len(kinds) == len(states) == 22
    assert states[0].skills == {"a": package}
    own = [s.skills["a"] for s in states]
    assert {p.document.newline for p in own} == {"\n", "\r\n", "\r"}
    assert {p.document.bom for p in own} == {False, True}
    assert len({frozenset(p.files) for p in own}) >= 3
    assert {len(s.skills) for s in states} == {1, 2, 3, 4}
    assert {s.later is None for s in states} == {False, True}
    other = undo_states(make(TEXT + "x\n"), edit, {})
    assert [s.skills["a"].files for s in other] != [s.skills["a"].files for s in states]


def test_an_edit_that_fits_no_other_state_is_not_verified():
    """States in which the named unit reads otherwise do not count, and too few prove nothing."""
    edit = Edit(op="PRUNE", unit="item:rules/9")
    assert not check_undo(make(), edit).verified


def test_a_state_that_does_not_come_back_counts_as_failed():
    """An edit that cannot be carried out and taken back passes nowhere."""
    check = check_undo(make(), Edit(op="CREATE", content="```\nopen"))
    assert (check.states, check.passed) == (22, 0)
    assert not check.verified
