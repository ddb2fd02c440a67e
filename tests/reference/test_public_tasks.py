"""Public task files, imported whole: the suites that come out are clean.

Public reports covered: heypinchy/pinchy#808 (every gold answer passes, empty and wrong ones fail),
ShishirPatil/gorilla#1133 (wrong gold answers are found and left out).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from skillforge.adapters.suites import load_suite
from skillforge.adapters.task_import import import_bbh, import_gsm8k
from skillforge.core.verify import DataOnlyVerifier
from skillforge.workflows.suite_check import check_suite

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "tasks"

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of public tasks is absent")


def test_all_of_bbh(tmp_path: Path) -> None:
    """The 27 files give a clean suite of whole families, without the known bad ones."""
    report = import_bbh(CORPUS / "bbh", tmp_path / "bbh", name="bbh", skill="reasoning")
    check = asyncio.run(check_suite(load_suite(tmp_path / "bbh"), DataOnlyVerifier()))

    reasons = Counter(skip.reason.split(" ")[0] for skip in report.skipped)
    assert check.problems == ()
    assert check.warnings == ()
    assert (check.families, check.tasks, report.license) == (27, 6502, "MIT")
    # 3 references outside the choices, 4 examples of 2 contradictions, 2 duplicates.
    assert reasons["the"] == 3 + 4
    assert reasons["has"] == 2
    assert len(report.skipped) + report.taken == 6511


@pytest.mark.parametrize(
    "file", sorted((CORPUS / "bbh").glob("*.json")), ids=lambda path: path.stem
)
def test_each_bbh_file(tmp_path: Path, file: Path) -> None:
    """Each file alone gives a clean suite that is split by task."""
    import_bbh(file, tmp_path / "one", name=file.stem, skill="reasoning")
    suite = load_suite(tmp_path / "one")
    check = asyncio.run(check_suite(suite, DataOnlyVerifier()))

    assert check.problems == ()
    assert suite.split_by == "task"
    assert all(count > 0 for count in check.splits.values())


@pytest.mark.parametrize(("file", "tasks"), [("test.jsonl", 1319), ("train_first1000.jsonl", 1000)])
def test_gsm8k(tmp_path: Path, file: str, tasks: int) -> None:
    """Every problem of a file gives a task whose gold number passes."""
    report = import_gsm8k(CORPUS / "gsm8k" / file, tmp_path / "gsm", name="gsm8k", skill="maths")
    check = asyncio.run(check_suite(load_suite(tmp_path / "gsm"), DataOnlyVerifier()))

    assert (report.taken, report.skipped) == (tasks, ())
    assert check.problems == ()
