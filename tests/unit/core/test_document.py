"""The one parser of SKILL.md: what it reads, what it reports, and that it never raises."""

from __future__ import annotations

import pytest

from skillforge.core.document import Document, parse_document


def doc(frontmatter: str, body: str = "Body\n") -> Document:
    """Parse a document with that frontmatter."""
    return parse_document(f"---\n{frontmatter}---\n{body}".encode())


def codes(document: Document) -> list[str]:
    """Return the codes of the problems, in order."""
    return [problem.code for problem in document.problems]


def test_a_clean_file_has_no_problems_and_its_parts_are_where_they_say():
    """Spans point at the bytes of the frontmatter, of each value and of the body."""
    found = doc("name: a\ndescription: does b\n")
    assert found.problems == ()
    assert found.data[slice(*found.frontmatter_span)] == b"name: a\ndescription: does b\n"
    assert found.data[slice(*found.value_spans["description"])] == b"does b"
    assert found.data[found.body_start :] == b"Body\n"
    assert (found.body, found.newline, found.bom) == ("Body\n", "\n", False)
    assert dict(found.key_lines) == {"name": 2, "description": 3}


@pytest.mark.parametrize(
    "value", ["2024-01-02", "yes", "no", "1.10", "~", "null", "0x1F", "12:30:45", "1e3", "0o17"]
)
def test_scalars_stay_the_strings_that_were_written(value: str):
    """No date, boolean or number is made of a scalar (openclaw/openclaw#35293: numeric names)."""
    found = doc(f"name: {value}\nmetadata:\n  version: {value}\n")
    assert found.frontmatter == {"name": value, "metadata": {"version": value}}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_bom_do_not_hide_the_frontmatter(newline: str, bom: bytes):
    """CRLF, CR and BOM are read alike and BOM is only a warning.

    Covers QwenLM/qwen-code#1528, mohitagw15856/pm-claude-skills#173 and NVIDIA/SkillEvaluator#91.
    """
    text = "---\nname: a\ndescription: does b\n---\nBody\nmore\n".replace("\n", newline)
    found = parse_document(bom + text.encode())
    assert found.frontmatter == {"name": "a", "description": "does b"}
    assert found.body == f"Body{newline}more{newline}"
    assert "---" not in found.body
    assert found.newline == newline
    assert [(p.code, p.level) for p in found.problems] == ([("bom", "warning")] if bom else [])
    assert found.data[slice(*found.value_spans["description"])] == b"does b"


def test_mixed_line_ends_are_a_warning_and_the_commonest_counts():
    """A file with two kinds of line ends is read, and says so."""
    found = parse_document(b"---\r\nname: a\r\ndescription: b\r\n---\nBody\n")
    assert found.newline == "\r\n"
    assert codes(found) == ["mixed-newlines"]
    assert found.frontmatter["description"] == "b"


def test_an_unquoted_colon_is_mended_and_the_cure_is_named():
    """The value is read as plain text, with line and quoting (vercel-labs/skills#1058)."""
    found = doc("name: a\ndescription: Configure the harness: Hooks, MCP\nlicense: MIT\n")
    assert found.frontmatter == {
        "name": "a",
        "description": "Configure the harness: Hooks, MCP",
        "license": "MIT",
    }
    (problem,) = found.problems
    assert (problem.path, problem.line, problem.level) == ("SKILL.md", 3, "error")
    assert "`description: 'Configure the harness: Hooks, MCP'`" in problem.message


def test_one_bad_value_costs_no_other_key():
    """A tool restriction survives a bad description (jaredrhod/ai-marketing-skills#3)."""
    found = doc(
        "name: a\nallowed-tools: Read\ndescription: @x: y\nmetadata:\n  k: v: w\n  z: '1'\n"
    )
    assert found.frontmatter["allowed-tools"] == "Read"
    assert found.frontmatter["description"] == "@x: y"
    assert found.frontmatter["metadata"] == {"k": "v: w", "z": "1"}
    assert [(p.line, p.code) for p in found.problems] == [
        (4, "yaml-unquoted"),
        (6, "yaml-unquoted"),
    ]


def test_a_broken_flow_sequence_keeps_the_skill():
    """`[ray[train], torch]` is reported and kept as text (synthetic-sciences/openscience#187)."""
    found = doc("name: a\ndependencies: [ray[train], torch]\ndescription: b\n")
    assert found.frontmatter["dependencies"] == "[ray[train], torch]"
    assert found.frontmatter["description"] == "b"
    assert codes(found) == ["yaml-unquoted"]


def test_an_unquoted_hash_that_cuts_the_description_is_reported():
    """The warning shows what YAML drops at ` #` (modelcontextprotocol/inspector#2203)."""
    found = doc("name: a\ndescription: Covers board #28 (v2)\nlicense: MIT # see LICENSE\n")
    assert found.frontmatter["description"] == "Covers board"
    (problem,) = found.problems
    assert (problem.line, problem.code, problem.level) == (3, "yaml-comment", "warning")
    assert "#28 (v2)" in problem.message


