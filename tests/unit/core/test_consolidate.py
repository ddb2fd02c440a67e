"""The MERGE of two skills: one takes over units of the other, and both can be restored."""

from __future__ import annotations

import pytest

from skillforge.core.anchors import units_digest
from skillforge.core.consolidate import apply_in_library, take_back
from skillforge.core.edits import Edit, apply_edit
from skillforge.core.package import Package, PackageFile
from skillforge.core.undo_check import check_undo
from skillforge.core.units import find_unit
from skillforge.errors import EditError

DATES = "# Dates\n\nWrite dates.\n\n## Rules\n\nUse hyphens.\n"
TIMES = (
    "# Times\n\nWrite times.\n\n## Clock\n\nUse 24 hours, see references/zones.md.\n\n"
    "## Short\n\n- no seconds\n- no dots\n"
)


def make(name: str, body: str, **files: bytes) -> Package:
    """Return a skill of that body."""
    text = f"---\r\nname: {name}\r\ndescription: Writes {name}. # why\r\n---\r\n{body}"
    more = {path.replace("__", "/"): PackageFile(data=data) for path, data in files.items()}
    return Package(name=name, files={"SKILL.md": PackageFile(data=text.encode()), **more})


def library() -> dict[str, Package]:
    """Return two skills that can be joined and one beside them."""
    times = make("times", TIMES, references__zones_md=b"UTC\r\n")
    zones = times.files["references/zones_md"]
    files = {"SKILL.md": times.files["SKILL.md"], "references/zones.md": zones}
    return {
        "dates": make("dates", DATES),
        "times": Package(name="times", files=files),
        "other": make("other", "# Other\n"),
    }


def merge(*ids: str, **fields: str) -> Edit:
    """Return the edit that moves units of times, anchored."""
    times = library()["times"]
    anchor = units_digest(times, [find_unit(times, unit_id) for unit_id in ids])
    return Edit(op="MERGE", source="times", units=ids, expected_digest=anchor, **fields)


def test_units_move_as_they_are_and_both_skills_come_back():
    """The text leaves the one and stands in the other; the third skill is not touched."""
    before = library()
    change = apply_in_library(before, "dates", merge("section:short"))
    assert change.skills["dates"].body.endswith("## Short\n\n- no seconds\n- no dots\n")
    assert "Short" not in change.skills["times"].body
    assert change.skills["other"] == before["other"]
    assert set(change.inverses) == {"dates", "times"}
    assert take_back(change.skills, change) == before


def test_the_text_can_be_rewritten_and_placed():
    """Content stands in for the moved text, after the unit that is named."""
    edit = merge("section:short", content="## Short\n\nNo seconds.", after="intro")
    body = apply_in_library(library(), "dates", edit).skills["dates"].body
    assert (
        body == "# Dates\n\nWrite dates.\n\n## Short\n\nNo seconds.\n\n## Rules\n\nUse hyphens.\n"
    )


def test_files_move_with_the_text_that_points_to_them():
    """Without them the text would point to nothing, and the message says what to name."""
    with pytest.raises(EditError, match=r"references/zones\.md .*file:references/zones\.md"):
        apply_in_library(library(), "dates", merge("section:clock"))
    edit = merge("section:clock", "file:references/zones.md")
    change = apply_in_library(library(), "dates", edit)
    assert change.skills["dates"].files["references/zones.md"].data == b"UTC\r\n"
    assert set(change.skills["times"].files) == {"SKILL.md"}
    assert take_back(change.skills, change) == library()


def test_a_skill_of_which_nothing_is_left_to_read_leaves_the_library_and_comes_back():
    """Its package is kept whole."""
    edit = merge("section:clock", "section:short", "file:references/zones.md")
    change = apply_in_library(library(), "dates", edit)
    assert set(change.skills) == {"dates", "other"}
    assert change.left == {"times": library()["times"]}
    assert take_back(change.skills, change) == library()
    with pytest.raises(EditError, match="in the library again"):
        take_back({**change.skills, "times": make("times", "x")}, change)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit(op="MERGE", source="time", units=("intro",)), "no skill 'time'; it has dates"),
        (Edit(op="MERGE", source="dates", units=("intro",)), "another skill"),
        (Edit(op="MERGE", source="times", units=("section:clok",)), "section:clock"),
        (Edit(op="MERGE", source="times", units=("frontmatter",)), "cannot be removed"),
        (Edit(op="MERGE", source="times", units=("section:short", "item:short/1")), "overlap"),
        (
            Edit(op="MERGE", source="times", units=("section:short",), expected_digest="0" * 64),
            "stale",
        ),
        (Edit(op="MERGE", source="times", units=("section:short",), after="x"), "no unit 'x'"),
    ],
)
def test_a_merge_that_does_not_fit_is_refused(edit: Edit, message: str):
    """Unknown, fixed, overlapping and stale units are named."""
    with pytest.raises(EditError, match=message):
        apply_in_library(library(), "dates", edit)


def test_a_file_of_the_same_path_is_not_overwritten():
    """The other skill's file would be lost."""
    skills = library()
    skills["dates"] = skills["dates"].replace_file("references/zones.md", b"mine")
    edit = merge("section:clock", "file:references/zones.md")
    with pytest.raises(EditError, match=r"another file 'references/zones\.md'"):
        apply_in_library(skills, "dates", edit)


def test_an_edit_of_one_skill_needs_no_library_and_says_so():
    """`apply_edit` works on one package; the way through the library gives the same."""
    with pytest.raises(EditError, match="changes two skills"):
        apply_edit(library()["dates"], merge("section:short"))
    edit = Edit(op="PRUNE", unit="section:rules")
    change = apply_in_library(library(), "dates", edit)
    assert change.skills["dates"] == apply_edit(library()["dates"], edit).package
    assert take_back(change.skills, change) == library()


@pytest.mark.parametrize(
    "ids", [("section:short",), ("section:clock", "section:short", "file:references/zones.md")]
)
def test_the_merge_of_two_skills_is_undone_in_every_state(ids: tuple[str, ...]):
    """All of 22 states of the library come back, whether the source stays or leaves."""
    check = check_undo(library()["dates"], merge(*ids), library())
    assert (check.states, check.passed) == (22, 22)
