"""Commands about task suites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skillforge.cli.options import EXIT_NEGATIVE, EXIT_OK, emit, json_option, project_option
from skillforge.errors import ConfigError
from skillforge.report.tables import table

if TYPE_CHECKING:
    from skillforge.core.task import Suite
    from skillforge.ports import Programs
    from skillforge.workflows.suite_check import SuiteProblem


@click.group("suite")
def suite() -> None:
    """List, check, trust and import task suites."""


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
    """Prove each task: the reference passes, the empty answer fails, two runs agree.

    The worker is checked as far as it can be without an attempt.
    """
    from skillforge.cli.code import make_verifier
    from skillforge.cli.engine import drive
    from skillforge.workflows.suite_check import check_suite

    loaded = _load(name, project)
    programs = _programs(loaded, project)
    worker = _worker_problems(loaded, programs)
    checked = drive(check_suite(loaded, make_verifier(loaded, programs)))
    found = replace(checked, problems=(*worker, *checked.problems))

    def show(data: Mapping[str, Any]) -> None:
        for problem in data["problems"]:
            click.echo(problem["message"])
        for warning in data["warnings"]:
            click.echo(f"warning: {warning}")
        click.echo(f"{name}: {data['tasks']} tasks, {len(data['problems'])} problems")

    emit(found.to_json(), as_json, show)
    return EXIT_OK if found.ok else EXIT_NEGATIVE


def _load(name: str, project: Path | None) -> Suite:
    """Load the suite in a folder, or the one of that name."""
    from skillforge.adapters.suites import find_suite, load_suite

    return load_suite(Path(name) if Path(name).is_dir() else find_suite(name, suite_roots(project)))


def _programs(loaded: Suite, project: Path | None) -> Programs:
    """Return what runs the code of a suite that may run; only code not ours needs a project."""
    from skillforge.cli.code import is_shipped, make_programs, refuse_untrusted
    from skillforge.cli.session import open_session

    if loaded.code is None or is_shipped(loaded.code):
        return make_programs(loaded, None)
    with open_session(project) as session:
        refuse_untrusted(session, loaded)
        return make_programs(loaded, session.project)


def _worker_problems(loaded: Suite, programs: Programs) -> list[SuiteProblem]:
    from skillforge.cli.workers import check_worker
    from skillforge.workflows.suite_check import SuiteProblem

    try:
        check_worker(loaded, programs)
    except ConfigError as error:
        return [SuiteProblem(code="worker", message=str(error))]
    return []


@suite.command("trust")
@click.argument("name")
@click.option("--show", is_flag=True, help="Print what would run, and trust nothing.")
@project_option
@json_option
def trust(name: str, show: bool, project: Path | None, as_json: bool) -> int:
    """Let a suite run its code, as its folder is now; any change needs a new look.

    Example: skillforge suite trust my-suite --show
    """
    from skillforge.cli.code import is_shipped, refuse_within_skill
    from skillforge.cli.session import open_session
    from skillforge.workflows import trust as workflow

    loaded = _load(name, project)
    data: dict[str, Any] = {"suite": loaded.name, "code": None, "trusted": True}
    if loaded.code is not None:
        data["code"] = workflow.what_runs(loaded.code)
        data["trusted"] = is_shipped(loaded.code) or not show
        if not is_shipped(loaded.code) and not show:
            with open_session(project, write=True) as session:
                refuse_within_skill(loaded.code, session.project.root)
                workflow.trust(session.ledger, loaded)
    emit(data, as_json, _show_trust)
    return EXIT_OK


def _show_trust(data: Mapping[str, Any]) -> None:
    code = data["code"]
    if code is None:
        click.echo(f"{data['suite']} is data only: it runs no code and needs no trust")
        return
    for part in code["parts"]:
        click.echo(part)
    table(["file", "bytes"], [[f["path"], str(f["bytes"])] for f in code["files"]])
    click.echo(f"{'trusted' if data['trusted'] else 'not trusted'}: {code['digest']}")


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
