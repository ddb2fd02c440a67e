"""An edit within a library: one skill changes, or, where one absorbs another's units, two.

The MERGE of two skills moves units of ``source`` into the edited skill, as they are or as
``content`` rewrites them, files with their bytes and mode. A skill of which nothing is left to read
leaves the library. The way back restores both, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skillforge.core.anchors import check_units
from skillforge.core.content import clean_content
from skillforge.core.edits import Edit, apply_edit, check_declared, check_shape
from skillforge.core.lines import to_lf
from skillforge.core.package import Package
from skillforge.core.pointers import check_pointers, pointed
from skillforge.core.rewrite import insert_after, rewrite_units
from skillforge.core.splice import Inverse, invert, undo
from skillforge.core.units import Unit, find_unit, parse_units, removable, unit_bytes
from skillforge.errors import EditError


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryChange:
    """An edit that was carried out in a library."""

    skills: Mapping[str, Package]
    """The library after it, by name."""
    inverses: Mapping[str, Inverse]
    """The way back of each skill that changed."""
    left: Mapping[str, Package]
    """Skills that left the library because all their text went into another."""


def apply_in_library(skills: Mapping[str, Package], skill: str, edit: Edit) -> LibraryChange:
    """Carry out an edit of one skill of a library, the MERGE of two skills included.

    Raises:
        EditError: See `apply_edit` and `consolidate`.
    """
    if edit.source is not None:
        return consolidate(skills, skill, edit)
    applied = apply_edit(_skill(skills, skill), edit)
    return LibraryChange(
        skills={**skills, skill: applied.package}, inverses={skill: applied.inverse}, left={}
    )


def take_back(skills: Mapping[str, Package], change: LibraryChange) -> dict[str, Package]:
    """Return the library as it was before a change, byte for byte.

    Raises:
        EditError: A skill of the change is gone or is not the version that it made, or a skill
            that left has come back under another version.
    """
    back = {name: undo(_skill(skills, name), inverse) for name, inverse in change.inverses.items()}
    for name, package in change.left.items():
        if skills.get(name, package) != package:
            raise EditError(f"skill {name!r} is in the library again as {skills[name].short}")
    return {**skills, **back, **change.left}


def consolidate(skills: Mapping[str, Package], skill: str, edit: Edit) -> LibraryChange:
    """Move units of the skill ``edit.source`` into ``skill``, after the unit ``edit.after``.

    Raises:
        EditError: A skill or unit is unknown, fixed, stale or overlaps another, the text would
            point to files that stay behind, or a file of that path is there already.
    """
    check_shape(edit)
    if edit.source is None or edit.source == skill:
        raise EditError(
            f"MERGE of two skills needs `source`, the name of another skill than {skill!r}"
        )
    target, source = _skill(skills, skill), _skill(skills, edit.source)
    units = [find_unit(source, unit_id) for unit_id in edit.units]
    if edit.expected_digest:
        check_units("MERGE", source, units, edit.expected_digest)
    left_over = [source, *rewrite_units(source, [(unit, None) for unit in units])]
    stages = _absorb(target, source, edit, units)
    inverses = {skill: invert(stages)}
    if _has_text(left_over[-1]):
        check_pointers(source, left_over[-1])
        inverses[source.name] = invert(left_over)
        after, left = {**skills, source.name: left_over[-1]}, {}
    else:
        after, left = {n: p for n, p in skills.items() if n != source.name}, {source.name: source}
    change = LibraryChange(skills={**after, skill: stages[-1]}, inverses=inverses, left=left)
    if take_back(change.skills, change) != dict(skills):
        raise EditError(f"MERGE of {source.name!r} into {skill!r} cannot be undone; it is refused")
    return change


def _absorb(
    target: Package, source: Package, edit: Edit, units: Sequence[Unit]
) -> tuple[Package, ...]:
    """Return the target before and after it takes over text and files of the source."""
    texts = [_text(source, unit) for unit in units if unit.kind != "file"]
    text = clean_content(edit.content if edit.content is not None else "\n\n".join(texts))
    place = find_unit(target, edit.after) if edit.after else None
    changed = insert_after(target, place, text)
    for unit in units:
        if unit.kind == "file":
            changed = _with_file(changed, source, unit.path)
    moved = {unit.path for unit in units if unit.kind == "file"}
    check_declared(target, changed, frozenset({target.skill_file, *moved}))
    both = Package(name=target.name, files={**source.files, **changed.files})
    missing = pointed(both, changed.skill_file) - changed.files.keys() - {source.skill_file}
    if missing:
        raise EditError(
            f"the text points to {', '.join(sorted(missing))} of skill {source.name!r}; name "
            f"{', '.join(f'file:{path}' for path in sorted(missing))} in `units` as well, or write "
            "content that does not point there"
        )
    return target, changed


def _with_file(package: Package, source: Package, path: str) -> Package:
    file = source.files[path]
    if package.files.get(path, file) != file:
        raise EditError(
            f"skill {package.name!r} has another file {path!r} already; rename one of them first"
        )
    return package.replace_file(path, file.data, executable=file.executable)


def _text(package: Package, unit: Unit) -> str:
    return to_lf(unit_bytes(package, unit).decode("utf-8", "replace")).strip("\n")


def _has_text(package: Package) -> bool:
    return any(u.kind != "file" and u.kind != "intro" for u in removable(parse_units(package)))


def _skill(skills: Mapping[str, Package], name: str) -> Package:
    if name not in skills:
        raise EditError(f"the library has no skill {name!r}; it has {', '.join(sorted(skills))}")
    return skills[name]
