"""Verifiers: what each kind can be told, and the scores of those that are data only.

A verifier is a kind and a few options. The data-only kinds are pure, so two runs of one always
agree, and all of them give an empty answer 0: a check of absences alone would reward a worker that
is silent. The kinds ``python`` and ``command`` run code of the suite, which is an adapter's work;
a ``committee`` combines the scores of several verifiers of any other kind.

What a suite can state is checked once, by `check_options`, when the suite is loaded; `verify`
then never raises on anything that a worker may answer.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from skillforge.core.committee import members
from skillforge.core.patterns import MAX_TEXT, safe_pattern
from skillforge.core.program import Limits, is_positive
from skillforge.core.rollout import Attempt, Verdict
from skillforge.core.task import Task, VerifierSpec
from skillforge.errors import SuiteError

PLANNED = ("judge",)
"""Kinds that are specified and cannot be used yet."""

MAX_JSON_TEXT = 100_000
"""Characters of an answer in which a JSON object is looked for."""

_MAX_JSON_STARTS = 200

# A minus is a sign only where nothing that can be subtracted from stands before it ("5-3" ends
# in 3), digits glued to a letter belong to a word ("m2"), and a comma only ever joins groups of
# three digits, so a lone one is never a number.
_NUMBER = re.compile(
    r"(?:(?<![\w.)\]])(?P<minus>[-\u2212]))?[$€£¥]?(?P<inner>(?<=[$€£¥])[-\u2212])?"
    r"(?<![A-Za-z_])(?P<digits>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?"
    r"|[0-9]+(?:\.[0-9]+)?|(?<![0-9.])\.[0-9]+)(?P<exponent>[eE][-+]?[0-9]{1,3}(?![0-9]))?"
)


def verify(spec: VerifierSpec, expected: str | None, output: str) -> float:
    """Score one answer.

    Args:
        spec: The verifier and its options, as `check_options` accepts them.
        expected: The reference answer, if there is one.
        output: What the worker answered, of any length and content.

    Returns:
        A score in [0, 1]; 0 for an answer of white space only.

    Raises:
        SuiteError: The kind is unknown or not data only.

    >>> verify(VerifierSpec(kind="number"), "72", "The answer is 72, in total, of course.")
    1.0
    """
    score = _kind(spec)[0]
    if score is None:
        raise SuiteError(f"verifier {spec.kind!r} is not data only; it needs what runs programs")
    if not output.strip():
        return 0.0
    return 1.0 if score(spec.options, expected or "", output) else 0.0


class DataOnlyVerifier:
    """The data-only kinds as the `Verifier` port, in this process."""

    async def verify(self, task: Task, attempt: Attempt) -> Verdict:
        """Score the attempt's output.

        Raises:
            SuiteError: The task's verifier is not data only.
        """
        return Verdict(score=verify(task.verifier, task.expected, attempt.output))


def check_options(spec: VerifierSpec, expected: str | None) -> None:
    """Check that a verifier can score answers against a reference.

    Raises:
        SuiteError: The kind is unknown or not available yet, an option is unknown, missing or of
            the wrong type, the pattern is invalid or could take exponential time, or the
            reference is missing or not one that this kind can compare with.
    """
    _, options, check = _kind(spec)
    for name, value in spec.options.items():
        if name not in options:
            known = ", ".join(sorted(options)) or "none"
            raise SuiteError(
                f"verifier {spec.kind!r} has no option {name!r}; its options are: {known}; "
                "remove it or correct its name"
            )
        _check_type(spec.kind, name, value, options[name])
    check(spec.options, expected)


def _kind(spec: VerifierSpec) -> _Kind:
    if spec.kind in _KINDS:
        return _KINDS[spec.kind]
    what = "is not available yet" if spec.kind in PLANNED else "is unknown"
    raise SuiteError(
        f"verifier kind {spec.kind!r} {what}; expected one of {', '.join(KINDS)}; "
        "name one of these in `kind`"
    )


def _check_type(kind: str, name: str, value: object, expected: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    good = {
        "true or false": isinstance(value, bool),
        "a text": isinstance(value, str) and value != "",
        "a number ≥ 0": number and math.isfinite(value) and value >= 0,  # type: ignore[arg-type, operator]
        "a number > 0": is_positive(value),
        "a whole number ≥ 1": type(value) is int and value >= 1,
        "a list of texts": isinstance(value, list) and all(isinstance(v, str) for v in value),
        "a list of verifiers": isinstance(value, list) and all(map(_is_verifier, value)),
        '"search" or "full"': value in ("search", "full"),
        '"majority" or "mean"': value in ("majority", "mean"),
    }[expected]
    if not good:
        raise SuiteError(
            f"option {name!r} of verifier {kind!r} is {value!r}, expected {expected}; correct it"
        )


def _need_reference(kind: str, expected: str | None) -> str:
    if expected is None or not expected.strip():
        found = "none" if expected is None else repr(expected)
        raise SuiteError(
            f"verifier {kind!r} needs a reference answer, found {found}; "
            "give the task a non-empty `expected`"
        )
    return expected


# exact and contains


def _fold(options: Mapping[str, Any], text: str) -> str:
    text = text.strip() if options.get("strip") else text
    return text.casefold() if options.get("ignore_case") else text


def _lines(text: str) -> list[str]:
    # Not str.splitlines: U+2028, U+0085 and their like may stand inside one answer.
    return [line for line in re.split(r"\r\n|\n|\r", text) if line.strip()]


def _exact(options: Mapping[str, Any], expected: str, output: str) -> bool:
    answer = _lines(output)[0] if options.get("first_line") else output
    return _fold(options, answer) == _fold(options, expected)


def _check_exact(options: Mapping[str, Any], expected: str | None) -> None:
    reference = _need_reference("exact", expected)
    if options.get("first_line") and len(_lines(reference)) > 1:
        raise SuiteError(
            f"the reference {reference!r} has several lines, but `first_line` compares one; "
            "drop the option or shorten the reference"
        )


def _contains(options: Mapping[str, Any], expected: str, output: str) -> bool:
    return _fold(options, expected) in _fold(options, output)


def _check_contains(options: Mapping[str, Any], expected: str | None) -> None:
    _need_reference("contains", expected)


# regex


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    newest = deque(pattern.finditer(text), maxlen=1)
    return newest[0] if newest else None


def _regex(options: Mapping[str, Any], expected: str, output: str) -> bool:
    pattern = re.compile(options["pattern"], re.IGNORECASE if options.get("ignore_case") else 0)
    if options.get("match", "search") == "full":
        match = None if len(output) > MAX_TEXT else pattern.fullmatch(output.strip())
    else:
        match = _last(pattern, output[-MAX_TEXT:])
    if match is None or "answer" not in pattern.groupindex:
        return match is not None
    answer = match["answer"] or ""
    return _fold({**options, "strip": True}, answer) == _fold({**options, "strip": True}, expected)


def _check_regex(options: Mapping[str, Any], expected: str | None) -> None:
    pattern = options.get("pattern")
    if pattern is None:
        raise SuiteError("verifier 'regex' has no option 'pattern', expected a text; add it")
    compiled = safe_pattern(pattern, ignore_case=bool(options.get("ignore_case")))
    if compiled.match("") and "answer" not in compiled.groupindex:
        raise SuiteError(
            f"the pattern {pattern!r} matches the empty text, so every answer would pass; "
            "expected one that needs at least one character; tighten it"
        )
    if "answer" in compiled.groupindex:
        _need_reference("regex", expected)


# number


def last_number(text: str) -> Decimal | None:
    """Return the last number of a text, or None.

    Signs, ``$``, thousands separators, decimals, exponents and a full stop after the number are
    understood.

    >>> last_number("#### -3"), last_number("It costs $1,234.50."), last_number("well, no")
    (Decimal('-3'), Decimal('1234.50'), None)
    """
    match = _last(_NUMBER, text)
    if match is None:
        return None
    value = Decimal(match["digits"].replace(",", "") + (match["exponent"] or ""))
    return value.copy_negate() if match["minus"] or match["inner"] else value


def _number(options: Mapping[str, Any], expected: str, output: str) -> bool:
    reference, answer = last_number(expected), last_number(output)
    if reference is None or answer is None:
        return False
    tolerance = Decimal(str(options.get("tolerance", 0)))
    return answer == reference if tolerance == 0 else abs(answer - reference) <= tolerance


def _check_number(options: Mapping[str, Any], expected: str | None) -> None:
    reference = _need_reference("number", expected)
    if last_number(reference) is None:
        raise SuiteError(
            f"the reference {reference!r} holds no number, expected one such as '-1,234.5'; "
            "correct it or choose another verifier"
        )


# json


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _objects(text: str) -> Iterator[dict[str, object]]:
    starts = (match.start() for match in re.finditer(r"\{", text[:MAX_JSON_TEXT]))
    for _, start in zip(range(_MAX_JSON_STARTS), starts, strict=False):
        try:
            yield _DECODER.raw_decode(text[:MAX_JSON_TEXT], start)[0]
        except (ValueError, RecursionError):
            continue


def _same(left: object, right: object) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(v, right[k]) for k, v in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    # In Python True equals 1; in JSON it does not.
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _json(options: Mapping[str, Any], expected: str, output: str) -> bool:
    reference, answer = next(_objects(expected), None), next(_objects(output), None)
    if reference is None or answer is None:
        return False
    if options.get("exact_keys") and answer.keys() != reference.keys():
        return False
    return all(key in answer and _same(value, answer[key]) for key, value in reference.items())


def _check_json(options: Mapping[str, Any], expected: str | None) -> None:
    reference = _need_reference("json", expected)
    try:
        value = json.loads(reference, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SuiteError(
            f"the reference {reference[:60]!r} is no JSON ({error}), expected an object; correct it"
        ) from error
    if not isinstance(value, dict) or not value:
        raise SuiteError(
            f"the reference {reference[:60]!r} is no JSON object with at least one key; "
            'write the keys to compare, such as {"total": 3}'
        )


# python and command


def limits_of(options: Mapping[str, Any]) -> Limits:
    """Return the limits that the options of a ``python`` or ``command`` verifier state."""
    stated = {name: options[name] for name in _LIMITS if name in options}
    environment = tuple(stated.pop("environment", ()))
    return replace(_VERIFIER_LIMITS, environment=environment, **stated)


def _check_python(options: Mapping[str, Any], expected: str | None) -> None:
    function = options.get("function")
    if function is None or not _FUNCTION.fullmatch(function):
        raise SuiteError(
            f"option 'function' of verifier 'python' is {function!r}, expected 'module:function' "
            "with a module of the suite's folder; correct it"
        )


def _check_command(options: Mapping[str, Any], expected: str | None) -> None:
    if not options.get("command") or not options["command"][0]:
        raise SuiteError(
            f"option 'command' of verifier 'command' is {options.get('command')!r}, expected a "
            'program and its arguments, such as ["diff", "{output_file}", "{expected_file}"]; '
            "add it"
        )


# committee


def runs_code(spec: VerifierSpec) -> bool:
    """Whether the verifier, or a member of it, runs code of the suite."""
    return any(member.kind in CODE_KINDS for member in members(spec))


def _is_verifier(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("kind"), str)


def _check_committee(options: Mapping[str, Any], expected: str | None) -> None:
    listed = options.get("members", [])
    if len(listed) < 2 or "vote" not in options:
        raise SuiteError(
            f"verifier 'committee' has {len(listed)} members and the vote "
            f"{options.get('vote')!r}; expected at least 2 `members`, each with its `kind`, and "
            '`vote`, "majority" or "mean"; add them'
        )
    for member in members(VerifierSpec(kind="committee", options=options)):
        if member.kind == "committee":
            raise SuiteError("a member of verifier 'committee' is a committee; list its members")
        check_options(member, expected)


_Score = Callable[[Mapping[str, Any], str, str], bool]
_Check = Callable[[Mapping[str, Any], str | None], None]
_Kind = tuple[_Score | None, Mapping[str, str], _Check]

_FLAG = "true or false"
_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_VERIFIER_LIMITS = Limits(timeout=60.0, network=False)
_LIMITS = {
    "timeout": "a number > 0",
    "memory_mib": "a whole number ≥ 1",
    "network": _FLAG,
    "environment": "a list of texts",
}
_KINDS: Mapping[str, _Kind] = {
    "exact": (_exact, {"strip": _FLAG, "first_line": _FLAG, "ignore_case": _FLAG}, _check_exact),
    "contains": (_contains, {"strip": _FLAG, "ignore_case": _FLAG}, _check_contains),
    "regex": (
        _regex,
        {"pattern": "a text", "match": '"search" or "full"', "ignore_case": _FLAG},
        _check_regex,
    ),
    "number": (_number, {"tolerance": "a number ≥ 0"}, _check_number),
    "json": (_json, {"exact_keys": _FLAG}, _check_json),
    "python": (None, {"function": "a text", **_LIMITS}, _check_python),
    "command": (None, {"command": "a list of texts", "score": _FLAG, **_LIMITS}, _check_command),
    "committee": (
        None,
        {"members": "a list of verifiers", "vote": '"majority" or "mean"'},
        _check_committee,
    ),
}

CODE_KINDS = ("python", "command")
"""Kinds that run code of the suite."""

KINDS = tuple(_KINDS)
"""Kinds that can be used."""
