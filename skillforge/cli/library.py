"""Commands about skills and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from skillforge.cli.options import (
    EXIT_NEGATIVE,
    EXIT_OK,
    emit,
    json_option,
    project_option,
)
from skillforge.cli.session import Session, open_session
from skillforge.report.tables import table


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@json_option
def validate(paths: tuple[Path, ...], strict: bool, as_json: bool) -> int:
    """Check skill packages against the Agent Skills specification; list every problem."""
    from skillforge.adapters.files import discover
    from skillforge.core.lint import lint

    skills, problems = [], []
    for path in paths:
        found = discover(path)
        problems += [p.to_json() for p in found.problems]
        for package in found.packages:
            skills.append(package.name)
            problems += [p.to_json() | {"skill": package.name} for p in lint(package)]
    bad = [p for p in problems if strict or p["level"] == "error"]
    data = {"skills": len(skills), "ok": not bad, "problems": problems}

    def show(data: Mapping[str, Any]) -> None:
        for p in problems:
            where = f"{p['skill']}: " if "skill" in p else ""
            click.echo(f"{where}{p['path']}:{p['line']}: {p['level']} {p['code']}: {p['message']}")
        click.echo(f"{len(skills)} skills, {len(problems)} problems, {len(bad)} of them errors")

    emit(data, as_json, show)
    if not skills and not problems:
        raise click.UsageError("no SKILL.md found below the given paths")
    return EXIT_NEGATIVE if bad else EXIT_OK


@click.command("list")
@project_option
@json_option
@click.option("--all", "every", is_flag=True, help="Retired skills too.")
def list_(project: Path | None, as_json: bool, every: bool) -> int:
    """List the skills of the library with status and evidence."""
    with open_session(project) as session:
        rows = session.curator.state.listing(every=every)

    def show(data: Mapping[str, Any]) -> None:
        table(
            ["skill", "version", "status", "evidence"],
            [[r["skill"], r["version"][:10], r["status"], r["evidence"]] for r in rows],
        )

    emit({"skills": rows}, as_json, show)
    return EXIT_OK


@click.command("show")
@click.argument("skill")
@click.option("--version", "version", help="Version or prefix; default: the current one.")
@project_option
@json_option
def show_(skill: str, version: str | None, project: Path | None, as_json: bool) -> int:
    """Show one version of a skill: its units and its text."""
    from skillforge.core.units import parse_units

    with open_session(project) as session:
        package = session.curator.package(skill, version)
        origin = _origin(session, skill, package.version)
    units = parse_units(package)
    data = {
        "skill": skill,
        "version": package.version,
        "description": package.description,
        "origin": origin,
        "files": sorted(package.files),
        "units": [{"id": u.id, "kind": u.kind, "bytes": u.end - u.start} for u in units],
        "body": package.body,
    }

    def show(data: Mapping[str, Any]) -> None:
        click.echo(f"{skill}  {package.version}\n{package.description}\n")
        if origin:
            license_ = " ".join(origin.get("license", {}).values()) or "none stated"
            lines = {**origin, "license": license_}
            click.echo("".join(f"{key}: {value}\n" for key, value in lines.items()))
        table(["unit", "kind", "bytes"], [[u.id, u.kind, str(u.end - u.start)] for u in units])
        click.echo(package.body)

    emit(data, as_json, show)
    return EXIT_OK


def _origin(session: Session, skill: str, version: str) -> Mapping[str, Any]:
    """Return where a version, or the nearest one that it was made from, was imported from."""
    origins: dict[str, Mapping[str, Any]] = {
        event.data["version"]: event.data["origin"]
        for event in session.ledger.events(kinds=("skill.imported",))
        if event.data["skill"] == skill and event.data.get("origin")
    }
    while version and version not in origins:
        version = session.curator.state.versions[skill, version].parent
    return origins.get(version, {})


@click.command("history")
@click.argument("skill")
@project_option
@json_option
def history(skill: str, project: Path | None, as_json: bool) -> int:
    """Show every event of a skill's life."""
    from skillforge.analytics import LIFE

    with open_session(project) as session:
        session.curator.state.skill(skill)
        events = [
            {
                "seq": e.seq,
                "at": datetime.fromtimestamp(e.at, UTC).isoformat(timespec="seconds"),
                "kind": e.kind,
                "version": e.data.get("version", ""),
                "decision": e.data.get("decision", ""),
                "summary": e.data.get("summary") or e.data.get("reason") or "",
                "origin": e.data.get("origin") or {},
            }
            for e in session.ledger.events(kinds=LIFE)
            if e.data.get("skill") == skill
        ]

    def show(data: Mapping[str, Any]) -> None:
        table(
            ["seq", "at", "event", "version", "decision", "what"],
            [
                [str(e["seq"]), e["at"], e["kind"], e["version"][:10], e["decision"], e["summary"]]
                for e in events
            ],
        )

    emit({"skill": skill, "events": events}, as_json, show)
    return EXIT_OK


