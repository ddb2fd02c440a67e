"""Importing public tasks: clean suites out of files that are not.

Public reports covered: ShishirPatil/gorilla#1133 (wrong gold answers), google-deepmind/proeval#19
(a gold answer that lost its minus), PrimeIntellect-ai/verifiers#1644 (U+2028 inside records).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillforge.adapters.suites import load_suite
from skillforge.adapters.task_import import import_bbh, import_gsm8k
from skillforge.core.task import Split
from skillforge.core.verify import verify
from skillforge.errors import SuiteError


def bbh(path: Path, *pairs: tuple[object, object], canary: str = "keep out") -> Path:
    """Write a BBH file."""
    path.parent.mkdir(exist_ok=True)
    examples = [{"input": question, "target": target} for question, target in pairs]
    path.write_text(json.dumps({"canary": canary, "examples": examples}), encoding="utf-8")
    return path


def gsm(path: Path, *pairs: tuple[object, object]) -> Path:
    """Write a GSM8K file."""
    rows = [json.dumps({"question": q, "answer": a}, ensure_ascii=False) for q, a in pairs]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("targets", "kind", "good", "bad"),
    [
        (["(A)", "(B)"], "regex", "I say (A).", "I say (B)."),
        (["-50", "7"], "number", "= -50", "= 50"),
        (["Yes", "No"], "exact", "yes\nbecause", "no"),
        (["valid", "invalid"], "exact", "Valid", "invalid"),
        (["] ]", "}"], "exact", " ] ]", "]]"),
    ],
)
def test_bbh_verifiers(tmp_path: Path, targets: list[str], kind: str, good: str, bad: str) -> None:
    """Each family gets the verifier that its references ask for."""
    source = bbh(tmp_path / "f.json", *((f"q{i}", target) for i, target in enumerate(targets)))

    import_bbh(source, tmp_path / "out", name="x", skill="s")
    first = load_suite(tmp_path / "out").tasks[0]

    assert first.verifier.kind == kind
    assert (first.skill, first.expected, first.id) == ("s", targets[0], "f-0001")
    assert verify(first.verifier, first.expected, good) == 1
    assert verify(first.verifier, first.expected, bad) == 0


def test_bbh_folder_is_split_by_family(tmp_path: Path) -> None:
    """From eight files on, every file stands whole in one split."""
    for i in range(8):
        bbh(tmp_path / "src" / f"f{i}.json", *((f"{i} {j}", "Yes") for j in range(3)))

    report = import_bbh(tmp_path / "src", tmp_path / "out", name="x")
    suite = load_suite(tmp_path / "out")

    assert report.families == {f"f{i}": 3 for i in range(8)}
    assert suite.split_by == "family"
    assert {task.split for task in suite.tasks} == set(Split)


def test_bad_examples_are_left_out_with_reasons(tmp_path: Path) -> None:
    """Duplicates, contradictions, strange references and wrong types are told one by one."""
    letters = [(f"q{i}", "(A)") for i in range(20)]
    source = bbh(
        tmp_path / "f.json",
        *letters,
        ("Q0 ", "(A)"),
        ("odd", "Monsters, Inc"),
        ("both", "(A)"),
        ("BOTH", "(B)"),
        (3, "(A)"),
        ("none", ""),
    )

    report = import_bbh(source, tmp_path / "out", name="x")
    reasons = {skip.where.rsplit(" ", 1)[1]: skip.reason for skip in report.skipped}

    assert report.taken == 20
    assert "same input as" in reasons["21"]
    assert "none of the answers" in reasons["22"]
    assert "contradicting answers: '(A)', '(B)'" in reasons["23"]
    assert "contradicting" in reasons["24"]
    assert "expected two texts" in reasons["25"]
    assert "empty" in reasons["26"]


def test_a_bad_file_hides_no_other(tmp_path: Path) -> None:
    """A file that is no BBH file is reported, and the others are taken."""
    bbh(tmp_path / "src" / "good.json", ("q", "Yes"))
    (tmp_path / "src" / "bad.json").write_text("{", encoding="utf-8")
    (tmp_path / "src" / "other.json").write_text("[1]", encoding="utf-8")
    (tmp_path / "src" / "bytes.json").write_bytes(b"\xff")

    report = import_bbh(tmp_path / "src", tmp_path / "out", name="x")

    assert report.taken == 1
    assert {Path(skip.where).name for skip in report.skipped} == {
        "bad.json",
        "other.json",
        "bytes.json",
    }


def test_license_and_canary_go_along(tmp_path: Path) -> None:
    """The licence beside the source is recorded and copied, and the canary kept as a comment."""
    source = bbh(tmp_path / "src" / "f.json", ("q", "Yes"), canary="GUID\n[evil]\x00")
    (tmp_path / "src" / "LICENSE").write_text("MIT License\n\nCopyright", encoding="utf-8")

    report = import_bbh(source, tmp_path / "out", name="x")

    assert report.license == load_suite(tmp_path / "out").license == "MIT"
    assert (tmp_path / "out" / "LICENSE").is_file()
    assert (tmp_path / "out" / "suite.toml").read_text().startswith("# GUID [evil]\n")


def test_license_unknown_or_stated(tmp_path: Path) -> None:
    """Without a licence file the licence is unknown, unless it is stated."""
    source = bbh(tmp_path / "f.json", ("q", "Yes"))

    assert import_bbh(source, tmp_path / "a", name="x").license == "unknown"
    stated = import_bbh(source, tmp_path / "b", name="x", license='odd "one"\n')
    assert stated.license == load_suite(tmp_path / "b").license == 'odd "one"\n'


def test_gsm8k(tmp_path: Path) -> None:
    """Gold numbers keep sign and separators; rows without one are reported by line."""
    source = gsm(
        tmp_path / "test.jsonl",
        ("one\u2028two\u0085", "x\n#### -3"),
        ("two", "so 5\n#### 1,234"),
        ("three", "no gold"),
        ("four", "#### many"),
        ("TWO", "#### 1234"),
    )

    report = import_gsm8k(source, tmp_path / "out", name="g", skill="s")
    suite = load_suite(tmp_path / "out")

    assert [task.expected for task in suite.tasks] == ["-3", "1,234"]
    assert verify(suite.tasks[0].verifier, "-3", "#### -3") == 1
    assert [skip.where.rsplit(":", 1)[1] for skip in report.skipped] == ["3", "4", "5"]


def test_report_as_json(tmp_path: Path) -> None:
    """The report is one JSON object."""
    source = gsm(tmp_path / "test.jsonl", ("one", "#### 3"))

    value = json.loads(json.dumps(import_gsm8k(source, tmp_path / "o", name="g").to_json()))

    assert (value["schema"], value["taken"], value["families"]) == (1, 1, {"test": 1})


def test_no_folder_is_overwritten(tmp_path: Path) -> None:
    """An existing folder is left as it is, even an empty one."""
    source = bbh(tmp_path / "f.json", ("q", "Yes"))
    (tmp_path / "out").mkdir()

    with pytest.raises(SuiteError, match="exists already"):
        import_bbh(source, tmp_path / "out", name="x")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 65])
def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    """A name that a suite cannot have is refused before anything is written."""
    source = bbh(tmp_path / "f.json", ("q", "Yes"))

    with pytest.raises(SuiteError, match="suite name"):
        import_bbh(source, tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()


def test_nothing_usable_is_an_error(tmp_path: Path) -> None:
    """A source without a usable task is an error that says why, and leaves nothing behind."""
    source = gsm(tmp_path / "test.jsonl", ("q", "no gold"))

    with pytest.raises(SuiteError, match=r"no usable task in .*\n.*test.jsonl:1: .*####"):
        import_gsm8k(source, tmp_path / "out", name="x")
    with pytest.raises(SuiteError, match="no usable task"):
        import_bbh(tmp_path / "absent.json", tmp_path / "out", name="x")
    assert [path.name for path in tmp_path.iterdir()] == ["test.jsonl"]
