"""Typed edits: what each op writes, what is refused, and that every edit can be undone."""

from __future__ import annotations

import pytest

from skillforge.core.document import parse_document
from skillforge.core.edits import (
    Edit,
    Inverse,
    apply_edit,
    check_declared,
    declared_files,
    undo,
)
from skillforge.core.package import Package, PackageFile
from skillforge.core.skill_diff import diff_units, unified_patch
from skillforge.errors import EditError

TEXT = """---
# first
name: a
description: does b # for now
license: MIT  # see file
---
# Title

What it is for.

## Rules

- one
- two
- three

## Notes

Some text.
"""


def make(text: str = TEXT, newline: str = "\n", bom: bool = False) -> Package:
    """Return a skill with that SKILL.md, a script and a reference."""
    data = (b"\xef\xbb\xbf" if bom else b"") + text.replace("\n", newline).encode()
    return Package(
        name="a",
        files={
            "SKILL.md": PackageFile(data=data),
            "scripts/run": PackageFile(data=b"#!\n", executable=True),
            "references/x.md": PackageFile(data=b"old\r\ntext"),
        },
    )


def after(edit: Edit, package: Package | None = None) -> str:
    """Apply the edit, check the way back, and return the new SKILL.md."""
    package = package or make()
    applied = apply_edit(package, edit)
    assert undo(applied.package, applied.inverse) == package
    assert Inverse.from_json(applied.inverse.to_json()) == applied.inverse
    return applied.package.files["SKILL.md"].data.decode()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [False, True])
def test_update_replaces_the_unit_and_no_other_byte(newline: str, bom: bool):
    """Line ends and BOM of the file are used and kept (Lexus2016/hermes-agent-evolution#889)."""
    edit = Edit(op="UPDATE", unit="item:rules/2", content="- second\n  rule")
    expected = make(TEXT.replace("- two", "- second\n  rule"), newline, bom)
    assert after(edit, make(TEXT, newline, bom)) == expected.files["SKILL.md"].data.decode()


@pytest.mark.parametrize(
    ("unit", "content", "expected"),
    [
        ("section:notes", "New text.", "## Notes\n\nNew text.\n"),
        ("section:notes", "## Remarks\n\nNew text.", "## Remarks\n\nNew text.\n"),
        ("item:rules/2", "second\nrule", "- second\n  rule\n- three"),
        ("item:rules/2", "* second", "- second\n- three"),
        ("intro", "# Other\n\nWords.", "# Other\n\nWords.\n\n## Rules"),
    ],
)
def test_update_keeps_heading_and_marker(unit: str, content: str, expected: str):
    """Models leave them out; the unit stays what it was."""
    assert expected in after(Edit(op="UPDATE", unit=unit, content=content))


@pytest.mark.parametrize(
    ("place", "content", "expected"),
    [
        (None, "## New\n\nx", "Some text.\n\n## New\n\nx\n"),
        ("section:notes", "## New\n\nx", "Some text.\n\n## New\n\nx\n"),
        ("item:rules/1", "- new", "- one\n- new\n- two\n"),
        ("item:rules/1", "plain words", "- one\n\nplain words\n\n- two"),
        ("item:rules/3", "- new", "- three\n- new\n\n## Notes"),
        ("item:rules/3", "## New\n\nx", "- three\n\n## New\n\nx\n\n## Notes"),
        ("intro", "## New\n\nx", "What it is for.\n\n## New\n\nx\n\n## Rules"),
        ("frontmatter", "Hello.", "---\n\nHello.\n\n# Title"),
    ],
)
def test_create_puts_content_after_the_unit(place: str | None, content: str, expected: str):
    """One blank line stands around it, none between items."""
    assert expected in after(Edit(op="CREATE", after=place, content=content))


def test_create_parts_items_as_their_list_does():
    """A blank line goes between the items of a loose list, wherever the new one stands."""
    loose = TEXT.replace("- one\n- two\n", "- one\n\n- two\n\n")
    for place, expected in (("2", "- two\n\n- new\n\n- three"), ("3", "- three\n\n- new\n\n## N")):
        edit = Edit(op="CREATE", after=f"item:rules/{place}", content="- new")
        assert expected in after(edit, make(loose))


def test_create_works_without_a_body_or_a_final_newline():
    """The file ends with the new text whatever it ended with."""
    head = "---\nname: a\ndescription: b\n---\n"
    edit = Edit(op="CREATE", content="Hello.")
    assert after(edit, make(head)) == head + "\nHello.\n"
    assert after(edit, make(head.rstrip())) == head + "\nHello.\n"
    assert after(edit, make(head + "x")) == head + "x\n\nHello.\n"


def test_merge_and_prune_change_several_units_at_once():
    """The first unit takes the content, the others go, in whatever order they stand."""
    merge = Edit(op="MERGE", units=("item:rules/3", "item:rules/1"), content="one and three")
    assert "- two\n- one and three\n\n## Notes" in after(merge)
    prune = Edit(op="PRUNE", units=("item:rules/1", "section:notes", "file:references/x.md"))
    assert after(prune).endswith("## Rules\n\n- two\n- three\n\n")
    assert "references/x.md" not in apply_edit(make(), prune).package.files


