"""Knowledge units: the partition rule, ids, and leaving one out."""

from __future__ import annotations

import pytest

from skillforge.core.lint import has_errors, lint
from skillforge.core.package import Package, PackageFile
from skillforge.core.units import Unit, find_unit, leave_out, parse_units, removable, unit_bytes
from skillforge.errors import EditError

HEAD = "---\nname: a\ndescription: b\n---\n"
SMALL = """# Title

What it is for.

## Rules

Keep to these:

- Answer in one line.
- Use the names
  that stand in the text.
- Add nothing.

## Steps

1. Read.
2. Write.

## Examples

User: one
Assistant: 1

User: two
Assistant:
2
User: three
Assistant: 3

## Notes

Some text.

More text.
"""


def make(body: str, head: str = HEAD, **files: bytes) -> Package:
    """Return a skill with that body."""
    more = {path.replace("__", "/"): PackageFile(data=data) for path, data in files.items()}
    return Package(name="a", files={"SKILL.md": PackageFile(data=(head + body).encode()), **more})


def units(body: str, head: str = HEAD, **files: bytes) -> list[Unit]:
    """Return the units after checking that those of SKILL.md join to its bytes."""
    package = make(body, head, **files)
    found = parse_units(package)
    own = [unit for unit in found if unit.path == "SKILL.md"]
    assert b"".join(unit_bytes(package, unit) for unit in own) == package.files["SKILL.md"].data
    assert len({unit.id for unit in found}) == len(found)
    assert all(unit.start < unit.end for unit in own)
    return list(found)


def test_a_small_skill_is_cut_into_items_steps_examples_and_sections():
    """The rule of the module, on one skill that shows all of it."""
    found = units(SMALL)
    assert [(unit.id, unit.kind) for unit in found] == [
        ("frontmatter", "frontmatter"),
        ("intro", "intro"),
        ("heading:rules", "heading"),
        ("item:rules/1", "list_item"),
        ("item:rules/2", "list_item"),
        ("item:rules/3", "list_item"),
        ("heading:steps", "heading"),
        ("step:steps/1", "step"),
        ("step:steps/2", "step"),
        ("heading:examples", "heading"),
        ("example:examples/1", "example"),
        ("example:examples/2", "example"),
        ("example:examples/3", "example"),
        ("section:notes", "section"),
    ]
    package = make(SMALL)
    assert unit_bytes(package, found[4]) == b"- Use the names\n  that stand in the text.\n"
    assert unit_bytes(package, found[11]) == b"User: two\nAssistant:\n2\n"
    assert unit_bytes(package, found[2]) == b"## Rules\n\nKeep to these:\n\n"


def test_a_large_skill_keeps_its_sections_whole_but_not_its_examples():
    """Above the limit lists stay in their section, worked examples are still apart."""
    sections = "".join(f"## Part {i}\n\n- a\n- b\n- c\n\n" for i in range(9))
    ids = [unit.id for unit in units(sections + "## Examples\n\nUser: a\nAssistant: b\n")]
    assert ids[1:10] == [f"section:part-{i}" for i in range(9)]
    assert ids[10:] == ["heading:examples", "example:examples/1"]


def test_headings_inside_code_are_text():
    """A fence hides what looks like a heading, a list or a dialogue."""
    body = "## A\n\n```\n## no\n- no\nUser: no\n```\n\n~~~~\n```\n## no\n~~~~\n\n## B\nx\n"
    assert [unit.id for unit in units(body)] == ["frontmatter", "section:a", "section:b"]


def test_setext_headings_and_crlf_are_understood():
    """Underlined headings begin sections whatever ends the lines."""
    body = "Title\n=====\n\nintro\n\nPart\n----\n\ntext\n".replace("\n", "\r\n")
    assert [unit.id for unit in units(body)] == ["frontmatter", "intro", "section:part"]
    assert [unit.id for unit in units(body.replace("\r\n", "\r"))][1:] == ["intro", "section:part"]


def test_equal_headings_get_numbers_that_never_collide():
    """Ids are unique even where a heading is called like a number."""
    ids = [unit.id for unit in units("## A\nx\n## A\nx\n## A 2\nx\n## !\nx\n## 数据 格式\nx\n")]
    assert ids[1:] == [
        "section:a",
        "section:a-2",
        "section:a-2-2",
        "section:untitled",
        "section:数据-格式",
    ]


def test_long_sections_are_cut_at_their_subheadings():
    """A section stays whole until it is long."""
    long = "word " * 700
    body = f"## A\n\nlead\n\n### One\n\n{long}\n\n### Two\n\n{long}\n\n## B\n\n### Three\n\nx\n"
    ids = [unit.id for unit in units(body)]
    assert ids[1:] == ["section:a", "section:a.one", "section:a.two", "section:b"]


def test_subheadings_of_an_examples_section_are_examples():
    """Each titled example is one unit."""
    found = units("## Examples\n\n### First\n\ntext\n\n### Second\n\ntext\n")
    assert [unit.kind for unit in found[1:]] == ["heading", "example", "example"]


