"""`log` and `replay`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from skillforge.cli.options import EXIT_NEGATIVE, EXIT_OK, emit, json_option, project_option
from skillforge.cli.session import open_session


@click.command("log")
@click.option("--kind", "kinds", multiple=True, help="Only events of this kind; repeatable.")
@click.option("--run", help="Only events of this run.")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this number.")
@click.option("-n", "limit", type=click.IntRange(1), help="Only the last N.")
@project_option
@json_option
def log(
    kinds: tuple[str, ...],
    run: str | None,
    after: int,
    limit: int | None,
    project: Path | None,
    as_json: bool,
) -> int:
    """Print the ledger's events."""
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


@click.command("replay")
@project_option
@json_option
def replay(project: Path | None, as_json: bool) -> int:
    """Fold the ledger anew, check its chain, recompute every decision from its rollouts."""
    from skillforge.workflows.replay import replay as recompute

    with open_session(project) as session:
        found = recompute(session.ledger)

    def show(data: Mapping[str, Any]) -> None:
        for problem in data["problems"]:
            click.echo(problem)
        click.echo(
            f"{data['events']} events, chain {'ok' if data['chain_ok'] else 'BROKEN'}, "
            f"{data['decisions']} decisions recomputed, "
            f"{'all agree' if data['decisions_ok'] else 'they DISAGREE'}\n"
            f"state digest {data['state_digest']}"
        )

    emit(found.to_json(), as_json, show)
    return EXIT_OK if found.chain_ok and not found.problems else EXIT_NEGATIVE


COMMANDS = {"log": log, "replay": replay}
