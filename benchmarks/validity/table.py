"""One command line for all tables: measure, print, and keep what was found.

Usage of each: python benchmarks/validity/<name>.py [--quick] [--json] [--keep] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
RESULTS = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, str]:
    """Describe where the figures were measured."""
    return {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def run(
    name: str,
    measure: Callable[[bool, int], list[Row]],
    columns: Sequence[str],
    argv: Sequence[str] | None = None,
) -> int:
    """Measure, print the chosen columns or JSON, and keep the rows under results/ if asked to.

    ``measure`` takes ``quick`` and ``seed`` and returns rows, each with a ``name``; the same seed
    gives the same rows.
    """
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--quick", action="store_true", help="fewer simulations (under a minute)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--keep", action="store_true", help=f"write results/{name}.json as well")
    parser.add_argument("--seed", type=int, default=20, help="seed of the simulation")
    options = parser.parse_args(argv)
    rows = measure(options.quick, options.seed)
    report = {"schema": 1, "machine": machine(), "seed": options.seed, "rows": rows}
    text = json.dumps(report, indent=1, ensure_ascii=False)
    if options.keep and rows:
        (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(text if options.json else render(rows, columns))
    return 0


def render(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Lay rows out as text: texts to the left, numbers to the right."""
    cells = [[_cell(row.get(column, "")) for column in columns] for row in rows]
    table = [[column.replace("_", " ") for column in columns], *cells]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    left = [all(isinstance(row.get(column, ""), str) for row in rows) for column in columns]
    lines = (
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, left, strict=True)
        ).rstrip()
        for line in table
    )
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main(name: str, measure: Callable[[bool, int], list[Row]], columns: Sequence[str]) -> None:
    """Run one table as a program."""
    sys.exit(run(name, measure, columns))
