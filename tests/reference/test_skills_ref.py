"""Verdicts against ``skills-ref`` on generated and damaged skills: equal, or listed with a reason.

Every case is a real folder that both validate. A disagreement must be explained by a row of
`DIFFERENCES`, which is the table in the docstring of `skillforge.core.lint`; each row is shown by
an example, so that none outlives its reason.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import skills_ref
from hypothesis import given, settings
from hypothesis import strategies as st

from skillforge.adapters.files import discover
from skillforge.adapters.shipped import shipped_skills
from skillforge.core import lint as lint_module
from skillforge.core.document import parse_document
from skillforge.core.lines import to_lf
from skillforge.core.lint import lint

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "skills"
MANY = settings(max_examples=500, deadline=None, derandomize=True)
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A skill of one file."""

    data: bytes
    folder: str = "a"
    file: str = "SKILL.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What both say of a case."""

    case: Case
    ours: frozenset[str]
    """Codes of our errors."""
    theirs: bool
    """Whether skills-ref refuses it."""
    crashed: bool
    """Whether it does so by an exception that is not its own."""


def verdicts(case: Case) -> Verdicts:
    """Write the skill and validate it with both."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / case.folder
        folder.mkdir()
        (folder / case.file).write_bytes(case.data)
        found = discover(folder)
        problems = [*found.problems, *(p for package in found.packages for p in lint(package))]
        ours = frozenset(p.code for p in problems if p.level == "error")
        theirs = crashed = False
        try:
            theirs = bool(skills_ref.validate(folder))
        except Exception as error:  # noqa: BLE001 -- whatever it raises is what we want to know
            theirs, crashed = True, not isinstance(error, UnicodeDecodeError)
    return Verdicts(case=case, ours=ours, theirs=theirs, crashed=crashed)


def frontmatter(case: Case) -> str:
    """Return our frontmatter, line ends as LF."""
    begin, end = parse_document(case.data).frontmatter_span
    return to_lf(case.data[begin:end].decode("utf-8", "replace"))


def is_cut_elsewhere(found: Verdicts) -> bool:
    """Whether skills-ref, which cuts at the first two ``---``, reads another frontmatter."""
    parts = to_lf(found.case.data.decode("utf-8", "replace")).split("---", 2)
    return len(parts) < 3 or parts[1].lstrip(" ") != "\n" + frontmatter(found.case)


def skill(text: str = "", *, name: str = "name: a\n") -> bytes:
    """Return a skill `a` with more frontmatter."""
    return f"---\n{name}description: b\n{text}---\nBody\n".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row of the table: what is judged otherwise, an example, and how to tell a case."""

    what: str
    """The first column."""
    example: Case
    explains: Callable[[Verdicts], bool]


DIFFERENCES = [
    Difference(
        what="``---`` inside a value",
        example=Case(data=b"---\ndescription: b --- c\nname: a\n---\n"),
        explains=is_cut_elsewhere,
    ),
    Difference(
        what="a fence such as ``---x``",
        example=Case(data=b"---\nname: a\ndescription: b\n---x\n"),
        explains=is_cut_elsewhere,
    ),
    Difference(
        what="a tab after the opening fence",
        example=Case(data=b"---\t\nname: a\ndescription: b\n---\n"),
        explains=is_cut_elsewhere,
    ),
    Difference(
        what="byte order mark",
        example=Case(data=BOM + skill()),
        explains=lambda found: found.case.data.startswith(BOM),
    ),
    Difference(
        what="U+0085, U+2028, U+2029",
        example=Case(data=skill("license: |\n  b\u2028c: d\n")),
        explains=lambda found: bool(re.search("[\x85\u2028\u2029]", frontmatter(found.case))),
    ),
    Difference(
        what="``<<``, ``=`` as key or value",
        example=Case(data=skill("compatibility: =\n")),
        explains=lambda found: bool(
            re.search(r"^\s*(- +)?<<\s*:|(:|-)\s+(<<|=)\s*(#|$)", frontmatter(found.case), re.M)
        ),
    ),
    Difference(
        what="a key that is empty",
        example=Case(data=skill("metadata:\n  : b\n")),
        explains=lambda found: (
            found.ours == {"yaml-invalid"}
            and bool(re.search(r"^\s*:(\s|$)", frontmatter(found.case), re.M))
        ),
    ),
    Difference(
        what="empty ``compatibility``",
        example=Case(data=skill("compatibility: ''\n")),
        explains=lambda found: found.ours == {"compatibility-blank"},
    ),
    Difference(
        what="a file called ``Skill.md``",
        example=Case(data=skill(), file="Skill.md"),
        explains=lambda found: found.case.file not in ("SKILL.md", "skill.md"),
    ),
    Difference(
        what="comments that make it crash",
        example=Case(data=skill("allowed-tools:\n  - --\n  - #a\n  - #a\n")),
        explains=lambda found: found.crashed and not found.ours,
    ),
]


