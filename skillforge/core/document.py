"""The one parser of ``SKILL.md``: bytes in, a `Document` out, the bytes untouched.

Loader, linter, editor, retriever and exporter all read skills through `parse_document`, so that no
two of them can disagree about the same file. Bad content never raises: it becomes a `Problem`.

The frontmatter opens with a line ``---`` at the top of the file (after a byte order mark, if there
is one) and closes with the next line that is ``---``. A ``---`` inside a value does not close it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skillforge.core.frontmatter import Frontmatter, read_frontmatter
from skillforge.core.lines import dominant_newline, line_starts
from skillforge.core.problem import Level, Problem

__all__ = ["Document", "Problem", "parse_document"]

_BOM = b"\xef\xbb\xbf"
_FENCE = re.compile(rb"---[ \t]*(?:\r\n|\n|\r|$)")
_BLANK_LINES = re.compile(rb"(?:[ \t]*(?:\r\n|\n|\r))+")
_NONE = Frontmatter(values={}, lines={}, spans={}, problems=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A ``SKILL.md`` as read. ``data`` is the file; everything else is a view of it."""

    data: bytes
    """The bytes of the whole file."""
    frontmatter: Mapping[str, Any]
    """Top-level keys to strings, lists and mappings; scalars are the strings that were written."""
    frontmatter_span: tuple[int, int]
    """Byte span of the YAML between the fences; (0, 0) where there is no frontmatter."""
    body: str
    """The text after the closing fence, line ends as in the file."""
    body_start: int
    """Byte offset at which the body starts; 0 where there is neither frontmatter nor BOM."""
    newline: str
    """The commonest line end of the file: LF, CRLF or CR."""
    bom: bool
    """Whether the file starts with a UTF-8 byte order mark."""
    problems: tuple[Problem, ...]
    """What is wrong with the encoding and the frontmatter's syntax, in order of lines."""
    key_lines: Mapping[str, int]
    """1-based line of each top-level key."""
    value_spans: Mapping[str, tuple[int, int]]
    """Byte span of each top-level value, quotes and block indicator included."""


def parse_document(data: bytes, path: str = "SKILL.md") -> Document:
    r"""Read the bytes of a ``SKILL.md``. Never raises, whatever the bytes are.

    >>> doc = parse_document(b"---\nname: a\ndescription: no\n---\nBody --- text\n")
    >>> doc.frontmatter["description"], doc.body
    ('no', 'Body --- text\n')
    """
    problems: list[Problem] = []

    def report(line: int, code: str, level: Level, message: str) -> None:
        problems.append(Problem(path=path, line=line, code=code, level=level, message=message))

    bom = data.startswith(_BOM)
    newline, mixed = dominant_newline(data)
    if bom:
        report(1, "bom", "warning", "the file starts with a byte order mark; save it without one.")
    if mixed:
        report(0, "mixed-newlines", "warning", "line ends are mixed; save the file with one kind.")
    _check_encoding(data, report)
    span, body_start = _find_frontmatter(data, 3 if bom else 0, report)
    found = _NONE
    spans: dict[str, tuple[int, int]] = {}
    first_line = 1
    if span != (0, 0):
        text = data[span[0] : span[1]].decode("utf-8", "surrogateescape")
        first_line = len(line_starts(data[: span[0]])) + 1
        found = read_frontmatter(text, path=path, first_line=first_line)
        spans = {key: _to_bytes(text, at, span[0]) for key, at in found.spans.items()}
    return Document(
        data=data,
        frontmatter=found.values,
        frontmatter_span=span,
        body=data[body_start:].decode("utf-8", "replace"),
        body_start=body_start,
        newline=newline,
        bom=bom,
        problems=tuple(sorted([*problems, *found.problems], key=lambda p: p.line)),
        key_lines={key: first_line + line for key, line in found.lines.items()},
        value_spans=spans,
    )


def _to_bytes(text: str, span: tuple[int, int], base: int) -> tuple[int, int]:
    """Turn a character span of ``text``, decoded with surrogateescape, into byte offsets."""
    begin = base + len(text[: span[0]].encode("utf-8", "surrogateescape"))
    return begin, begin + len(text[span[0] : span[1]].encode("utf-8", "surrogateescape"))


def _check_encoding(data: bytes, report: Any) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = len(line_starts(data[: error.start + 1]))
        report(
            line,
            "not-utf8",
            "error",
            f"byte {error.start} (0x{data[error.start]:02x}) is not UTF-8; save the file as UTF-8.",
        )


def _find_frontmatter(data: bytes, start: int, report: Any) -> tuple[tuple[int, int], int]:
    """Return the span of the YAML and the start of the body; report a missing or late fence."""
    opening = _FENCE.match(data, start)
    if opening is None:
        blank = _BLANK_LINES.match(data, start)
        opening = _FENCE.match(data, blank.end()) if blank else None
        if opening is None:
            message = "expected `---`, `name:`, `description:` and `---` at the top; add them."
            report(1, "frontmatter-missing", "error", f"there is no frontmatter: {message}")
            return (0, 0), start
        message = "blank lines stand before the frontmatter; it must start at line 1: delete them."
        report(1, "frontmatter-late", "error", message)
    at = opening.end()
    while at < len(data):
        closing = _FENCE.match(data, at)
        if closing:
            return (opening.end(), at), closing.end()
        at = _next_line(data, at)
    message = "the frontmatter opens with `---` but no later line is `---`; close it."
    report(len(line_starts(data[: opening.end()])), "frontmatter-unclosed", "error", message)
    return (0, 0), start


_END = re.compile(rb"\r\n|\n|\r")


def _next_line(data: bytes, at: int) -> int:
    found = _END.search(data, at)
    return found.end() if found else len(data)
