"""Commands about skills and their versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from skillforge.cli.options import EXIT_OK, Command, emit, json_option, project_option
from skillforge.cli.session import Session, open_session
from skillforge.core.events import Event
from skillforge.core.library import LibraryState
from skillforge.errors import SkillError
from skillforge.report.tables import table

VERSION = (
    "a version: its hash, an unambiguous prefix of it, or a date (2026-11-30, 2026-11-30T12:00, "
    "2026-11-30T12:00:00+01:00; UTC unless it says otherwise) for the one that was current at the "
    "end of that day or moment"
)
"""How a version can be named."""


def version_option(name: str, use: str) -> Callable[[Command], Command]:
    """Add an option that names a version."""
    return click.option(name, "version", metavar="VERSION", help=f"{use}; {VERSION}.")


def _staged(state: LibraryState, skill: str) -> list[dict[str, Any]]:
    """Return what waits to be adopted, newest last; ``ready`` while its base is served."""
    served, current = state.skill(skill).served, state.skill(skill).current
    return [
        {
            "version": s.version,
            "base": s.base,
            "candidate": s.candidate,
            "evidence": s.evidence,
            "ready": served and s.base == current,
        }
        for s in state.staged.get(skill, ())
    ]


def _against(event: Event) -> str:
    return f"against {event.data['base'][:10]}" if event.kind == "version.staged" else ""


def _show_staged(skill: str, staged: Sequence[Mapping[str, Any]]) -> None:
    for s in staged:
        version, base = s["version"][:10], s["base"][:10]
        what = f"staged: {version} ({s['evidence']}), decided against {base}"
        do = f"`skillforge adopt {skill} {version}`" if s["ready"] else f"{base} is not served now"
        click.echo(f"{what}: {do}")


@click.command("list")
@version_option("--version", "Only skills at this version; with a date, the library as it then was")
@project_option
@json_option
@click.option("--all", "every", is_flag=True, help="Retired skills too.")
def list_(version: str | None, project: Path | None, as_json: bool, every: bool) -> int:
    """List the skills of the library with status, evidence and what is staged."""
    with open_session(project) as session:
        state, then = session.curator.state, session.curator.state_at(version or "")
    rows = (then or state).listing(every=every)
    if version is not None and then is None:
        rows = [r for r in rows if any(v.startswith(version) for v in (r["version"], *r["staged"]))]
        if not rows:
            raise SkillError(
                f"no skill is at a version that starts with {version!r}; `skillforge list --all` "
                "shows retired skills too"
            )

    def show(data: Mapping[str, Any]) -> None:
        table(
            ["skill", "version", "status", "evidence", "staged"],
            [
                [
                    *(r["skill"], r["version"][:10], r["status"], r["evidence"]),
                    " ".join(v[:10] for v in r["staged"]),
                ]
                for r in rows
            ],
        )

    emit({"skills": rows}, as_json, show)
    return EXIT_OK


@click.command("show")
@click.argument("skill")
@version_option("--version", "Which one to show, the current one by default")
@project_option
@json_option
def show_(skill: str, version: str | None, project: Path | None, as_json: bool) -> int:
    """Show one version of a skill: its units and its text; and what is staged."""
    from skillforge.core.units import parse_units
    from skillforge.report.diffs import print_body

    with open_session(project) as session:
        package = session.curator.package(skill, version)
        staged = _staged(session.curator.state, skill)
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
        "staged": staged,
    }

    def show(data: Mapping[str, Any]) -> None:
        print_body(f"{skill}  {package.version}\n{package.description}\n")
        _show_staged(skill, staged)
        if origin:
            license_ = " ".join(origin.get("license", {}).values()) or "none stated"
            lines = {**origin, "license": license_}
            click.echo("".join(f"{key}: {value}\n" for key, value in lines.items()))
        table(["unit", "kind", "bytes"], [[u.id, u.kind, str(u.end - u.start)] for u in units])
        print_body(package.body)

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
@version_option("--version", "Only the events about this one")
@project_option
@json_option
def history(skill: str, version: str | None, project: Path | None, as_json: bool) -> int:
    """Show every event of a skill's life, and what is staged."""
    from skillforge.analytics import LIFE

    with open_session(project) as session:
        staged = _staged(session.curator.state, skill)
        only = None if version is None else session.curator.resolve(skill, version)
        events = [
            {
                "seq": e.seq,
                "at": datetime.fromtimestamp(e.at, UTC).isoformat(timespec="seconds"),
                "kind": e.kind,
                "version": e.data.get("version", ""),
                "decision": e.data.get("decision", ""),
                "summary": e.data.get("summary") or e.data.get("reason") or _against(e),
                "origin": e.data.get("origin") or {},
            }
            for e in session.ledger.events(kinds=LIFE)
            if e.data.get("skill") == skill and only in (None, e.data.get("version"))
        ]

    def show(data: Mapping[str, Any]) -> None:
        table(
            ["seq", "at", "event", "version", "decision", "what"],
            [
                [str(e["seq"]), e["at"], e["kind"], e["version"][:10], e["decision"], e["summary"]]
                for e in events
            ],
        )
        _show_staged(skill, staged)

    emit({"skill": skill, "events": events, "staged": staged}, as_json, show)
    return EXIT_OK


