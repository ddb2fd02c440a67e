"""Group the blocks of a body into pieces: the partition rule that `units` states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from skillforge.core.blocks import Block, parse_blocks
from skillforge.core.lines import line_starts

UnitKind = Literal[
    "frontmatter",
    "intro",
    "section",
    "heading",
    "list_item",
    "step",
    "example",
    "table",
    "code",
    "paragraph",
    "file",
]

MAX_UNITS = 16
"""Pieces of one body up to which lists are cut into items."""
LONG_SECTION = 6000
"""Characters of a section above which it is cut at its sub-headings."""
_SHORT_LEAD_IN = 200
_ITEMS = ("list_item", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A unit before it has an id: whole lines of the body."""

    kind: UnitKind
    """What the unit is."""
    first: int
    """0-based first line of the body."""
    last: int
    """The line after the last."""
    slug: str
    """The section's name in ids."""
    title: str
    """Heading or first words, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """Consecutive blocks under one heading."""

    kind: UnitKind
    slug: str
    title: str
    blocks: tuple[Block, ...]


def slugify(title: str) -> str:
    """Return a short lower-case id for a heading; letters of every script are kept.

    >>> slugify("2. Output `format` — the rules!")
    '2-output-format-the-rules'
    """
    return "-".join(re.findall(r"\w+", title.lower()))[:40].strip("-_") or "untitled"


def cut_body(body: str) -> tuple[Piece, ...]:
    """Return the pieces of a body in order; together they cover every line once."""
    blocks = parse_blocks(body)
    if not blocks:
        return ()
    text = _Text(body)
    sections = list(_sections(blocks, text))
    pieces = [piece for section in sections for piece in _cut(section, text, items=True)]
    if len(pieces) > MAX_UNITS:
        pieces = [piece for section in sections for piece in _cut(section, text, items=False)]
    return tuple(pieces)


class _Text:
    """The body with its lines, for sizes and first words."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.starts = [*line_starts(body), len(body)]

    def of(self, blocks: Sequence[Block]) -> str:
        return self.body[self.starts[blocks[0].first] : self.starts[blocks[-1].last]]


def _sections(blocks: Sequence[Block], text: _Text) -> Iterator[_Section]:
    """Yield the intro, if there is one, and the sections."""
    headings = [(i, b) for i, b in enumerate(blocks) if b.kind == "heading"]
    titled = [b.level for _, b in headings].count(1) == 1 and headings[0][1].level == 1
    if titled:
        title = headings.pop(0)[1].title
    level = min((b.level for _, b in headings), default=0)
    starts = [i for i, b in headings if b.level == level]
    first = starts[0] if starts else len(blocks)
    if first > 0:
        slug = slugify(title) if titled else "body"
        yield _Section(
            kind="intro", slug=slug, title=title if titled else "", blocks=tuple(blocks[:first])
        )
    yield from _under(blocks, starts, "", "section", text)


def _under(
    blocks: Sequence[Block], starts: Sequence[int], parent: str, kind: UnitKind, text: _Text
) -> Iterator[_Section]:
    """Yield the sections that begin at the given blocks, long ones cut at their sub-headings."""
    for begin, end in zip(starts, [*starts[1:], len(blocks)], strict=False):
        own = blocks[begin:end]
        title = own[0].title
        slug = parent + slugify(title)
        inner = [b.level for b in own[1:] if b.kind == "heading"]
        below = [i for i, b in enumerate(own) if i and b.level and b.level == min(inner)]
        shows = title.lower().startswith(("example", "worked example"))
        if len(below) >= 2 and (shows or len(text.of(own)) > LONG_SECTION):
            head = tuple(own[: below[0]])
            bare: UnitKind = "heading" if len(head) == 1 else kind
            yield _Section(kind=bare, slug=slug, title=title, blocks=head)
            yield from _under(own, below, slug + ".", "example" if shows else kind, text)
        else:
            yield _Section(kind=kind, slug=slug, title=title, blocks=tuple(own))


def _cut(section: _Section, text: _Text, *, items: bool) -> Iterator[Piece]:
    """Yield the section whole, or its heading, items, examples and what stands between."""
    apart = {"example"} if section.kind != "example" else set()
    if items and _is_one_list(section.blocks):
        apart.update(_ITEMS)
    if not any(block.kind in apart for block in section.blocks):
        only_heading = len(section.blocks) == 1 and section.blocks[0].kind == "heading"
        kind: UnitKind = "heading" if only_heading and section.kind == "intro" else section.kind
        yield _piece(kind, section, section.blocks, section.title)
        return
    rest = list(section.blocks)
    head = _take_head(rest, text)
    if head:
        kind = "intro" if section.kind == "intro" and len(head) > 1 else "heading"
        yield _piece(kind, section, head, section.title)
    for group in _groups(rest, apart):
        kind = "paragraph"
        if len(group) == 1 or group[1].kind == "rule":
            kind = _own_kind(group[0])
        yield _piece(kind, section, group, _first_words(text.of(group)))


def _own_kind(block: Block) -> UnitKind:
    if block.kind == "rule" or block.kind == "heading":
        return "paragraph"
    return block.kind


def _is_one_list(blocks: Sequence[Block]) -> bool:
    """Tell whether the items of a single list make up at least half of a section's lines."""
    items = [block for block in blocks if block.kind in _ITEMS]
    lists = {block.list_start for block in items}
    headings = sum(block.kind == "heading" for block in blocks)
    inside = sum(block.last - block.first for block in items)
    total = sum(block.last - block.first for block in blocks)
    return len(items) >= 2 and len(lists) == 1 and headings <= 1 and 2 * inside >= total


def _take_head(rest: list[Block], text: _Text) -> list[Block]:
    """Remove and return the heading with a short lead-in."""
    head: list[Block] = []
    while rest and rest[0].kind == "heading":
        head.append(rest.pop(0))
    if rest and rest[0].kind == "paragraph" and len(text.of(rest[:1])) <= _SHORT_LEAD_IN:
        head.append(rest.pop(0))
    return head


def _groups(blocks: Sequence[Block], apart: set[str]) -> Iterator[list[Block]]:
    """Yield each block of a kind in ``apart`` alone, runs of others together."""
    group: list[Block] = []
    for block in blocks:
        joins = block.kind == "rule" or (
            block.kind not in apart and group and group[-1].kind not in apart
        )
        if group and not joins:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _piece(kind: UnitKind, section: _Section, blocks: Sequence[Block], title: str) -> Piece:
    return Piece(
        kind=kind,
        first=blocks[0].first,
        last=blocks[-1].last,
        slug=section.slug,
        title=title,
    )


def _first_words(text: str) -> str:
    words = text.split()
    return " ".join(words[:8]) + (" …" if len(words) > 8 else "")
