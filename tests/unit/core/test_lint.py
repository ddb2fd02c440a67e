"""The specification as a check: every rule fires alone, and all problems are listed at once."""

from __future__ import annotations

import pytest

from skillforge.core.lint import has_errors, lint, lint_library
from skillforge.core.package import Package, PackageFile

GOOD = "name: a-skill\ndescription: Does b. Use when c.\n"


def package(frontmatter: str = GOOD, body: str = "Do it.\n", **more: bytes) -> Package:
    """Return a skill `a-skill` with that frontmatter and body."""
    text = f"---\n{frontmatter}---\n{body}"
    files = {"SKILL.md": PackageFile(data=text.encode())}
    files |= {f"{key}.md": PackageFile(data=data) for key, data in more.items()}
    return Package(name="a-skill", files=files)


def found(*args: str, level: str = "error") -> list[str]:
    """Return the codes of that level."""
    return [p.code for p in lint(package(*args)) if p.level == level]


def test_a_good_skill_has_no_problems():
    """All six fields, rightly used, are silent."""
    full = GOOD + "license: MIT\ncompatibility: any\nallowed-tools: Read Write\n"
    assert lint(package(full + "metadata:\n  version: '1'\n")) == ()


@pytest.mark.parametrize(
    ("frontmatter", "code"),
    [
        ("description: b\n", "name-missing"),
        ("name:\ndescription: b\n", "name-blank"),
        ("name: a-skill\n", "description-missing"),
        ("name: a-skill\ndescription: '  '\n", "description-blank"),
        ("name: a-skill\ndescription:\n  - b\n", "description-blank"),
        (f"name: a-skill\ndescription: {'b' * 1025}\n", "description-long"),
        ("name: other\ndescription: b\n", "name-mismatch"),
        ("name: A-Skill\ndescription: b\n", "name-case"),
        ("name: -a-skill\ndescription: b\n", "name-hyphen"),
        ("name: a--skill\ndescription: b\n", "name-hyphen"),
        ("name: a_skill\ndescription: b\n", "name-characters"),
        (f"name: {'a' * 65}\ndescription: b\n", "name-long"),
        (GOOD + "version: 1\n", "field-unknown"),
        (GOOD + "compatibility: ''\n", "compatibility-blank"),
        (GOOD + f"compatibility: {'c' * 501}\n", "compatibility-long"),
        (GOOD + "compatibility:\n  - c\n", "compatibility-type"),
        (GOOD + "allowed-tools: [Read]\n", "yaml-flow"),
    ],
)
def test_what_the_specification_forbids_is_an_error(frontmatter: str, code: str):
    """A blank description is refused here as by the loader (bytedance/deer-flow#4867)."""
    assert code in found(frontmatter)


@pytest.mark.parametrize(
    ("frontmatter", "body", "code"),
    [
        (GOOD, "", "body-empty"),
        (GOOD, "x\n" * 501, "body-long"),
        (GOOD, "word " * 4001, "body-long"),
        (GOOD, "See [this](references/x.md).\n", "link-missing"),
        (GOOD, "See [this](../other/x.md).\n", "link-outside"),
        (GOOD + "metadata:\n  a:\n    b: c\n", "x\n", "metadata-type"),
        (GOOD + "metadata: x\n", "x\n", "metadata-type"),
        (GOOD + "license:\n  - MIT\n", "x\n", "license-type"),
        (GOOD + "allowed-tools:\n  - Read\n", "x\n", "allowed-tools-type"),
        ("name: a-skill\ndescription: use <b>\n", "x\n", "description-angle"),
    ],
)
def test_what_works_badly_is_a_warning(frontmatter: str, body: str, code: str):
    """Warnings never make a skill invalid."""
    problems = lint(package(frontmatter, body))
    assert [p.code for p in problems] == [code]
    assert not has_errors(problems)


def test_title_case_names_are_each_reported():
    """Title Case names are errors with their line (composio-community/awesome-codex-skills#223)."""
    problems = lint(package("description: b\nname: Release Notes\n"))
    assert [(p.line, p.code) for p in problems] == [
        (3, "name-case"),
        (3, "name-characters"),
        (3, "name-mismatch"),
    ]