def test_a_file_can_be_replaced_and_removed_with_its_mode():
    """Line ends and the executable bit of the file are kept, and come back."""
    applied = apply_edit(make(), Edit(op="UPDATE", unit="file:references/x.md", content="a\nb"))
    assert applied.package.files["references/x.md"].data == b"a\r\nb"
    pruned = apply_edit(make(), Edit(op="PRUNE", unit="file:scripts/run"))
    assert undo(pruned.package, pruned.inverse).files["scripts/run"].executable


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "a: b",
        "says \"x\" and 'y'",
        "board #28 (v2)",
        "- dash",
        "yes",
        "2024-01-02",
        "[x]",
        "*x",
        "emoji 😀, sep \u2028, tab\u0085",
        "ends:",
        "x" * 1024,
        " leading and trailing ",
        "two\nlines",
        "\n\nblank lines: #around\r\n",
        "\ttab",
        "'quoted'",
        '"',
    ],
)
@pytest.mark.parametrize("old", ["does b # for now", "x: y", "|\n  a\n\n  b", "'q'", "p\n  q", ""])
def test_the_description_is_written_as_yaml_and_nothing_else_changes(text: str, old: str):
    """Only the value's bytes differ, and it reads back equal, spaces and line ends included."""
    package = make(TEXT.replace("does b # for now", old))
    written = after(Edit(op="UPDATE", target="description", content=text), package)
    found = parse_document(written.encode())
    assert found.frontmatter == {
        "name": "a",
        "description": text,
        "license": "MIT",
    }
    assert [p for p in found.problems if p.level == "error"] == []
    assert "# first\nname: a\n" in written
    assert "\nlicense: MIT  # see file\n---\n# Title" in written


def test_a_missing_description_is_added():
    """The key goes to the end of the frontmatter; without frontmatter there is no place."""
    edit = Edit(op="UPDATE", target="description", content="b")
    assert after(edit, make("---\nname: a\n---\nx\n")) == "---\nname: a\ndescription: b\n---\nx\n"
    with pytest.raises(EditError, match="no frontmatter"):
        apply_edit(make("x\n"), edit)
    with pytest.raises(EditError, match="1025 characters"):
        apply_edit(make(), Edit(op="UPDATE", target="description", content="x" * 1025))


def test_noop_is_legal_and_changes_nothing():
    """The package comes back as it was."""
    applied = apply_edit(make(), Edit(op="NOOP"))
    assert applied.package == make()
    assert undo(applied.package, applied.inverse) == make()


@pytest.mark.parametrize(
    "edit",
    [
        Edit(op="UPDATE", unit="item:rules/2", content="- two"),
        Edit(op="UPDATE", unit="item:rules/2", content="```\n- two\n```"),
        Edit(op="UPDATE", target="description", content="does b"),
        Edit(op="UPDATE", unit="section:notes", content="Some text.\r\n"),
    ],
)
def test_an_edit_that_changes_no_byte_is_refused(edit: Edit):
    """A better score for the same bytes cannot be (NousResearch/hermes-agent-self-evolution#87).

    Nor is an identical replacement tried again (Lexus2016/hermes-agent-evolution#889).
    """
    with pytest.raises(EditError, match="propose NOOP"):
        apply_edit(make(), edit)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit(op="UPDATE", unit="item:rule/2", content="x"), "item:rules/2"),
        (Edit(op="UPDATE", unit="item:rules/2", content=" \n"), "empty"),
        (Edit(op="UPDATE", unit="frontmatter", content="x"), "frontmatter is the tool's"),
        (Edit(op="PRUNE", unit="heading:rules"), "cannot be removed"),
        (Edit(op="PRUNE", unit="file:SKILL.md"), "no unit"),
        (Edit(op="CREATE", after="file:scripts/run", content="x"), "name a unit of the body"),
        (Edit(op="CREATE", content="```\nx"), "does not close it"),
        (Edit(op="UPDATE", unit="item:rules/2", content="<!-- x"), "does not close it"),
        (Edit(op="UPDATE", content="x"), "needs content and unit"),
        (Edit(op="UPDATE", unit="a"), "needs content"),
        (Edit(op="MERGE", units=("item:rules/1",), content="x"), "at least two"),
        (Edit(op="MERGE", units=("intro", "intro"), content="x"), "twice"),
        (Edit(op="PRUNE", units=("section:rules", "item:rules/1")), "overlap"),
        (Edit(op="MERGE", units=("item:rules/3", "section:rules"), content="x"), "overlap"),
        (Edit(op="UPDATE", unit="intro", units=("intro",), content="x"), "UPDATE needs"),
        (Edit(op="CREATE", content="a \ud800 b"), "half of a surrogate pair"),
        (Edit(op="CREATE", content="x", source="b"), "CREATE needs content, got content, source"),
        (Edit(op="MERGE", units=("intro",), source="b"), "carry it out with `consolidate`"),
        (Edit(op="PRUNE", unit="intro", content="x"), "PRUNE needs"),
        (Edit(op="NOOP", unit="intro"), "NOOP needs nothing, got unit"),
        (Edit(op="CREATE", content="x", target="description"), "CREATE needs"),
        (Edit(op="PRUNE", unit="intro", after="intro"), "PRUNE needs"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused_with_what_to_do(edit: Edit, message: str):
    """Empty, ambiguous and unknown targets never loop (NousResearch/hermes-agent#106420 / #84457).

    The message says which unit, what was found and what to send instead.
    """
    with pytest.raises(EditError, match=message):
        apply_edit(make(), edit)


def test_text_after_an_unclosed_fence_is_refused():
    """A new section would be read as code."""
    with pytest.raises(EditError, match="own text opens"):
        apply_edit(make(TEXT + "\n```\nx\n"), Edit(op="CREATE", content="## New"))


def test_json_goes_both_ways():
    """What is written can be read; empty strings count as left out."""
    edit = Edit(op="MERGE", units=("a", "b"), content="x", summary="join")
    assert Edit.from_json(edit.to_json()) == edit
    assert Edit.from_json({"op": "NOOP", "unit": "", "content": "", "units": []}) == Edit(op="NOOP")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "one JSON object"),
        ({"op": "UPDATE", "old_string": "x"}, "unknown keys old_string"),
        ({"op": "update"}, "expected one of CREATE"),
        ({}, "`op` is None"),
        ({"op": "UPDATE", "unit": 3, "content": "x"}, "`unit` must be a string, got int"),
        ({"op": "MERGE", "units": "a", "content": "x"}, "list of unit ids"),
        ({"op": "NOOP", "target": "name"}, "expected body or description"),
        ({"op": "PRUNE"}, "PRUNE needs unit or units, got nothing"),
    ],
)
def test_wrong_json_is_refused_once_and_clearly(value: object, message: str):
    """A model that gets the types wrong is told how (MervinPraison/PraisonAI#279)."""
    with pytest.raises(EditError, match=message):
        Edit.from_json(value)


