"""Anchors: an edit lands on the text that its author read, and on no other."""

from __future__ import annotations

import pytest

from skillforge.core.anchors import units_digest
from skillforge.core.edits import Edit, apply_edit
from skillforge.core.package import Package, PackageFile
from skillforge.core.units import find_unit
from skillforge.errors import EditError

TEXT = """---
name: a
description: does b
---
# Title

## Rules

- one rule
- two  words
- three

## Notes

Some text.
"""


def make(text: str = TEXT) -> Package:
    """Return a skill of one file."""
    return Package(name="a", files={"SKILL.md": PackageFile(data=text.encode())})


def prune(package: Package, *ids: str) -> Edit:
    """Return the edit that removes units, anchored to what the package holds."""
    anchor = units_digest(package, [find_unit(package, unit_id) for unit_id in ids])
    return Edit(op="PRUNE", units=ids, expected_digest=anchor)


def result(package: Package, edit: Edit) -> str:
    """Return the new SKILL.md."""
    return apply_edit(package, edit).package.files["SKILL.md"].data.decode()


@pytest.mark.parametrize("digits", [8, 12, 64])
def test_the_exact_digest_or_its_beginning_is_enough(digits: int):
    """What the author read is there."""
    exact = find_unit(make(), "item:rules/2").text_digest
    edit = Edit(op="PRUNE", unit="item:rules/2", expected_digest=exact[:digits])
    assert "- one rule\n- three\n" in result(make(), edit)


@pytest.mark.parametrize(
    "now",
    [
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("\n", "\r"),
        TEXT.replace("two  words", "two words  "),
        TEXT.replace("two  words", "\ttwo\n  words"),
    ],
)
def test_white_space_and_line_ends_do_not_make_an_anchor_stale(now: str):
    """A match is not lost over them (Lexus2016/hermes-agent-evolution#889)."""
    assert "two" not in result(make(now), prune(make(), "item:rules/2"))
    many = prune(make(), "item:rules/2", "section:notes")
    assert "two" not in result(make(now), many)


def test_an_exact_digest_is_good_under_other_line_ends():
    """A digest of bytes tells nothing of other white space, but of line ends it does."""
    exact = find_unit(make(), "item:rules/2").text_digest
    edit = Edit(op="PRUNE", unit="item:rules/2", expected_digest=exact)
    assert "two" not in result(make(TEXT.replace("\n", "\r\n")), edit)
    with pytest.raises(EditError, match="stale"):
        apply_edit(make(TEXT.replace("two  words", "two words")), edit)


def test_a_loose_match_that_is_not_unique_is_refused_with_the_exact_digest():
    """Two units of the same words cannot be told apart (Lexus2016/hermes-agent-evolution#889)."""
    twins = make(TEXT.replace("- three", "- two words"))
    edit = prune(make(), "item:rules/2")
    with pytest.raises(EditError, match=r"ambiguous: item:rules/2 .* item:rules/3 reads the same"):
        apply_edit(twins, edit)
    assert "- one rule\n- two words\n" in result(twins, prune(twins, "item:rules/2"))


def test_a_stale_anchor_is_refused_with_what_was_found_and_what_to_send():
    """The message names unit, text, neighbours and the digest of what stands there."""
    changed = make(TEXT.replace("two  words", "other"))
    with pytest.raises(EditError) as caught:
        apply_edit(changed, prune(make(), "item:rules/2"))
    message = str(caught.value)
    assert "item:rules/2 of skill 'a'" in message
    assert "reads '- other'" in message
    assert "item:rules/1, item:rules/2, item:rules/3" in message
    digest = find_unit(changed, "item:rules/2").text_digest[:12]
    assert f"send `expected_digest` {digest}" in message
    again = Edit(op="PRUNE", unit="item:rules/2", expected_digest=digest)
    assert "other" not in result(changed, again)


def test_a_unit_that_moved_is_named_where_it_stands_now():
    """After another edit renumbers the items, the message points to the new id."""
    package = make()
    edit = prune(package, "item:rules/2")
    moved = apply_edit(package, prune(package, "item:rules/1")).package
    with pytest.raises(EditError, match="what it expected stands in item:rules/1 now"):
        apply_edit(moved, edit)


def test_an_anchor_too_short_to_mean_anything_is_refused():
    """Seven digits are not an anchor."""
    digest = find_unit(make(), "section:notes").text_digest
    with pytest.raises(EditError, match="stale"):
        apply_edit(make(), Edit(op="PRUNE", unit="section:notes", expected_digest=digest[:7]))


def test_the_anchor_of_several_units_is_in_the_order_they_are_named():
    """Named the other way round, it is another text."""
    edit = prune(make(), "item:rules/1", "item:rules/3")
    assert "- one" not in result(make(), edit)
    turned = Edit(op="PRUNE", units=edit.units[::-1], expected_digest=edit.expected_digest)
    with pytest.raises(EditError, match="stale"):
        apply_edit(make(), turned)


def test_a_description_has_an_anchor_too():
    """The digest is that of the description as it is read."""
    from skillforge.core.digest import sha256

    anchor = sha256(b"does b")
    edit = Edit(op="UPDATE", target="description", content="does c", expected_digest=anchor)
    assert "description: does c\n" in result(make(), edit)
    with pytest.raises(EditError, match=r"the description of skill 'a' has digest .* 'does c'"):
        apply_edit(apply_edit(make(), edit).package, edit)