def check(case: Case) -> None:
    """Fail where the verdicts differ and no row of the table says why."""
    found = verdicts(case)
    if bool(found.ours) != found.theirs:
        assert any(difference.explains(found) for difference in DIFFERENCES), found


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.what)
def test_every_difference_is_real_and_documented(difference: Difference):
    """The example is judged differently, for the reason given, and the docstring names it."""
    found = verdicts(difference.example)
    assert bool(found.ours) != found.theirs
    assert difference.explains(found)
    assert difference.what in (lint_module.__doc__ or "")


WORDS = (
    "a", "'a'", '"a"', "a b", "a: b", "a # b", "a: ", "a:b", "a\tb", "'a", "'a'' b'", "'a' b",
    '"\\u0041"', '"\\x"', "", "~", "null", "true", "1.10", "2024-01-01", "0x1", "[a]", "[a",
    "{a: b}", "}", "a]", "&x a", "&x", "*x", "!!str a", "!t a", "!", "@a", "`a`", "%a", "- a",
    "? a", "|\n  a", "|\n", ">-\n\n  a\n", "|2\n  a", "|x", "|# c",
    "a\n  b", "a\n b: c", "a\nb", "#a",
    "' '", "''", "a \ufeffb", "a\u2028b", "a\x85b", "\xa0", "\u3000", "\x00", "\x1b", "\x7f",
    "é", "数据", "😀", "<<", "=", "---", "a---b", "...", "|\n  ---\n  a", "[]",
    "x" * 500, "x" * 501, "x" * 1024, "x" * 1025,
)  # fmt: skip
KEYS = (
    "a", "b", "c", "'a'", '"b"', "a b", "a.b", "1", "é", "?", "-a", "!a", "a#b", "a #b", "", "~",
    "<<", "[a]", "*x", "&x a", "@a", "k" * 130, "k" * 1100,
)  # fmt: skip
NAMES = (
    "a", "a-b", "a1", "数据", "é", "e\u0301", "ﬁx", "A", "a_b", "-a", "a-", "a--b", "²", "ß", "ǆ",
    "ǅ", "ª", "İ", "１", "a.b", "a b", "ς", "ⅷ", "Ⅷ", "a\u200d", "𝒶", "ʰ", "x" * 64, "x" * 65,
)  # fmt: skip
FIELDS = ("license", "compatibility", "metadata", "allowed-tools", "description")


@st.composite
def values(draw: st.DrawFn, depth: int = 0, indent: int = 2) -> str:
    """Draw what stands after a key: a word, or a nested mapping or list, evenly indented or not."""
    kind = draw(st.sampled_from(["word", "word", "map", "list"])) if depth < 3 else "word"
    if kind == "word":
        return " " + draw(st.sampled_from(WORDS))
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        below = values(depth + 1, indent + draw(st.sampled_from([1, 2, 2, 4])))
        key = draw(st.sampled_from(KEYS if draw(st.booleans()) else "defgh"))
        start = "-" if kind == "list" else f"{key}:"
        rows.append(" " * indent + start + draw(below))
    return "\n" + draw(st.sampled_from(["", "", "  # c\n", "\n"])) + "\n".join(rows)