@pytest.mark.parametrize("value", ["'a #1'", '"a #1"', "|\n  a #1", ">-\n  a #1", "a#1"])
def test_a_hash_that_cuts_nothing_is_no_problem(value: str):
    """Quoted, block and inner `#` are part of the value."""
    found = doc(f"name: a\ndescription: {value}\n")
    assert found.problems == ()
    assert found.frontmatter["description"].strip() in {"a #1", "a#1"}


def test_dashes_inside_a_value_do_not_close_the_frontmatter():
    """Only a line that is `---` closes it."""
    found = doc("name: a\ndescription: x --- y\nnote: |\n  ---\n  z\n", "a\n\n---\n\nb\n")
    assert found.frontmatter["description"] == "x --- y"
    assert found.frontmatter["note"] == "---\nz\n"
    assert found.body == "a\n\n---\n\nb\n"


@pytest.mark.parametrize("char", ["\u0085", "\u2028", "\u2029"])
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_unicode_line_separators_are_ordinary_characters(char: str, quote: str):
    """They end no line and stay in the value, with line numbers below them true."""
    found = doc(f"name: a\ndescription: {quote}b{char}c{quote}\nname: d\n", f"x{char}y\n")
    assert found.frontmatter["description"] == f"b{char}c"
    assert found.body == f"x{char}y\n"
    assert [(p.line, p.code) for p in found.problems] == [(4, "yaml-duplicate")]


def test_comments_and_block_scalars_are_read():
    """Comments are skipped, folded text is folded, spans cover the block."""
    found = doc("# top\nname: a # why\ndescription: >\n  one\n  two\n# end\nlicense: MIT\n")
    assert found.frontmatter == {"name": "a", "description": "one two\n", "license": "MIT"}
    assert found.data[slice(*found.value_spans["description"])] == b">\n  one\n  two"


def test_bytes_that_are_not_utf8_are_located():
    """The offset of the first bad byte and its line are named, the rest is read."""
    data = b"---\nname: a\ndescription: caf\xe9 b\nlicense: MIT\n---\nBody \xff\n"
    found = parse_document(data)
    (problem,) = found.problems
    assert (problem.code, problem.line) == ("not-utf8", 3)
    assert f"byte {data.index(0xE9)} (0xe9)" in problem.message
    assert found.frontmatter["license"] == "MIT"
    assert found.data[slice(*found.value_spans["license"])] == b"MIT"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "frontmatter-missing"),
        (b"\xef\xbb\xbf", "bom"),
        (b"# Title\n", "frontmatter-missing"),
        (b"---\nname: a\n", "frontmatter-unclosed"),
        (b"---", "frontmatter-unclosed"),
        (b"\n\n---\nname: a\n---\n", "frontmatter-late"),
        (b"---\n- a\n---\n", "yaml-not-mapping"),
        (b"---\na: &x 1\nb: *x\n---\n", "yaml-alias"),
        (b"---\na: &x 1\n---\n", "yaml-anchor"),
        (b"---\na: !!int 3\n---\n", "yaml-tag"),
        (b"---\na: !!str b\n---\n", "yaml-tag"),
        (b"---\na: b\tc\n---\n", "yaml-unquoted"),
        (b"---\na: |# c\n  b\n---\n", "yaml-invalid"),
        (b"---\na:\n  b: c\nd:\n    e: f\n---\n", "yaml-indent"),
        (b"---\na: [b]\n---\n", "yaml-flow"),
        (b"---\na: \x00b\n---\n", "control-character"),
        (b"---\n? [a]\n: b\n---\n", "yaml-key"),
        (b"---\n\tname: a\n---\n", "yaml-invalid"),
        (b"\xff\xfe-\x00", "not-utf8"),
        (b"---\na: " + b"[" * 5000 + b"\n---\n", "yaml-unquoted"),
        (b"---\na: " + b"[" * 900 + b"]" * 900 + b"\n---\n", "yaml-alias"),
    ],
)
def test_bad_content_is_a_problem_and_never_an_exception(data: bytes, code: str):
    """Each kind of damage has its own code."""
    found = parse_document(data)
    assert code in codes(found)
    assert all(problem.line >= 0 and problem.message for problem in found.problems)


def test_a_long_line_of_spaces_is_read_in_linear_time():
    """No regular expression runs wild on hostile input."""
    found = parse_document(b"---\nname: a: b\nx" + b" " * 300_000 + b"\n---\n")
    assert found.frontmatter.get("name", "").startswith("a: b")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_a_file_of_200_kb_is_read_whole(newline: bytes):
    """Every byte of a long body and a long description is there, and lines are counted true."""
    head = b"---\nname: a\ndescription: " + b"word " * 20_000 + b"\nlicense: b: c\n---\n"
    data = (head + b"Do it.\n" * 15_000).replace(b"\n", newline)
    found = parse_document(data)
    assert found.data == data
    assert len(found.frontmatter["description"]) == 99_999
    assert found.body.encode() == data[found.body_start :]
    assert [(p.line, p.code) for p in found.problems] == [(4, "yaml-unquoted")]


def test_a_missing_final_newline_is_no_problem():
    """The fence may be the end of the file and so may the body's last word."""
    assert parse_document(b"---\nname: a\n---").body == ""
    assert parse_document(b"---\nname: a\n---\nx").body == "x"
