"""Real skills that nobody here wrote: read without loss, cut soundly, judged as skills-ref does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest
import skills_ref

from skillforge.adapters.files import discover
from skillforge.core.digest import sha256
from skillforge.core.edits import Edit, apply_edit, undo
from skillforge.core.lint import has_errors, lint
from skillforge.core.package import Package, pack, unpack
from skillforge.core.shown import body_text, description_only
from skillforge.core.units import leave_out, parse_units, removable, unit_bytes

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "skills"
DIFFERENT_VERDICT: frozenset[str] = frozenset()
"""Folders that we judge otherwise than skills-ref 0.1.1, each with its reason: none."""

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")


@cache
def corpus() -> tuple[tuple[str, Package], ...]:
    """Return folder and package of every skill of the corpus, loaded once."""
    found = discover(CORPUS)
    return tuple(zip(found.folders, found.packages, strict=True))


def skill_files() -> Iterator[Path]:
    """Yield every SKILL.md, in any case, by a search of its own."""
    return (path for path in CORPUS.rglob("*") if path.name.lower() == "skill.md")


def test_every_skill_file_is_found_and_kept_byte_for_byte():
    """Discovery loses no skill and no byte, and packing returns the same."""
    files = {path.parent.relative_to(CORPUS).as_posix(): path for path in skill_files()}
    assert {folder for folder, _ in corpus()} == set(files)
    for folder, package in corpus():
        data = files[folder].read_bytes()
        assert package.files[package.skill_file].data == data
        assert package.document.data == data
        manifest, *stored = pack(package)
        assert unpack(manifest, {sha256(data): data for data in stored}.__getitem__) == package


def test_the_verdict_is_that_of_the_reference_validator():
    """Errors or none: as skills-ref, but for the listed folders (bytedance/deer-flow#4867)."""
    different = {
        folder
        for folder, package in corpus()
        if has_errors(lint(package)) != bool(skills_ref.validate(CORPUS / folder))
    }
    assert different == DIFFERENT_VERDICT


def test_values_are_those_the_reference_reads():
    """Where the reference parses a file, name and description are the same strings."""
    compared = 0
    for folder, package in corpus():
        if has_errors(lint(package)):
            continue
        properties = skills_ref.read_properties(CORPUS / folder)
        assert package.document.frontmatter["name"] == properties.name
        assert package.description == properties.description
        compared += 1
    assert compared > 400


def test_known_faults_are_found_where_they_are():
    """Unquoted colons, title-case names, BOMs and missing frontmatter are counted.

    Covers vercel-labs/skills#1058, composio-community/awesome-codex-skills#223,
    QwenLM/qwen-code#1528 and laurigates/claude-plugins#1606 on real files.
    """
    codes = Counter(code for _, p in corpus() for code in {problem.code for problem in lint(p)})
    assert codes["yaml-unquoted"] == 29
    assert codes["bom"] == 16
    assert codes["frontmatter-missing"] == 73
    assert codes["skill-file-case"] == 1
    assert codes["name-case"] == 98
    mended = [p for _, p in corpus() if any(q.code == "yaml-unquoted" for q in lint(p))]
    assert all(package.description for package in mended)


@cache
def with_units() -> tuple[tuple[Package, int], ...]:
    """Return each package with the number of its units, checked to be a partition."""
    rows = []
    for _, package in corpus():
        units = parse_units(package)
        joined = b"".join(unit_bytes(package, unit) for unit in units if unit.kind != "file")
        assert joined == package.document.data
        assert len({unit.id for unit in units}) == len(units)
        rows.append((package, len(units)))
    return tuple(rows)


def test_units_rejoin_and_are_few():
    """The parts of every file join to its bytes; a typical skill has 3 to 20."""
    counts = [count for _, count in with_units()]
    assert 3 <= median(counts) <= 13
    assert sum(count > 20 for count in counts) < len(counts) / 10


def test_leaving_any_one_unit_out_stays_valid():
    """Every unit of every skill can be left out by itself without a new error."""
    left_out = 0
    for package, _ in with_units():
        before = {problem.code for problem in lint(package) if problem.level == "error"}
        for unit in removable(parse_units(package)):
            rest = leave_out(package, unit.id)
            assert {p.code for p in lint(rest) if p.level == "error"} <= before
            assert rest.version != package.version
            left_out += 1
    assert left_out > 5000


def test_descriptions_can_be_rewritten_and_undone_everywhere():
    """A rewritten description passes the reference's rules and every byte comes back."""
    text = 'Says: "x" # and more; don\'t use it for [y].'
    for _, package in corpus():
        if package.document.frontmatter_span == (0, 0):
            continue
        edit = Edit(op="UPDATE", target="description", content=text)
        applied = apply_edit(package, edit)
        assert applied.package.description == text
        assert undo(applied.package, applied.inverse) == package


def test_what_models_are_shown_has_no_frontmatter():
    """Of real skills, the whole body is shown and no fence before it (pm-claude-skills#173)."""
    for folder, package in corpus():
        shown = body_text(package)
        assert not shown.startswith("---\n"), folder
        assert package.body.rstrip().endswith(shown), folder
        assert shown or not package.body.strip(" \n-"), folder
        listed = description_only(package)
        assert listed.description == package.description, folder
        assert not package.document.frontmatter or body_text(listed) == "", folder
