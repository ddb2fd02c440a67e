"""Physical lines: the one place that knows what ends a line.

Only LF, CRLF and a bare CR do, in YAML 1.2 and in CommonMark alike. ``str.splitlines`` also breaks
at U+0085, U+2028 and five others, which are ordinary characters inside a description.
"""

from __future__ import annotations

import re
from itertools import accumulate

_BREAK = re.compile(r"\r\n|\n|\r")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_LINE_BYTES = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


def line_starts(text: str | bytes) -> list[int]:
    r"""Return the offset at which each line starts; a final line without text is not counted.

    >>> line_starts("a\r\nb\rc\u2028d")
    [0, 3, 5]
    """
    lines = _LINE.findall(text) if isinstance(text, str) else _LINE_BYTES.findall(text)
    return list(accumulate(map(len, lines[:-1]), initial=0)) if lines else []


def split_lines(text: str) -> list[str]:
    r"""Cut ``text`` into lines that keep their line ends; joined they are ``text`` again.

    >>> split_lines("a\r\nb\rc")
    ['a\r\n', 'b\r', 'c']
    """
    return _LINE.findall(text)


def to_lf(text: str) -> str:
    """Return ``text`` with every line end written as LF."""
    return _BREAK.sub("\n", text) if "\r" in text else text


def to_newline(text: str, newline: str) -> str:
    """Return ``text`` with every line end written as ``newline``."""
    return to_lf(text).replace("\n", newline)


def dominant_newline(data: bytes) -> tuple[str, bool]:
    """Return the commonest line end of ``data`` (LF if there is none) and whether it is mixed."""
    crlf = data.count(b"\r\n")
    counts = {"\n": data.count(b"\n") - crlf, "\r\n": crlf, "\r": data.count(b"\r") - crlf}
    # max keeps the first of equals, so a tie falls to LF
    return max(counts, key=lambda end: counts[end]), sum(n > 0 for n in counts.values()) > 1
