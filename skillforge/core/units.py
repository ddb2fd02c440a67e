"""Knowledge units: the parts of a skill that can be left out, audited, edited or pruned.

The units of ``SKILL.md`` partition its bytes: joined in order they are the file. Every other file
is one unit of its own. The rule for the body, in four steps:

1. The frontmatter, fences and byte order mark included, is one unit that always stays.
2. A heading belongs to what follows it. Text before the first section, with the title (a first
   and only heading of level 1), is the ``intro``. Sections start at the highest level of the
   other headings; deeper ones stay inside, unless the section is long or shows titled examples:
   then it is cut at them.
3. A section that shows worked examples is cut at them. A section that is mainly one list is cut
   into its items, as long as the whole skill stays within ``MAX_UNITS``; otherwise sections stay
   whole. What remains around the cuts is the ``heading`` (with its lead-in) and ``paragraph``,
   ``table`` or ``code`` units.
4. Blank lines belong to the unit before them, so that a cut leaves no gap.

A section that was cut can still be named as a whole: see `sections`.

Ids are readable and stay the same as long as the headings do: ``section:output-format``,
``item:rules/3``, ``example:examples/2``, ``file:references/x.md``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from skillforge.core.digest import sha256
from skillforge.core.lines import line_starts
from skillforge.core.package import Package
from skillforge.core.sections import Piece, UnitKind, cut_body
from skillforge.errors import EditError

_FIXED = ("frontmatter", "heading")
_PREFIX = {"list_item": "item", "paragraph": "text"}
_KEPT_FILES = re.compile(r"(licen[cs]e|notice|copying)[^/]*$|evals/", re.IGNORECASE)
_BREAK = re.compile(rb"[ \t]*(?:\r\n|\n|\r)")
_UNDERLINE = re.compile(rb"[ \t]{0,3}(?:=+|-+)[ \t]*(?:\r\n|\n|\r|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A span of one file of a skill."""

    id: str
    """Readable name, unique in the skill."""
    kind: UnitKind
    """What the unit is."""
    path: str
    """The file it stands in."""
    start: int
    """Byte offset of its first byte in that file."""
    end: int
    """Byte offset after its last byte, trailing blank lines included."""
    text_digest: str
    """SHA-256 of its bytes: the anchor that an edit quotes."""
    title: str
    """Heading or first words, for people."""


def parse_units(package: Package) -> tuple[Unit, ...]:
    """Return the units of ``SKILL.md`` in order, then one for each other file."""
    key = "units"
    if key not in package._cache:
        units = [*_body_units(package), *_file_units(package)]
        package._cache[key] = tuple(units)
    found: tuple[Unit, ...] = package._cache[key]
    return found


def sections(package: Package) -> tuple[Unit, ...]:
    """Return the body at section level: sections that were cut into parts are whole again.

    Leaving out one worked example of three rarely changes anything, leaving out the section does:
    this is the level at which an audit begins.
    """
    whole: list[Unit] = []
    units = [unit for unit in parse_units(package) if unit.path == package.skill_file]
    taken = {unit.id for unit in units}
    for unit in units:
        slug = unit.id.partition(":")[2]
        if unit.kind == "heading" and f"section:{slug}" not in taken:
            data = package.files[unit.path].data
            parts = [u for u in units if u.id.partition(":")[2].rpartition("/")[0] == slug]
            end = max(u.end for u in [unit, *parts])
            whole.append(
                _unit(f"section:{slug}", "section", unit.path, data, unit.start, end, unit.title)
            )
        elif not whole or unit.start >= whole[-1].end:
            whole.append(unit)
    return tuple(whole)


def unit_bytes(package: Package, unit: Unit) -> bytes:
    """Return the bytes of a unit of this package."""
    return package.files[unit.path].data[unit.start : unit.end]


def find_unit(package: Package, unit_id: str) -> Unit:
    """Return the unit of that id.

    Raises:
        EditError: There is none; the message lists the nearest ids.
    """
    units = {unit.id: unit for unit in (*sections(package), *parse_units(package))}
    if unit_id in units:
        return units[unit_id]
    near = get_close_matches(unit_id, units, n=3, cutoff=0.4) or list(units)[:12]
    raise EditError(
        f"skill {package.name!r} has no unit {unit_id!r}; the nearest are {', '.join(near)}"
    )


