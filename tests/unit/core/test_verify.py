"""Verifiers: what counts as the right answer, and what a suite may ask for.

Public reports covered: jundot/omlx#3484 and stanford-crfm/helm#4337 (a lone comma taken for a
number), google-deepmind/proeval#19 (a gold answer that lost its minus), sibson/redbeat#326 (a
check of absences that the empty answer passes), heypinchy/pinchy#808 (gold passes, wrong fails).
"""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest

from skillforge.core.digest import json_digest
from skillforge.core.task import SCORING, VerifierSpec
from skillforge.core.verify import CODE_KINDS, KINDS, PLANNED, check_options, last_number, verify
from skillforge.errors import SuiteError

CHOICE = r"(?P<answer>\([A-Z]\))"


def spec(kind: str, **options: Any) -> VerifierSpec:
    """Build a verifier."""
    return VerifierSpec(kind=kind, options=options)


@pytest.mark.parametrize(
    ("options", "expected", "output", "score"),
    [
        ({}, "Yes", "Yes", 1),
        ({}, "Yes", "Yes ", 0),
        ({}, "Yes", "yes", 0),
        ({"strip": True}, "Yes", "\n Yes\t\n", 1),
        ({"strip": True, "first_line": True}, "Yes", "\n\nYes\nbecause", 1),
        ({"strip": True, "first_line": True}, "Yes", "because\nYes", 0),
        ({"first_line": True}, "a\u2028b", "a\u2028b\r\nmore", 1),
        ({"ignore_case": True}, "STRASSE", "straße", 1),
        ({"strip": True, "ignore_case": True}, "valid", "invalid", 0),
    ],
)
def test_exact(options: dict[str, Any], expected: str, output: str, score: float) -> None:
    """Exact compares the whole answer, or its first line, as far as its options say."""
    assert score == verify(spec("exact", **options), expected, output)


@pytest.mark.parametrize(
    ("options", "output", "score"),
    [
        ({}, "It is Paris.", 1),
        ({}, "It is paris.", 0),
        ({"ignore_case": True}, "it is PARIS", 1),
        ({}, "It is Rome.", 0),
    ],
)
def test_contains(options: dict[str, Any], output: str, score: float) -> None:
    """Contains looks for the reference anywhere in the answer."""
    assert score == verify(spec("contains", **options), "Paris", output)


@pytest.mark.parametrize(
    ("output", "score"),
    [
        ("(B)", 1),
        ("The answer is (B).", 1),
        ("(A) is too old, so the answer is (B)", 1),
        ("The answer is (C).", 0),
        ("(B) fits less well than (A)", 0),
        ("B", 0),
        ("no idea", 0),
    ],
)
def test_regex_answer_group_is_compared_with_the_reference(output: str, score: float) -> None:
    """A group named answer is read from the last match, so another letter does not pass."""
    verifier = spec("regex", pattern=CHOICE)
    check_options(verifier, "(B)")

    assert score == verify(verifier, "(B)", output)


@pytest.mark.parametrize(
    ("options", "output", "score"),
    [
        ({"pattern": r"\d{4}-\d\d-\d\d"}, "on 2024-05-01.", 1),
        ({"pattern": r"\d{4}-\d\d-\d\d", "match": "full"}, "on 2024-05-01.", 0),
        ({"pattern": r"\d{4}-\d\d-\d\d", "match": "full"}, " 2024-05-01\n", 1),
        ({"pattern": "paris", "ignore_case": True}, "PARIS", 1),
        ({"pattern": "x+", "match": "full"}, "x" * 5_000, 0),
        ({"pattern": "end$"}, "x" * 100_000 + "end", 1),
    ],
)
def test_regex_full_or_search(options: dict[str, Any], output: str, score: float) -> None:
    """A pattern is searched for near the end of the answer, or has to be all of a short one."""
    check_options(spec("regex", **options), None)

    assert score == verify(spec("regex", **options), None, output)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        r"(\d+,?)*x",
        "(a|aa)+$",
        "((a?){15}){15}",
        "(?:(?:a*)b?)*c",
        "(?x) (a+)+ # (",
        "[",
        "a{99999999999999}",
        "a*",
        ".*a.*b",
        r"(?:.{0,999})a[\s\S]{3,}x",
        "a" * 501,
        "(?P<answer>",
    ],
)
def test_bad_patterns_are_refused(pattern: str) -> None:
    """A pattern that is invalid, too long, matches nothing at all, or may explode is an error."""
    with pytest.raises(SuiteError, match="pattern"):
        check_options(spec("regex", pattern=pattern), "a")


