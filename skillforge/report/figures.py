"""Figures for notebooks and reports, drawn with matplotlib on a canvas that needs no screen.

Colours are of Okabe and Ito's palette, which people with any kind of colour vision can tell apart;
nothing is said by colour alone. Every number drawn is one of the ledger's; nothing is computed here
but heights and positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from skillforge.core.units import Unit

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#595959"
INCHES = (7.0, 3.6)
ROW_INCHES = 0.34
"""Height of one row of a figure that has a row per candidate or unit."""


class Measured(Protocol):
    """The utility of one unit, as an audit returns it."""

    @property
    def unit(self) -> Unit:
        """The unit."""

    @property
    def utility(self) -> float:
        """Mean score with the unit minus without it, in [-1, 1]."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval, None where it is undefined."""

    @property
    def pairs(self) -> int:
        """Tasks that it was measured on."""


class Audit(Protocol):
    """The utilities of a skill's units."""

    @property
    def units(self) -> Sequence[Measured]:
        """One per unit."""


def evidence_figure(pairs: pl.DataFrame, *, title: str = "Running evidence") -> Figure:
    """Draw the running e-values of a candidate over its confirm tasks, on a log scale.

    Args:
        pairs: Frame of `skillforge.analytics.pairs_frame`.
        title: Heading of the figure.
    """
    figure, axes = _axes(INCHES, title)
    tasks = [0, *pairs["position"].to_list()]
    axes.axhline(1, color=GREY, linewidth=0.5)
    for column, limit, what, colour, style in (
        ("e_value", "proven_at", "the claim", BLUE, "-"),
        ("e_harm", "harm_at", "harm", VERMILION, "--"),
    ):
        values = [1.0, *pairs[column].to_list()]  # every process starts at 1
        label = f"evidence for {what}"
        axes.step(tasks, values, where="post", color=colour, linestyle=style, label=label)
        axes.plot(tasks[-1], values[-1], marker="o", markersize=4, color=colour)
        for at in pairs[limit].head(1).to_list():
            axes.axhline(at, color=colour, linestyle=":", linewidth=1)
            _name_line(axes, at, f" {what}: {at:g}", colour)
    if pairs.is_empty():
        _say(axes, "no task was bet on")
    axes.set_yscale("log")
    axes.set_xlim(0, max(tasks[-1], 1))
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("confirm tasks, in registered order")
    axes.set_ylabel("e-value (log scale)")
    axes.legend(frameon=False, loc="best", fontsize="small")
    return figure


def _name_line(axes: Axes, at: float, text: str, colour: str) -> None:
    """Write the name of a horizontal line at its right end, outside the axes."""
    place = ("axes fraction", "data")
    axes.annotate(text, (1.0, at), xycoords=place, va="center", fontsize="small", color=colour)


def paired_figure(decisions: pl.DataFrame, *, title: str = "Paired outcomes") -> Figure:
    """Draw gains to the right and regressions to the left, a bar pair per candidate at the gate.

    Args:
        decisions: Frame of `skillforge.analytics.decisions_frame`; rows without pairs are left out.
        title: Heading of the figure.
    """
    rows = [row for row in decisions.iter_rows(named=True) if row["pairs"]]
    figure, axes = _axes(_tall(len(rows)), title)
    places = range(len(rows))
    gains = [row["gains"] for row in rows]
    losses = [row["regressions"] for row in rows]
    axes.barh(places, gains, color=BLUE, label="gains (fail → pass)")
    axes.barh(
        places,
        [-count for count in losses],
        color=VERMILION,
        hatch="///",
        edgecolor="white",
        label="regressions (pass → fail)",
    )
    for place, (gain, loss) in enumerate(zip(gains, losses, strict=True)):
        axes.annotate(f" {gain}", (gain, place), va="center", fontsize="small")
        axes.annotate(f"{loss} ", (-loss, place), va="center", ha="right", fontsize="small")
    axes.axvline(0, color=GREY, linewidth=0.8)
    reach = 1.15 * max([1, *gains, *losses])
    axes.set_xlim(-reach, reach)
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter(lambda count, _: f"{abs(count):g}")
    axes.set_xlabel("tasks whose outcome the edit changed")
    _rows(axes, [_candidate(row) for row in rows], "no candidate has come to the gate")
    if rows:
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def _candidate(row: dict[str, Any]) -> str:
    edit = " ".join(part for part in (row["op"], row["unit"]) if part)
    return f"{row['skill']}: {row['proposer']} {edit}\n{row['decision']}, {row['pairs']} pairs"


def audit_figure(audit: Audit, *, title: str = "What each unit is worth") -> Figure:
    """Draw the utility of each unit with its 95 % interval, highest first.

    Args:
        audit: What `Project.audit` returns. Units measured on no task are left out; those with too
            few for an interval are drawn without one.
        title: Heading of the figure.
    """
    units = sorted((u for u in audit.units if u.pairs), key=lambda u: -u.utility)
    figure, axes = _axes(_tall(len(units)), title)
    for place, unit in enumerate(units):
        colour = VERMILION if unit.utility < 0 else BLUE
        if unit.interval is not None:
            axes.plot(unit.interval, (place, place), color=colour, linewidth=1.5)
        marker = "s" if unit.utility < 0 else "o"
        axes.plot(unit.utility, place, marker=marker, markersize=5, color=colour)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("utility: mean score with the unit minus without it, 95 % interval")
    _rows(axes, [f"{unit.unit.id} ({unit.pairs} tasks)" for unit in units], "no unit was measured")
    return figure


def _axes(inches: tuple[float, float], title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _tall(rows: int) -> tuple[float, float]:
    return INCHES[0], 1.5 + ROW_INCHES * 1.3 * max(rows, 1)


def _rows(axes: Axes, labels: Sequence[str], otherwise: str) -> None:
    """Label the rows, the first at the top, or say why there is none."""
    if not labels:
        _say(axes, otherwise)
    axes.set_yticks(range(len(labels)), labels, fontsize="small")
    axes.set_ylim(max(len(labels), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _say(axes: Axes, text: str) -> None:
    axes.text(0.02, 0.6, text, transform=axes.transAxes, va="center", color=GREY)