def test_all_problems_are_listed_in_order():
    """No problem stops the search for others."""
    codes = found("name: X\ndescription: b: c\nversion: [1]\n")
    assert codes == ["name-case", "name-mismatch", "yaml-unquoted", "yaml-flow", "field-unknown"]


def test_a_name_that_differs_from_the_folder_still_loads():
    """The mismatch is reported and names both (vercel-labs/agent-skills#80)."""
    (problem,) = lint(package("name: vercel-a-skill\ndescription: b\n"))
    assert "'vercel-a-skill'" in problem.message
    assert "'a-skill'" in problem.message


def test_links_are_checked_against_the_files_with_true_lines():
    """Files, folders, anchors, URLs and code are told apart."""
    body = (
        "[a](x.md) [b](x.md#part) [c](#here) [d](https://e.org/x) [e](/abs) [f](docs/)\n"
        "```\n[no](gone.md)\n```\n`[no](gone.md)`\n[g](./gone.md)\n"
    )
    skill = package(GOOD, body, x=b"").replace_file("docs/y.md", b"")
    assert [(p.code, p.line) for p in lint(skill)] == [("link-missing", 10)]


def test_wrong_case_of_the_skill_file_is_a_warning():
    """The file is used, and the warning says who will miss it (laurigates/claude-plugins#1606)."""
    data = package().files["SKILL.md"]
    problems = lint(Package(name="a-skill", files={"skill.md": data}))
    assert [(p.path, p.code, p.level) for p in problems] == [
        ("skill.md", "skill-file-case", "warning")
    ]


def test_paths_that_differ_in_case_only_are_reported():
    """They would overwrite each other on many disks."""
    assert [p.code for p in lint(package(Readme=b"1", README=b"2"))] == ["path-case"]


def test_names_and_contents_that_occur_twice_are_reported():
    """The second names the first; one skill under two names is a copy (claude-code#62708)."""
    one, other = package(), package(body="Something else.\n")
    copy = Package(name="renamed", files=one.files)
    problems = lint_library({"x/a-skill": one, "y/a-skill": other, "y/renamed": copy})
    assert [(p.path, p.code, p.level) for p in problems] == [
        ("y/a-skill", "name-twice", "error"),
        ("y/renamed", "copy", "warning"),
    ]
    assert all("x/a-skill" in p.message for p in problems)
    assert lint_library({"a": one}) == ()


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("description:\n  - Does b\n  - don't c\n", "description: 'Does b, don''t c'"),
        ("description: [Does b, Does c]\n", "description: 'Does b, Does c'"),
        ("description: Covers #28: x\n", "description: 'Covers #28: x'"),
        ("description: Read: this\n", "description: 'Read: this'"),
        (f"description: {'long: ' * 99}text\n", f"description: '{'long: ' * 99}text'"),
        ("description: x\nallowed-tools: [Read, Write]\n", "allowed-tools: 'Read Write'"),
        ("description: x\nallowed-tools:\n  - Read\n", "allowed-tools: 'Read'"),
        ("description: x\ncompatibility:\n  - a\n", "compatibility: 'a'"),
        ("description: x\nlicense:\n- MIT\n- BSD\n", "license: 'MIT, BSD'"),
        ("description: x\nmetadata:\n  tags: [a, 'b']\n", "tags: '[a, ''b'']'"),
    ],
)
def test_the_line_that_mends_can_be_copied(field: str, line: str):
    """The message holds a whole line; with it in place the skill is without problems."""
    first = next(p for p in lint(package(f"name: a-skill\n{field}")) if f"`{line}`" in p.message)
    rows = f"name: a-skill\n{field}".splitlines()
    at = first.line - 2
    indent = "  " if rows[at].startswith("  tags") else ""
    rows[at:] = [indent + line]
    assert lint(package("\n".join(rows) + "\n")) == ()


def test_a_problem_reads_well_and_has_a_json_form():
    """One line for people, five keys for tools."""
    (problem,) = lint(package(GOOD + "version: '1'\n"))
    assert str(problem).startswith("SKILL.md:4: error: `version` is no field")
    assert list(problem.to_json()) == ["path", "line", "code", "level", "message"]
