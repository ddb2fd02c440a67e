"""Read frontmatter that is no YAML as it stands: quote what fails, and only that.

Each top-level entry is tried by itself; one that fails is taken for the plain text that its author
meant, so that one bad value costs no other key. Lines keep their numbers throughout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from skillforge.core.lines import line_starts, split_lines
from skillforge.core.problem import Level, Problem

NOT_YAML = (yaml.YAMLError, RecursionError, ValueError)
"""What composing bad text raises; the pure Python loader recurses where libyaml counts."""

Span = tuple[int, int]

_FastLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_ENTRY = re.compile(r"(?P<key>[^\s#'\"\-\[\]{}:][^:\r\n]*|\"[^\"\r\n]*\"|'[^'\r\n]*'):(?=\s|$)")
_NESTED = re.compile(r"(?P<head>[ \t]+(?:- )?[\w.-]+:[ \t]+)(?P<value>\S.*)$")
_DOUBTFUL = re.compile(r"\t|[|>][-+0-9]*#")
_BLOCK = re.compile(r"[|>][-+0-9]*\s*(#.*)?$")


class Report:
    """Collects problems under one path, with lines counted from the top of the file."""

    def __init__(self, path: str, first_line: int) -> None:
        self.path = path
        self.first_line = first_line
        self.problems: list[Problem] = []

    def add(self, line: int, code: str, message: str, level: Level = "error") -> None:
        """Note a finding about a 0-based line of the YAML text."""
        self.problems.append(
            Problem(
                path=self.path,
                line=self.first_line + line,
                code=code,
                level=level,
                message=message,
            )
        )


def compose(text: str) -> Any:
    """Return the node graph of one YAML document, or None if it is empty."""
    return yaml.compose(text, Loader=_loader(text))


def tokens(text: str) -> Iterator[Any]:
    """Yield the tokens of a text that `compose` can read."""
    yield from yaml.scan(text, Loader=_loader(text))


def _loader(text: str) -> Any:
    """Return the fast loader, or the one that refuses what libyaml lets through and others do not.

    That is a tab between words, and a comment right after the sign of a block.
    """
    return yaml.BaseLoader if _DOUBTFUL.search(text) else _FastLoader


def line_of(error: Exception) -> int:
    """Return the 0-based line that a YAML error is about."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return int(mark.line) if mark is not None else 0


def reason(error: Exception) -> str:
    """Return what a YAML error says, in one line."""
    return str(getattr(error, "problem", None) or error).split("\n", 1)[0]


def quote(text: str) -> str:
    """Write ``text`` as a single-quoted YAML scalar.

    >>> quote("the harness: don't")
    "'the harness: don''t'"
    """
    return "'" + text.replace("'", "''") + "'"


def mend(text: str, report: Report) -> tuple[str, dict[str, Span]]:
    """Return ``text`` with only the failing entries quoted, line for line, and their raw spans."""
    lines = split_lines(text)
    starts = [*line_starts(text), len(text)]
    spans: dict[str, Span] = {}
    for first, last in _entries(lines):
        entry = "".join(lines[first:last])
        error = _failure(entry)
        if error is None:
            continue
        head = _ENTRY.match(entry)
        inline = entry[head.end() :].lstrip(" \t") if head else ""
        if head and inline and inline[0] not in "\r\n" and not _BLOCK.match(_first(inline)):
            key = head.group("key").strip("'\" \t")
            raw = inline.rstrip()
            begin = starts[first] + len(entry) - len(inline)
            spans[key] = (begin, begin + len(raw))
            folded = " ".join(raw.split())
            lines[first] = f"{head.group()} {quote(folded)}\n"
            lines[first + 1 : last] = ["\n"] * (last - first - 1)
            _report_unquoted(report, first, key, folded, error)
        elif not _mend_nested(lines, first, last, report):
            where = first + line_of(error)
            report.add(where, "yaml-invalid", f"this is no YAML: {reason(error)}; left out.")
            lines[first:last] = ["\n"] * (last - first)
    return "".join(lines), spans


def _report_unquoted(report: Report, line: int, key: str, value: str, error: Exception) -> None:
    report.add(
        line,
        "yaml-unquoted",
        f"the value of `{key}` is no YAML as it stands ({reason(error)}); it was read as plain "
        f"text, but strict readers drop the whole skill: quote it, `{key}: {quote(value)}`.",
    )


def _first(text: str) -> str:
    return split_lines(text)[0].strip("\r\n")


def _entries(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the line range of each top-level entry, and of what stands before the first."""
    starts = [i for i, line in enumerate(lines) if _ENTRY.match(line)]
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    yield from zip(starts, [*starts[1:], len(lines)], strict=True)


def _failure(text: str) -> Exception | None:
    try:
        compose(text)
    except NOT_YAML as error:
        return error
    return None


def _mend_nested(lines: list[str], first: int, last: int, report: Report) -> bool:
    """Quote the nested one-line values that fail by themselves; return whether the entry parses."""
    mended = list(lines[first:last])
    found: list[tuple[int, str, str, Exception]] = []
    for i, line in enumerate(mended):
        nested = _NESTED.match(line.rstrip("\r\n"))
        error = _failure(line.strip()) if nested else None
        if nested and error is not None:
            value = nested.group("value").rstrip()
            mended[i] = nested.group("head") + quote(value) + "\n"
            found.append((first + i, nested.group("head").strip(" \t:-"), value, error))
    if not found or _failure("".join(mended)) is not None:
        return False
    lines[first:last] = mended
    for where, key, value, why in found:
        _report_unquoted(report, where, key, value, why)
    return True
