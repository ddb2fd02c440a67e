"""Read the YAML between the fences of a ``SKILL.md``, strictly first and leniently if it must be.

Every scalar stays the string that was written: the format knows no dates, booleans or numbers, and
a resolver would turn ``name: 2024-01-01`` into a date, ``no`` into False and ``1.10`` into 1.1.
So the nodes are composed with PyYAML's `BaseLoader` (its C twin where there is one; it is fifteen
times as fast) and no resolver sees them.

YAML 1.1 takes U+0085, U+2028 and U+2029 for line ends and U+FEFF for a mark, YAML 1.2 does not;
they are hidden from the parser and put back. Where the whole does not parse,
`skillforge.core.mend` tries each entry alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from skillforge.core.lines import line_starts
from skillforge.core.mend import (
    NOT_YAML,
    Report,
    Span,
    compose,
    line_of,
    mend,
    quote,
    reason,
    tokens,
)
from skillforge.core.problem import Problem

_SPECIAL_IN_YAML_11 = "\x85\u2028\u2029\ufeff"
_UNREADABLE = re.compile("[\udc80-\udcff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_CUTTABLE = ("description", "compatibility")
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontmatter:
    """What the YAML text says, and where."""

    values: Mapping[str, Any]
    """Top-level keys to strings, lists and mappings of strings."""
    lines: Mapping[str, int]
    """0-based line of each top-level key inside the text."""
    spans: Mapping[str, Span]
    """Character span of each top-level value inside the text."""
    problems: tuple[Problem, ...]
    """Findings, with 1-based lines of the whole file."""


def read_frontmatter(text: str, *, path: str, first_line: int) -> Frontmatter:
    """Read YAML ``text``, of which line 0 is line ``first_line`` of ``path``. Never raises."""
    report = Report(path, first_line)
    hidden, shown = _hide_special(text)
    hidden = _hide_unreadable(hidden, report)
    raw_spans: dict[str, Span] = {}
    try:
        root = compose(hidden)
    except NOT_YAML:
        hidden, raw_spans = mend(hidden, report)
        try:
            root = compose(hidden)
        except NOT_YAML as error:
            root = None
            report.add(line_of(error), "yaml-invalid", f"this is no YAML: {reason(error)}.")
    if root is not None and not isinstance(root, yaml.MappingNode):
        report.add(0, "yaml-not-mapping", "expected `key: value` lines between the `---` fences.")
        root = None
    values, lines, spans = _read_mapping(root, text, _Builder(hidden, report, shown))
    if root is not None:
        _refuse_properties(hidden, report)
    return Frontmatter(
        values=values, lines=lines, spans={**spans, **raw_spans}, problems=tuple(report.problems)
    )


def _hide_special(text: str) -> tuple[str, dict[int, str]]:
    """Replace what only YAML 1.1 reads specially by free characters; return the way back too."""
    if not any(char in text for char in _SPECIAL_IN_YAML_11):
        return text, {}
    free = (chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in text)
    pairs = dict(zip(_SPECIAL_IN_YAML_11, free, strict=False))
    there = {ord(old): new for old, new in pairs.items()}
    return text.translate(there), {ord(new): old for old, new in pairs.items()}


def _hide_unreadable(text: str, report: Report) -> str:
    """Replace what YAML cannot hold, one character for one, so that positions stay true."""
    text = _UNREADABLE.sub("\ufffd", text)
    found = _CONTROL.search(text)
    if found is None:
        return text
    line = len(line_starts(text[: found.start() + 1])) - 1
    report.add(
        line,
        "control-character",
        f"the control character U+{ord(found.group()):04X} stands in the frontmatter; delete it.",
    )
    return _CONTROL.sub("\ufffd", text)


def _refuse_properties(text: str, report: Report) -> None:
    """Report anchors and tags: values are plain text, and the reference reader refuses both."""
    if "&" not in text and "!" not in text:
        return
    for token in tokens(text):
        if isinstance(token, yaml.AnchorToken | yaml.TagToken):
            begin = token.start_mark
            report.add(
                begin.line,
                "yaml-anchor" if isinstance(token, yaml.AnchorToken) else "yaml-tag",
                f"{text[begin.index : token.end_mark.index]!r} marks an anchor or a tag, which "
                "values of plain text cannot have; delete it, or quote the whole value.",
            )


def _read_mapping(
    root: Any, text: str, build: _Builder
) -> tuple[dict[str, Any], dict[str, int], dict[str, Span]]:
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    spans: dict[str, Span] = {}
    if root is None:
        return values, lines, spans
    if root.flow_style:
        build.refuse_flow(root, "frontmatter")
    build.refuse_uneven(root, "frontmatter")
    starts = [*line_starts(text), len(text)]

    def offset(mark: Any) -> int:
        line, column = int(mark.line), int(mark.column)
        return min(starts[min(line, len(starts) - 1)] + column, len(text))

    for key_node, value_node in root.value:
        key = build.key(key_node)
        if key is None:
            continue
        if key in values:
            build.refuse_twice(key_node, key)
        values[key] = build.value(value_node, key, 1)
        lines[key] = int(key_node.start_mark.line)
        begin, end = offset(value_node.start_mark), offset(value_node.end_mark)
        spans[key] = (begin, begin + len(text[begin:end].rstrip()))
        _warn_if_cut(build.report, key, value_node, text, spans[key])
    return values, lines, spans


def _warn_if_cut(report: Report, key: str, node: Any, text: str, span: Span) -> None:
    """Warn where an unquoted `` #`` ends a text that its author meant to go on."""
    if key not in _CUTTABLE or getattr(node, "style", "'") not in (None, ""):
        return
    begin, end = span
    rest = re.match(r"[ \t]*#[^\r\n]*", text[end:])
    if rest:
        whole = " ".join((text[begin:end] + rest.group()).split())
        report.add(
            int(node.end_mark.line),
            "yaml-comment",
            f"`{key}` ends at an unquoted `#`: YAML drops {rest.group().strip()!r} as a comment; "
            f"quote the whole value, `{key}: {quote(whole)}`.",
            "warning",
        )


