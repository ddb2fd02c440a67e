"""Faults in editing that others have reported in public: each has a test here that names it."""

import json
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
REPORTS = TESTS.parent.parent / "shared" / "cases" / "public-reports.jsonl"


@pytest.mark.skipif(not REPORTS.is_file(), reason="the shared reports are not here")
def test_every_report_about_edits_is_named_by_a_test():
    """The `ref` of each row of the group stands in the docstring of a test."""
    rows = [json.loads(line) for line in REPORTS.read_text(encoding="utf-8").splitlines() if line]
    refs = [row["ref"] for row in rows if row["group"] == "edit"]
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    assert len(refs) >= 6
    assert [ref for ref in refs if not any(ref in text for text in texts)] == []
