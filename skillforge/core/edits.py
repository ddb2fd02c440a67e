"""Typed edits: the only way in which a skill changes, and always with a way back.

A model fills in an `Edit`; this module writes the bytes. An edit names units by id and quotes the
digest of what it read, so that it cannot land on text that has changed since. Bytes outside the
named units stay as they were: frontmatter, line ends, comments, key order.

- CREATE puts ``content`` after the unit ``after``, or at the end of the body.
- UPDATE replaces ``unit`` by ``content``, or, with target ``description``, the description.
  Content without a heading keeps the heading of a section; without a marker, that of a list item.
- MERGE replaces the first of ``units`` by ``content`` and removes the others.
- PRUNE removes ``unit``, or all of ``units``.
- NOOP changes nothing, which is a legal proposal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from skillforge.core.content import LeakIndex, check_leak, clean_content
from skillforge.core.digest import sha256
from skillforge.core.package import Package
from skillforge.core.rewrite import insert_after, rewrite_units, write_description
from skillforge.core.splice import Inverse, Splice, invert, undo
from skillforge.core.units import Unit, find_unit
from skillforge.errors import EditError, SkillError

__all__ = [
    "Applied",
    "Edit",
    "Inverse",
    "LeakIndex",
    "Op",
    "Splice",
    "Target",
    "apply_edit",
    "check_leak",
    "clean_content",
    "undo",
    "units_digest",
    "verify_undo",
]

Op = Literal["CREATE", "UPDATE", "MERGE", "PRUNE", "NOOP"]
Target = Literal["body", "description"]

_SHORTEST_ANCHOR = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change to one skill."""

    op: Op
    """What to do."""
    unit: str | None = None
    """Id of the unit that UPDATE or PRUNE is about."""
    expected_digest: str | None = None
    """Digest of the named units as the author read them, or its first 8 digits or more."""
    content: str | None = None
    """New text of CREATE, UPDATE and MERGE."""
    after: str | None = None
    """Id of the unit that CREATE goes after; None is the end of the body."""
    units: tuple[str, ...] = ()
    """Ids that MERGE, or PRUNE of several, is about."""
    target: Target = "body"
    """Whether the edit is about the body or the description."""
    summary: str = ""
    """What the edit is for, in one sentence."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields as one JSON object."""
        return {
            "op": self.op,
            "unit": self.unit,
            "expected_digest": self.expected_digest,
            "content": self.content,
            "after": self.after,
            "units": list(self.units),
            "target": self.target,
            "summary": self.summary,
        }

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


def units_digest(units: Iterable[Unit]) -> str:
    """Return the anchor of the units: the digest of one, or over the digests of several."""
    digests = [unit.text_digest for unit in units]
    return digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode())


def apply_edit(package: Package, edit: Edit) -> Applied:
    """Carry out an edit and return the new package with the verified way back.

    Raises:
        EditError: The edit is incomplete, stale, ambiguous, changes nothing, names an unknown
            unit, or would damage the package.
    """
    _check_shape(edit)
    changed = _change(package, edit)
    if edit.op != "NOOP" and changed.version == package.version:
        raise EditError(
            f"{edit.op} leaves skill {package.name!r} as it is, byte for byte; propose NOOP, or "
            "write content that differs"
        )
    inverse = invert(package, changed)
    if undo(changed, inverse) != package:
        raise EditError(f"{edit.op} on skill {package.name!r} cannot be undone; it is refused")
    return Applied(package=changed, inverse=inverse)


def verify_undo(package: Package, edit: Edit, states: Iterable[Package] = ()) -> int:
    """Check undo(apply(s)) == s for the package and for other states; return how many were checked.

    States that the edit does not apply to are left out of the count.

    Raises:
        EditError: The edit does not apply to the package, or undoing it does not restore a state.
    """
    applied = apply_edit(package, edit)
    _check_restored(package, undo(applied.package, applied.inverse))
    checked = 1
    for state in states:
        try:
            applied = apply_edit(state, edit)
        except EditError:
            continue
        _check_restored(state, undo(applied.package, applied.inverse))
        checked += 1
    return checked