@st.composite
def skills(draw: st.DrawFn) -> Case:
    """Draw a skill that is right but for its name, its folder, or one or two fields."""
    folder = draw(st.sampled_from(NAMES)) if draw(st.booleans()) else "a"
    name = draw(st.sampled_from([folder, folder, f"'{folder}'", folder.upper(), f"|\n  {folder}"]))
    rows = [f"name: {name}"]
    odd = draw(st.lists(st.sampled_from([*FIELDS, "version", "Name"]), max_size=2, unique=True))
    rows += [f"{key}:{draw(values())}" for key in odd]
    if "description" not in odd:
        rows.insert(draw(st.integers(0, len(rows))), "description: Does b.")
    del rows[: draw(st.sampled_from([0] * 14 + [1]))]
    extra = draw(st.sampled_from(["", "", "", "# c", " ", "\t", "name: b", "...", "--- a", "x"]))
    rows.insert(draw(st.integers(0, len(rows))), extra)
    opening = draw(st.sampled_from(["---"] * 9 + ["--- ", "---\t", "--- # c", "----", "\n---"]))
    closing = draw(st.sampled_from(["---"] * 9 + ["--- ", "---\t", "----", " ---", "..."]))
    text = "\n".join([opening, *rows, closing, draw(st.sampled_from(["", "Body --- x\n"]))])
    newline = draw(st.sampled_from(["\n"] * 4 + ["\r\n", "\r"]))
    encoding = draw(st.sampled_from(["utf-8"] * 12 + ["latin-1", "utf-16"]))
    data = text.replace("\n", newline).encode(encoding, "replace")
    data = draw(st.sampled_from([b""] * 9 + [BOM])) + data
    file = draw(st.sampled_from(["SKILL.md"] * 6 + ["skill.md", "Skill.md"]))
    return Case(data=data, folder=folder, file=file)


@MANY
@given(skills())
def test_generated_skills_are_judged_alike(case: Case):
    """Names, folders, field shapes, quoting, nesting, fences, line ends and file names vary."""
    check(case)


BYTES = (
    b":", b": ", b" #", b"#", b"'", b'"', b"-", b"---", b"\n---\n", b"\n", b"\r", b"\t", b" ", b"[",
    b"{", b"}", b"&", b"*", b"!", b"|", b">", b"%", b"@", b"`", b"\\", b"?", b",", b"<", b"\n...\n",
    b"\n  ", b"\n- ", b"\xc2\x85", b"\xe2\x80\xa8", BOM, b"\xff", b"\x00", b"\x7f", b"\xc2\xa0",
)  # fmt: skip


def damaged(draw: random.Random, data: bytes) -> bytes:
    """Return a file with one to three small damages in its first lines."""
    head = max(data.find(b"\n---", 3), 10) + 6
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(min(head, len(data)) + 1)
        lines = data.split(b"\n")
        first, second = (draw.randrange(min(len(lines), 8)) for _ in range(2))
        data = draw.choice(
            [
                data[:at] + draw.choice(BYTES) + data[at:],
                data[:at] + data[at + draw.randint(1, 4) :],
                b"\n".join([*lines[:first], *lines[first + 1 :]]),
                b"\n".join([*lines[:second], lines[first], *lines[second:]]),
                data.replace(b"\n", draw.choice([b"\r\n", b"\r", b"\n\n"])),
            ]
        )
    return data


def test_damaged_real_skills_are_judged_alike():
    """Insertions, deletions, lost and doubled lines, and line ends, in files people wrote."""
    folders = [CORPUS, shipped_skills()] if CORPUS.is_dir() else [shipped_skills()]
    found = [(p.name, p.document) for root in folders for p in discover(root).packages]
    draw = random.Random(2)
    for _ in range(1000):
        name, document = draw.choice(found)
        data = damaged(draw, document.data[: document.body_start + 200])
        check(Case(data=data, folder=draw.choice([name] * 9 + [name.title()])))
