"""Commands about skills and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from skillforge.cli.options import EXIT_OK, emit, json_option, project_option
from skillforge.cli.session import open_session
from skillforge.report.tables import table


@click.command("import")
@click.argument("source", type=click.Path(path_type=Path, exists=True, file_okay=False))
@project_option
@json_option
@click.option("--dry-run", is_flag=True, help="Only say what would be taken.")
def import_(source: Path, project: Path | None, as_json: bool, dry_run: bool) -> int:
    """Copy the skills below a folder into the library; bad ones are reported, the rest taken."""
    from skillforge.adapters.files import discover
    from skillforge.core.lint import has_errors, lint, lint_library

    found = discover(source)
    twice = lint_library(dict(zip(found.folders, found.packages, strict=True)))
    taken, skipped = [], []
    with open_session(project, write=not dry_run) as session:
        for package in found.packages:
            problems = lint(package)
            if has_errors(problems):
                first = next(p for p in problems if p.level == "error")
                skipped.append({"skill": package.name, "reason": f"{first.code}: {first.message}"})
            elif package.name in session.curator.state.served:
                skipped.append({"skill": package.name, "reason": "a skill of that name is served"})
            else:
                if not dry_run:
                    session.library.write(package)
                    session.curator.take_in(package, origin={"source": str(source)})
                taken.append({"skill": package.name, "version": package.version})
    data = {
        "taken": taken,
        "skipped": skipped,
        "problems": [p.to_json() for p in (*found.problems, *twice)],
        "dry_run": dry_run,
    }

    def show(data: Mapping[str, Any]) -> None:
        for entry in skipped:
            click.echo(f"skipped {entry['skill']}: {entry['reason']}")
        for problem in (*found.problems, *twice):
            click.echo(f"problem {problem}")
        click.echo(f"{len(taken)} skills taken, {len(skipped)} skipped")

    emit(data, as_json, show)
    return EXIT_OK


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
    units = parse_units(package)
    data = {
        "skill": skill,
        "version": package.version,
        "description": package.description,
        "files": sorted(package.files),
        "units": [{"id": u.id, "kind": u.kind, "bytes": u.end - u.start} for u in units],
        "body": package.body,
    }

    def show(data: Mapping[str, Any]) -> None:
        click.echo(f"{skill}  {package.version}\n{package.description}\n")
        table(["unit", "kind", "bytes"], [[u.id, u.kind, str(u.end - u.start)] for u in units])
        click.echo(package.body)

    emit(data, as_json, show)
    return EXIT_OK


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
    "import": import_,
    "list": list_,
    "show": show_,
    "history": history,
    "diff": diff,
    "rollback": rollback,
    "retire": retire,
    "restore": restore,
}