def removable(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the units that can be left out by themselves.

    Frontmatter, the headings of sections that were cut into parts, licences and ``evals/`` stay.
    """
    return tuple(
        unit
        for unit in units
        if unit.kind not in _FIXED and not (unit.kind == "file" and _KEPT_FILES.match(unit.path))
    )


def leave_out(package: Package, unit_id: str) -> Package:
    """Return the package without that unit, every other byte as it was.

    Raises:
        EditError: There is no such unit, or it cannot be left out.
    """
    unit = find_unit(package, unit_id)
    if not removable([unit]):
        raise EditError(
            f"unit {unit_id!r} of skill {package.name!r} cannot be left out; choose one of "
            f"{', '.join(u.id for u in removable(parse_units(package)))}"
        )
    if unit.kind == "file":
        return package.without_file(unit.path)
    data = package.files[unit.path].data
    return package.replace_file(unit.path, cut(data, unit.start, unit.end))


def cut(data: bytes, start: int, end: int) -> bytes:
    """Return ``data`` without a span of whole lines.

    The blank lines at its end stay where nothing else would part what stands around it. A new one
    is added only where what follows would otherwise underline what stands before, and so turn it
    into a heading.
    """
    before, removed, after = data[:start], data[start:end], data[end:]
    if not before.strip() or not after or ends_blank(before):
        return before + after
    if ends_blank(removed):
        kept = removed[len(removed.rstrip()) :]
        end_of_line = _BREAK.match(kept)
        return before + kept[end_of_line.end() if end_of_line else 0 :] + after
    if _UNDERLINE.match(after):
        return before + (b"\r\n" if before.endswith(b"\r\n") else b"\n") + after
    return before + after


def ends_blank(data: bytes) -> bool:
    """Tell whether the last line of ``data`` is blank, or there is none."""
    stripped = data.rstrip(b" \t")
    for end in (b"\r\n", b"\n", b"\r"):
        if stripped.endswith(end):
            return stripped[: -len(end)].rstrip(b" \t")[-1:] in (b"", b"\n", b"\r")
    return not stripped


def _body_units(package: Package) -> list[Unit]:
    document, path = package.document, package.skill_file
    data = document.data
    units: list[Unit] = []
    if document.body_start:
        units.append(_unit("frontmatter", "frontmatter", path, data, 0, document.body_start, ""))
    starts = [document.body_start + at for at in line_starts(data[document.body_start :])]
    starts.append(len(data))
    taken: dict[str, int] = {}
    for piece in cut_body(document.body):
        start, end = starts[piece.first], starts[piece.last]
        name = _name(piece, taken)
        units.append(_unit(name, piece.kind, path, data, start, end, piece.title))
    return units


def _unit(
    name: str, kind: UnitKind, path: str, data: bytes, start: int, end: int, title: str
) -> Unit:
    digest = sha256(data[start:end])
    return Unit(
        id=name, kind=kind, path=path, start=start, end=end, text_digest=digest, title=title
    )


def _file_units(package: Package) -> list[Unit]:
    return [
        _unit(f"file:{path}", "file", path, file.data, 0, len(file.data), path)
        for path, file in package.files.items()
        if path != package.skill_file
    ]


def _name(piece: Piece, taken: dict[str, int]) -> str:
    """Return a unique id: numbered within its section for parts, bare for whole sections."""
    prefix = _PREFIX.get(piece.kind, piece.kind)
    base = f"{prefix}:{piece.slug}"
    if piece.kind == "intro":
        base = "intro"
    whole = piece.kind in ("section", "heading", "intro")
    while True:
        taken[base] = number = taken.get(base, 0) + 1
        name = f"{base}/{number}" if not whole else base if number == 1 else f"{base}-{number}"
        # a section may be called what another one's number makes it
        if name not in taken or name == base:
            taken.setdefault(name, 1)
            return name