@click.command("diff")
@click.argument("skill")
@click.argument("a")
@click.argument("b", required=False)
@click.option("--patch", is_flag=True, help="Unified diff instead of units.")
@project_option
@json_option
def diff(
    skill: str, a: str, b: str | None, patch: bool, project: Path | None, as_json: bool
) -> int:
    """Show what changed between two versions of a skill; B defaults to the current one."""
    from skillforge.core.skill_diff import diff_units, unified_patch

    with open_session(project) as session:
        old, new = session.curator.package(skill, a), session.curator.package(skill, b)
    text, units = unified_patch(old, new), diff_units(old, new)
    data = {
        "skill": skill,
        "a": old.version,
        "b": new.version,
        "changes": {
            "added": list(units.added),
            "removed": list(units.removed),
            "changed": list(units.changed),
            "files": list(units.files),
        },
        "patch": text,
    }

    def show(data: Mapping[str, Any]) -> None:
        if patch:
            click.echo(text)
            return
        for what, names in data["changes"].items():
            for name in names:
                click.echo(f"{what}: {name}")

    emit(data, as_json, show)
    return EXIT_OK


@click.command("rollback")
@click.argument("skill")
@click.option("--to", help="Version or prefix to go back to; default: the parent.")
@click.option("--reason", default="asked for by the user", show_default=True)
@project_option
@json_option
def rollback(skill: str, to: str | None, reason: str, project: Path | None, as_json: bool) -> int:
    """Serve an earlier version of a skill again."""
    with open_session(project, write=True) as session:
        version = session.curator.roll_back(skill, to=to, reason=reason)
    emit(
        {"skill": skill, "version": version},
        as_json,
        lambda _: click.echo(f"{skill} is at {version[:10]} again"),
    )
    return EXIT_OK


@click.command("retire")
@click.argument("skill")
@click.option("--reason", default="asked for by the user", show_default=True)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@project_option
@json_option
def retire(skill: str, reason: str, dry_run: bool, project: Path | None, as_json: bool) -> int:
    """Stop serving a skill; the whole package is kept and can be restored byte for byte."""
    from skillforge.workflows.curate import require_served

    with open_session(project, write=True) as session:
        version = require_served(session.curator.state, skill).current
        if not dry_run:
            session.curator.retire(skill, evidence={"by": "user"}, reason=reason)
    verb = "would retire" if dry_run else "retired"
    emit(
        {"skill": skill, "version": version, "dry_run": dry_run},
        as_json,
        lambda _: click.echo(f"{verb} {skill} {version[:10]}; `skillforge restore {skill}` undoes"),
    )
    return EXIT_OK


@click.command("restore")
@click.argument("skill")
@project_option
@json_option
def restore(skill: str, project: Path | None, as_json: bool) -> int:
    """Serve a retired skill again, byte for byte."""
    with open_session(project, write=True) as session:
        version = session.curator.restore(skill)
    emit(
        {"skill": skill, "version": version},
        as_json,
        lambda _: click.echo(f"{skill} is served again at {version[:10]}"),
    )
    return EXIT_OK


COMMANDS = {
    "validate": validate,
    "list": list_,
    "show": show_,
    "history": history,
    "diff": diff,
    "rollback": rollback,
    "retire": retire,
    "restore": restore,
}
