"""Commands that run rollouts: `eval`, `evolve`, `nightly`, `audit`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from skillforge.cli import estimates, jobs
from skillforge.cli.engine import Engine, drive, make_engine
from skillforge.cli.fallback import with_fallback
from skillforge.cli.options import (
    EXIT_INCONCLUSIVE,
    EXIT_NEGATIVE,
    EXIT_OK,
    Paying,
    emit,
    json_option,
    paying_options,
    project_option,
)
from skillforge.cli.session import open_session
from skillforge.core.arms import THREE_ARMS, TWO_ARMS, check_arms
from skillforge.core.gate import Decision
from skillforge.core.library import require_served
from skillforge.core.task import Split
from skillforge.errors import BudgetSpent
from skillforge.report import tables
from skillforge.report.evaluations import evaluation
from skillforge.workflows.contrast import Report

stage_option = click.option(
    "--stage-only/--adopt",
    "stage_only",
    default=None,
    help="Let what is proven wait for `skillforge adopt`, or write it to the folder at once "
    "(the default, unless the project file says `stage_only`).",
)
suite_option = click.option("--suite", default="desk", show_default=True, help="A task suite.")


@click.command("eval")
@click.argument("skill")
@suite_option
@click.option(
    "--arms",
    "names",
    default=",".join(TWO_ARMS),
    show_default=True,
    help=f"Or {','.join(THREE_ARMS)}: what being listed does, what the body does, and the whole.",
)
@click.option("--tasks", type=click.IntRange(1), default=40, show_default=True)
@click.option("--replicates", type=click.IntRange(1), default=1, show_default=True)
@project_option
@json_option
@paying_options
def eval_(
    skill: str,
    suite: str,
    names: str,
    tasks: int,
    replicates: int,
    project: Path | None,
    as_json: bool,
    paying: Paying,
) -> int:
    """Measure a skill against its absence: paired rollouts, the four outcomes, lift, evidence."""
    arms = check_arms([name.strip() for name in names.split(",")])
    with open_session(project, write=True, dry_run=paying.dry_run) as session:
        engine = make_engine(session, suite, paying)
        require_served(session.curator.state, skill)
        available = len(engine.suite.select(skill=skill, split=Split.CONFIRM))
        drawn = draw(engine, tasks, available, f"confirm tasks for {skill}")
        rollouts = len(arms) * drawn["used"] * replicates
        expected = estimates.of_rollouts(engine, [skill], rollouts, rollouts)
        if paying.dry_run:
            return show_estimate(expected | {"tasks": drawn}, as_json)
        job = partial(
            jobs.evaluate_skill, skill=skill, arms=arms, tasks=tasks, replicates=replicates
        )
        measured, spend = drive(with_fallback(engine, job))
        totals = {"cost_usd": spend["usd"], "tokens": spend["tokens"], "seconds": spend["seconds"]}
        report = measured.to_json() | {"tasks": drawn} | totals
        data = _whole(engine, report, expected, spend)

    def show(data: Mapping[str, Any]) -> None:
        evaluation(data)
        _bottom_lines(data)

    emit(data, as_json, show)
    inconclusive = measured.result.decision is Decision.INSUFFICIENT_EVIDENCE
    return EXIT_INCONCLUSIVE if inconclusive else EXIT_OK


@click.command("evolve")
@click.argument("skill")
@suite_option
@stage_option
@project_option
@json_option
@paying_options
def evolve(
    skill: str,
    suite: str,
    stage_only: bool | None,
    project: Path | None,
    as_json: bool,
    paying: Paying,
) -> int:
    """Try to make one skill better: propose, screen, confirm on fresh tasks, decide."""
    with open_session(project, write=True, dry_run=paying.dry_run) as session:
        engine = make_engine(session, suite, paying)
        engine.stage_only = stage_only
        require_served(session.curator.state, skill)
        expected = estimates.of_evolving(engine, [skill])
        if paying.dry_run:
            return show_estimate(expected, as_json)
        report, spend = drive(with_fallback(engine, partial(jobs.evolve_skill, skill=skill)))
        data = _whole(engine, report.to_json(), expected, spend)
    if report.stopped_by and not any(c["confirm"] for c in data["candidates"]):
        raise BudgetSpent(report.stopped_by)

    def show(data: Mapping[str, Any]) -> None:
        tables.paired_table([data])
        _reasons([data])
        tables.audit_table([report.audit_json()])
        _staged([data])
        if report.stopped_by:
            click.echo(f"stopped: {report.stopped_by}")
        _bottom_lines(data)

    emit(data, as_json, show)
    return _evolve_exit(data)


def _whole(engine: Engine, measured: Report, expected: Report, spend: jobs.Spent) -> Report:
    """Return a report with its estimate, its bill, and how often the worker flips."""
    known = jobs.calibration(engine)
    return {**measured, "estimate": expected, "spend": spend, "calibration": known}


def _bottom_lines(data: Mapping[str, Any]) -> None:
    click.echo(tables.calibration_line(data["calibration"]))
    click.echo(tables.spend_line(data))


def _evolve_exit(data: Report) -> int:
    decisions = {c["decision"] for c in data["candidates"]}
    if data["adopted"] or data["staged"] or decisions <= {"no_change"}:
        return EXIT_OK
    rejected = {"rejected_harm", "rejected_futile", "screened_out", "refused", "rolled_back"}
    return EXIT_NEGATIVE if decisions & rejected else EXIT_INCONCLUSIVE


@click.command("nightly")
@suite_option
@stage_option
@project_option
@json_option
@paying_options
def nightly(
    suite: str, stage_only: bool | None, project: Path | None, as_json: bool, paying: Paying
) -> int:
    """Evolve the library under a budget, then audit, retire, promote, re-index and report."""
    with open_session(project, write=True, dry_run=paying.dry_run) as session:
        engine = make_engine(session, suite, paying)
        engine.stage_only = stage_only
        order = jobs.night_order(engine)
        if paying.dry_run:
            return show_night_estimate(engine, order, as_json)
        data = run_night(engine, order)
    emit(data, as_json, show_night)
    return EXIT_OK


def run_night(engine: Engine, order: list[str]) -> Report:
    """Run one night and return its report with what was estimated and what was spent."""
    expected = estimates.of_night(engine, order)
    report, spend = drive(with_fallback(engine, partial(jobs.run_night, order=order)))
    return _whole(engine, report.to_json(), expected, spend)


def show_night_estimate(engine: Engine, order: list[str], as_json: bool) -> int:
    """Print what one night would cost; nothing is spent."""
    return show_estimate(estimates.of_night(engine, order), as_json)


def show_night(data: Mapping[str, Any]) -> None:
    """Print the report of a night."""
    tables.paired_table(data["skills"])
    _reasons(data["skills"])
    click.echo()
    tables.audit_table(data["audits"])
    click.echo()
    if data["library_audits"]:
        tables.library_table(data["library_audits"])
        click.echo()
    _together(data["composition"])
    for promoted in data["promoted"]:
        click.echo(f"promoted  {promoted['skill']} {promoted['version'][:10]}")
    for retired in data["retired"]:
        click.echo(f"retired   {retired['skill']} {retired['version'][:10]}: {retired['reason']}")
    _staged(data["skills"])
    if data["unmeasured"]:
        click.echo(f"left unmeasured: {', '.join(data['unmeasured'])}")
    _bottom_lines(data)
    click.echo(f"run {data['run_id']}: {data['stopped_by']}")


def _together(composition: Mapping[str, Any] | None) -> None:
    """Say what the adopted edits do together."""
    if composition is None:
        return
    for names in composition["rolled_back"]:
        click.echo(f"rolled back  {', '.join(names)}: a joint loss, proven on fresh tasks")
    if not composition["rolled_back"]:
        first = (composition["tests"] or [{"reasons": ["the budget was spent before"]}])[0]
        fine = first.get("decision") == "rejected_futile"  # taking them back is shown not to help
        said = "no joint loss" if fine else f"not shown ({'; '.join(first['reasons'])})"
        click.echo(f"together  {', '.join(composition['edits'])}: {said}")


def _staged(reports: Any) -> None:
    for report in reports:
        if report["staged"]:
            click.echo(f"staged    {report['skill']} {report['staged'][:10]}: `skillforge adopt`")


def _reasons(reports: Any) -> None:
    for report in reports:
        for candidate in report["candidates"]:
            edit = candidate["edits"][0]
            click.echo(f"{report['skill']}: {candidate['proposer']} ({edit['summary']})")
            for reason in candidate["reasons"]:
                click.echo(f"    {candidate['decision']}: {reason}")


@click.group("audit")
def audit() -> None:
    """Measure what parts are worth by leaving them out."""


@audit.command("units")
@click.argument("skill")
@suite_option
@click.option("--tasks", type=click.IntRange(2), default=24, show_default=True)
@project_option
@json_option
@paying_options
def units(
    skill: str, suite: str, tasks: int, project: Path | None, as_json: bool, paying: Paying
) -> int:
    """Measure every unit of a skill by leaving it out, on tasks of the screen split."""
    with open_session(project, write=True, dry_run=paying.dry_run) as session:
        engine = make_engine(session, suite, paying)
        record = require_served(session.curator.state, skill)
        anchors = len(jobs.audit_anchors(engine, skill, tasks))
        drawn = draw(engine, tasks, anchors, f"screen tasks for {skill}")
        expected = estimates.of_rollouts(engine, [skill], 2 * anchors, 20 * anchors)
        if paying.dry_run:
            return show_estimate(expected | {"tasks": drawn}, as_json)
        job = partial(jobs.audit_skill_units, skill=skill, tasks=tasks)
        found, spend = drive(with_fallback(engine, job))
    data = {
        "skill": skill,
        "version": record.current,
        "informative": found.informative,
        "units": [u.to_json() | {"removed": False} for u in found.units],
        "tasks": drawn,
        "estimate": expected,
        "spend": spend,
    }

    def show(data: Mapping[str, Any]) -> None:
        tables.audit_table([data])
        click.echo(tables.spend_line(data))

    emit(data, as_json, show)
    return EXIT_OK


def draw(engine: Engine, asked: int, available: int, which: str) -> dict[str, int]:
    """Return how many tasks were asked for and are used; say it where the suite has fewer."""
    if 0 < available < asked:
        engine.progress.announce(
            f"note: {asked} tasks asked for, but suite {engine.suite.name} has {available} {which}:"
            " all of them are used"
        )
    return {"asked": asked, "used": min(asked, available)}


def show_estimate(expected: Report, as_json: bool) -> int:
    """Print what a run would cost; nothing is spent."""
    line = f"{tables.estimate_line(expected)}; nothing was spent"
    emit({"dry_run": True, **expected}, as_json, lambda _: click.echo(line))
    return EXIT_OK


COMMANDS = {"eval": eval_, "evolve": evolve, "nightly": nightly, "audit": audit}
"""By name, for `skillforge.cli.main`."""