@pytest.mark.parametrize(
    "pattern",
    [
        r"[+-]?\d+(\.\d+)?",
        r"\d{1,3}(?:,\d{3})*",
        "(?:yes|no)$",
        r"[]()*+]+x",
        r"\(a+\)+",
        "a.*b.{0,80}c",
        r"[^|]*\|[^|]*\|[^|]*x",
        r"\w+ \w+ \w+",
    ],
)
def test_ordinary_patterns_are_taken(pattern: str) -> None:
    """Loops over fixed parts, choices without loops, and escaped or listed signs are fine."""
    check_options(spec("regex", pattern=pattern), None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 72, in total, of course.", "72"),
        ("#### -3", "-3"),
        ("It costs $1,234.50.", "1234.50"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("**−4**", "-4"),
        ("between 5-10", "10"),
        ("20 - 3", "3"),
        ("17 - 20 = -3.", "-3"),
        ("12,345,678", "12345678"),
        ("1, 2, 3", "3"),
        ("in 2020,300 people", "300"),
        ("1,2345", "2345"),
        ("x = .5", "0.5"),
        ("6.02e23", "6.02E+23"),
        ("\\boxed{-12}", "-12"),
        ("10%", "10"),
        ("72 m2", "72"),
        ("007", "7"),
    ],
)
def test_last_number(text: str, number: str) -> None:
    """The last number of a text is found with its sign, separators and decimals."""
    assert Decimal(number) == last_number(text)


@pytest.mark.parametrize("text", ["", ",", "well, no", "$", "-", "H2O", ".", "١٢"])
def test_no_number(text: str) -> None:
    """Commas, signs, and digits glued to a letter are no numbers."""
    assert last_number(text) is None


@pytest.mark.parametrize(
    ("options", "expected", "output", "score"),
    [
        ({}, "18", "#### 18", 1),
        ({}, "#### -3", "So it is -3.", 1),
        ({}, "-3", "So it is 3.", 0),
        ({}, "1,000", "1000.00", 1),
        ({}, "18", "18 or 19", 0),
        ({}, "18", "eighteen", 0),
        ({}, "3.14", "3.1416", 0),
        ({"tolerance": 0.01}, "3.14", "3.1416", 1),
        ({"tolerance": 0.1}, "0.3", "0.4", 1),
        ({"tolerance": 1}, "1e999", "1e-999", 0),
    ],
)
def test_number(options: dict[str, Any], expected: str, output: str, score: float) -> None:
    """The last number of the answer is compared exactly, or within a tolerance."""
    check_options(spec("number", **options), expected)

    assert score == verify(spec("number", **options), expected, output)


@pytest.mark.parametrize(
    ("options", "expected", "output", "score"),
    [
        ({}, '{"a": 1}', 'Sure: {"a": 1, "b": 2} done', 1),
        ({"exact_keys": True}, '{"a": 1}', '{"a": 1, "b": 2}', 0),
        ({}, '{"a": {"b": [1, {"c": null}]}}', '{"a": {"b": [1.0, {"c": null}]}}', 1),
        ({}, '{"a": {"b": 1}}', '{"a": {"b": 1, "c": 2}}', 0),
        ({}, '{"a": [1, 2]}', '{"a": [2, 1]}', 0),
        ({}, '{"a": 1}', '{"a": true}', 0),
        ({}, '{"a": "1"}', '{"a": 1}', 0),
        ({}, '{"a": 1}', '{name} = {"a": 1}', 1),
        ({}, '{"a": 1}', '{"a": 2} {"a": 1}', 0),
        ({}, '{"a": 1}', '{"a": NaN}', 0),
        ({}, '{"a": 1}', '{"a": 1', 0),
        ({}, '{"a": 1}', "[1]", 0),
    ],
)
def test_json(options: dict[str, Any], expected: str, output: str, score: float) -> None:
    """The first JSON object of the answer has to hold the keys of the reference, deeply equal."""
    check_options(spec("json", **options), expected)

    assert score == verify(spec("json", **options), expected, output)


@pytest.mark.parametrize("output", ["", " \n\t", "\u2003"])
@pytest.mark.parametrize(
    "verifier",
    [
        spec("exact"),
        spec("contains", strip=True),
        spec("regex", pattern=r"(?s)\s*"),
        spec("number"),
        spec("json"),
    ],
)
def test_an_empty_answer_always_fails(verifier: VerifierSpec, output: str) -> None:
    """White space alone scores 0, whatever the verifier and the reference."""
    assert verify(verifier, output, output) == 0


