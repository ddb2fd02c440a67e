"""`log`, with `log show`, `log erase` and `log salvage`, and `replay`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.ledger import SqliteLedger
from skillforge.cli.options import EXIT_NEGATIVE, EXIT_OK, emit, json_option, project_option
from skillforge.cli.session import Session, open_project, open_session
from skillforge.core.digest import sha256
from skillforge.core.package import pack

if TYPE_CHECKING:
    from skillforge.workflows.replay import Replay


@click.group("log", invoke_without_command=True)
@click.option("--kind", "kinds", multiple=True, help="Only events of this kind; repeatable.")
@click.option("--run", help="Only events of this run.")
@click.option(
    "--after", type=click.IntRange(0, 2**63 - 1), default=0, help="Only events after this number."
)
@click.option("-n", "limit", type=click.IntRange(1), help="Only the last N.")
@project_option
@json_option
@click.pass_context
def log(
    context: click.Context,
    kinds: tuple[str, ...],
    run: str | None,
    after: int,
    limit: int | None,
    project: Path | None,
    as_json: bool,
) -> int:
    """Print the ledger's events, erase payloads, or save what a damaged ledger still holds."""
    if context.invoked_subcommand is not None:
        return EXIT_OK
    with open_session(project) as session:
        events = list(session.ledger.events(after=after, kinds=kinds or None, run=run))
    events = events[-limit:] if limit else events
    rows: list[dict[str, Any]] = [
        {"seq": e.seq, "at": e.at, "kind": e.kind, "run": e.run, "data": e.data, "hash": e.hash}
        for e in events
    ]

    def show(data: Mapping[str, Any]) -> None:
        for row in rows:
            at = datetime.fromtimestamp(row["at"], UTC).isoformat(timespec="seconds")
            text = json.dumps(row["data"], ensure_ascii=False)
            click.echo(f"{row['seq']:6} {at} {row['kind']:20} {text[:160]}")

    emit({"events": rows}, as_json, show)
    return EXIT_OK


def _whole(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise click.BadParameter(
            f"{value!r} is no whole hash; give all of its 64 digits, as a report and "
            "`skillforge log --json` print them"
        )
    return value


@log.command("show")
@click.argument("digest", metavar="HASH", callback=_whole)
@project_option
@json_option
def open_payload(digest: str, project: Path | None, as_json: bool) -> int:
    """Print the payload that an event or a report names by HASH: prompt and answer, or a file."""
    with open_session(project) as session:
        data = session.ledger.get_blob(digest)
    text = data.decode("utf-8", "backslashreplace")
    emit({"hash": digest, "text": text}, as_json, lambda _: click.echo(text))
    return EXIT_OK


def _said(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("say why; the reason stays in the ledger")
    return value.strip()


@log.command("erase")
@click.argument("hashes", nargs=-1, required=True, metavar="HASH...")
@click.option("--reason", required=True, callback=_said, help="Why; it stays in the ledger.")
@project_option
@json_option
def erase(hashes: tuple[str, ...], reason: str, project: Path | None, as_json: bool) -> int:
    """Erase payloads (prompts, outputs, files) for good, for example a leaked secret.

    HASH is what an event names as `output_blob` or `blob`. The events stay, and so do the results
    that rest on them; what was said cannot be read again. Copies of the ledger keep it. With a
    version of a skill go its files, but for those that other versions hold too: to erase one of
    them, name all of these versions.
    """
    from skillforge.workflows.erase import plan_erasure

    with open_session(project, write=True) as session:
        plan = plan_erasure(session.ledger, hashes)
        session.ledger.erase(plan.blobs, reason=reason)
    found = {
        "erased": list(plan.blobs),
        "erased_before": list(plan.erased_before),
        "shared": list(plan.shared),
        "reason": reason,
    }

    def show(data: Mapping[str, Any]) -> None:
        if plan.blobs:
            click.echo(f"erased {len(plan.blobs)} payloads: {reason}")
        for blob in plan.erased_before:
            click.echo(f"{blob} is erased already: `skillforge log --kind blob.erased` says why")
        if plan.shared:
            click.echo(
                f"{len(plan.shared)} files stay, for other versions hold them too; name those "
                "versions as well to erase them"
            )

    emit(found, as_json, show)
    return EXIT_OK


@log.command("salvage")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The new ledger; must not exist."
)
@project_option
@json_option
def save(out: Path, project: Path | None, as_json: bool) -> int:
    """Write what can be read of a damaged ledger into a new file; the old one is left alone.

    The events up to the first damaged one are saved, with their payloads and with the packages
    that the library folder holds.
    """
    from skillforge.adapters.salvage import salvage

    opened = open_project(project)
    path = opened.state / "ledger.db"
    found = salvage(path, out)
    lost = found.lost
    with closing(SqliteLedger(out)) as ledger:  # what the folder still holds is not lost
        library = FolderLibrary(opened.library, mend=False)
        for package in filter(None, map(library.read, library.versions())):
            ledger.record([], blobs=pack(package))
            lost -= set(map(sha256, pack(package)))
    log = path.with_name(f"{path.name}-wal")
    aside = f"move {log} away, then " if log.exists() else ""
    data = {"events": found.events, "blobs": found.blobs, "lost_blobs": len(lost), "out": str(out)}
    emit(
        data,
        as_json,
        lambda _: click.echo(
            f"{found.events} events and {found.blobs} payloads saved, {len(lost)} payloads lost; "
            f"to go on with them, {aside}move {out} to {path} and run the last commands again"
        ),
    )
    return EXIT_OK


def recompute(session: Session) -> Replay:
    """Replay a project's ledger, and compare the tables of its file with their indexes."""
    from skillforge.adapters.ledger_check import index_problems
    from skillforge.workflows.replay import replay

    found = replay(session.ledger)
    problems = (*found.problems, *index_problems(session.state / "ledger.db"))
    return replace(found, problems=problems)


@click.command("replay")
@project_option
@json_option
def replay(project: Path | None, as_json: bool) -> int:
    """Fold the ledger anew, check its chain, recompute all that was decided from its rollouts."""
    with open_session(project) as session:
        found = recompute(session)

    def show(data: Mapping[str, Any]) -> None:
        for problem in data["problems"]:
            click.echo(problem)
        for event in data["erased"]:
            click.echo(f"{len(event['blobs'])} payloads were erased: {event['reason']}")
        click.echo(
            f"{data['events']} events, chain {'ok' if data['chain_ok'] else 'BROKEN'}, "
            f"{data['decisions']} decisions, {data['screens']} screens and {data['audits']} unit "
            "audits recomputed, "
            f"{'all agree' if data['decisions_ok'] else 'they DISAGREE'}\n"
            f"state digest {data['state_digest']}"
        )

    emit(found.to_json(), as_json, show)
    return EXIT_OK if found.chain_ok and not found.problems else EXIT_NEGATIVE


COMMANDS = {"log": log, "replay": replay}
