"""Properties of the artifact layer: lossless reading, exact undo, sound parts, exact packing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from skillforge.core.anchors import units_digest
from skillforge.core.digest import sha256
from skillforge.core.document import parse_document
from skillforge.core.edits import Edit, Inverse, apply_edit, undo
from skillforge.core.lines import split_lines
from skillforge.core.lint import lint
from skillforge.core.package import Package, PackageFile, pack, unpack
from skillforge.core.skill_diff import diff_units
from skillforge.core.undo_check import check_undo
from skillforge.core.units import find_unit, leave_out, parse_units, removable, unit_bytes
from skillforge.errors import EditError

LINES = st.sampled_from(
    [
        "",
        " ",
        "# A",
        "## B",
        "### C",
        "====",
        "---",
        "***",
        "- item",
        "  - nested",
        "  more",
        "1. step",
        "10) step",
        "```",
        "~~~py",
        "| a | b |",
        "|---|---|",
        "User: ask",
        "Assistant: say",
        "**Assistant:**",
        "> quote",
        "<div>",
        "<!-- c",
        "[a]: b",
        "    code",
        "text: with # hash",
        "caf\u00e9 \u2028 \x85 数据",
        "\ufeff",
        "\x00",
    ]
)
NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
DESCRIPTIONS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)
RELAXED = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

FEWER = settings(RELAXED, max_examples=40)


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Draw Markdown-like text, one or mixed kinds of line ends, with or without a last one."""
    ends = st.just(draw(NEWLINES)) if draw(st.booleans()) else NEWLINES
    lines = draw(st.lists(st.tuples(LINES, ends), max_size=25))
    text = "".join(line + end for line, end in lines)
    return text + draw(st.sampled_from(["", "end"]))


@st.composite
def packages(draw: st.DrawFn) -> Package:
    """Draw a valid skill with an odd body and some files."""
    newline = draw(NEWLINES)
    description = draw(st.sampled_from(["Does b", "'a: b'", ">\n  a\n  b", "b # cut", "x: y"]))
    head = f"---\n# why\nname: a\ndescription: {description}\nlicense: MIT # l\n---\n"
    data = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + head.replace("\n", newline).encode()
    data += draw(bodies()).encode() + draw(st.sampled_from([b"", b"\xff", b"\n\xc3"]))
    files = {"SKILL.md": PackageFile(data=data, executable=draw(st.booleans()))}
    for name in draw(st.sets(st.sampled_from(["LICENSE", "references/x.md", "scripts/run"]))):
        files[name] = PackageFile(data=draw(st.binary(max_size=20)), executable=draw(st.booleans()))
    return Package(name="a", files=files)


@st.composite
def edits(draw: st.DrawFn, package: Package) -> Edit:
    """Draw an edit that names units of the package."""
    ids = [unit.id for unit in parse_units(package)]
    one, content = st.sampled_from(ids), draw(bodies())
    some = draw(st.lists(one, min_size=1, max_size=3, unique=True))
    edit = draw(
        st.sampled_from(
            [
                Edit(op="CREATE", after=draw(st.none() | one), content=content),
                Edit(op="UPDATE", unit=some[0], content=content),
                Edit(op="UPDATE", target="description", content=draw(DESCRIPTIONS)),
                Edit(op="MERGE", units=tuple(some), content=content),
                Edit(op="PRUNE", units=tuple(some)),
                Edit(op="NOOP"),
            ]
        )
    )
    if edit.named and draw(st.booleans()):
        anchor = units_digest(package, [find_unit(package, name) for name in edit.named])
        edit = replace(edit, expected_digest=anchor)
    return edit


@RELAXED
@given(st.binary(max_size=200) | TEXTS.map(str.encode))
def test_any_bytes_are_read_without_error_and_without_loss(data: bytes):
    """Nothing raises, and head and body are the file."""
    for text in (data, b"---\n" + data + b"\n---\n" + data):
        found = parse_document(text)
        assert found.data == text
        begin, end = found.frontmatter_span
        assert 0 <= begin <= end <= found.body_start <= len(text) or (begin, end) == (0, 0)
        assert found.body == text[found.body_start :].decode("utf-8", "replace")
        package = Package(name="a", files={"SKILL.md": PackageFile(data=text)})
        joined = b"".join(unit_bytes(package, unit) for unit in parse_units(package))
        assert joined == text
        lint(package)


@RELAXED
@given(bodies())
def test_lines_join_to_the_text(text: str):
    """Cutting into lines loses nothing and breaks at LF, CRLF and CR only."""
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all(line.rstrip("\r\n").count("\n") == 0 for line in lines)


