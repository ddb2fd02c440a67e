"""Tables on a pipe."""

from __future__ import annotations

import pytest

from skillforge.report.tables import LONG, table


def test_a_long_table_looks_like_a_short_one(capsys: pytest.CaptureFixture[str]):
    """Beyond `LONG` rows the layout is quicker and the same, wide characters included."""
    rows = [[f"skill-{i:04}", "数据" if i % 2 else "a", ""] for i in range(LONG + 1)]
    table(["skill", "数据", "evidence"], rows[:LONG])
    short = capsys.readouterr().out.splitlines()
    table(["skill", "数据", "evidence"], rows)
    long = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in short] == long[:-1]
    assert len(long) == LONG + 2
