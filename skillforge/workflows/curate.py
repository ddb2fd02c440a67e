"""The life of skills in the library: take in, stage, adopt, roll back, retire, restore.

The ledger is the truth and the user's folder follows: the folder's next state is laid out beside
it, the change is recorded, then the folder is swapped. Opening the library ends a folder write that
a crash cut off, and takes a hand edit in as a version of its own: nothing the user wrote is ever
overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from skillforge.core.checkpoint import read_state, write_state
from skillforge.core.digest import sha256
from skillforge.core.events import Event, NewEvent
from skillforge.core.library import LibraryState, SkillRecord, Staged, require_served
from skillforge.core.library_fold import FOLDED, fold
from skillforge.core.moments import end_of_moment
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

    def state_at(self, date: str) -> LibraryState | None:
        """Return the library as it stood at the end of a day or moment; None for no date."""
        end = end_of_moment(date)
        if end is None:
            return None
        return fold(takewhile(lambda e: e.at < end, self.ledger.events(kinds=FOLDED)))

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
            version: As `resolve` takes it.

        Raises:
            SkillError: No such skill or version, or an ambiguous prefix.
            LedgerError: Its files were erased from the ledger.
        """
        wanted = self.state.skill(skill).current if version is None else version
        record = self.state.versions[skill, self.resolve(skill, wanted)]
        return unpack(self.ledger.get_blob(record.blob), self.ledger.get_blob)

    def resolve(self, skill: str, version: str) -> str:
        """Return the one version of a skill that is meant.

        Args:
            skill: Name of the skill.
            version: The full version, an unambiguous prefix of it, or a date
                (`skillforge.core.moments`): the version that was current at its end, in UTC.

        Raises:
            SkillError: There is none, or a prefix fits several.
        """
        self.state.skill(skill)
        then = self.state_at(version)
        if then is not None:
            if skill not in then.skills:
                raise SkillError(
                    f"{skill}: the library did not have it yet on {version}; "
                    f"`skillforge history {skill}` shows since when"
                )
            return then.skills[skill].current
        known = [found for (name, found) in self.state.versions if name == skill]
        return _only(skill, version, known)

    def served(self) -> dict[str, Package]:
        """Return the served packages by name."""
        return {name: self.package(name) for name in self.state.served}

    def sync(self, *, finish: bool = True) -> tuple[str, ...]:
        """Bring ledger and folder in step; return a line for each thing that was done.

        Folder writes are finished where asked to, hand edits become versions, new folders are
        imported. A served skill whose folder is gone is named, not touched.
        """
        notes, unfinished = self._finish_writes() if finish else ([], self._unwritten)
        present, known = self.library.versions(), self.state.skills
        current = {name: record.current for name, record in known.items() if record.served}
        changed = [name for name, version in present.items() if current.get(name) != version]
        read = (self.library.read(name) for name in changed if name not in unfinished)
        found = [package for package in read if package is not None]
        taken = [package for package in found if current.get(package.name) != package.version]
        for package in taken:
            self.take_in(package)
        new = [package.name for package in taken if package.name not in known]
        if new:
            notes.append(f"imported {len(new)} skills: {', '.join(new)}")
        for package in taken:
            if package.name in known:
                notes.append(f"{package.name}: hand edit taken in as version {package.short}")
        passed_over = self.library.passed_over
        notes += [f"{name}: {why}" for name, why in sorted(passed_over.items())]
        for name in sorted(current.keys() - present.keys() - unfinished - passed_over.keys()):
            notes.append(f"{name}: its folder is gone; `skillforge restore {name}` brings it back")
        self.keep_checkpoint()
        return tuple(notes)

    @property
    def _unwritten(self) -> set[str]:
        """Skills whose folder is still to be written."""
        return {name for name, record in self.state.skills.items() if not record.written}

    def _finish_writes(self) -> tuple[list[str], set[str]]:
        """Finish folder writes that a crash cut off; return notes, and what the disk refused."""
        notes, unfinished = [], set()
        for name in sorted(self._unwritten):
            if self._holds_known_bytes(name):
                try:
                    self._write_folder(name)
                    notes.append(f"{name}: finished a folder write that had been interrupted")
                except SkillError as error:
                    unfinished.add(name)
                    notes.append(f"{name}: a folder write is still unfinished: {error}")
        return notes, unfinished

    def take_in(
        self, package: Package, *, origin: Mapping[str, Any] | None = None, written: bool = True
    ) -> None:
        """Record a package as the current version of its skill, unmeasured.

        Args:
            package: What is served from now on.
            origin: Where it comes from, if not from the folder.
            written: Whether the folder holds it already.
        """
        blobs = pack(package)
        data = {"skill": package.name, "version": package.version, "blob": sha256(blobs[0])}
        source = {"origin": dict(origin or {}), "written": written}
        event = NewEvent(kind="skill.imported", data=data | source)
        self.ledger.record([event], blobs=blobs)

    def bring_in(self, package: Package, origin: Mapping[str, Any]) -> None:
        """Serve a package from outside the folder, unmeasured.

        Raises:
            SkillError: The folder holds something else under that name, or the disk refused.
        """

        def record() -> None:
            if self.library.read(package.name) not in (None, package):
                raise SkillError(f"{package.name}: the library's folder holds another skill by now")
            self.take_in(package, origin=origin, written=False)

        self.library.write(package, ready=record)
        self._written(package.name)

    def stage(
        self, skill: str, version: str, *, base: str, run: str, candidate: str, evidence: str
    ) -> None:
        """Put a version forward to take the place of the one it was decided against.

        The folder is not touched. A run stages a candidate once: what was adopted since, and
        perhaps undone, does not come back because the run goes on after a crash.
        """
        known = self.ledger.events(kinds=("version.staged",), run=run)
        if not any(event.data["candidate"] == candidate for event in known):
            data = {"skill": skill, "version": version, "base": base}
            data |= {"candidate": candidate, "evidence": evidence}
            self.ledger.append([NewEvent(kind="version.staged", data=data, run=run)])

    def adopt(self, skill: str, version: str | None = None, *, run: str = "") -> str:
        """Serve a staged version, if the folder holds the one it was decided against.

        Args:
            skill: Name of the skill.
            version: A staged version or a prefix of it, or a date: the newest of those that were
                staged by its end. None means the newest.
            run: The run that asks for it, if one does.

        Returns:
            The version adopted.

        Raises:
            SkillError: Nothing is staged, another version is served by now, the folder was edited
                by hand (the edit is then taken in) or is gone, or the disk refused. What was
                staged stays so.
        """
        record = require_served(self.state, skill)
        chosen = self._find_staged(skill, version)
        self._guard_hand_edit(skill, record)
        if chosen.base != record.current:
            base, current, new = chosen.base[:10], record.current[:10], chosen.version[:10]
            raise SkillError(
                f"{skill}: {new} was decided against {base}, but {current} is served by now, and "
                f"nothing says that {new} is better than that; compare them with `skillforge diff "
                f"{skill} {current} {new}`; to have {new} all the same, `skillforge rollback "
                f"{skill} --to {base}` first ({current} is kept), then adopt"
            )
        if self.library.read(skill) is None:
            raise SkillError(
                f"{skill}: its folder is gone; `skillforge restore {skill}` first, then adopt"
            )
        data = {"skill": skill, "version": chosen.version, "parent": chosen.base}
        data |= {"candidate": chosen.candidate, "evidence": chosen.evidence}
        self._change("version.adopted", data, run=run)
        return chosen.version

    def withdraw(self, skill: str, version: str, *, reason: str, run: str = "") -> None:
        """Take back a version that is staged, on evidence that speaks against it."""
        data = {"skill": skill, "version": version, "reason": reason}
        self.ledger.append([NewEvent(kind="version.withdrawn", data=data, run=run)])

    def _find_staged(self, skill: str, version: str | None) -> Staged:
        waiting = self.state.staged.get(skill, ())
        then = None if version is None else self.state_at(version)
        if then is not None:
            early = {s.version for s in then.staged.get(skill, ())}
            waiting = tuple(s for s in waiting if s.version in early)
        if not waiting:
            when = "" if then is None else f" from {version} or before"
            raise SkillError(
                f"{skill}: nothing is staged{when}; `skillforge list` shows what is, `skillforge "
                "rollback --to VERSION` serves a version that was served before"
            )
        if version is None or then is not None:
            return waiting[-1]
        wanted = _only(skill, version, [s.version for s in waiting], "staged version")
        return next(s for s in waiting if s.version == wanted)

    def roll_back(self, skill: str, *, to: str | None = None, reason: str, run: str = "") -> str:
        """Serve an earlier version again, its parent by default; return that version.

        Args:
            skill: Name of the skill.
            to: The version, as `resolve` takes it.
            reason: Why, for the history.
            run: The run that asks for it, if one does.

        Raises:
            SkillError: There is no such version, the current one has no parent, the folder was
                edited by hand, or the disk refused.
        """
        record = require_served(self.state, skill)
        current = self.state.current(skill)
        if to is None and not current.parent:
            raise SkillError(
                f"{skill}: version {record.current[:10]} has no parent to roll back to; "
                f"`skillforge history {skill}` shows the versions"
            )
        target = self.resolve(skill, to if to is not None else current.parent)
        if target == record.current:
            raise SkillError(f"{skill}: version {target[:10]} is already the one that is served")
        data = {"skill": skill, "from": record.current, "version": target, "reason": reason}
        self._change("version.rolled_back", data, run=run)
        return target

    def retire(self, skill: str, *, evidence: Mapping[str, Any], reason: str, run: str = "") -> str:
        """Stop serving a skill; the whole package stays in the ledger. Returns its version.

        Raises:
            SkillError: There is no such skill, it is retired already, its folder was edited by
                hand, or the disk refused.
        """
        record = self.state.skill(skill)
        if not record.served:
            raise SkillError(f"{skill} is retired already; `skillforge restore {skill}` undoes it")
        data = {
            "skill": skill,
            "version": record.current,
            "evidence": dict(evidence),
            "reason": reason,
        }
        self._change("skill.retired", data, run=run, remove=True)
        return record.current

    def restore(self, skill: str, version: str | None = None, *, run: str = "") -> str:
        """Serve a retired or missing skill again, byte for byte. Returns its version.

        Args:
            skill: Name of the skill.
            version: As `resolve` takes it; the one that was served last by default.
            run: The run that asks for it, if one does.

        Raises:
            SkillError: There is no such skill or version, nothing to restore, or the disk refused.
        """
        record = self.state.skill(skill)
        if record.served and self.library.read(skill) is not None:
            raise SkillError(
                f"{skill} is served; there is nothing to restore: `skillforge rollback {skill} "
                "--to VERSION` serves another version"
            )
        target = record.current if version is None else self.resolve(skill, version)
        self._change("skill.restored", {"skill": skill, "version": target}, run=run)
        return target

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

    def _change(
        self, kind: str, data: Mapping[str, Any], *, run: str, remove: bool = False
    ) -> None:
        """Record what is served from now on, and make the folder follow.

        It is recorded once all is laid out on the disk: one that is full or read-only ends the
        change before it has begun. A hand edit made meanwhile ends it too.
        """
        skill = data["skill"]
        before = self.state.skill(skill)
        self._guard_hand_edit(skill, before)

        def record() -> None:
            self._guard_hand_edit(skill, before)
            self.ledger.append([NewEvent(kind=kind, data=data, run=run)])

        if not remove:
            self.library.write(self.package(skill, data["version"]), ready=record)
        elif self.library.read(skill) is not None:
            self.library.remove(skill, ready=record)
        else:
            record()
        self._written(skill)

    def _write_folder(self, skill: str) -> None:
        """Make the folder hold what the ledger says."""
        record, on_disk = self.state.skill(skill), self.library.read(skill)
        if record.served and (on_disk is None or on_disk.version != record.current):
            self.library.write(self.package(skill))
        elif not record.served and on_disk is not None:
            self.library.remove(skill)
        self._written(skill)

    def _written(self, skill: str) -> None:
        data = {"skill": skill, "version": self.state.skill(skill).current}
        self.ledger.append([NewEvent(kind="folder.written", data=data)])


def _only(skill: str, prefix: str, known: Sequence[str], what: str = "version") -> str:
    """Return the one version that starts with a prefix.

    Raises:
        SkillError: None or several do.
    """
    found = [version for version in known if version.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    shorts = ", ".join(version[:10] for version in found or known)
    count = f"several {what}s" if found else f"no {what}"
    raise SkillError(f"{skill}: {count} starting with {prefix!r}; use one of {shorts}, or a date")
