"""What a model wrote, before it may become part of a skill: cleaned, and checked for leaks."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from skillforge.core.lines import to_lf
from skillforge.errors import EditError

_PUNCTUATION = string.punctuation + "“”‘’«»…"
LEAK_TOKENS = 8
"""A run of this many tokens shared with a held-out input is a leak."""

_WRAPPED = re.compile(
    r"(?P<fence>`{3,}|~{3,})[ \t]*[\w.+-]*[ \t]*\n(?P<inside>.*)\n(?P=fence)", re.S
)
_KEY = re.compile(r"[A-Za-z][\w-]*:")
_PREAMBLE = re.compile(
    r"(?:(?:sure|certainly|of course)[,!.]\s*)?here(?:'s| is| are)\b[^\n]*"
    r"\b(?:updated|revised|new|improved|edited|rewritten|section|content|version|text)\b[^\n]*:\n",
    re.I,
)
_BOILERPLATE = re.compile(
    r"(?:sure|certainly|of course|okay|ok|great)[,!.:]?(?: here\b[^\n]{0,60})?[.:!]?"
    r"|here(?:'s| is| are)\b[^\n]{0,80}:|as an ai\b.*|i(?:'m| am) sorry\b.*"
    r"|i (?:can't|cannot|am unable to|can not) (?:help|assist|do|provide|comply|edit)\b.*"
    r"|no changes?(?: (?:is |are )?(?:needed|required|necessary|proposed))?[.!]?"
    r"|[\[<][^\]>\n]{0,40}\b(?:insert|your|todo|content|text|here|placeholder)\b[^\]>\n]{0,40}[\]>]"
    r"|todo\b.{0,40}|tbd|placeholder|lorem ipsum.*"
    r"|n/?a|none|null|\.\.\.|…",
    re.I | re.S,
)


def clean_content(text: str) -> str:
    r"""Return the text of an edit without what models wrap around it; line ends are LF.

    A code fence around everything, a frontmatter block (the tool owns it) and blank lines at both
    ends are taken off. Fences inside the text stay.

    >>> clean_content("```markdown\n- Answer in one word.\n```")
    '- Answer in one word.'

    Raises:
        EditError: Nothing is left, or nothing but boilerplate.
    """
    cleaned = to_lf(text).strip("\n \t\ufeff")
    for _ in range(3):
        wrapped = _WRAPPED.fullmatch(cleaned)
        if wrapped and wrapped.group("fence") not in wrapped.group("inside"):
            cleaned = wrapped.group("inside").strip("\n")
        cleaned = _without_frontmatter(_PREAMBLE.sub("", cleaned, count=1)).strip("\n")
    cleaned = cleaned.rstrip()
    if not cleaned.strip():
        raise EditError(
            "the content of the edit is empty; write the text of the unit, or use PRUNE"
        )
    if _BOILERPLATE.fullmatch(cleaned.strip()):
        raise EditError(
            f"the content of the edit is {cleaned.strip()[:60]!r}, which says nothing to a reader; "
            "write the text of the unit itself, or propose NOOP"
        )
    return cleaned


def _without_frontmatter(text: str) -> str:
    """Take off a leading block between ``---`` lines, if it opens with a ``key:`` line."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---" or len(lines) < 3 or not _KEY.match(lines[1]):
        return text
    closing = next((i for i, line in enumerate(lines) if i and line.rstrip() == "---"), None)
    return text if closing is None else "\n".join(lines[closing + 1 :])


class LeakIndex:
    """The held-out tasks in the form that makes many checks fast; build it once per suite."""

    def __init__(self, held_out: Iterable[tuple[str, str | None]]) -> None:
        self._pairs: list[tuple[str, str]] = []
        self._runs: set[tuple[str, ...]] = set()
        for given, expected in held_out:
            tokens = _tokens(given)
            if tokens and expected and expected.strip():
                self._pairs.append((f" {' '.join(tokens)} ", f" {' '.join(_tokens(expected))} "))
            self._runs.update(_runs(tokens))

    def check(self, content: str) -> None:
        """Refuse content that would carry a held-out task into a skill.

        Raises:
            EditError: It shares a run of `LEAK_TOKENS` tokens with a held-out input, or holds a
                whole input together with its answer.
        """
        tokens = _tokens(content)
        shared = next((run for run in _runs(tokens) if run in self._runs), None)
        if shared is not None:
            raise EditError(
                f"the content repeats {' '.join(shared)!r} from a held-out task; write the general "
                "rule, or an example of your own"
            )
        text = f" {' '.join(tokens)} "
        for given, expected in self._pairs:
            if given in text and expected in text.replace(given, " \0 "):
                raise EditError(
                    f"the content holds the held-out task {given.strip()[:60]!r} with its answer; "
                    "write the general rule, or an example of your own"
                )


def check_leak(content: str, held_out: Iterable[tuple[str, str | None]]) -> None:
    """Refuse content that carries held-out tasks, given as (input, expected answer or None).

    Case and white space do not count. A label alone, or an answer alone, is no leak.

    Raises:
        EditError: See `LeakIndex.check`.
    """
    LeakIndex(held_out).check(content)


def _tokens(text: str) -> list[str]:
    """Cut at white space, without case and without punctuation around a token."""
    return [token.strip(_PUNCTUATION) or token for token in text.casefold().split()]


def _runs(tokens: list[str]) -> Iterable[tuple[str, ...]]:
    return zip(*(tokens[i:] for i in range(LEAK_TOKENS)), strict=False)
