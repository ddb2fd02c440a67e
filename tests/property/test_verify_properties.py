"""Properties of verifiers, splits and suite files that hold for every input.

Public reports covered: PrimeIntellect-ai/verifiers#1644 (line separators inside records),
EleutherAI/lm-evaluation-harness#4213 (two runs of a verifier must agree).
"""

from __future__ import annotations

import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from skillforge.core.jsonl import parse_jsonl
from skillforge.core.splits import assign_splits, normalise_input
from skillforge.core.task import VerifierSpec
from skillforge.core.toml_text import render_toml
from skillforge.core.verify import check_options, last_number, verify
from skillforge.errors import SuiteError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
NASTY = st.text(
    st.sampled_from([*'\u2028\u2029\u0085\x0b\x0c\x1c\r\n\t "\\{}[]#=', "a", "é", "\x7f", "\x00"])
)
ANSWERS = TEXT | st.text(st.sampled_from([*'0123456789,.-$−(){}[]":eA \n']), max_size=60)
VERIFIERS = st.sampled_from(
    [
        VerifierSpec(kind="exact"),
        VerifierSpec(kind="exact", options={"strip": True, "first_line": True}),
        VerifierSpec(kind="contains", options={"ignore_case": True}),
        VerifierSpec(kind="regex", options={"pattern": r"(?P<answer>\([A-Z]\))"}),
        VerifierSpec(kind="number", options={"tolerance": 0.5}),
        VerifierSpec(kind="json"),
    ]
)


@given(VERIFIERS, ANSWERS, ANSWERS)
def test_verify_is_total_bounded_and_stable(
    verifier: VerifierSpec, expected: str, output: str
) -> None:
    """Any answer gets a score in [0, 1], the same one twice."""
    score = verify(verifier, expected, output)

    assert 0 <= score <= 1
    assert score == verify(verifier, expected, output)


@given(VERIFIERS, ANSWERS)
def test_accepted_references_pass(verifier: VerifierSpec, expected: str) -> None:
    """A reference that the check of options accepts passes, unless a pattern decides."""
    try:
        check_options(verifier, expected)
    except SuiteError:
        return

    assert verify(verifier, expected, expected) == 1 or verifier.kind == "regex"


@given(st.integers(), st.sampled_from(["{}", "{}.", "so, {}, then", "$ {}", "**{}**", "= {:,}."]))
def test_integers_are_found(number: int, form: str) -> None:
    """An integer is read back from the sentence that it ends."""
    assert number == last_number(form.format(number))


@given(st.integers(-(10**9), 10**9), st.integers(0, 99))
def test_amounts_are_found(units: int, cents: int) -> None:
    """An amount is read back with its sign, separators and decimals."""
    sign = "-" if units < 0 else ""
    text = f"{sign}${abs(units):,}.{cents:02}"

    assert f"{units if units or not sign else 0}.{cents:02}" == str(last_number(text))


@given(TEXT)
def test_normalising_twice_changes_nothing(text: str) -> None:
    """The normal form of a normal form is itself, up to what folding uncovers."""
    assert normalise_input(text + " ") == normalise_input("\n" + text)


@given(st.lists(st.integers(1, 4), max_size=12), st.integers(0, 5))
def test_splits_cover_and_repeat(sizes: list[int], seed: int) -> None:
    """Every task gets one split, and the same one whatever the order."""
    families = {f"f{n}": [f"f{n}/{i}" for i in range(size)] for n, size in enumerate(sizes)}
    splits = assign_splits(families, seed=seed)

    assert set(splits) == {id_ for ids in families.values() for id_ in ids}
    assert splits == assign_splits(dict(reversed(families.items())), seed=seed)
    if len(families) >= 8:
        assert all(len({splits[id_] for id_ in ids}) == 1 for ids in families.values())


@given(st.lists(st.dictionaries(NASTY | TEXT, NASTY | TEXT, max_size=3), max_size=5))
def test_json_lines_round_trip(rows: list[dict[str, str]]) -> None:
    """What is written one object a line is read back, whatever it holds."""
    data = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()

    lines = parse_jsonl(data)

    assert [row for _, row in lines.records] == rows
    assert lines.problems == ()


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_told(data: bytes) -> None:
    """No bytes raise: each line becomes a record or a problem, or is blank."""
    lines = parse_jsonl(data)

    assert len(lines.records) + len(lines.problems) <= data.count(b"\n") + 1


@given(
    st.dictionaries(
        NASTY | TEXT, NASTY | TEXT | st.booleans() | st.integers(-(2**62), 2**62), max_size=4
    ),
    st.dictionaries(NASTY | TEXT, NASTY | TEXT, min_size=1, max_size=3),
)
def test_toml_round_trip(plain: dict[str, str | bool | int], table: dict[str, str]) -> None:
    """What is written as TOML is read back, whatever its keys and texts hold."""
    values = {**plain, "table": table}

    assert values == tomllib.loads(render_toml(values))
