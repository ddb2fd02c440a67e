"""Tables on a pipe."""

from __future__ import annotations

import pytest

from skillforge.report.tables import LONG, spend_line, table
from skillforge.workflows.spend import UNSETTLED, Bill, Spend


def test_a_long_table_looks_like_a_short_one(capsys: pytest.CaptureFixture[str]):
    """Beyond `LONG` rows the layout is quicker and the same, wide characters included."""
    rows = [[f"skill-{i:04}", "数据" if i % 2 else "a", ""] for i in range(LONG + 1)]
    table(["skill", "数据", "evidence"], rows[:LONG])
    short = capsys.readouterr().out.splitlines()
    table(["skill", "数据", "evidence"], rows)
    long = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in short] == long[:-1]
    assert len(long) == LONG + 2


def test_the_spend_says_how_much_of_it_a_crash_left_unsettled():
    """What no bill shows is named beside the sums that hold it; where there is none, not a word."""
    estimate = {"rollouts": (8, 8), "tokens": (1, 2), "usd": (0.0, 1.0)}
    spend = Spend(rollouts=9, unsettled=3)
    spend.book("worker", Bill(usd=0.5, tokens=40, calls=6))
    before = spend_line({"spend": spend.to_json(), "estimate": estimate})
    spend.book(UNSETTLED, Bill(usd=0.25, tokens=20))
    after = spend_line({"spend": spend.to_json(), "estimate": estimate})

    assert "unsettled" not in before
    assert "60 tokens, 9 rollouts" in after
    assert "unsettled 3 rollouts without a record, and $0.25 and 20 tokens in no bill" in after
