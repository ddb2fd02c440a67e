"""Typed edits: the only way in which a skill changes, and always with a way back.

A model fills in an `Edit`; this module writes the bytes. An edit names units by id and quotes the
digest of what it read, so that it cannot land on text that has changed since. Bytes outside the
named units stay as they were: frontmatter, line ends, comments, key order.

- CREATE puts ``content`` after the unit ``after``, or at the end of the body.
- UPDATE replaces ``unit`` by ``content``, or, with target ``description``, the description.
  Content without a heading keeps the heading of a section; without a marker, that of a list item.
- MERGE replaces the first of ``units`` by ``content`` and removes the others. With ``source`` the
  units are those of another skill, which `consolidate` carries out.
- PRUNE removes ``unit``, or all of ``units``.
- NOOP changes nothing, which is a legal proposal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from skillforge.core.anchors import check_description, check_units
from skillforge.core.content import clean_content, clean_description
from skillforge.core.package import Package
from skillforge.core.pointers import check_pointers
from skillforge.core.rewrite import insert_after, rewrite_units, write_description
from skillforge.core.splice import Inverse, invert, undo
from skillforge.core.units import find_unit
from skillforge.errors import EditError, SkillError

__all__ = [
    "Applied",
    "Edit",
    "Inverse",
    "Op",
    "Target",
    "apply_edit",
    "check_declared",
    "declared_files",
    "undo",
]

Op = Literal["CREATE", "UPDATE", "MERGE", "PRUNE", "NOOP"]
Target = Literal["body", "description"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change to one skill; the MERGE of two skills changes both."""

    op: Op
    """What to do."""
    unit: str | None = None
    """Id of the unit that UPDATE or PRUNE is about."""
    expected_digest: str | None = None
    """Anchor of what the author read, or its first 8 digits or more; see `anchors`."""
    content: str | None = None
    """New text of CREATE, UPDATE and MERGE."""
    after: str | None = None
    """Id of the unit that CREATE goes after; None is the end of the body."""
    units: tuple[str, ...] = ()
    """Ids that MERGE, or PRUNE of several, is about."""
    target: Target = "body"
    """Whether the edit is about the body or the description."""
    source: str | None = None
    """Name of the other skill whose units MERGE takes over."""
    summary: str = ""
    """What the edit is for, in one sentence."""

    @property
    def named(self) -> tuple[str, ...]:
        """Ids of the units that change or go, in the order that the anchor is made of."""
        return self.units or ((self.unit,) if self.unit else ())

    @property
    def subject(self) -> str | None:
        """What changes or goes, for people; None for CREATE and NOOP."""
        return ", ".join(self.named) or ("description" if self.target == "description" else None)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as one JSON object."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {"units": list(self.units)}

    @classmethod
    def from_json(cls, value: object) -> Edit:
        """Read an edit that a model or a ledger wrote.

        Raises:
            EditError: A key or value is unknown, missing or of the wrong type; the message says
                what to write instead.
        """
        return _read_edit(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An edit that was carried out."""

    package: Package
    """The new version."""
    inverse: Inverse
    """The way back."""


def apply_edit(package: Package, edit: Edit) -> Applied:
    """Carry out an edit and return the new package with the verified way back.

    Raises:
        EditError: The edit is incomplete, stale, ambiguous, changes nothing, names an unknown
            unit or two that overlap, leaves a file or a pointer in the air, or would damage the
            package. The message says what was found and what to send instead.
    """
    check_shape(edit)
    if edit.source is not None:
        raise EditError(
            f"MERGE with source {edit.source!r} changes two skills; carry it out with `consolidate`"
        )
    stages = [package, *_stages(package, edit)]
    changed = stages[-1]
    if edit.op != "NOOP" and changed.version == package.version:
        raise EditError(
            f"{edit.op} of {edit.subject or 'the body'} leaves skill {package.name!r} as "
            "it is, byte for byte; propose NOOP, or write content that differs"
        )
    check_declared(package, changed, declared_files(package, edit))
    check_pointers(package, changed)
    inverse = invert(stages)
    if undo(changed, inverse) != package:
        raise EditError(f"{edit.op} on skill {package.name!r} cannot be undone; it is refused")
    return Applied(package=changed, inverse=inverse)


def declared_files(package: Package, edit: Edit) -> frozenset[str]:
    """Return the paths that an edit says it touches: no other may differ once it is applied."""
    if edit.op == "NOOP":
        return frozenset()
    return frozenset(find_unit(package, unit).path for unit in edit.named) or frozenset(
        {package.skill_file}
    )


def check_declared(before: Package, after: Package, declared: frozenset[str]) -> None:
    """Refuse a change that touches a file it did not declare.

    Raises:
        EditError: Names the files.
    """
    paths = before.files.keys() | after.files.keys()
    touched = {path for path in paths if before.files.get(path) != after.files.get(path)}
    if not touched <= declared:
        said, more = ", ".join(sorted(declared)), ", ".join(sorted(touched - declared))
        raise EditError(
            f"the edit of skill {before.name!r} declares {said or 'no file'} but also touches "
            f"{more}; name those units, or leave the files as they are"
        )


def _stages(package: Package, edit: Edit) -> Iterator[Package]:
    """Yield the package after each of the places where the edit changes it."""
    if edit.op == "NOOP":
        return
    if edit.target == "description":
        if edit.expected_digest:
            check_description(edit.op, package, edit.expected_digest)
        yield write_description(package, clean_description(edit.content or ""))
        return
    content = clean_content(edit.content) if edit.content is not None else None
    ids = edit.named or ((edit.after,) if edit.after else ())
    units = [find_unit(package, unit_id) for unit_id in ids]
    if edit.expected_digest and units:
        check_units(edit.op, package, units, edit.expected_digest)
    try:
        if edit.op == "CREATE":
            yield insert_after(package, units[0] if units else None, content or "")
        else:
            texts = [content, *[None] * (len(units) - 1)]
            yield from rewrite_units(package, list(zip(units, texts, strict=True)))
    except SkillError as error:
        raise EditError(f"{edit.op} would damage the package: {error}") from error


_NEEDS: dict[str, str] = {
    "CREATE": "content",
    "UPDATE": "content and unit (or target description)",
    "MERGE": "content and at least two units, or source and at least one of its units",
    "PRUNE": "unit or units",
    "NOOP": "nothing",
}


def check_shape(edit: Edit) -> None:
    """Refuse an edit whose fields do not fit its op.

    Raises:
        EditError: Says what the op needs and what was given.
    """
    described, written = edit.target == "description", edit.content is not None
    named = bool(edit.unit) + bool(edit.units)
    absorbs = edit.source is not None
    fits = {
        "CREATE": written and not named and not described,
        "UPDATE": written and (named == 0 if described else bool(edit.unit) and not edit.units),
        "MERGE": bool(edit.units) and not described and (absorbs or _joins(edit)),
        "PRUNE": named == 1 and not written and not described,
        "NOOP": not written and not named,
    }
    if edit.op not in fits:
        raise EditError(f"unknown op {edit.op!r}; expected one of {', '.join(get_args(Op))}")
    placed = edit.op == "CREATE" or (edit.op == "MERGE" and absorbs)
    if not fits[edit.op] or (edit.after and not placed) or (absorbs and edit.op != "MERGE"):
        given = [
            k for k, v in edit.to_json().items() if v and k not in ("op", "summary") and v != "body"
        ]
        raise EditError(f"{edit.op} needs {_NEEDS[edit.op]}, got {', '.join(given) or 'nothing'}")
    if len(set(edit.units)) != len(edit.units):
        raise EditError(
            f"{edit.op} names a unit twice: {', '.join(edit.units)}; name each of them once"
        )


def _joins(edit: Edit) -> bool:
    return edit.content is not None and len(edit.units) >= 2 and not edit.unit


def _read_edit(value: object) -> Edit:
    if not isinstance(value, Mapping):
        raise EditError(
            f'an edit is one JSON object, such as {{"op": "NOOP"}}, got {type(value).__name__}'
        )
    known = Edit.__dataclass_fields__
    unknown = [str(key) for key in value if key not in known]
    if unknown:
        raise EditError(f"unknown keys {', '.join(unknown)}; an edit has {', '.join(known)}")
    # models write "" for "nothing"
    fields = {key: item for key, item in value.items() if item is not None and item != ""}
    for key, item in fields.items():
        if key == "units":
            if not isinstance(item, list | tuple) or not all(isinstance(i, str) for i in item):
                raise EditError(f"`units` must be a list of unit ids, got {str(item)[:60]!r}")
            fields[key] = tuple(item)
        elif not isinstance(item, str):
            raise EditError(f"`{key}` must be a string, got {type(item).__name__}")
    if fields.get("op") not in get_args(Op):
        raise EditError(f"`op` is {fields.get('op')!r}; expected one of {', '.join(get_args(Op))}")
    if fields.get("target", "body") not in get_args(Target):
        raise EditError(f"`target` is {fields['target']!r}; expected body or description")
    edit = Edit(**fields)
    check_shape(edit)
    return edit