def _check_restored(before: Package, restored: Package) -> None:
    if restored != before:
        raise EditError(
            f"undo gave version {restored.short} of skill {before.name!r}, expected {before.short}"
        )


def _change(package: Package, edit: Edit) -> Package:
    if edit.op == "NOOP":
        return package
    content = clean_content(edit.content) if edit.content is not None else ""
    if edit.target == "description":
        if edit.expected_digest:
            _check_anchor(edit, sha256(package.description.encode()), "the description", package)
        return write_description(package, content)
    ids = edit.units or tuple(i for i in (edit.unit, edit.after) if i is not None)
    units = tuple(find_unit(package, unit_id) for unit_id in ids)
    if edit.expected_digest and units:
        _check_anchor(edit, units_digest(units), ", ".join(ids), package)
    try:
        if edit.op == "CREATE":
            return insert_after(package, units[0] if units else None, content)
        texts = [None if edit.op == "PRUNE" else content, *[None] * (len(units) - 1)]
        return rewrite_units(package, list(zip(units, texts, strict=True)))
    except SkillError as error:
        raise EditError(f"{edit.op} would damage the package: {error}") from error


def _check_anchor(edit: Edit, digest: str, what: str, package: Package) -> None:
    expected = edit.expected_digest or ""
    if len(expected) < _SHORTEST_ANCHOR or not digest.startswith(expected):
        raise EditError(
            f"{edit.op} is stale: {what} of skill {package.name!r} has digest {digest[:12]}, the "
            f"edit expected {expected[:12]}; read the unit again and write the edit anew"
        )


_NEEDS: dict[str, str] = {
    "CREATE": "content",
    "UPDATE": "content and unit (or target description)",
    "MERGE": "content and at least two units",
    "PRUNE": "unit or units",
    "NOOP": "nothing",
}


def _check_shape(edit: Edit) -> None:
    """Refuse an edit whose fields do not fit its op."""
    described = edit.target == "description"
    named = bool(edit.unit) + bool(edit.units)
    fits = {
        "CREATE": edit.content is not None and not named and not described,
        "UPDATE": edit.content is not None and (named == 0 if described else bool(edit.unit)),
        "MERGE": edit.content is not None and len(edit.units) >= 2 and not described,
        "PRUNE": named == 1 and edit.content is None and not described,
        "NOOP": edit.content is None and not named,
    }
    if edit.op not in fits:
        raise EditError(f"unknown op {edit.op!r}; expected one of {', '.join(get_args(Op))}")
    if not fits[edit.op] or (edit.after is not None and edit.op != "CREATE"):
        given = [
            k for k, v in edit.to_json().items() if v and k not in ("op", "summary") and v != "body"
        ]
        raise EditError(f"{edit.op} needs {_NEEDS[edit.op]}, got {', '.join(given) or 'nothing'}")
    if len(set(edit.units)) != len(edit.units):
        raise EditError(f"{edit.op} names a unit twice: {', '.join(edit.units)}")


def _read_edit(value: object) -> Edit:
    if not isinstance(value, Mapping):
        raise EditError(f"an edit is one JSON object, got {type(value).__name__}")
    known = Edit.__dataclass_fields__
    unknown = [str(key) for key in value if key not in known]
    if unknown:
        raise EditError(f"unknown keys {', '.join(unknown)}; an edit has {', '.join(known)}")
    # models write "" for "nothing"
    fields = {key: item for key, item in value.items() if item is not None and item != ""}
    for key, item in fields.items():
        if key == "units":
            if not isinstance(item, list | tuple) or not all(isinstance(i, str) for i in item):
                raise EditError("`units` must be a list of unit ids")
            fields[key] = tuple(item)
        elif not isinstance(item, str):
            raise EditError(f"`{key}` must be a string, got {type(item).__name__}")
    if fields.get("op") not in get_args(Op):
        raise EditError(f"`op` is {fields.get('op')!r}; expected one of {', '.join(get_args(Op))}")
    if fields.get("target", "body") not in get_args(Target):
        raise EditError(f"`target` is {fields['target']!r}; expected body or description")
    edit = Edit(**fields)
    _check_shape(edit)
    return edit
