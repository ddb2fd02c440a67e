"""Commands that plan and check studies: `power` and `calibrate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from skillforge.cli import jobs
from skillforge.cli.engine import Engine, drive, make_engine
from skillforge.cli.fallback import with_fallback
from skillforge.cli.options import (
    EXIT_OK,
    Number,
    Paying,
    emit,
    json_option,
    paying_options,
    project_option,
)
from skillforge.cli.runs import draw, show_estimate, suite_option
from skillforge.cli.session import open_session
from skillforge.core.task import Task
from skillforge.report.tables import calibration_line, spend_line, table
from skillforge.workflows.calibrate import calibration_tasks
from skillforge.workflows.contrast import Report
from skillforge.workflows.estimate import estimate


@click.command("power")
@click.option(
    "--effect", type=Number(0, 1, min_open=True), required=True, help="Lift to find, such as 0.10."
)
@click.option(
    "--discordance",
    type=Number(0, 1, min_open=True),
    required=True,
    help="Share of pairs that differ.",
)
@click.option(
    "--flips",
    type=Number(0, 1),
    help="Share of tasks that flip between equal arms, as `calibrate` measures it: says what "
    "replicates would save.",
)
@click.option(
    "--alpha",
    type=Number(0, 0.5, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="One-sided error rate.",
)
@click.option(
    "--power", "wanted", type=Number(0.5, 1, max_open=True), default=0.80, show_default=True
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@json_option
def power(
    effect: float,
    discordance: float,
    flips: float | None,
    alpha: float,
    wanted: float,
    seed: int,
    as_json: bool,
) -> int:
    """Plan a study: the pairs that an effect needs at a fixed size and with the gate."""
    import numpy as np

    from skillforge.core.detectable import sequential_mde
    from skillforge.core.power import mde, pairs_needed, sequential_pairs
    from skillforge.core.replicates import designs

    fixed = pairs_needed(effect, discordance, alpha=alpha, power=wanted)
    taken = sequential_pairs(
        effect, discordance, alpha=alpha, power=wanted, rng=np.random.default_rng(seed)
    )
    found = [] if flips is None else designs(effect, discordance, flips, alpha=alpha, power=wanted)
    data = {
        "pairs": fixed,
        "pairs_sequential": {
            "median": taken.median,
            "p80": taken.p80,
            "mean": taken.mean,
            "at_power": taken.at_power,
            "max_pairs": taken.max_pairs,
        },
        "mde": mde(fixed, discordance, alpha=alpha, power=wanted),
        "mde_sequential": sequential_mde(fixed, discordance, alpha=alpha, power=wanted),
        "designs": [
            {"replicates": d.replicates, "tasks": d.tasks, "rollouts": d.rollouts} for d in found
        ],
        "alpha": alpha,
        "power": wanted,
        "effect": effect,
        "discordance": discordance,
        "flips": flips,
    }
    emit(data, as_json, _show_power)
    return EXIT_OK


def _show_power(data: Mapping[str, Any]) -> None:
    taken, within = data["pairs_sequential"], data["mde_sequential"]
    click.echo(
        f"fixed size: {data['pairs']} pairs find a lift of {data['effect']:g} with power "
        f"{data['power']:g}"
    )
    most = f"more than {taken['max_pairs']}"
    click.echo(
        f"the gate, looking after every pair: half of the runs by {taken['median'] or most}, 80 % "
        f"by {taken['p80'] or most}, {taken['mean']:.0f} on average with at most "
        f"{taken['max_pairs']}; within {data['pairs']} pairs it finds "
        + ("no lift" if within is None else f"a lift of {within:.3f}")
    )
    if data["designs"]:
        click.echo("tasks or replicates, at a fixed size:")
        columns = ["replicates", "tasks", "rollouts"]
        table(columns, [[str(design[name]) for name in columns] for design in data["designs"]])


@click.command("calibrate")
@suite_option
@click.option("--tasks", type=click.IntRange(1), default=40, show_default=True)
@project_option
@json_option
@paying_options
def calibrate(suite: str, tasks: int, project: Path | None, as_json: bool, paying: Paying) -> int:
    """Measure how often a worker disagrees with itself on a suite (A/A); kept for later reports."""
    with open_session(project, write=True, dry_run=paying.dry_run) as session:
        engine = make_engine(session, suite, paying)
        chosen = calibration_tasks(engine.suite, tasks, paying.seed)
        drawn = draw(engine, tasks, len(chosen), "tasks in its propose and screen splits")
        expected = _estimate(engine, chosen)
        if paying.dry_run:
            return show_estimate(expected | {"tasks": drawn}, as_json)
        found, spend = drive(with_fallback(engine, partial(jobs.calibrate_worker, tasks=tasks)))
    data = found.to_json() | {"tasks": drawn, "estimate": expected, "spend": spend}

    def show(data: Mapping[str, Any]) -> None:
        click.echo(calibration_line(data))
        for reason in data["reasons"]:
            click.echo(f"    {data['decision']}: {reason}")
        if data["flip_rate"] is not None:
            plan = f"skillforge power --effect D --discordance Q --flips {data['flip_rate']:.3g}"
            click.echo(f"what replicates would save: {plan}")
        click.echo(spend_line(data))

    emit(data, as_json, show)
    return EXIT_OK


def _estimate(engine: Engine, tasks: Sequence[Task]) -> Report:
    skills = engine.session.curator.served()
    shown = [skills[task.skill] for task in tasks if task.skill in skills]
    longest = [max(shown, key=lambda package: len(package.body))] if shown else []
    rollouts = 2 * len(tasks)
    return estimate(engine.worker, tasks, longest, fewest=rollouts, most=rollouts).to_json()


COMMANDS = {"power": power, "calibrate": calibrate}
