"""Leaks: what an edit must not carry from the held-out splits into a skill.

Text is compared as tokens: runs of letters and digits after compatibility folding (NFKD), without
case, accents, underscores, punctuation, zero-width and other invisible characters; in scripts that
put no space between words each character is a token. A leak is

- a span of `SPAN` tokens or more of a held-out input, answer or verifier text,
- a whole held-out input together with its answer,
- a whole verifier text, copied as it is written.

A label alone is no leak, nor is what the propose split shows or the skill held before.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from skillforge.core.package import Package
from skillforge.core.task import Split, Task
from skillforge.errors import EditError

SPAN = 8
"""Tokens in a row that may not be shared with a held-out task."""
_SHORTEST_VERIFIER = 3
"""Tokens that a verifier text has at least; a shorter one is a setting or a label."""
_HELD_OUT = (Split.CONFIRM, Split.SEALED)

# Thai, Lao, Burmese, Khmer, kana and Han
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")

Span = tuple[str, ...]


def tokens(text: str) -> list[str]:
    """Cut a text into the tokens that leaks are looked for in.

    >>> tokens("The **PAR\u200bCEL**, for caf\u00e9_No. \uff19!")
    ['the', 'parcel', 'for', 'cafe', 'no', '9']
    """
    if not text.isascii():
        folded = unicodedata.normalize("NFKD", text)
        # marks and format characters are invisible, or only change how a letter looks
        kinds = ((char, unicodedata.category(char)) for char in folded)
        text = "".join(char for char, kind in kinds if kind != "Cf" and not kind.startswith("M"))
    return _TOKEN.findall(text.casefold())


class LeakIndex:
    """The held-out tasks of a suite in the form that makes many checks fast; build it once.

    Args:
        tasks: Every task of the suite. Those of the confirm and sealed splits are held out, those
            of the propose split may be quoted.

    Complexity: O(tokens of the suite) time and memory to build; a check takes O(tokens of the
    content) and one substring search for each held-out task.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._spans: set[Span] = set()
        self._pairs: list[tuple[str, str]] = []
        self._verifiers: set[str] = set()
        shown: set[Span] = set()
        for task in tasks:
            if task.split in _HELD_OUT:
                self._hold_out(task)
            elif task.split is Split.PROPOSE:
                for text in (task.input, task.expected or ""):
                    shown.update(_spans(tokens(text)))
        self._spans -= shown
        for text in self._verifiers:
            self._spans.update(_spans(tokens(text)))

    def _hold_out(self, task: Task) -> None:
        given, answer = tokens(task.input), tokens(task.expected or "")
        if given and answer:
            self._pairs.append((_joined(given), _joined(answer)))
        self._spans.update(_spans(given))
        self._spans.update(_spans(answer))
        self._verifiers.update(
            text
            for text in _texts(task.verifier.options)
            if len(tokens(text)) >= _SHORTEST_VERIFIER
        )

    def check(self, content: str, base: Package) -> None:
        """Refuse content that would carry a held-out task into a skill that does not hold it.

        Raises:
            EditError: It does; the message says what to write instead.
        """
        found = self._leaks(content)
        if not found:
            return
        known = self._leaks(_text_of(base))
        new = next((leak for leak in found if leak not in known), None)
        if new is not None:
            raise EditError(
                f"the content repeats {new[:80]!r}, which is held out for the decision; write the "
                "general rule, or an example of your own"
            )

    def _leaks(self, content: str) -> dict[str, None]:
        """Return what of the held-out tasks stands in a text, in order and once each."""
        given = tokens(content)
        joined, written = _joined(given), _squeezed(content)
        leaks = [" ".join(span) for span in _spans(given) if span in self._spans]
        leaks += [text for text in self._verifiers if _squeezed(text) in written]
        leaks += [
            f"{task.strip()} … {answer.strip()}"
            for task, answer in self._pairs
            if task in joined and answer in joined.replace(task, " \0 ")
        ]
        return dict.fromkeys(leaks)


def _spans(given: list[str]) -> Iterator[Span]:
    return zip(*(given[i:] for i in range(SPAN)), strict=False)


def _joined(given: list[str]) -> str:
    return f" {' '.join(given)} "


def _squeezed(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _texts(value: Any) -> Iterator[str]:
    """Yield every string inside the options of a verifier."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _text_of(package: Package) -> str:
    return "\n".join(file.data.decode("utf-8", "replace") for file in package.files.values())
