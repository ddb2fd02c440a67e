"""`init` and `doctor`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from skillforge.cli.options import EXIT_OK, emit, json_option, project_option
from skillforge.cli.session import make_embedder, make_model
from skillforge.cli.suites import suite_roots


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option("--library", default="skills", show_default=True, help="Folder of the skills.")
@click.option("--model", default="local/smollm2", show_default=True, help="Model of the worker.")
@json_option
def init(folder: Path, library: str, model: str, as_json: bool) -> int:
    """Write a project file.

    Example: skillforge init --library skills
    """
    from skillforge.adapters.project import write_project

    path = write_project(folder, library=library, model=model)
    (folder / library).mkdir(parents=True, exist_ok=True)
    data = {"project": str(path), "library": str(folder / library)}
    said = f"wrote {path}; put SKILL.md packages into {folder / library}"
    emit(data, as_json, lambda _: click.echo(said))
    return EXIT_OK


@click.command("doctor")
@project_option
@json_option
@click.option("--model", help="Model to check; default: the project's worker.")
@click.option("--deep", is_flag=True, help="Also make one completion and one embedding.")
def doctor(project: Path | None, as_json: bool, model: str | None, deep: bool) -> int:
    """Check models, keys, embedder, index, ledger and Ray; say how to get what is missing."""
    from skillforge.adapters.doctor import checks
    from skillforge.adapters.embedder import packaged_folder
    from skillforge.adapters.index import open_index
    from skillforge.adapters.local_model import find_weights
    from skillforge.adapters.project import STATE, Project, Settings, find_project, load_project
    from skillforge.adapters.suites import list_suites

    root = project or find_project(Path.cwd())
    opened = (
        load_project(root, os.environ)
        if root is not None
        else Project(root=Path.cwd(), settings=Settings())
    )
    chosen = model or opened.settings.model.worker
    found = checks(
        model=chosen,
        state=opened.root / STATE,
        deep=deep,
        weights=find_weights,
        embedder_weights=lambda: packaged_folder(verify=True),
        chat=make_model(opened, chosen, None) if deep else None,
        embedder=make_embedder(opened.settings.embedding.model) if deep else None,
        index=open_index if deep else None,
        needed=("ray",) if opened.settings.executor.kind == "ray" else (),
        suites=list_suites(suite_roots(project)),
    )

    def show(data: Mapping[str, Any]) -> None:
        for check in data["checks"]:
            mark = "ok  " if check["ok"] else "MISS"
            click.echo(f"{mark} {check['name']}: {check['detail']}")
            if not check["ok"]:
                click.echo(f"     {check['fix']}")

    data = {"ok": all(c.ok for c in found), "checks": [c.to_json() for c in found]}
    emit(data, as_json, show)
    return EXIT_OK if data["ok"] else 1


COMMANDS = {"init": init, "doctor": doctor}
