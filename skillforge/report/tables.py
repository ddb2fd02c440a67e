"""Tables for terminals. Every number shown is one of the report's own; nothing is computed here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from skillforge.report.numbers import e_value, interval, money, signed

PIPE_WIDTH = 150
"""Columns of a table that is not written to a terminal."""
LONG = 1000
"""Rows above which a table is laid out by its cells alone; rich takes half a millisecond a row."""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a plain table on stdout, wide enough for its cells."""
    if len(rows) > LONG and title is None:
        widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
        for row in [columns, *rows]:
            cells = zip(row, widths, strict=True)
            line = "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in cells)
            sys.stdout.write(line.rstrip() + "\n")
        return
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    # A pipe has no width of its own; a table folded at 80 columns cannot be read.
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(width=width, highlight=False, markup=False).print(grid)


def paired_table(reports: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per candidate: screen, the four outcomes, evidence, decision.

    ``looks`` are the runs that bet on it; ``of`` counts the candidates its cohort had started.
    """
    columns = [
        "skill", "edit", "screen", "pairs", "gain", "regr", "resid", "retain",
        "lift", "95% interval", "E", "E harm", "looks", "of", "decision",
    ]  # fmt: skip
    rows = []
    for report in reports:
        for candidate in report["candidates"]:
            edit = candidate["edits"][0]
            confirm = candidate["confirm"] or {}
            version = candidate["version"]
            now = [w for w in ("adopted", "staged") if version is not None and report[w] == version]
            rows.append(
                [
                    report["skill"],
                    f"{candidate['proposer']}: {edit['op']} {edit['unit'] or ''}".strip(),
                    signed(candidate["rollback_reward"]),
                    *[
                        str(confirm.get(key, "-"))
                        for key in ("pairs", "gains", "regressions", "residual", "retained")
                    ],
                    signed(confirm.get("lift")),
                    interval(confirm.get("lift_interval")),
                    e_value(confirm.get("e_value")),
                    e_value(confirm.get("e_harm")),
                    str(candidate["looks"] or "-"),
                    str(candidate["tried"] or "-"),
                    " ".join([candidate["decision"], *(f"({word})" for word in now)]),
                ]
            )
    table(columns, rows, title="Candidates: paired rollouts, base against edited skill")


def audit_table(audits: Sequence[Mapping[str, Any]]) -> None:
    """Print what leaving each unit out costs."""
    rows = [
        [
            audit["skill"],
            unit["id"],
            signed(unit["utility"]),
            interval(unit["interval"]),
            str(unit["pairs"]),
            "removed" if unit["removed"] else "",
        ]
        for audit in audits
        for unit in audit["units"]
    ]
    table(
        ["skill", "unit", "utility", "95% interval", "pairs", ""],
        rows,
        title="Audit: utility of each unit (score with it minus without it)",
    )


def library_table(audits: Sequence[Mapping[str, Any]]) -> None:
    """Print what whole skills do to the tasks that retrieve them."""
    rows = []
    for audit in audits:
        confirm = audit["confirm"]
        rows.append(
            [
                audit["skill"],
                *[str(confirm[k]) for k in ("pairs", "gains", "regressions")],
                signed(confirm["lift"]),
                interval(confirm["lift_interval"]),
                e_value(confirm["e_value"]),
                "harmful" if audit["harmful"] else "kept",
            ]
        )
    table(
        ["skill", "pairs", "gain", "regr", "lift of leaving it out", "95% interval", "E", ""],
        rows,
        title="Library audit: tasks that retrieve a skill, library without it against with it",
    )


def calibration_line(calibration: Mapping[str, Any] | None) -> str:
    """Say how often the worker disagrees with itself, or that nobody has measured it."""
    if calibration is None or calibration["flip_rate"] is None:
        return "A/A: never measured; `skillforge calibrate` does"
    low, high = calibration["flip_interval"]
    return (
        f"A/A: {calibration['flip_rate']:.0%} of {calibration['pairs']} tasks flip between two "
        f"equal arms [{low:.0%}, {high:.0%}]"
    )


def estimate_line(estimate: Mapping[str, Any]) -> str:
    """Say what was expected beforehand, as ranges."""
    (r0, r1), (t0, t1), (u0, u1) = (estimate[name] for name in ("rollouts", "tokens", "usd"))
    rollouts = f"{r1}" if r0 == r1 else f"{r0} to {r1}"
    return f"estimated {rollouts} rollouts, {t0} to {t1} tokens, {money(u0)} to {money(u1)}"


def spend_line(report: Mapping[str, Any]) -> str:
    """Say what a run spent, where the time of its rollouts went, and what had been expected."""
    spend, outside = report["spend"], ""
    guessed = sum(bill["at_bound"] for bill in spend["roles"].values())
    told = f", {guessed} calls at their bound for nobody told what they cost" if guessed else ""
    if lost := spend["roles"].get("unsettled"):
        told += (
            f", of it unsettled {spend['unsettled']} rollouts without a record, and "
            f"{money(lost['usd'])} and {lost['tokens']} tokens in no bill: they may have been in "
            "flight when the run was cut off"
        )
    if first := spend.get("first"):
        told += f" ({money(first['usd'])} and {first['rollouts']} rollouts by {first['model']})"
    if spend["rollout_seconds"]:
        share = 1 - min(spend["model_seconds"] / spend["rollout_seconds"], 1)
        outside = (
            f"; rollout phases {spend['rollout_seconds']:.1f} s, model busy "
            f"{spend['model_seconds']:.1f} s, outside the model {share:.1%}"
        )
    return (
        f"spent {money(spend['usd'])}, {spend['tokens']} tokens, {spend['rollouts']} rollouts "
        f"({spend['cached']} reused){told} in {spend['seconds']:.1f} s{outside}; "
        f"{estimate_line(report['estimate'])}"
    )