@click.command("diff", epilog=f"A and B are each {VERSION}.")
@click.argument("skill")
@click.argument("a")
@click.argument("b", required=False)
@click.option("--patch", is_flag=True, help="Unified diff of the files, as git prints it.")
@project_option
@json_option
def diff(
    skill: str, a: str, b: str | None, patch: bool, project: Path | None, as_json: bool
) -> int:
    """Show what changed between two versions of a skill; B defaults to the current one."""
    from skillforge.core.skill_diff import diff_units, unified_patch
    from skillforge.report.diffs import print_changes, print_patch

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
    show = (lambda _: print_patch(text)) if patch else (lambda d: print_changes(d["changes"]))
    emit(data, as_json, show)
    return EXIT_OK


@click.command(
    "adopt",
    epilog=f"VERSION is {VERSION}. Here a date means the newest of those that were staged by then.",
)
@click.argument("skill")
@click.argument("version", required=False)
@project_option
@json_option
def adopt(skill: str, version: str | None, project: Path | None, as_json: bool) -> int:
    """Write a staged version to the library's folder, the newest one by default.

    It takes the place of the version that it was decided against, and of no other: a hand edit made
    since is kept, and adopting is refused.
    """
    with open_session(project, write=True) as session:
        adopted = session.curator.adopt(skill, version)
        evidence = session.curator.state.skill(skill).evidence
    emit(
        {"skill": skill, "version": adopted, "evidence": evidence},
        as_json,
        lambda _: click.echo(
            f"{skill} is at {adopted[:10]} ({evidence}); `skillforge rollback {skill}` undoes"
        ),
    )
    return EXIT_OK


@click.command("rollback")
@click.argument("skill")
@version_option("--to", "Where to go back to, the parent by default")
@click.option("--reason", default="asked for by the user", show_default=True)
@project_option
@json_option
def rollback(
    skill: str, version: str | None, reason: str, project: Path | None, as_json: bool
) -> int:
    """Serve an earlier version of a skill again."""
    with open_session(project, write=True) as session:
        target = session.curator.roll_back(skill, to=version, reason=reason)
    emit(
        {"skill": skill, "version": target},
        as_json,
        lambda _: click.echo(f"{skill} is at {target[:10]} again"),
    )
    return EXIT_OK


@click.command("retire")
@click.argument("skill")
@version_option("--version", "Only if this one is served")
@click.option("--reason", default="asked for by the user", show_default=True)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@project_option
@json_option
def retire(
    skill: str,
    version: str | None,
    reason: str,
    dry_run: bool,
    project: Path | None,
    as_json: bool,
) -> int:
    """Stop serving a skill; the whole package is kept and can be restored byte for byte."""
    from skillforge.core.library import require_served

    with open_session(project, write=True) as session:
        current = require_served(session.curator.state, skill).current
        if version is not None and session.curator.resolve(skill, version) != current:
            raise SkillError(
                f"{skill}: {current[:10]} is served, not {version}; nothing was retired"
            )
        if not dry_run:
            session.curator.retire(skill, evidence={"by": "user"}, reason=reason)
    verb = "would retire" if dry_run else "retired"
    emit(
        {"skill": skill, "version": current, "dry_run": dry_run},
        as_json,
        lambda _: click.echo(f"{verb} {skill} {current[:10]}; `skillforge restore {skill}` undoes"),
    )
    return EXIT_OK


@click.command("restore")
@click.argument("skill")
@version_option("--version", "Which one to serve, the last one served by default")
@project_option
@json_option
def restore(skill: str, version: str | None, project: Path | None, as_json: bool) -> int:
    """Serve a retired skill again, byte for byte."""
    with open_session(project, write=True) as session:
        target = session.curator.restore(skill, version)
    emit(
        {"skill": skill, "version": target},
        as_json,
        lambda _: click.echo(f"{skill} is served again at {target[:10]}"),
    )
    return EXIT_OK


COMMANDS = {
    "list": list_,
    "show": show_,
    "history": history,
    "diff": diff,
    "adopt": adopt,
    "rollback": rollback,
    "retire": retire,
    "restore": restore,
}
"""By name, for `skillforge.cli.main`."""