def test_what_stands_beside_examples_is_a_unit_of_its_own():
    """Prose after the last answer does not belong to the example; a table does."""
    prose = "## X\n\nInput: a\nOutput: b\n\nSome words.\n\n| a |\n|---|\n| b |\n"
    table = "## X\n\nInput: a\nOutput:\n\n| a |\n|---|\n| b |\n"
    assert [unit.kind for unit in units(prose)][1:] == ["heading", "example", "paragraph"]
    assert [unit.kind for unit in units(table)][1:] == ["heading", "example"]


def test_a_question_without_an_answer_is_no_example():
    """`User:` alone is prose."""
    assert [unit.kind for unit in units("User: a\n\nmore\n")] == ["frontmatter", "intro"]


def test_a_body_without_headings_is_cut_too():
    """The slug of a bare body is `body`."""
    ids = [unit.id for unit in units("- a\n- b\n")]
    assert ids == ["frontmatter", "item:body/1", "item:body/2"]


@pytest.mark.parametrize("body", ["", "\n\n", "   ", "x", "\r", "---\n", "```\nopen"])
@pytest.mark.parametrize("head", ["", HEAD, "\ufeff" + HEAD])
def test_odd_bodies_are_partitioned(body: str, head: str):
    """Nothing is lost of empty, unfinished or blank bodies."""
    units(body, head)


def test_files_are_units_and_licences_stay():
    """References and scripts can be left out, licences and evals cannot."""
    found = units("x\n", references__x_md=b"1", LICENSE=b"2", evals__evals_json=b"3")
    assert [unit.id for unit in found[2:]] == [
        "file:LICENSE",
        "file:evals/evals_json",
        "file:references/x_md",
    ]
    assert [unit.id for unit in removable(found)] == ["intro", "file:references/x_md"]


def test_leaving_out_removes_the_unit_and_no_other_byte():
    """Every removable unit can go alone, and the rest lints as before."""
    package = make(SMALL, references__x=b"1")
    for unit in removable(parse_units(package)):
        rest = leave_out(package, unit.id)
        assert not has_errors(lint(rest))
        if unit.kind == "file":
            assert unit.path not in rest.files
        else:
            data = package.files["SKILL.md"].data
            gone = data[unit.start : unit.end]
            assert len(data) - len(gone) <= len(rest.files["SKILL.md"].data) < len(data)


MIXED = """Do it, see [notes](references/x.md) and [run](scripts/run.sh).

## Table

| a | b |
|---|---|
| 1 | `|` |

## Code

```sh
# no heading
- no item
```

Text after it.

## Nested

- one
  - inner

    ```
    ## no heading
    ```
- two

  1. inner
     more
- three
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_tables_fences_nested_lists_and_files_can_each_be_left_out(newline: str):
    """Everything else stays byte for byte; a pointer to a removed file is only a warning."""
    body = MIXED.replace("\n", newline)
    package = make(body, HEAD.replace("\n", newline), references__x=b"1", scripts__run=b"2")
    for old, new in (("references/x", "references/x.md"), ("scripts/run", "scripts/run.sh")):
        data = package.files[old].data
        package = package.without_file(old).replace_file(new, data, executable=True)
    assert lint(package) == ()
    found = parse_units(package)
    assert [unit.id for unit in removable(found)] == [
        "intro",
        "section:table",
        "section:code",
        "item:nested/1",
        "item:nested/2",
        "item:nested/3",
        "file:references/x.md",
        "file:scripts/run.sh",
    ]
    for unit in removable(found):
        rest = leave_out(package, unit.id)
        assert not has_errors(lint(rest))
        missing = [p.code for p in lint(rest)]
        assert missing == (["link-missing"] if unit.kind == "file" else [])
        others = [unit_bytes(package, u) for u in found if u.id != unit.id]
        kept = b"".join(f.data for f in rest.files.values())
        assert all(part.rstrip() in kept for part in others)


def test_leaving_out_the_last_item_keeps_the_gap_before_the_heading():
    """The blank line that parted list and heading stays."""
    data = leave_out(make(SMALL), "item:rules/3").files["SKILL.md"].data
    assert b"in the text.\n\n## Steps" in data
    data = leave_out(make(SMALL), "item:rules/2").files["SKILL.md"].data
    assert b"- Answer in one line.\n- Add nothing.\n" in data


def test_leaving_out_never_makes_a_heading_of_a_paragraph():
    """A rule that follows the cut does not underline the text before it."""
    package = make("User: a\nAssistant: b\nUser: c\nAssistant: d\n***\ntext\n\n## B\nx\n")
    before = [u.title for u in parse_units(package) if u.kind in ("section", "heading")]
    for unit in removable(parse_units(package)):
        rest = parse_units(leave_out(package, unit.id))
        after = [u.title for u in rest if u.kind in ("section", "heading")]
        assert set(after) <= set(before)


def test_what_must_stay_cannot_be_left_out():
    """Frontmatter and headings of cut sections are refused with what can be left out."""
    with pytest.raises(EditError, match="choose one of intro"):
        leave_out(make(SMALL), "frontmatter")


def test_an_unknown_unit_is_refused_with_the_nearest_ids():
    """A typo is answered with what was meant."""
    with pytest.raises(EditError, match="item:rules/1"):
        find_unit(make(SMALL), "item:rule/1")
