"""Figures say what the frames say, in words as well as in colour."""

import io

import polars as pl
import pytest
from support.evolved import evolved_world

from skillforge import analytics
from skillforge.report.figures import (
    BLUE,
    VERMILION,
    audit_figure,
    evidence_figure,
    paired_figure,
)
from skillforge.workflows.audit import UnitAudit


@pytest.fixture(scope="module")
def evolved(tmp_path_factory):
    """Return a world whose skill was evolved, and the report of it."""
    return evolved_world(tmp_path_factory.mktemp("world"))


def drawn(figure):
    """Render a figure without a screen and return its one pair of axes."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=60)
    assert picture.getvalue().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert axes.get_xlabel()
    return axes


def test_evidence_is_drawn_from_one_to_its_last_value(evolved):
    """Both processes start at 1, end at the frame's values, and stand against their limits."""
    world, report = evolved
    pairs = analytics.pairs_frame(world.ledger, report.candidates[0].id)
    axes = drawn(evidence_figure(pairs, title="ask"))
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}

    for column, label in (("e_value", "evidence for the claim"), ("e_harm", "evidence for harm")):
        assert list(lines[label]) == [1.0, *pairs[column]]
    assert axes.get_yscale() == "log"
    assert axes.get_title(loc="left") == "ask"
    assert [text.get_text().strip() for text in axes.texts] == ["the claim: 20", "harm: 5"]


def test_pairs_are_drawn_as_gains_and_regressions(evolved):
    """Each candidate that came to the gate has both bars, and its decision in words."""
    world, _ = evolved
    decisions = analytics.decisions_frame(world.ledger)
    measured = decisions.filter(pl.col("pairs") > 0)
    axes = drawn(paired_figure(decisions))
    gains, losses = axes.containers

    assert [bar.get_width() for bar in gains] == measured["gains"].to_list()
    assert [-bar.get_width() for bar in losses] == measured["regressions"].to_list()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert all(d in label for d, label in zip(measured["decision"], labels, strict=True))
    assert {bar.get_hatch() for bar in losses} == {"///"}


def test_units_are_drawn_with_their_intervals_best_first(evolved):
    """A forest plot: one row per measured unit, harmful ones told apart by mark and colour."""
    _, report = evolved
    audit = UnitAudit(units=tuple(report.audit), informative=True)
    axes = drawn(audit_figure(audit))
    ranked = sorted(report.audit, key=lambda u: -u.utility)
    points = [line for line in axes.lines if line.get_marker() in ("o", "s")]

    assert [float(p.get_xdata()[0]) for p in points] == [u.utility for u in ranked]
    for point, unit in zip(points, ranked, strict=True):
        expected = ("s", VERMILION) if unit.utility < 0 else ("o", BLUE)
        assert (point.get_marker(), point.get_color()) == expected
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"{u.unit.id} ({u.pairs} tasks)" for u in ranked
    ]
    spans = [tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2]
    assert all(u.interval in spans for u in ranked)


def test_nothing_to_show_is_said(evolved):
    """Empty frames give axes that say so, not an error and not a blank."""
    world, report = evolved
    decisions = analytics.decisions_frame(world.ledger).head(0)
    pairs = analytics.pairs_frame(world.ledger, report.candidates[0].id).head(0)

    (said,) = drawn(paired_figure(decisions)).texts
    assert said.get_text() == "no candidate has come to the gate"
    (said,) = drawn(audit_figure(UnitAudit(units=(), informative=False))).texts
    assert said.get_text() == "no unit was measured"
    (said,) = drawn(evidence_figure(pairs)).texts
    assert said.get_text() == "no task was bet on"
