"""What the speed benchmarks share: their options, and rows as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def options(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer runs")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return parser


def show(
    rows: Sequence[Row], *, as_json: bool, line: Callable[[Row], str], heading: str = ""
) -> None:
    """Print rows: as JSON with the machine they were measured on, or one line each."""
    if as_json:
        machine: Mapping[str, str] = {
            "cores": str(os.cpu_count()),
            "python": platform.python_version(),
        }
        print(json.dumps({"schema": 1, "machine": machine, "rows": rows}))
        return
    if heading:
        print(heading)
    for row in rows:
        print(line(row))
