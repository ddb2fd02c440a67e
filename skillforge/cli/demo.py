"""`demo`: the whole main job on the shipped library, with a real model, offline."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from skillforge.adapters.project import FILE
from skillforge.cli.engine import make_engine
from skillforge.cli.jobs import night_order
from skillforge.cli.options import EXIT_OK, Paying, emit, json_option, paying_options
from skillforge.cli.packs import export_packs
from skillforge.cli.runs import run_night, show_night, show_night_estimate
from skillforge.cli.session import open_session
from skillforge.errors import ConfigError

DEMO_SKILLS = ("ticket-line", "visitor-row", "units")
"""A few skills, to stay within minutes; ``--full`` takes all that the suite has tasks for."""

PROJECT = """\
[library]
path = "skills"

[model]
worker = "{model}"

[evolve]
propose_tasks = 8
anchors = 8
max_confirm = 2
wave = 6
neighbours = 3
neighbour_tasks = 12

[gate]
max_tasks = 48
min_effect = 0.20

[nightly]
skills = [{skills}]
library_audits = 1
"""


@click.command("demo")
@click.option("--full", is_flag=True, help="Evolve every skill that the suite has tasks for.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to work in; default: skillforge-demo/seed-SEED.",
)
@json_option
@paying_options
def demo(full: bool, folder: Path | None, as_json: bool, paying: Paying) -> int:
    """Copy the shipped library, evolve it on evidence, and export a vetted pack.

    Needs no key and no network: the embedded model does the tasks. An interrupted demo goes on
    where it stopped when it is called again.
    """
    name = f"seed-{paying.seed}{'-full' if full else ''}"
    root = folder or Path("skillforge-demo") / name
    with ExitStack() as stack:
        if paying.dry_run and not (root / FILE).is_file():
            root = Path(stack.enter_context(TemporaryDirectory())) / name  # which leaves nothing
        _prepare(root, paying.model or "local/smollm2", full)
        session = stack.enter_context(open_session(root, write=True, dry_run=paying.dry_run))
        engine = make_engine(session, "desk", paying)
        order = night_order(engine)
        if paying.dry_run:
            return show_night_estimate(engine, order, as_json)
        data = run_night(engine, order)
        packs = export_packs(session, (), root / "packs", with_probation=True)
    data = {**data, "folder": str(root), "packs": packs}

    def show(data: Mapping[str, Any]) -> None:
        show_night(data)
        for pack in packs:
            click.echo(f"pack for {pack['harness']}: {pack['path']} ({pack['digest'][:12]})")
        click.echo(f"look around: skillforge list --project {root}")

    emit(data, as_json, show)
    return EXIT_OK


def _prepare(root: Path, model: str, full: bool) -> None:
    """Lay the demo's project out; an interrupted one is left as it is.

    Raises:
        ConfigError: The folder holds something else.
    """
    from skillforge.adapters.shipped import shipped_skills

    if (root / FILE).is_file():
        return
    if root.exists() and any(root.iterdir()):
        raise ConfigError(f"{root} is not empty: name another folder with --dir")
    staging = root.with_name(f".{root.name}.new")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    shutil.copytree(shipped_skills(), staging / "skills")
    skills = "" if full else ", ".join(f'"{name}"' for name in DEMO_SKILLS)
    (staging / FILE).write_text(PROJECT.format(model=model, skills=skills), encoding="utf-8")
    if root.exists():
        root.rmdir()
    staging.rename(root)


COMMANDS = {"demo": demo}