@RELAXED
@given(packages())
def test_units_partition_the_files(package: Package):
    """Each file is covered once, ids are unique, digests are those of the bytes."""
    units = parse_units(package)
    assert len({unit.id for unit in units}) == len(units)
    for path, file in package.files.items():
        own = [unit for unit in units if unit.path == path]
        assert b"".join(unit_bytes(package, unit) for unit in own) == file.data
        assert [unit.start for unit in own] == sorted(unit.start for unit in own)


@RELAXED
@given(packages())
def test_leaving_out_any_unit_stays_valid(package: Package):
    """No new error, no new byte but a line end, and every other file untouched."""
    before = {problem.code for problem in lint(package) if problem.level == "error"}
    for unit in removable(parse_units(package)):
        rest = leave_out(package, unit.id)
        assert {p.code for p in lint(rest) if p.level == "error"} <= before
        assert rest != package
        assert rest.document.frontmatter == package.document.frontmatter
        assert all(rest.files[p] == f for p, f in package.files.items() if p not in (unit.path,))


@RELAXED
@given(packages(), st.data())
def test_undo_takes_every_edit_back(package: Package, data: st.DataObject):
    """undo(apply(s)) == s, also after a way through JSON, and the edit did something."""
    edit = data.draw(edits(package))
    try:
        applied = apply_edit(package, edit)
    except EditError:
        assume(False)
        return
    inverse = Inverse.from_json(applied.inverse.to_json())
    assert undo(applied.package, inverse) == package
    assert (applied.package == package) == (edit.op == "NOOP")
    assert Edit.from_json(edit.to_json()) == edit
    assert bool(diff_units(package, applied.package)) == (edit.op != "NOOP")


@FEWER
@given(packages(), st.data())
def test_an_edit_that_applies_is_undone_in_every_state(package: Package, data: st.DataObject):
    """Whatever else stands in the library and in the skill, every byte comes back."""
    edit = data.draw(edits(package))
    try:
        apply_edit(package, edit)
    except EditError:
        assume(False)
    check = check_undo(package, edit)
    assert check.passed == check.states > 0


@FEWER
@given(packages(), st.data())
def test_an_earlier_edit_is_undone_alone_or_refused(package: Package, data: st.DataObject):
    """Either what the later edit wrote is kept whole, or nothing is changed; and both come back."""
    edit = data.draw(edits(package))
    try:
        first = apply_edit(package, edit)
        second = apply_edit(first.package, data.draw(edits(first.package)))
    except EditError:
        assume(False)
        return
    assert undo(undo(second.package, second.inverse), first.inverse) == package
    try:
        kept = undo(second.package, first.inverse, [second.inverse])
    except EditError:
        return
    for path, file in kept.files.items():
        mine = [s for s in first.inverse.splices if s.path == path]
        later = [s for s in second.inverse.splices if s.path == path]
        grown = sum(len(s.new) - len(s.old) for s in later)
        if path in package.files:
            assert len(file.data) == len(package.files[path].data) + grown
        if not mine:
            assert path in first.inverse.removed or file == second.package.files[path]
        if not later:
            assert file == package.files[path]
    assert not second.inverse.removed.keys() & kept.files.keys()


@RELAXED
@given(packages(), st.data())
def test_edits_never_touch_what_they_do_not_name(package: Package, data: st.DataObject):
    """Body edits keep the frontmatter's bytes, description edits keep the body's."""
    edit = data.draw(edits(package))
    try:
        new = apply_edit(package, edit).package
    except EditError:
        assume(False)
        return
    old_doc, new_doc = package.document, new.document
    if edit.target == "description":
        assert new_doc.data[new_doc.body_start :] == old_doc.data[old_doc.body_start :]
        assert {**new_doc.frontmatter, "description": ""} == {
            **old_doc.frontmatter,
            "description": "",
        }
        assert new_doc.frontmatter["description"] == edit.content
        assert {p.code for p in lint(new) if p.level == "error"} <= {"not-utf8"}
    else:
        assert new_doc.data[: new_doc.body_start].startswith(old_doc.data[: old_doc.body_start])


@RELAXED
@given(packages())
def test_packing_round_trips(package: Package):
    """Every byte and mode comes back, whatever the order of the files."""
    manifest, *files = pack(package)
    assert unpack(manifest, {sha256(data): data for data in files}.__getitem__) == package
    shuffled = Package(name="a", files=dict(reversed(package.files.items())))
    assert pack(shuffled) == pack(package)
    assert shuffled.version == package.version
