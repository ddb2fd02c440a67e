"""Prove that an edit can be undone: count round trips over many states of the library.

A state is the library in which the edited skill stands as it is or under other line ends, with or
without a byte order mark, with files more or fewer, other skills beside it, and a later edit on
top, but always with the units that the edit names. In each the edit is applied and taken back, and
every byte must be what it was. Source of the method: EvoUndo (counterfactual states, admission by
the Wilson lower bound).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from skillforge.core.anchors import check_units, words
from skillforge.core.consolidate import apply_in_library, take_back
from skillforge.core.digest import json_digest
from skillforge.core.edits import Edit, apply_edit, undo
from skillforge.core.intervals import wilson_interval
from skillforge.core.package import Package, PackageFile
from skillforge.core.units import find_unit, unit_bytes
from skillforge.errors import EditError

MIN_STATES = 22
"""States that must all pass: 22 of 22 is the least with a Wilson lower bound of 0.85."""
MIN_LOWER = 0.85
"""Least lower end of the 95 % Wilson interval of the share of states that pass."""

_BOM = b"\xef\xbb\xbf"
_NEWLINES = (None, b"\n", b"\r\n", b"\r")
_FILES = ("same", "fewer", "script", "binary")


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoCheck:
    """How many states an edit was applied to, and in how many it was undone to the byte."""

    states: int
    passed: int

    @property
    def lower(self) -> float:
        """Lower end of the 95 % Wilson interval of the share that passes; 0 without any state."""
        return wilson_interval(self.passed, self.states)[0] if self.states else 0.0

    @property
    def verified(self) -> bool:
        """Whether enough states were tried and every one came back."""
        return MIN_STATES <= self.states == self.passed and self.lower >= MIN_LOWER

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> UndoCheck:
        """Read the counts back; the bound is computed anew."""
        return cls(states=value["states"], passed=value["passed"])

    def to_json(self) -> dict[str, Any]:
        """Return the counts as the candidate's event keeps them."""
        return {"states": self.states, "passed": self.passed, "lower": round(self.lower, 4)}


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoState:
    """A library to try an edit in."""

    skills: Mapping[str, Package]
    """The library, by name."""
    later: Edit | None
    """Another edit of the same skill, made on top."""


def check_undo(base: Package, edit: Edit, skills: Mapping[str, Package] | None = None) -> UndoCheck:
    """Count in how many states of the library an edit can be undone to the byte.

    Args:
        base: The version that is edited.
        edit: The edit; it must apply to ``base``.
        skills: The rest of the library; needed for the MERGE of two skills only.
    """
    states = undo_states(base, edit, skills or {})
    return UndoCheck(
        states=len(states), passed=sum(_comes_back(state, base.name, edit) for state in states)
    )


def undo_states(
    base: Package, edit: Edit, skills: Mapping[str, Package], count: int = MIN_STATES
) -> tuple[UndoState, ...]:
    """Return up to ``count`` different states, the first being the library as it is.

    They depend on nothing but base and edit: the same two give the same states.
    """
    rng = np.random.default_rng(int(json_digest([base.version, edit.to_json()])[:16], 16))
    plans = list(product(_NEWLINES, (False, True), _FILES, range(4), (False, True)))
    found: dict[str, UndoState] = {}
    for number in (0, *(1 + rng.permutation(len(plans) - 1))):
        newline, bom, files, neighbours, later = plans[number]
        package = _with_files(_rewritten(base, newline, bom), edit, files, rng)
        if not _reads_the_same(base, package, edit):
            continue
        library = {**skills, base.name: package}
        library |= _neighbours(base, library, neighbours, int(number))
        state = UndoState(skills=library, later=_later(package, edit) if later else None)
        found.setdefault(_identity(state), state)
        if len(found) == count:
            break
    return tuple(found.values())


def _comes_back(state: UndoState, skill: str, edit: Edit) -> bool:
    """Apply and take back; with a later edit, take back the one below and keep the other."""
    try:
        change = apply_in_library(state.skills, skill, edit)
        if state.later is None:
            return take_back(change.skills, change) == dict(state.skills)
        top = apply_edit(change.skills[skill], state.later)
        kept = undo(top.package, change.inverses[skill], [top.inverse])
        alone = apply_edit(state.skills[skill], state.later).package
        below = {**change.skills, skill: undo(top.package, top.inverse)}
        return kept == alone and take_back(below, change) == dict(state.skills)
    except EditError:
        return False


def _rewritten(base: Package, newline: bytes | None, bom: bool) -> Package:
    """Return the skill with other line ends, and with its byte order mark added or taken off."""
    data = base.files[base.skill_file].data
    if newline is not None:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        data = lines.replace(b"\n", newline)
    if bom:
        data = data.removeprefix(_BOM) if data.startswith(_BOM) else _BOM + data
    return base.replace_file(base.skill_file, data)


def _with_files(package: Package, edit: Edit, files: str, rng: np.random.Generator) -> Package:
    """Return the package with one file more, or one fewer that the edit does not name."""
    # a folder of its own, which no text points to
    if files == "script":
        return package.replace_file("undo-state/run", b"#!/bin/sh\n", executable=True)
    if files == "binary":
        return package.replace_file("undo-state/data", rng.bytes(12))
    kept = {package.skill_file, *(unit.removeprefix("file:") for unit in edit.named)}
    loose = [path for path in package.files if path not in kept]
    if files == "fewer" and loose:
        return package.without_file(loose[int(rng.integers(len(loose)))])
    return package


def _reads_the_same(base: Package, package: Package, edit: Edit) -> bool:
    """Tell whether the units that the edit names read as in the base and agree with its anchor."""
    names = [] if edit.source is not None else list(edit.named)
    names += [edit.after] if edit.after else []
    try:
        units = [find_unit(package, name) for name in names]
        if edit.expected_digest and edit.source is None and units:
            check_units(edit.op, package, units, edit.expected_digest)
        return all(
            words(unit_bytes(package, unit)) == words(unit_bytes(base, find_unit(base, unit.id)))
            for unit in units
        )
    except EditError:
        return False


def _neighbours(
    base: Package, library: Mapping[str, Package], count: int, number: int
) -> dict[str, Package]:
    """Return other skills beside it: a copy under another name, and some of their own."""
    beside = [Package(name=f"{base.name}-copy", files=base.files)]
    for i in range(2):
        text = f"---\nname: state-{number}-{i}\ndescription: Another skill.\n---\n\n# Other\n"
        files = {"SKILL.md": PackageFile(data=text.encode())}
        beside.append(Package(name=f"state-{number}-{i}", files=files))
    return {p.name: p for p in beside[:count] if p.name not in library}


def _later(package: Package, edit: Edit) -> Edit | None:
    """Return an edit of another place than this one, if the package takes it."""
    if edit.target == "description":
        later = Edit(op="CREATE", content="## Later\n\nThis came later.")
    else:
        text = f"{package.description[:900]} (later)".strip()
        later = Edit(op="UPDATE", target="description", content=text)
    try:
        apply_edit(package, later)
    except EditError:
        return None
    return later


def _identity(state: UndoState) -> str:
    versions = {name: package.version for name, package in state.skills.items()}
    return json_digest([versions, state.later is not None])