@pytest.mark.parametrize(
    "output",
    ["{" * 50_000, '{"a":' * 50_000, "9" * 100_000, "1," * 50_000, ",x" * 50_000, "(" * 100_000],
)
def test_hostile_answers_are_scored_quickly(output: str) -> None:
    """Long, deep or pathological answers take a bounded time and raise nothing."""
    start = time.perf_counter()

    assert verify(spec("json"), '{"a": 1}', output) == 0
    assert verify(spec("number"), "2", output) == 0
    assert verify(spec("regex", pattern=CHOICE), "(B)", output) == 0
    assert verify(spec("regex", pattern=".*,x.{0,80}!"), None, output) == 0
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("kind", PLANNED)
def test_planned_kinds_say_so(kind: str) -> None:
    """A kind that is not built yet is named as such, with those that are."""
    with pytest.raises(SuiteError, match=f"'{kind}' is not available yet.*exact, contains, regex"):
        check_options(spec(kind), "x")
    with pytest.raises(SuiteError, match="not available yet"):
        verify(spec(kind), "x", "x")


@pytest.mark.parametrize(
    ("verifier", "expected", "message"),
    [
        (spec("fuzzy"), "x", "'fuzzy' is unknown"),
        (spec("exact", stripp=True), "x", "no option 'stripp'; its options are: first_line"),
        (spec("exact", strip="yes"), "x", "'strip' .* is 'yes', expected true or false"),
        (spec("exact", first_line=True), "a\nb", "several lines"),
        (spec("exact"), None, "needs a reference answer, found none"),
        (spec("exact"), "  ", "needs a reference answer, found '  '"),
        (spec("contains"), None, "needs a reference"),
        (spec("json"), None, "needs a reference"),
        (spec("json"), "[1]", "no JSON object"),
        (spec("json"), "{}", "at least one key"),
        (spec("json"), "{", "no JSON"),
        (spec("number"), "many", "holds no number"),
        (spec("number", tolerance=-1), "1", "'tolerance' .* is -1, expected a number ≥ 0"),
        (spec("number", tolerance=float("nan")), "1", "expected a number ≥ 0"),
        (spec("number", tolerance=True), "1", "expected a number ≥ 0"),
        (spec("regex"), "x", "no option 'pattern'"),
        (spec("regex", pattern="a", match="start"), "x", '"search" or "full"'),
        (spec("regex", pattern=CHOICE), None, "needs a reference"),
    ],
)
def test_wrong_options_are_named(
    verifier: VerifierSpec, expected: str | None, message: str
) -> None:
    """Unknown kinds and options, wrong types and unusable references are named."""
    with pytest.raises(SuiteError, match=message):
        check_options(verifier, expected)


def test_kinds() -> None:
    """The data-only kinds, those that run code, and committees are available."""
    assert KINDS[:5] == ("exact", "contains", "regex", "number", "json")
    assert KINDS[5:] == (*CODE_KINDS, "committee")


SCORES = {
    1: "928ca325d7ed89fc",
}
"""By version of the scoring, the digest of what it makes of the answers below."""


def test_a_change_of_what_verifiers_score_is_a_new_version():
    """A score of an earlier scoring must not be served: raise `SCORING` and add its digest here.

    Report: EvolvingLMMs-Lab/lmms-eval#1217 / #1118.
    """
    specs = [
        ("exact", {}), ("exact", {"strip": False}), ("exact", {"first_line": True}),
        ("exact", {"ignore_case": True}), ("contains", {}), ("number", {}), ("json", {}),
        ("regex", {"pattern": "(?i)^\\s*yes"}),
    ]  # fmt: skip
    golds = ["42", "Yes", '{"a": [1, 2]}', "-1,234.5", "#### 7"]
    answers = [
        "42", " 42\n", "it is 42.", "42\nor so", "yes", " YES, sir", "no", '{"a": [1, 2]}',
        '```json\n{"a":[1,2]}\n```', '{"a": [2, 1]}', "-1234.50", "1,234.5", "-1,234.5.", "7",
        "#### 7", "The answer is 7, I think", "", "\u2028", "４２",
    ]  # fmt: skip
    scores = [
        verify(VerifierSpec(kind=kind, options=options), gold, answer)
        for kind, options in specs
        for gold in golds
        for answer in answers
    ]

    assert json_digest(scores)[:16] == SCORES[SCORING]
