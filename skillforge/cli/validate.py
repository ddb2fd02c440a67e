"""The command that checks skills against the specification; it needs no project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from skillforge.adapters.files import discover
from skillforge.cli.options import EXIT_NEGATIVE, EXIT_OK, emit, json_option
from skillforge.core.lint import lint, lint_library
from skillforge.core.package import Package
from skillforge.core.problem import Problem


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--strict", is_flag=True, help="Make every warning an error.")
@json_option
def validate(paths: tuple[Path, ...], strict: bool, as_json: bool) -> int:
    """Check skill packages against the Agent Skills specification; list every problem.

    PATHs are skills or folders that hold skills at any depth. A folder with a SKILL.md, in any
    case, is a skill, also inside another one; below assets/, references/, scripts/, templates/,
    examples/, evals/ or resources/ of a skill it is a template and part of that skill. What is in
    node_modules, vendor, .git or virtual environments is not searched. Links are followed only to
    what lies below PATH; what two ways lead to counts once.
    """
    packages, problems = _read(paths)
    for folder, package in packages.items():
        problems += _below(folder, lint(package))
    problems += lint_library(packages)
    if strict:
        problems = [replace(problem, level="error") for problem in problems]
    bad = sum(problem.level == "error" for problem in problems)
    rows = [problem.to_json() for problem in problems]
    data = {"skills": len(packages), "ok": not bad, "problems": rows}

    def show(data: Mapping[str, Any]) -> None:
        for problem in problems:
            click.echo(str(problem))
        click.echo(f"{len(packages)} skills, {len(problems)} problems, {bad} of them errors")

    emit(data, as_json, show)
    if not packages and not problems:
        raise click.UsageError("no SKILL.md found below the given paths")
    return EXIT_NEGATIVE if bad else EXIT_OK


def _read(paths: Iterable[Path]) -> tuple[dict[str, Package], list[Problem]]:
    """Return every skill below the paths by its folder, once each, and what could not be read."""
    packages: dict[str, Package] = {}
    problems: list[Problem] = []
    seen: set[Path] = set()
    for path in paths:
        found = discover(path)
        root = path.parent if path.is_file() else path
        problems += _below(root.as_posix(), found.problems)
        for folder, package in zip(found.folders, found.packages, strict=True):
            place = root / folder
            if place.resolve() not in seen:
                seen.add(place.resolve())
                packages[place.as_posix()] = package
    return packages, problems


def _below(folder: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with paths as they are seen from the working directory."""
    return [replace(p, path=(Path(folder) / p.path).as_posix()) for p in problems]


COMMANDS = {"validate": validate}
