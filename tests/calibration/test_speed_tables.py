"""The engine's speed benchmark in small: it runs, checks itself, and prints what others read."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_engine_prints_a_row_for_each_thing_it_measures():
    """Every rollout is counted, durable and under budget, and each row says what it was."""
    told = ["--quick", "--json", "--only", "instant", "model", "ledger", "--rollouts", "2000"]
    done = subprocess.run(
        [sys.executable, "benchmarks/speed/engine.py", *told],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    table = json.loads(done.stdout)
    rows = {row["name"]: row for row in table["rows"]}

    assert table["schema"] == 1
    assert set(table["machine"]) == {"cores", "python"}
    assert list(rows) == [
        "skillforge instant worker",
        "skillforge instant worker, each attempt paid",
        "skillforge 100 ms model",
        "skillforge ledger of 2,000 rollouts",
    ]
    assert [row["rollouts"] for row in rows.values()] == [6000, 6000, 1279, 2000]
    assert all(row["durable"] and row["rollouts_per_s"] > 0 for row in rows.values())
    assert 0 < rows["skillforge 100 ms model"]["ratio"] <= 1
    assert 0 < rows["skillforge ledger of 2,000 rollouts"]["ratio"] < 1
