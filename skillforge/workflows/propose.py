"""Proposers: what might make a skill better, each as one typed edit with the evidence it cites.

`examples` shows worked examples from the propose split, `prune` leaves out units whose frozen audit
says they are worth nothing or do harm; `propose_llm` lets a model fill in a typed edit.
Doing nothing is a legal proposal, and nothing here decides anything: that is the gate's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skillforge.core.anchors import units_digest
from skillforge.core.edits import Edit
from skillforge.core.package import Package
from skillforge.core.pointers import orphans
from skillforge.core.rollout import Rollout
from skillforge.core.task import Task
from skillforge.core.units import Unit, find_unit, leave_out, removable
from skillforge.core.verify import verify

EXAMPLES_PER_EDIT = 4
"""A 135M model follows four examples; more lengthen every prompt of both arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A piece of evidence that an edit rests on; the verifier must confirm it."""

    task: str
    claim: str
    """``reference``: the reference answer passes; ``fail`` or ``pass``: the stored output does."""
    output: str = ""
    """The output cited, for ``fail`` and ``pass``."""

    def to_json(self) -> dict[str, str]:
        """Return the citation as a JSON object."""
        return {"task": self.task, "claim": self.claim, "output": self.output}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One edit, who proposes it and on what evidence."""

    proposer: str
    edit: Edit
    citations: tuple[Citation, ...] = ()
    again: str = ""
    """Candidate that was this edit of another base version; "" for a proposal of its own."""

    def to_json(self) -> dict[str, Any]:
        """Return the proposal as a JSON object."""
        data = {
            "proposer": self.proposer,
            "edit": self.edit.to_json(),
            "citations": [c.to_json() for c in self.citations],
        }
        return data | ({"again": self.again} if self.again else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Proposal:
        """Read a proposal back."""
        return cls(
            proposer=data["proposer"],
            edit=Edit.from_json(data["edit"]),
            citations=tuple(Citation(**c) for c in data["citations"]),
            again=data.get("again", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """A propose task, how the base skill did on it, and what it answered."""

    task: Task
    rollout: Rollout
    output: str

    @property
    def passed(self) -> bool:
        """Whether the base skill passed the task."""
        return self.rollout.score is not None and self.rollout.score >= 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitUtility:
    """What leaving one unit out costs, on the anchor tasks."""

    unit: Unit
    utility: float
    """Mean score with the unit minus without it, in [-1, 1]; below zero it does harm."""
    interval: tuple[float, float] | None
    """95 % confidence sequence; None below two pairs."""
    pairs: int

    def to_json(self) -> dict[str, Any]:
        """Return the row under the names that the commands print."""
        return {
            "id": self.unit.id,
            "kind": self.unit.kind,
            "utility": self.utility,
            "interval": None if self.interval is None else list(self.interval),
            "pairs": self.pairs,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a proposer may see: the skill, the propose split, and the frozen audit."""

    package: Package
    attempts: tuple[Attempted, ...]
    audit: tuple[UnitUtility, ...] = ()
    informative: bool = True
    """Whether the audit can tell anything: not where the skill fails every anchor throughout."""
    seed: int = field(default=0)

    @property
    def failures(self) -> tuple[Attempted, ...]:
        """Propose tasks that the base skill failed."""
        return tuple(a for a in self.attempts if not a.passed)


def no_change(proposer: str, why: str) -> Proposal:
    """Propose to leave the skill as it is."""
    return Proposal(proposer=proposer, edit=Edit(op="NOOP", summary=why))


def propose_examples(brief: Brief) -> list[Proposal]:
    """Propose to add worked examples: failed tasks first, with their reference answers.

    Examples are spread over the families of the propose split, and written as ``User:`` and
    ``Assistant:`` lines, which small models follow where they ignore rules.
    """
    usable = [a for a in brief.attempts if a.task.expected]
    if not brief.failures:
        return [no_change("examples", "the skill passes every propose task")]
    rng = np.random.default_rng([brief.seed, 1])
    shuffled = [usable[i] for i in rng.permutation(len(usable))]
    chosen = _spread(sorted(shuffled, key=lambda a: a.passed), EXAMPLES_PER_EDIT)
    if not chosen:
        return [no_change("examples", "no propose task has a reference answer to show")]
    families = len({a.task.family for a in chosen})
    lines = ["## Worked examples"]
    lines += [f"User: {a.task.input}\nAssistant: {a.task.expected}" for a in chosen]
    edit = Edit(
        op="CREATE",
        content="\n\n".join(lines),
        summary=f"{len(chosen)} worked examples from {families} families",
    )
    citations = [Citation(task=a.task.id, claim="reference") for a in chosen]
    citations += [
        Citation(task=a.task.id, claim="fail", output=a.output) for a in chosen if not a.passed
    ]
    return [Proposal(proposer="examples", edit=edit, citations=tuple(citations))]


def _spread(attempts: Sequence[Attempted], count: int) -> list[Attempted]:
    """Take attempts family by family in turn, keeping their order within a family."""
    families: dict[str, list[Attempted]] = {}
    for attempt in attempts:
        families.setdefault(attempt.task.family, []).append(attempt)
    chosen: list[Attempted] = []
    while len(chosen) < min(count, len(attempts)):
        for queue in families.values():
            if queue and len(chosen) < count:
                chosen.append(queue.pop(0))
    return chosen


def propose_prune(brief: Brief, *, limit: int = 2) -> list[Proposal]:
    """Propose to leave out the units that the audit found worthless, most harmful first.

    Source of the order: SkillProx (frozen leave-one-out utility, most negative first).
    """
    if not brief.informative:
        return []
    worthless = [u for u in brief.audit if u.pairs and u.utility <= 0]
    worthless.sort(key=lambda u: (u.utility, -(u.unit.end - u.unit.start)))
    return [Proposal(proposer="prune", edit=_without(brief.package, u)) for u in worthless[:limit]]


def _without(package: Package, worthless: UnitUtility) -> Edit:
    """Return the edit that leaves a unit out, with the files that nothing else points to."""
    unit = worthless.unit
    left = orphans(package, leave_out(package, unit.id))
    gone = removable([find_unit(package, f"file:{path}") for path in left])
    found = f"utility {worthless.utility:+.2f} on {worthless.pairs} anchors"
    return Edit(
        op="PRUNE",
        unit=None if gone else unit.id,
        units=(unit.id, *(u.id for u in gone)) if gone else (),
        expected_digest=units_digest(package, [unit, *gone]),
        summary=f"leave out {unit.id}: {found}",
    )


def warranted(proposal: Proposal, tasks: Mapping[str, Task]) -> str | None:
    """Re-run the verifier on the evidence an edit cites; return what is wrong with it, if anything.

    Source: warrant-aware acceptance (Counterfactual Fabrication Lab): edits resting on evidence
    that the oracle does not confirm are refused before they cost a rollout.
    """
    for citation in proposal.citations:
        task = tasks.get(citation.task)
        if task is None:
            return f"it cites task {citation.task}, which is not in the propose split"
        answer = task.expected or "" if citation.claim == "reference" else citation.output
        passed = verify(task.verifier, task.expected, answer) >= 0.5
        if passed != (citation.claim != "fail"):
            word = "passes" if passed else "fails"
            return f"it claims {citation.claim} on task {citation.task}, but the answer {word}"
    return None
