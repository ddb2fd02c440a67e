"""`skillforge import`: skills from a folder, an archive or a git repository into the library."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skillforge.cli.options import EXIT_OK, emit, json_option, project_option
from skillforge.cli.session import copy_to_read, is_read_only, open_project, open_session
from skillforge.errors import SkillError

if TYPE_CHECKING:
    from skillforge.core.file_tree import FileTree
    from skillforge.core.intake import Offer
    from skillforge.core.library import LibraryState
    from skillforge.core.problem import Problem

EXIT_NOTHING_SOUND = 1
_EXPECTED = (
    "name a folder, a git repository, or a file that ends in .skill, .zip, .tar, .tar.gz or .tgz"
)
_FILE_COST = 512
"""Bytes that a file of a skill counts for, beside its own."""
Versions = dict[str, str]
"""Version by name of the skill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A folder to find skills in, and where it came from."""

    root: Path
    origin: Mapping[str, Any]


@click.command("import")
@click.argument("source")
@click.option("--ref", help="Branch, tag or full commit of a git repository; default: its HEAD.")
@project_option
@json_option
@click.option("--dry-run", is_flag=True, help="Only say what would be taken; write nothing.")
def import_(
    source: str, ref: str | None, project: Path | None, as_json: bool, dry_run: bool
) -> int:
    """Take skills from a folder, an archive or a git repository into the library.

    SOURCE is a folder; a .skill, .zip, .tar, .tar.gz or .tgz file; or a git repository: its
    address, or the path of a bare one. Each skill is taken or skipped by itself, with the reason;
    an archive that is not safe is refused whole. What a skill carries is copied and never run.
    """
    from skillforge.core.intake import plan_intake

    open_project(project)  # whatever is wrong with it is said before anything is fetched
    with tempfile.TemporaryDirectory(prefix="skillforge-import-") as scratch:
        opened = open_source(source, ref, Path(scratch))
        offers, problems = _find(opened.root)
        origins = {offer.path: _origin(opened, offer) for offer in offers}
    if dry_run:
        plan = plan_intake(offers, *_foreseen(project))
    else:
        with open_session(project, write=True) as session:
            plan = plan_intake(offers, *_standing(session.curator.state, session.library.root))
            for offer in plan.taken:
                session.curator.bring_in(offer.package, origins[offer.path])
    taken = [
        {"skill": offer.package.name, "version": offer.package.version, **origins[offer.path]}
        for offer in plan.taken
    ]
    data = {
        "source": dict(opened.origin),
        "taken": taken,
        "skipped": [asdict(skip) for skip in plan.skipped],
        "problems": [problem.to_json() for problem in problems],
        "dry_run": dry_run,
    }
    emit(data, as_json, _show)
    unsound = any(skip.code == "lint" for skip in plan.skipped) or any(
        problem.code == "unreadable" for problem in problems
    )
    return EXIT_NOTHING_SOUND if unsound and not taken else EXIT_OK


def open_source(given: str, ref: str | None, scratch: Path) -> Source:
    """Lay a source out as a folder.

    Args:
        given: What the user named.
        ref: Branch, tag or commit of a repository.
        scratch: An empty folder for what has to be fetched or unpacked.

    Raises:
        SkillError: There is no such source, it cannot be read, or it is refused.
    """
    from skillforge.adapters.archives import archive_stem
    from skillforge.adapters.git_source import checkout_root, is_address, is_bare

    path, there = Path(given), os.path.exists(given)  # noqa: PTH110 - too long a name is no fault
    if is_bare(path) if there else is_address(given):
        return _fetch(given, str(path.resolve()) if there else given, ref, scratch)
    if not there:
        raise SkillError(f"{given} does not exist; {_EXPECTED}")
    if path.is_dir() and ref is None:
        return Source(root=path, origin=_folder_origin(given, path))
    top = checkout_root(path) if path.is_dir() else None
    if top is not None:
        fetched, inside = _fetch(given, str(top), ref, scratch), path.resolve().relative_to(top)
        if not (fetched.root / inside).is_dir():
            raise SkillError(f"{top} has no folder {inside} at {ref}; name another folder or ref")
        origin = {**fetched.origin, "prefix": inside.as_posix()}
        return Source(root=fetched.root / inside, origin=origin)
    if path.is_file() and ref is None and archive_stem(path.name) is not None:
        return _unpack(given, path, scratch)
    if ref is not None:
        raise SkillError(f"{given} is no git repository, which --ref is for; leave --ref out")
    raise SkillError(f"{given} is no source of skills; {_EXPECTED}")


def _folder_origin(given: str, folder: Path) -> dict[str, Any]:
    from skillforge.adapters.git_source import checkout_root, read_checkout

    plain = {"source": given, "kind": "folder"}
    if checkout_root(folder) is None:
        return plain
    try:
        found = read_checkout(folder)
    except SkillError as error:
        click.echo(f"note: the commit of {given} is not recorded: {error}", err=True)
        return plain
    if found is None:
        return plain
    if found.dirty:
        click.echo(f"note: {given} has changes that commit {found.commit} has not", err=True)
    return {**plain, "kind": "checkout", **asdict(found)}


def _fetch(given: str, address: str, ref: str | None, scratch: Path) -> Source:
    from skillforge.adapters.archives import read_tar
    from skillforge.adapters.git_source import fetch
    from skillforge.core.origin import repository_name, without_credentials

    shown = without_credentials(given)
    with fetch(address, ref, scratch) as (commit, stream):
        tree = read_tar(stream, shown)
    origin = {"source": shown, "kind": "git", "ref": ref or "HEAD", "commit": commit}
    return Source(root=_lay_out(tree, scratch / "tree" / repository_name(address)), origin=origin)


def _unpack(given: str, path: Path, scratch: Path) -> Source:
    from skillforge.adapters.archives import archive_stem, read_archive
    from skillforge.core.origin import folder_name

    archive = read_archive(path)
    root = _lay_out(archive.tree, scratch / "tree" / folder_name(archive_stem(path.name) or ""))
    return Source(root=root, origin={"source": given, "kind": "archive", "sha256": archive.sha256})


def _lay_out(tree: FileTree, folder: Path) -> Path:
    """Write a tree, unless its links would make too much of it: a skill holds what they lead to."""
    from skillforge.adapters.archives import write_tree
    from skillforge.adapters.skill_folders import find_skills, package_files
    from skillforge.core.file_tree import Limits

    write_tree(tree, folder)
    total, most, walk = 0, Limits().total, find_skills(folder)
    for skill in walk.folders:
        files = package_files(skill, walk)
        total += sum(_FILE_COST + entry.stat().st_size for _, entry in files)
        if total > most:
            raise SkillError(
                f"the skills of the source have over {total} bytes with what their links lead to, "
                f"at most {most} are read; import them one by one from a folder"
            )
    return folder


def _find(root: Path) -> tuple[list[Offer], list[Problem]]:
    """Return the skills below a folder, and every problem of theirs and of the folder."""
    from skillforge.adapters.files import discover
    from skillforge.core.intake import make_offer

    found = discover(root)
    pairs = zip(found.packages, found.folders, strict=True)
    offers = [make_offer(package, folder) for package, folder in pairs]
    problems = [*found.problems, *(p for offer in offers for p in offer.problems)]
    if not offers and not problems:
        raise SkillError("the source holds no SKILL.md; name a folder, archive or repository of it")
    return offers, problems


def _origin(source: Source, offer: Offer) -> dict[str, Any]:
    """Return what the ledger keeps of where a skill came from."""
    from skillforge.adapters.license_files import nearest_license

    stated = offer.package.document.frontmatter.get("license")
    license_ = (
        {"stated": stated.strip()[:200]} if isinstance(stated, str) and stated.strip() else {}
    )
    license_ |= nearest_license(source.root, offer.path)
    return {**source.origin, "path": offer.path, "license": license_}


def _standing(state: LibraryState, folder: Path) -> tuple[Versions, Versions]:
    """Return the versions of what is served or lies in the library's folder, and of the retired.

    What lies there and cannot be read is the user's too, and is not written over.
    """
    from skillforge.adapters.files import discover

    found = discover(folder)
    unreadable = [Path(p.path).name for p in found.problems if p.code == "unreadable"]
    current = {name: record.current for name, record in state.skills.items()}
    served = dict.fromkeys(unreadable, "unreadable")
    served |= {name: current[name] for name in state.served}
    served |= {package.name: package.version for package in found.packages[::-1]}
    return served, {name: current[name] for name in current if name not in served}


def _foreseen(folder: Path | None) -> tuple[Versions, Versions]:
    """Return what an import would find, without bringing ledger and folder in step for it."""
    from skillforge.adapters.ledger import SqliteLedger
    from skillforge.core.library import LibraryState
    from skillforge.core.library_fold import FOLDED, fold

    project, state = open_project(folder), LibraryState()
    place = copy_to_read if is_read_only(project.state) else nullcontext
    with place(project.state) as found:
        path = found / "ledger.db"
        if path.is_file():
            with closing(SqliteLedger(path)) as ledger:
                state = fold(ledger.events(kinds=FOLDED))
    return _standing(state, project.library)


def _show(data: Mapping[str, Any]) -> None:
    def say(line: str) -> None:
        click.echo("".join(char if char.isprintable() else "\ufffd" for char in line))

    for problem in data["problems"]:
        where = f"{problem['path']}:{problem['line']}"
        say(f"{where}: {problem['level']} {problem['code']}: {problem['message']}")
    for entry in data["skipped"]:
        say(f"skipped {entry['skill']} ({entry['path']}): {entry['reason']}")
    verb = "would take" if data["dry_run"] else "took"
    for entry in data["taken"]:
        say(f"{verb} {entry['skill']} {entry['version'][:10]} ({entry['path']})")
    done = "would be taken" if data["dry_run"] else "taken"
    say(f"{len(data['taken'])} skills {done}, {len(data['skipped'])} skipped")


COMMANDS = {"import": import_}