def test_an_unknown_argument_is_refused_and_not_dropped():
    """A misspelt option never falls back in silence (NousResearch/hermes-agent-self-evolution#87).

    The message lists what there is.
    """
    with pytest.raises(EditError, match="unknown keys max_steps; an edit has op, unit"):
        Edit.from_json({"op": "NOOP", "max_steps": 3})


def test_an_edit_declares_its_files_and_touches_no_other():
    """The files follow from the units; a change of another one is refused by name."""
    package = make()
    both = Edit(op="PRUNE", units=("item:rules/1", "file:references/x.md"))
    assert declared_files(package, both) == {"SKILL.md", "references/x.md"}
    assert declared_files(package, Edit(op="CREATE", content="x")) == {"SKILL.md"}
    assert declared_files(package, Edit(op="NOOP")) == frozenset()
    changed = package.replace_file("SKILL.md", b"x").replace_file("scripts/run", b"rm -r")
    check_declared(package, changed, frozenset({"SKILL.md", "scripts/run"}))
    with pytest.raises(EditError, match=r"declares SKILL\.md but also touches scripts/run"):
        check_declared(package, changed, frozenset({"SKILL.md"}))
    with pytest.raises(EditError, match="also touches new"):
        check_declared(package, package.replace_file("new", b""), frozenset({"SKILL.md"}))


def test_undo_refuses_another_version_and_a_damaged_inverse():
    """Nothing is restored over later work."""
    package = make()
    applied = apply_edit(package, Edit(op="PRUNE", unit="intro"))
    with pytest.raises(EditError, match="undo the later edits first"):
        undo(package, applied.inverse)
    damaged = applied.inverse.to_json()
    damaged["splices"][0][2] = ""
    with pytest.raises(EditError, match="damaged"):
        undo(applied.package, Inverse.from_json(damaged))
    with pytest.raises(EditError, match="no recorded inverse"):
        Inverse.from_json({})


def test_the_difference_of_two_versions_names_units_and_files():
    """Items that only moved up are not reported."""
    package = make()
    pruned = apply_edit(package, Edit(op="PRUNE", units=("item:rules/1", "file:scripts/run")))
    diff = diff_units(package, pruned.package)
    assert diff.removed == ("item:rules/1", "file:scripts/run")
    assert (diff.added, diff.changed) == ((), ())
    assert diff.files == ("SKILL.md", "scripts/run")
    updated = apply_edit(package, Edit(op="UPDATE", unit="section:notes", content="New."))
    assert diff_units(package, updated.package).changed == ("section:notes",)
    assert not diff_units(package, package)


def test_the_patch_shows_text_modes_and_binary_files():
    """It is empty for equal packages."""
    package = make()
    other = package.replace_file("SKILL.md", TEXT.replace("two", "2").encode())
    other = other.replace_file("scripts/run", b"#!\n", executable=False).replace_file("b", b"\xff")
    patch = unified_patch(package, other)
    assert "--- a/SKILL.md\n+++ b/SKILL.md\n" in patch
    assert "-- two\n+- 2\n" in patch
    assert "old mode 100755\nnew mode 100644\n" in patch
    assert "new file mode 100644\nBinary files /dev/null and b/b differ\n" in patch
    assert unified_patch(package, package) == ""
