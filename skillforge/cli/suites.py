"""Commands about task suites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from skillforge.cli.options import EXIT_NEGATIVE, EXIT_OK, emit, json_option, project_option
from skillforge.report.tables import table


@click.group("suite")
def suite() -> None:
    """List, check and import task suites."""


def suite_roots(project: Path | None) -> tuple[Path, ...]:
    """Return the folders that suites are looked for in; a project is not needed for the shipped."""
    import os

    from skillforge.adapters.project import find_project, load_project
    from skillforge.adapters.shipped import shipped_suites

    root = project or find_project(Path.cwd())
    mine: tuple[Path, ...] = ()
    if root is not None:
        paths = load_project(root, os.environ).settings.suites.paths
        mine = tuple(root / path for path in paths if (root / path).is_dir())
    return (*mine, shipped_suites())


@suite.command("list")
@project_option
@json_option
def list_(project: Path | None, as_json: bool) -> int:
    """List the suites of the project and the shipped ones."""
    from skillforge.adapters.suites import list_suites

    found = list_suites(suite_roots(project))
    rows = [
        {
            "name": e.name,
            "version": e.version,
            "worker": e.worker,
            "path": str(e.path),
            "problem": e.problem,
        }
        for e in found
    ]

    def show(data: Mapping[str, Any]) -> None:
        columns = ["name", "version", "worker", "path", "problem"]
        table(columns, [[str(row[c]) for c in columns] for row in rows])

    emit({"suites": rows}, as_json, show)
    return EXIT_OK


@suite.command("check")
@click.argument("name")
@project_option
@json_option
def check(name: str, project: Path | None, as_json: bool) -> int:
    """Prove each task: the reference passes, the empty answer fails, two runs agree."""
    from skillforge.adapters.suites import find_suite, load_suite
    from skillforge.workflows.suite_check import check_suite

    path = Path(name) if Path(name).is_dir() else find_suite(name, suite_roots(project))
    found = check_suite(load_suite(path))

    def show(data: Mapping[str, Any]) -> None:
        for problem in data["problems"]:
            click.echo(problem if isinstance(problem, str) else problem["message"])
        click.echo(f"{name}: {data['tasks']} tasks, {len(data['problems'])} problems")

    emit(found.to_json(), as_json, show)
    return EXIT_OK if found.ok else EXIT_NEGATIVE


@suite.command("import")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--format", "format_", type=click.Choice(["bbh", "gsm8k"]), required=True)
@click.option("--name", required=True, help="Name of the new suite.")
@click.option("--skill", help="Skill that the tasks are for.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the new suite.")
@project_option
@json_option
def import_(
    path: Path,
    format_: str,
    name: str,
    skill: str | None,
    out: Path | None,
    project: Path | None,
    as_json: bool,
) -> int:
    """Turn public task files into a suite.

    Example: skillforge suite import --format bbh bbh/navigate.json --name navigate --skill routes
    """
    from skillforge.adapters.project import find_project
    from skillforge.adapters.task_import import import_bbh, import_gsm8k

    root = project or find_project(Path.cwd()) or Path.cwd()
    target = out or root / "benchmarks" / "suites" / name
    take = {"bbh": import_bbh, "gsm8k": import_gsm8k}[format_]
    report = take(path, target, name=name, skill=skill)

    def show(data: Mapping[str, Any]) -> None:
        for entry in report.skipped:
            click.echo(f"skipped {entry.where}: {entry.reason}")
        click.echo(f"{report.taken} tasks taken into {report.path}, {len(report.skipped)} skipped")

    emit(report.to_json(), as_json, show)
    return EXIT_OK


COMMANDS = {"suite": suite}
