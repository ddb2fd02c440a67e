"""`search` and `cluster`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from skillforge.cli.options import EXIT_OK, Number, emit, json_option, project_option
from skillforge.cli.session import open_session
from skillforge.report.tables import table


@click.command("search")
@click.argument("query")
@click.option("-k", "k", type=click.IntRange(1), default=5, show_default=True)
@project_option
@json_option
def search(query: str, k: int, project: Path | None, as_json: bool) -> int:
    """Find the skills nearest in meaning to a query."""
    with open_session(project) as session:
        retriever = session.retriever()
        hits = retriever.search(query, k)
    rows = [{"skill": h.skill, "version": h.version, "score": h.score} for h in hits]
    data = {"query": query, "hits": rows, "omitted": len(retriever.names) - len(rows)}

    def show(data: Mapping[str, Any]) -> None:
        table(
            ["score", "skill", "version"],
            [[f"{h.score:.3f}", h.skill, h.version[:10]] for h in hits],
        )
        if data["omitted"]:
            click.echo(f"{data['omitted']} more skills score lower; -k shows more")

    emit(data, as_json, show)
    return EXIT_OK


@click.command("cluster")
@click.option("--threshold", type=Number(0, 1), help="Cosine from which skills group.")
@project_option
@json_option
def cluster(threshold: float | None, project: Path | None, as_json: bool) -> int:
    """Group the skills whose texts are close, and name near-duplicates."""
    with open_session(project) as session:
        retriever, settings = session.retriever(), session.project.settings.retrieval
    groups = retriever.clusters(threshold if threshold is not None else settings.cluster)
    pairs = retriever.duplicates(settings.duplicate)
    data = {
        "clusters": [list(group) for group in groups],
        "near_duplicates": [{"a": a, "b": b, "score": score} for a, b, score in pairs],
    }

    def show(data: Mapping[str, Any]) -> None:
        for group in groups:
            click.echo(", ".join(group))
        for a, b, score in pairs:
            click.echo(f"near-duplicates: {a} and {b} (cosine {score:.3f})")

    emit(data, as_json, show)
    return EXIT_OK


COMMANDS = {"search": search, "cluster": cluster}
