"""Real skills that nobody here wrote: units cut nothing apart, edits land and can be undone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from skillforge.adapters.files import discover
from skillforge.core.anchors import units_digest
from skillforge.core.edits import Edit, apply_edit, undo
from skillforge.core.lines import line_starts
from skillforge.core.lint import lint
from skillforge.core.package import Package
from skillforge.core.pointers import pointed
from skillforge.core.undo_check import check_undo
from skillforge.core.units import Unit, parse_units, removable
from skillforge.errors import EditError, SkillError

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "skills"
WHOLE = ("fence", "code_block", "table_open", "list_item_open", "blockquote_open", "paragraph_open")

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")


@cache
def corpus() -> tuple[Package, ...]:
    """Return every skill of the corpus, loaded once."""
    return discover(CORPUS).packages


def body_units(package: Package) -> list[Unit]:
    """Return the units of the body that can be left out."""
    return [unit for unit in removable(parse_units(package)) if unit.kind != "file"]


def test_no_unit_cuts_a_block_apart():
    """List items, steps, tables, code fences, quotes and paragraphs stay whole in every skill.

    The blocks are those of a CommonMark parser; a dialogue without blank lines is one paragraph to
    it, and cut between question and question here.
    """
    markdown = MarkdownIt("commonmark").enable("table")
    markdown.core.ruler.enableOnly(["normalize", "block"])
    cut = Counter()
    for package in corpus():
        document = package.document
        starts = [
            document.body_start + at for at in line_starts(document.data[document.body_start :])
        ]
        lines = {at: i for i, at in enumerate(starts)}
        inside: set[int] = set()
        for token in markdown.parse(document.body):
            if token.map and token.type in WHOLE and token.level <= 1:
                inside.update(range(token.map[0] + 1, token.map[1]))
        for unit in parse_units(package):
            if unit.path == package.skill_file and lines.get(unit.start) in inside:
                first = document.data[unit.start :].split(b"\n", 1)[0]
                cut[bool(re.match(rb"\W*(user|human|input|question|q)\b", first, re.I))] += 1
    assert cut[False] == 0


def samples() -> Iterator[tuple[Package, Edit]]:
    """Yield edits of every op on every eighth skill, where it has units enough."""
    for package in corpus()[::8]:
        units = body_units(package)
        yield package, Edit(op="CREATE", content="## Added\n\nOne rule.")
        if len(units) > 2:
            one, two, three = units[0], units[len(units) // 2], units[-1]
            anchor = units_digest(package, [two])
            yield package, Edit(op="PRUNE", unit=two.id, expected_digest=anchor)
            yield package, Edit(op="UPDATE", unit=two.id, content="Anew.", expected_digest=anchor)
            anchor = units_digest(package, [one, three])
            both = (one.id, three.id)
            yield package, Edit(op="MERGE", units=both, content="Joined.", expected_digest=anchor)


def test_edits_land_and_come_back_everywhere():
    """Every op works on real skills; what is refused is refused for a file left in the air."""
    done: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for package, edit in samples():
        try:
            applied = apply_edit(package, edit)
        except EditError as error:
            reason = str(error)
            known = ("points to", "does not close it", "has this", "propose NOOP")
            assert any(word in reason for word in known), reason
            refused[edit.op] += 1
            continue
        assert undo(applied.package, applied.inverse) == package
        done[edit.op] += 1
    assert all(done[op] > 60 for op in ("CREATE", "PRUNE", "UPDATE", "MERGE"))
    assert refused.total() < done.total() / 4


def test_edits_of_real_skills_are_undone_in_every_state():
    """A sample of the skills, one edit each of a different op: 22 of 22 states."""
    checked = 0
    for i, (package, edit) in enumerate(samples()):
        if i % 57:
            continue
        try:
            apply_edit(package, edit)
        except EditError:
            continue
        check = check_undo(package, edit)
        assert check.verified, (package.name, edit, check)
        checked += 1
    assert checked >= 5


def test_pointers_of_real_skills_are_found_and_no_longer_broken_once_the_file_is_there():
    """The corpus holds no file but SKILL.md, so that its links are broken until one is added."""
    targets = found = 0
    for package in corpus()[::4]:
        broken = [p for p in lint(package) if p.code == "link-missing"]
        for path in {re.findall(r"'(.*)'", problem.message)[0] for problem in broken}:
            try:
                mended = package.replace_file(path, b"text")
            except SkillError:
                continue
            targets += 1
            found += path in pointed(mended, mended.skill_file)
            assert not any(f"{path!r}" in p.message for p in lint(mended))
            if path in pointed(mended, mended.skill_file):
                with pytest.raises(EditError, match="still points to it"):
                    apply_edit(mended, Edit(op="PRUNE", unit=f"file:{path}"))
    assert targets > 25
    assert found > 0.95 * targets