class _Builder:
    """Turns composed nodes into strings, lists and mappings, noting what strict readers refuse."""

    def __init__(self, text: str, report: Report, shown: Mapping[int, str]) -> None:
        self.text = text
        self.report = report
        self.shown = shown
        self.seen: set[int] = set()

    def key(self, node: Any) -> str | None:
        if isinstance(node, yaml.ScalarNode):
            return str(node.value).translate(self.shown)
        self.report.add(node.start_mark.line, "yaml-key", "a key must be a plain word; left out.")
        return None

    def refuse_flow(self, node: Any, key: str) -> None:
        raw = self.text[node.start_mark.index : node.end_mark.index].translate(self.shown)
        cure = f"{key.rpartition('.')[2]}: {quote(' '.join(raw.split()))}"
        self.report.add(
            node.start_mark.line,
            "yaml-flow",
            f"`{key}` is written in flow style, [a, b] or {{a: b}}, which the reference reader "
            f"refuses; write one item a line, or one text, `{cure}`.",
        )

    def refuse_uneven(self, node: Any, key: str) -> None:
        inner = [value for _, value in node.value if isinstance(value, yaml.MappingNode)]
        for value in inner:
            if value.start_mark.column != inner[0].start_mark.column:
                self.report.add(
                    value.start_mark.line,
                    "yaml-indent",
                    f"the mappings in `{key}` are indented by {inner[0].start_mark.column} and by "
                    f"{value.start_mark.column} spaces, which the reference reader refuses; "
                    "indent them alike.",
                )

    def refuse_twice(self, node: Any, key: str) -> None:
        self.report.add(
            node.start_mark.line, "yaml-duplicate", f"`{key}` stands twice; delete one of them."
        )

    def value(self, node: Any, key: str, depth: int) -> Any:
        if id(node) in self.seen or depth > _MAX_DEPTH:
            self.report.add(
                node.start_mark.line,
                "yaml-alias",
                f"`{key}` uses an alias or nests too deep; write the value out.",
            )
            return ""
        self.seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            return str(node.value).translate(self.shown)
        if node.flow_style:
            self.refuse_flow(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, key, depth + 1) for item in node.value]
        self.refuse_uneven(node, key)
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name = self.key(key_node)
            if name is not None:
                if name in result:
                    self.refuse_twice(key_node, f"{key}.{name}")
                result[name] = self.value(value_node, f"{key}.{name}", depth + 1)
        return result
