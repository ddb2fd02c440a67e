"""What a model wrote, before it may become part of a skill: unwrapped, and refused if empty."""

from __future__ import annotations

import re

from skillforge.core.lines import to_lf
from skillforge.errors import EditError

_BLANK = "\n \t\ufeff"
_WRAPPED = re.compile(
    r"(?P<fence>`{3,}|~{3,})[ \t]*[\w.+-]*[ \t]*\n(?P<inside>.*)\n(?P=fence)[ \t]*"
    r"(?:\n\s*(?:let me know|(?:i )?hope|(?:please )?feel free)\b[^\n]*)?",
    re.S | re.I,
)
_KEY = re.compile(r"[A-Za-z][\w-]*:")
_OPENER = r"(?:(?:sure|certainly|of course|absolutely|okay|ok|great)(?: thing)?[,!.:]*\s*)"
_HERE = r"here(?:'s|’s| is| are)"
_PREAMBLE = re.compile(
    # after an opener any "Here is …:" is talk; without one it must be about the text itself
    rf"(?:{_OPENER}(?:{_HERE}|i(?:'ve|’ve| have))\b[^\n]*:|{_OPENER}"
    rf"|{_HERE} (?:the|your|my|an?) (?:updated|revised|new|improved|edited|rewritten)\b[^\n]*:"
    rf"|{_HERE} (?:the|your|my|an?) (?:[\w-]+ ){{0,2}}(?:section|content|version|text|edit|json):"
    r")[ \t]*\n",
    re.I,
)
_BOILERPLATE = re.compile(
    r"(?:sure|certainly|of course|okay|ok|great)[,!.:]?(?: here\b[^\n]{0,60})?[.:!…]*"
    r"|here(?:'s| is| are)\b[^\n]{0,80}[:…]|as an ai\b.*|i(?:'m| am) sorry\b.*"
    r"|i (?:can't|cannot|am unable to|can not) (?:help|assist|do|provide|comply|edit)\b.*"
    r"|(?:i )?hope (?:this|that|it) helps\b.*|let me know\b[^\n]*"
    r"|no changes?(?: (?:is |are )?(?:needed|required|necessary|proposed))?[.!]?"
    r"|[\[<][^\]>\n]{0,40}\b(?:insert|your|todo|content|text|here|placeholder)\b[^\]>\n]{0,40}[\]>]"
    r"|todo\b.{0,40}|tbd|placeholder|lorem ipsum.*"
    r"|n/?a|none|null|\.\.\.|…",
    re.I | re.S,
)


def unwrap(text: str) -> str:
    r"""Return an answer without the talk and the code fence around all of it; line ends are LF.

    >>> unwrap('Sure! Here is the edit:\n```json\n{"op": "NOOP"}\n```\nLet me know!')
    '{"op": "NOOP"}'
    """
    cleaned = to_lf(text).strip(_BLANK)
    while True:
        found = _PREAMBLE.match(cleaned)
        inside = (cleaned[found.end() :] if found else cleaned).strip("\n")
        wrapped = _WRAPPED.fullmatch(inside.strip())
        if wrapped and wrapped["fence"] not in wrapped["inside"]:
            inside = wrapped["inside"].strip("\n")
        if inside == cleaned:
            return cleaned
        cleaned = inside


def clean_content(text: str) -> str:
    r"""Return the text of an edit without what models wrap around it; line ends are LF.

    A code fence around everything, talk before and after, a frontmatter block (the tool owns it)
    and blank lines at both ends are taken off. Fences inside the text stay.

    >>> clean_content("```markdown\n- Answer in one word.\n```")
    '- Answer in one word.'

    Raises:
        EditError: Nothing is left, or nothing but boilerplate, or the text is not Unicode.
    """
    cleaned = unwrap(_without_frontmatter(unwrap(text))).rstrip()
    if not cleaned.strip():
        raise EditError(
            "the content of the edit is empty; write the text of the unit, or use PRUNE"
        )
    if _BOILERPLATE.fullmatch(cleaned.strip()):
        raise EditError(
            f"the content of the edit is {cleaned.strip()[:60]!r}, which says nothing to a reader; "
            "write the text of the unit itself, or propose NOOP"
        )
    try:
        cleaned.encode()
    except UnicodeEncodeError as error:
        raise EditError(
            f"the content of the edit holds half of a surrogate pair at character {error.start}; "
            "write the whole character"
        ) from error
    return cleaned


def clean_description(text: str) -> str:
    """Return a description as it was written, or without what models wrap around it.

    Raises:
        EditError: See `clean_content`.
    """
    cleaned = clean_content(text)
    return text if cleaned == to_lf(text).strip(_BLANK).rstrip() else cleaned


def _without_frontmatter(text: str) -> str:
    """Take off a leading block between ``---`` lines, if it opens with a ``key:`` line."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---" or len(lines) < 3 or not _KEY.match(lines[1]):
        return text
    closing = next((i for i, line in enumerate(lines) if i and line.rstrip() == "---"), None)
    return text if closing is None else "\n".join(lines[closing + 1 :])
