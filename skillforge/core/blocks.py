"""Cut a Markdown body into its top-level blocks, as lines: what `units` builds on.

A block is a heading, a list item, a fence, a table, a paragraph, or one worked example: the lines
from ``User:`` to the end of the answer to it. Every line belongs to exactly one block, blank lines
to the block before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from markdown_it import MarkdownIt

from skillforge.core.lines import split_lines

BlockKind = Literal["heading", "list_item", "step", "example", "table", "code", "paragraph", "rule"]

_ASKED = re.compile(
    r"\s{0,3}(?:[-*+] )?[*_]{0,2}(?:User|Human|Input|Question|Q)\b[^:\n]{0,12}:", re.I
)
_ANSWERED = re.compile(
    r"\s{0,3}(?:[-*+] )?[*_]{0,2}(?:Assistant|AI|Output|Answer|A)\b[^:\n]{0,12}:[*_]{0,2}\s*(.*)",
    re.I,
)
_KINDS: dict[str, BlockKind] = {
    "heading_open": "heading",
    "fence": "code",
    "code_block": "code",
    "table_open": "table",
    "hr": "rule",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A run of whole lines of the body."""

    kind: BlockKind
    """What it is; quotes and HTML count as paragraphs."""
    first: int
    """0-based first line."""
    last: int
    """The line after the last, trailing blank lines included."""
    level: int = 0
    """1 to 6 for headings, 0 otherwise."""
    title: str = ""
    """The text of a heading."""
    list_start: int = -1
    """First line of the list that an item belongs to; -1 otherwise."""


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    # inline rules cost as much as block rules, and spans of lines need none of them
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


_MARKDOWN = _parser()


def parse_blocks(body: str) -> tuple[Block, ...]:
    """Return the blocks of ``body`` in order; together they cover every line once."""
    lines = split_lines(body)
    found = list(_top_level(_MARKDOWN.parse(body)))
    if not found:
        return (Block(kind="paragraph", first=0, last=len(lines)),) if lines else ()
    found[0] = replace(found[0], first=0)
    ends = [block.first for block in found[1:]] + [len(lines)]
    covered = [replace(block, last=end) for block, end in zip(found, ends, strict=True)]
    return tuple(_with_examples(covered, lines))


def _top_level(tokens: Sequence[Any]) -> Iterator[Block]:
    """Yield the blocks outside any other, and the items of lists that are themselves outside."""
    in_list = -1
    for i, token in enumerate(tokens):
        if token.map is None or token.nesting < 0:
            continue
        first, last = token.map
        if token.level == 0 and token.type in ("bullet_list_open", "ordered_list_open"):
            in_list = first
            ordered = token.type == "ordered_list_open"
        elif token.level == 1 and token.type == "list_item_open":
            kind: BlockKind = "step" if ordered else "list_item"
            yield Block(kind=kind, first=first, last=last, list_start=in_list)
        elif token.level == 0 and token.type != "inline":
            level = int(token.tag[1]) if token.type == "heading_open" else 0
            title = tokens[i + 1].content if level else ""
            kind = _KINDS.get(token.type, "paragraph")
            yield Block(kind=kind, first=first, last=last, level=level, title=title)


def _with_examples(blocks: Sequence[Block], lines: Sequence[str]) -> Iterator[Block]:
    """Join and cut blocks so that each question with its answer is one ``example`` block."""
    pieces = [piece for block in blocks for piece in _cut_at_questions(block, lines)]
    i = 0
    while i < len(pieces):
        end = _end_of_example(pieces, i, lines)
        if end > i:
            yield replace(pieces[i], kind="example", last=pieces[end - 1].last, list_start=-1)
            i = end
        else:
            yield pieces[i]
            i += 1


def _cut_at_questions(block: Block, lines: Sequence[str]) -> Iterator[Block]:
    """Cut a paragraph before each line that asks, so that runs without blank lines come apart."""
    inner = range(block.first + 1, block.last) if block.kind == "paragraph" else ()
    cuts = [i for i in inner if _ASKED.match(lines[i])]
    if not cuts:
        yield block
        return
    for first, last in zip([block.first, *cuts], [*cuts, block.last], strict=True):
        yield replace(block, first=first, last=last)


def _end_of_example(pieces: Sequence[Block], start: int, lines: Sequence[str]) -> int:
    """Return the index after the example that starts at ``start``, or ``start`` if none does."""
    first = pieces[start]
    if first.kind == "code" or first.kind in ("list_item", "step"):
        text = lines[first.first : first.last]
        asked = any(_ASKED.match(line.lstrip()) for line in text)
        return (
            start + 1 if asked and any(_ANSWERED.match(line.lstrip()) for line in text) else start
        )
    if first.kind != "paragraph" or not _ASKED.match(_first_text(first, lines)):
        return start
    answered = 0
    for i in range(start, len(pieces)):
        piece = pieces[i]
        text = [line for line in lines[piece.first : piece.last] if line.strip()]
        new_question = i > start and _ASKED.match(_first_text(piece, lines)) is not None
        if piece.kind in ("heading", "rule") or new_question:
            return i if answered else start
        answers = [found for line in text if (found := _ANSWERED.match(line))]
        if answers:
            # a label with nothing after it is answered by the next block
            answered = (
                i + 1
                if answers[-1].group(1).strip() or text[-1:] != [answers[-1].string]
                else i + 2
            )
        elif answered and i >= answered and piece.kind == "paragraph":
            return i
    return len(pieces) if answered else start


def _first_text(block: Block, lines: Sequence[str]) -> str:
    return next((line for line in lines[block.first : block.last] if line.strip()), "")
