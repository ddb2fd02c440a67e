"""`export` and `verify`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from skillforge.cli.options import EXIT_NEGATIVE, EXIT_OK, emit, json_option, project_option
from skillforge.cli.session import Session, open_session
from skillforge.core.packs import HARNESS_FOLDERS
from skillforge.errors import ConfigError


@click.command("export")
@click.option(
    "--harness",
    "harnesses",
    multiple=True,
    type=click.Choice(sorted(HARNESS_FOLDERS)),
    help="Harness to export for; repeatable; default: all.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the packs.")
@click.option("--with-probation", is_flag=True, help="Skills on probation too.")
@project_option
@json_option
def export(
    harnesses: tuple[str, ...],
    out: Path,
    with_probation: bool,
    project: Path | None,
    as_json: bool,
) -> int:
    """Export the served skills with the evidence beside each."""
    with open_session(project) as session:
        packs = export_packs(session, harnesses, out, with_probation=with_probation)

    def show(data: Mapping[str, Any]) -> None:
        for pack in packs:
            click.echo(
                f"{pack['harness']}: {pack['skills']} skills, {pack['files']} files in "
                f"{pack['path']}, digest {pack['digest']}"
            )
            for name in pack["left_out"]:
                click.echo(f"    left out {name}: on probation (--with-probation takes it)")

    emit({"packs": packs}, as_json, show)
    return EXIT_OK


def export_packs(
    session: Session, harnesses: tuple[str, ...], out: Path, *, with_probation: bool
) -> list[dict[str, Any]]:
    """Write one pack per harness and record the export, or say that nothing can be recorded."""
    from skillforge.adapters.packs import write_pack
    from skillforge.core.events import NewEvent
    from skillforge.core.packs import pack_files
    from skillforge.workflows.vouch import evidence_of

    library = session.project.library
    if out.resolve().is_relative_to(library.resolve()):
        raise ConfigError(
            f"--out {out} lies in the library folder {library}, where packs would be taken for "
            "skills; name a folder outside of it"
        )
    state = session.curator.state
    left_out = [
        n for n in state.served if state.skills[n].evidence == "probation" and not with_probation
    ]
    names = [name for name in state.served if name not in left_out]
    packages = [session.curator.package(name) for name in names]
    evidence = {name: evidence_of(session.ledger, state, name) for name in names}
    packs, recorded = [], session.state == session.project.state
    for harness in harnesses or tuple(sorted(HARNESS_FOLDERS)):
        files = pack_files(packages, evidence, HARNESS_FOLDERS[harness])
        path = out / harness
        digest = write_pack(path, files)
        packs.append(
            {
                "harness": harness,
                "path": str(path),
                "files": len(files),
                "skills": len(packages),
                "digest": digest,
                "left_out": left_out,
                "recorded": recorded,
            }
        )
    if recorded:
        known = [{"harness": p["harness"], "digest": p["digest"], "skills": names} for p in packs]
        session.ledger.append([NewEvent(kind="pack.exported", data=data) for data in known])
    else:
        click.echo(
            f"note: {session.project.state} cannot be written to, so the ledger has no record of "
            "this export; the digests above and in each pack's manifest are all there is of it",
            err=True,
        )
    return packs


@click.command("verify")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--digest", help="Digest the pack must have.")
@json_option
def verify(folder: Path, digest: str | None, as_json: bool) -> int:
    """Compare a pack with its manifest."""
    from skillforge.adapters.packs import verify_pack

    found = verify_pack(folder, digest)

    def show(data: Mapping[str, Any]) -> None:
        for what in ("changed", "missing", "added"):
            for path in data[what]:
                click.echo(f"{what}: {path}")
        click.echo(f"{'ok' if data['ok'] else 'NOT ok'}: digest {data['digest']}")

    emit(found, as_json, show)
    return EXIT_OK if found["ok"] else EXIT_NEGATIVE


COMMANDS = {"export": export, "verify": verify}
