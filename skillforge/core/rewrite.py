"""Write edits into bytes: insert, replace and remove units, and rewrite the description."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import yaml

from skillforge.core.blocks import parse_blocks
from skillforge.core.document import Document, parse_document
from skillforge.core.lines import dominant_newline, split_lines, to_lf, to_newline
from skillforge.core.package import Package
from skillforge.core.units import Unit, cut, ends_blank, parse_units, removable
from skillforge.errors import EditError

_BLANK_TAIL = re.compile(rb"(?:[ \t]*(?:\r\n|\n|\r))*[ \t]*\Z")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|\n|$)")
_MARKER = re.compile(r"(?P<marker>[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+)")
_NEWLINES = (b"\n", b"\r")
_ITEMS = ("list_item", "step")
MAX_DESCRIPTION = 1024
"""Characters, by the specification."""


def insert_after(package: Package, unit: Unit | None, content: str) -> Package:
    """Return the package with ``content`` after ``unit``, or at the end of the body.

    One blank line goes around it, except between the items of a tight list.
    """
    if unit is not None and unit.kind == "file":
        raise EditError(
            f"CREATE cannot go after {unit.id!r}: it is a file; name a unit of the body"
        )
    document = package.document
    data, newline = document.data, document.newline.encode()
    _check_closed(content, "the content")
    if unit is not None and unit.kind in _ITEMS and _MARKER.match(content):
        return _with_body(package, _insert_item(package, unit, content))
    at = unit.end if unit is not None else len(data)
    before, after = data[:at], data[at:]
    _check_closed(before[document.body_start :].decode("utf-8", "replace"), "the skill's own text")
    head = b"" if not before or (ends_blank(before) and at > document.body_start) else newline
    if before and not before.endswith(_NEWLINES):
        head = newline * 2
    tail = newline * (2 if after and not _starts_blank(after) else 1)
    text = to_newline(content, document.newline).encode()
    return _with_body(package, before + head + text + tail + after)


def _insert_item(package: Package, unit: Unit, content: str) -> bytes:
    """Return the file with an item after another one, parted as the items of that list are."""
    data, newline = package.document.data, package.document.newline.encode()
    section = unit.id.rpartition("/")[0]
    first = next(u for u in parse_units(package) if u.id.rpartition("/")[0] == section)
    loose = first is not unit and ends_blank(data[first.start : first.end])
    text = to_newline(content, package.document.newline).encode()
    last_line = len(data[: unit.end].rstrip())
    gap = newline * (2 if loose else 1)
    rest = data[last_line:]
    return data[:last_line] + gap + text + (rest if rest.strip(b" \t") else newline)


def _check_closed(text: str, what: str) -> None:
    """Refuse text that would swallow what comes after it."""
    if not _is_closed(to_lf(text)):
        raise EditError(
            f"{what} opens a code fence or HTML block and does not close it, so that what follows "
            "would become part of it; close it"
        )


@lru_cache(maxsize=64)
def _is_closed(text: str) -> bool:
    """Tell whether a heading after the text is one; the undo check asks often for the same text."""
    return parse_blocks(text + "\n\n# end\n")[-1].title == "end"


def rewrite_units(
    package: Package, changes: Sequence[tuple[Unit, str | None]]
) -> Iterator[Package]:
    """Yield the package after each change: a unit replaced by its text, or removed if that is None.

    The blank lines after a replaced unit are kept.

    Raises:
        EditError: Two units overlap, or one is fixed: frontmatter, the heading of a cut section,
            a licence.
    """
    fixed = [unit.id for unit, text in changes if text is None and not removable([unit])]
    if fixed:
        raise EditError(
            f"{', '.join(fixed)} cannot be removed from skill {package.name!r}; leave it out of "
            "the edit"
        )
    in_order = sorted(changes, key=lambda change: (change[0].path, change[0].start))
    for (one, _), (two, _) in pairwise(in_order):
        if one.path == two.path and two.start < one.end:
            raise EditError(
                f"the edit names {one.id!r} and {two.id!r} of skill {package.name!r}, which "
                "overlap; name the whole or its parts, not both"
            )
    # from the end, so that the offsets of what is still to do stay true
    for unit, content in reversed(in_order):
        package = _rewrite(package, unit, content)
        yield package


def _rewrite(package: Package, unit: Unit, content: str | None) -> Package:
    data = package.files[unit.path].data
    if content is not None:
        new = _replacement(package, unit, content)
        return package.replace_file(unit.path, data[: unit.start] + new + data[unit.end :])
    if unit.kind == "file":
        return package.without_file(unit.path)
    return package.replace_file(unit.path, cut(data, unit.start, unit.end))


def _replacement(package: Package, unit: Unit, content: str) -> bytes:
    if unit.kind == "frontmatter":
        raise EditError("the frontmatter is the tool's; use target `description` to change that")
    old = package.files[unit.path].data[unit.start : unit.end]
    newline = dominant_newline(old)[0] if unit.kind == "file" else package.document.newline
    if unit.kind != "file":
        _check_closed(content, "the content")
    text = content if unit.kind == "file" else _with_opening(old, unit, content)
    found = _BLANK_TAIL.search(old)
    return to_newline(text, newline).encode() + (old[found.start() :] if found else b"")


def _with_opening(old: bytes, unit: Unit, content: str) -> str:
    """Give the content the heading or list marker that the unit opened with, if it has none."""
    first = split_lines(old.decode("utf-8", "replace"))[0]
    heading = _HEADING.match(first)
    if heading and not _HEADING.match(content):
        return f"{first.rstrip()}\n\n{content}"
    marker = _MARKER.match(first)
    if marker is None or unit.kind not in _ITEMS:
        return content
    given = _MARKER.match(content)
    if given:
        # another marker would start another list
        return marker.group() + content[given.end() :]
    indent = "\n" + " " * len(marker.group())
    return marker.group() + content.replace("\n", indent).replace(indent + "\n", "\n\n")


def write_description(package: Package, text: str) -> Package:
    """Return the package with the description replaced and no other byte of the file changed.

    What is read back equals ``text``, outer spaces and line ends included; it stands on one line
    of the file, quoted where YAML asks for it.

    Raises:
        EditError: There is no frontmatter, the text is too long or is the description already.
    """
    document = package.document
    if document.frontmatter_span == (0, 0):
        raise EditError(f"skill {package.name!r} has no frontmatter to hold a description; add it")
    if len(text) > MAX_DESCRIPTION:
        raise EditError(
            f"the description has {len(text)} characters, at most {MAX_DESCRIPTION} are allowed; "
            "shorten it"
        )
    if text == document.frontmatter.get("description"):
        raise EditError(f"skill {package.name!r} has this description already; propose NOOP")
    for style in (None, "'", '"'):
        scalar = _scalar(text, style)
        data = _splice_description(document, scalar)
        if "\n" not in scalar and _is_clean(document, parse_document(data), text):
            return package.replace_file(package.skill_file, data)
    raise EditError(
        f"the description of skill {package.name!r} cannot be rewritten: its frontmatter is no "
        "plain `key: value` YAML; mend what `validate` reports first"
    )


def _scalar(text: str, style: str | None) -> str:
    dumped: str = yaml.dump(
        text, Dumper=yaml.SafeDumper, default_style=style, allow_unicode=True, width=10**9
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def _splice_description(document: Document, scalar: str) -> bytes:
    data, value = document.data, scalar.encode()
    span = document.value_spans.get("description")
    if span is None:
        at = document.frontmatter_span[1]
        line = b"description: " + value + document.newline.encode()
        return data[:at] + line + data[at:]
    gap = b" " if data[: span[0]].endswith(b":") else b""
    return data[: span[0]] + gap + value + data[span[1] :]


def _is_clean(old: Document, new: Document, text: str) -> bool:
    """Tell whether only the description differs, and reads as it should with nothing cut off."""
    expected = {**old.frontmatter, "description": text}
    known = {problem.code for problem in old.problems} - {"yaml-comment"}
    fresh = {problem.code for problem in new.problems} - known
    same_body = old.data[old.body_start :] == new.data[new.body_start :]
    return dict(new.frontmatter) == expected and not fresh and same_body


def _starts_blank(data: bytes) -> bool:
    return data.lstrip(b" \t")[:1] in _NEWLINES


def _with_body(package: Package, data: bytes) -> Package:
    return package.replace_file(package.skill_file, data)
