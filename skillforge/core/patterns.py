"""Regular expressions from suites, refused where they could run for an exponential time."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from skillforge.errors import SuiteError

MAX_PATTERN = 500
"""Characters of the longest pattern taken."""

MAX_TEXT = 2_000
"""Characters of the longest text to match against."""

_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\??|\)|\||[^\\]", re.DOTALL)
_QUANTIFIER = re.compile(r"[*+?]|\{(?P<low>\d*),(?P<high>\d*)\}|\{(?P<fixed>\d+)\}")


# What takes every character overlaps whatever follows, so each long repeat of it multiplies the
# time by its length. Narrower repeats are told apart by what stands between them.
_ANY = re.compile(r"\.|\[(?:\\s\\S|\\S\\s|\\w\\W|\\W\\w|\\d\\D|\\D\\d)\]")
_MAX_STEPS = 10**9


@lru_cache(maxsize=512)
def safe_pattern(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Compile a pattern that cannot take exponential time.

    Repeats of ``.`` may take a few seconds on a text of `MAX_TEXT` characters, not minutes.

    Raises:
        SuiteError: The pattern is too long, invalid, or loops over a loop or a choice,
            or repeats ``.`` so often that the time multiplies.

    >>> safe_pattern("(a+)+$")
    Traceback (most recent call last):
    ...
    skillforge.errors.SuiteError: the pattern '(a+)+$' repeats a group that itself repeats or \
chooses, which can take exponential time; expected no loop in a loop; write it flat
    """
    if len(pattern) > MAX_PATTERN:
        raise SuiteError(
            f"the pattern has {len(pattern)} characters, expected ≤ {MAX_PATTERN}; shorten it"
        )
    try:
        compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise SuiteError(
            f"the pattern {pattern!r} is no regular expression ({error}); correct it"
        ) from error
    # Verbose mode lets comments hold anything, so what is scanned is not what is matched.
    if compiled.flags & re.VERBOSE:
        raise SuiteError(f"the pattern {pattern!r} uses verbose mode, expected none; drop (?x)")
    if _may_explode(pattern):
        raise SuiteError(
            f"the pattern {pattern!r} repeats a group that itself repeats or chooses, which can "
            "take exponential time; expected no loop in a loop; write it flat"
        )
    if _steps(pattern) > _MAX_STEPS:
        raise SuiteError(
            f"the pattern {pattern!r} repeats '.' without bound more than once, which multiplies "
            "the time; expected one such repeat; bound the others, as in '.{0,80}'"
        )
    return compiled


def _may_explode(pattern: str) -> bool:
    """Tell whether a group is looped whose inside can match one text in several ways.

    It errs towards yes: a loop over any inner loop, optional part or alternative counts.
    """
    varies = [False]
    position = 0
    while position < len(pattern):
        atom = _ATOM.match(pattern, position)
        if atom is None:
            return True
        position = atom.end()
        if atom[0].startswith("("):
            varies.append(False)
            continue
        inner = varies.pop() if atom[0] == ")" and len(varies) > 1 else False
        quantifier = _QUANTIFIER.match(pattern, position)
        if quantifier:
            position = quantifier.end()
            if inner and _most(quantifier) > 1:
                return True
        variable = quantifier is not None and not quantifier["fixed"]
        varies[-1] |= inner or variable or atom[0] == "|"
    return False


def _steps(pattern: str) -> float:
    """Bound the steps of a search by the lengths of the repeats that can take anything."""
    steps = float(MAX_TEXT)
    for atom in _ATOM.finditer(pattern):
        quantifier = _QUANTIFIER.match(pattern, atom.end())
        if quantifier and _ANY.fullmatch(atom[0]):
            steps *= min(_most(quantifier), MAX_TEXT)
    return steps


def _most(quantifier: re.Match[str]) -> float:
    most = quantifier["high"] or quantifier["fixed"]
    if most:
        return int(most)
    return 1 if quantifier[0] == "?" else math.inf
