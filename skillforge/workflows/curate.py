"""The life of skills in the library: take in, adopt, roll back, retire, restore.

The ledger is the truth and is written first; the user's folder follows. Opening the library
finishes a folder write that a crash cut off, and takes a hand edit in as a version of its own:
nothing the user wrote is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skillforge.core.checkpoint import read_state, write_state
from skillforge.core.events import Event, NewEvent
from skillforge.core.library import FOLDED, LibraryState, SkillRecord, fold, suggest
from skillforge.core.package import Package, pack, unpack
from skillforge.errors import SkillError
from skillforge.ports import Ledger, Library

CHECKPOINT_EVERY = 1000
"""Events folded in, after which the state is worth keeping."""


def load_state(ledger: Ledger) -> tuple[LibraryState, int]:
    """Return the state at the ledger's checkpoint and the number of its event, or the beginning."""
    kept = ledger.load_checkpoint()
    state = None if kept is None else read_state(kept[1])
    return (LibraryState(), 0) if kept is None or state is None else (state, kept[0].seq)


@dataclass(slots=True, kw_only=True)
class Curator:
    """Keeps the ledger and the user's folder in step."""

    ledger: Ledger
    library: Library
    _seen: int = -1
    """Number of the last event that was looked at; -1 before the first look."""
    _unkept: list[Event] = field(default_factory=list)
    """Events folded in since the last checkpoint."""
    _state: LibraryState = field(default_factory=LibraryState)

    @property
    def state(self) -> LibraryState:
        """The library as of the last event; only events since the checkpoint are folded in."""
        head = self.ledger.head
        if self._seen < 0:
            self._state, self._seen = load_state(self.ledger)
        if head > self._seen:
            fresh = list(self.ledger.events(after=self._seen, kinds=FOLDED))
            self._state = fold(fresh, self._state)
            self._seen = max([head, *(event.seq for event in fresh[-1:])])
            self._unkept += fresh
        return self._state

    def keep_checkpoint(self) -> None:
        """Keep the state in the ledger once it took many events to come to it."""
        state = self.state
        if len(self._unkept) >= CHECKPOINT_EVERY:
            self.ledger.save_checkpoint(self._unkept[-1], write_state(state))
            self._unkept.clear()

    def package(self, skill: str, version: str | None = None) -> Package:
        """Return a version of a skill, the current one by default.

        Args:
            skill: Name of the skill.
            version: Full version or an unambiguous prefix of it.

        Raises:
            SkillError: No such skill or version, or an ambiguous prefix.
        """
        wanted = version if version is not None else self.state.skill(skill).current
        record = self.state.versions[skill, self.resolve(skill, wanted)]
        return unpack(self.ledger.get_blob(record.blob))

    def resolve(self, skill: str, prefix: str) -> str:
        """Return the one version of a skill that starts with a prefix.

        Raises:
            SkillError: None or several do.
        """
        self.state.skill(skill)
        known = [version for (name, version) in self.state.versions if name == skill]
        found = [version for version in known if version.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        shorts = ", ".join(version[:10] for version in found or known)
        what = "several versions" if found else "no version"
        raise SkillError(f"{skill}: {what} starting with {prefix!r}; use one of {shorts}")

    def served(self) -> dict[str, Package]:
        """Return the served packages by name."""
        return {name: self.package(name) for name in self.state.served}

    def sync(self) -> tuple[str, ...]:
        """Bring ledger and folder in step; return a line for each thing that was done.

        Unfinished folder writes are finished, hand edits become versions, new folders are
        imported. A served skill whose folder is gone is named, not touched.
        """
        notes: list[str] = []
        for name, record in sorted(self.state.skills.items()):
            if not record.written and self._holds_known_bytes(name):
                self._write_folder(name)
                notes.append(f"{name}: finished a folder write that had been interrupted")
        present = {package.name: package for package in self.library.read_all()}
        names = set(self.state.skills)
        new = [present[name] for name in sorted(present) if name not in names]
        for package in new:
            self.take_in(package)
        if new:
            notes.append(f"imported {len(new)} skills: {', '.join(p.name for p in new)}")
        for name, package in sorted(present.items()):
            known = self.state.skill(name)
            if not known.served or known.current != package.version:
                self.take_in(package)
                notes.append(f"{name}: hand edit taken in as version {package.short}")
        for name in self.state.served:
            if name not in present:
                notes.append(
                    f"{name}: its folder is gone; `skillforge restore {name}` brings it back"
                )
        self.keep_checkpoint()
        return tuple(notes)

    def take_in(self, package: Package, *, origin: Mapping[str, Any] | None = None) -> None:
        """Record a package of the folder as the current version of its skill, unmeasured."""
        blob = pack(package)
        digest = self.ledger.put_blob(blob)
        data = {"skill": package.name, "version": package.version, "blob": digest}
        self.ledger.append(
            [NewEvent(kind="skill.imported", data=data | {"origin": dict(origin or {})})]
        )

    def adopt(self, skill: str, version: str, *, run: str, candidate: str, evidence: str) -> bool:
        """Serve another version of a skill, if the folder still holds the current one.

        Returns:
            False if the folder was edited by hand in between: the edit is taken in as a version
            of its own and nothing is overwritten.
        """
        record = self.state.skill(skill)
        on_disk = self.library.read(skill)
        if on_disk is None or on_disk.version != record.current:
            if on_disk is not None:
                self.take_in(on_disk)
            return False
        data = {
            "skill": skill,
            "version": version,
            "parent": record.current,
            "candidate": candidate,
            "evidence": evidence,
        }
        self.ledger.append([NewEvent(kind="version.adopted", data=data, run=run)])
        self._write_folder(skill)
        return True

    def roll_back(self, skill: str, *, to: str | None = None, reason: str, run: str = "") -> str:
        """Serve an earlier version again, its parent by default; return that version.

        Raises:
            SkillError: There is no such version, or the current one has no parent.
        """
        record = self.state.skill(skill)
        current = self.state.versions[skill, record.current]
        if to is None and not current.parent:
            raise SkillError(
                f"{skill}: version {record.current[:10]} has no parent to roll back to; "
                f"`skillforge history {skill}` shows the versions"
            )
        target = self.resolve(skill, to if to is not None else current.parent)
        if target == record.current:
            raise SkillError(f"{skill}: version {target[:10]} is already the one that is served")
        self._guard_hand_edit(skill, record)
        data = {"skill": skill, "from": record.current, "version": target, "reason": reason}
        self.ledger.append([NewEvent(kind="version.rolled_back", data=data, run=run)])
        self._write_folder(skill)
        return target

    def retire(self, skill: str, *, evidence: Mapping[str, Any], reason: str, run: str = "") -> str:
        """Stop serving a skill; the whole package stays in the ledger. Returns its version.

        Raises:
            SkillError: There is no such skill, or it is retired already.
        """
        record = self.state.skill(skill)
        if not record.served:
            raise SkillError(f"{skill} is retired already; `skillforge restore {skill}` undoes it")
        self._guard_hand_edit(skill, record)
        data = {
            "skill": skill,
            "version": record.current,
            "evidence": dict(evidence),
            "reason": reason,
        }
        self.ledger.append([NewEvent(kind="skill.retired", data=data, run=run)])
        self._write_folder(skill)
        return record.current

    def restore(self, skill: str, *, run: str = "") -> str:
        """Serve a retired or missing skill again, byte for byte. Returns its version.

        Raises:
            SkillError: There is no such skill, or nothing to restore.
        """
        record = self.state.skill(skill)
        if record.served and self.library.read(skill) is not None:
            raise SkillError(f"{skill} is served; there is nothing to restore")
        data = {"skill": skill, "version": record.current}
        self.ledger.append([NewEvent(kind="skill.restored", data=data, run=run)])
        self._write_folder(skill)
        return record.current

    def _holds_known_bytes(self, skill: str) -> bool:
        """Whether replacing the folder loses nothing: it is absent, or a version of the ledger."""
        on_disk = self.library.read(skill)
        return on_disk is None or (skill, on_disk.version) in self.state.versions

    def _guard_hand_edit(self, skill: str, record: SkillRecord) -> None:
        """Keep what the user wrote since the last command before the folder is replaced."""
        on_disk = self.library.read(skill)
        if on_disk is not None and on_disk.version != record.current:
            self.take_in(on_disk)
            raise SkillError(
                f"{skill}: its folder was edited by hand; the edit is kept as version "
                f"{on_disk.short}: look at it with `skillforge history {skill}`, then repeat"
            )

    def _write_folder(self, skill: str) -> None:
        record = self.state.skill(skill)
        if record.served:
            self.library.write(self.package(skill))
        elif self.library.read(skill) is not None:  # a crash may have come after the removal
            self.library.remove(skill)
        data = {"skill": skill, "version": record.current}
        self.ledger.append([NewEvent(kind="folder.written", data=data)])


def require_served(state: LibraryState, skill: str) -> SkillRecord:
    """Return a served skill.

    Raises:
        SkillError: The library is empty, the name is unknown, or the skill is retired.
    """
    if not state.skills:
        raise SkillError(
            "the library is empty: put SKILL.md packages into the folder that [library] path "
            "names, or run `skillforge import FOLDER`"
        )
    record = state.skills.get(skill)
    if record is None:
        raise SkillError(f"no skill named {skill!r} in the library; {suggest(skill, state.skills)}")
    if not record.served:
        raise SkillError(f"{skill} is retired; `skillforge restore {skill}` serves it again")
    return record
