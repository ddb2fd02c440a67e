"""A small planted world: a worker whose success on a task depends, in a known way, on the skill.

`PlantedWorker` implements the Worker port. Each line ``effect: NAME +0.30`` in a skill's body adds
that much to the chance of solving a task, ``base`` is the chance without any; ``clash: NAME -0.50``
counts once if two skills that are shown hold it. Draws are a hash of
(seed, task, replicate text), so the same rollout gives the same result and arms are coupled by
nothing but the task.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.files import FolderLibrary
from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.chat import Cost
from skillforge.core.digest import json_digest
from skillforge.core.package import Package, PackageFile
from skillforge.core.rollout import Attempt, Failure, FailureKind
from skillforge.core.task import Split, Suite, Task, VerifierSpec, WorkerSpec
from skillforge.workflows.curate import Curator
from skillforge.workflows.meter import Meter
from skillforge.workflows.spend import Caps
from skillforge.workflows.trial import Bench

EFFECT = re.compile(r"effect: \S+ ([+-]?\d*\.?\d+)")
CLASH = re.compile(r"clash: (\S+) ([+-]?\d*\.?\d+)")


@dataclass(slots=True)
class PlantedWorker:
    """Solves a task with a chance that the skills shown decide."""

    base: float = 0.3
    examples: float = 0.0
    """What worked examples (``Assistant:`` lines) add to the chance."""
    crowd: float = 0.0
    """What a second skill with worked examples adds."""
    broken: frozenset[str] = frozenset()
    """Tasks whose attempts fail for infrastructure reasons."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(task id, digest of what was shown) of every attempt, in order."""

    @property
    def fingerprint(self) -> str:
        """Identity of the world."""
        return json_digest(["planted", self.base, self.examples, *filter(None, [self.crowd])])

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """Return what an attempt uses at most."""
        return Cost(0.0, sum(len(skill.body) for skill in skills) + len(task.input))

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Solve the task or not."""
        shown = "\n".join(skill.body for skill in skills)
        self.calls.append((task.id, json_digest([skill.version for skill in skills])))
        if task.id in self.broken:
            failure = Failure(kind=FailureKind.INFRA, message="no route", where="model")
            return Attempt(output="", failure=failure)
        chance = self.base + sum(map(float, EFFECT.findall(shown)))
        clashes = CLASH.findall(shown)
        chance += sum(float(size) for name, size in set(clashes) if clashes.count((name, size)) > 1)
        with_examples = sum("Assistant:" in skill.body for skill in skills)
        chance += self.examples * (with_examples > 0) + self.crowd * (with_examples > 1)
        draw = int(json_digest([seed, task.id])[:8], 16) / 0xFFFFFFFF
        good = draw < chance
        answer = task.expected or "" if good else "wrong"
        return Attempt(output=answer, prompt_tokens=len(shown) // 4)


class TickingClock:
    """Advances by a millisecond whenever it is read."""

    def __init__(self) -> None:
        """Start at zero."""
        self._now = 0.0

    def now(self) -> float:
        """Seconds since the start."""
        self._now += 0.001
        return self._now


class LetterEmbedder:
    """Embeds a text by its words, hashed: near texts share words. Deterministic and small."""

    fingerprint = "letters-1"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return one unit row per text."""
        rows = np.full((len(texts), 64), 1e-3, dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                row[int(json_digest(word)[:4], 16) % 64] += 1
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class DotIndex:
    """Exact inner products with numpy."""

    def __init__(self, vectors: np.ndarray) -> None:
        """Keep the rows."""
        self.vectors = vectors

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the best rows of each query."""
        scores = np.round(queries.astype(float) @ self.vectors.T.astype(float), 9)  # ties stay ties
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, order, axis=1), order


def skill(name: str, body: str, description: str = "Does a thing for a test.") -> Package:
    """Return a package with one file."""
    text = f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n"
    return Package(name=name, files={"SKILL.md": PackageFile(data=text.encode())})


def suite(skills: Sequence[str], *, confirm: int = 120, families: int = 3) -> Suite:
    """Return a suite with propose, screen, confirm and sealed tasks for each skill."""
    sizes = {Split.PROPOSE: 16, Split.SCREEN: 24, Split.CONFIRM: confirm, Split.SEALED: 8}
    tasks = [
        Task(
            id=f"{name}/{split.value}/{i}",
            family=f"{name}/{split.value}-{i % families}",
            input=f"{name} {split.value} question number {i}",
            expected=f"answer-{i}",
            skill=name,
            split=split,
            verifier=VerifierSpec(kind="exact", options={"strip": True}),
        )
        for name in skills
        for split, size in sizes.items()
        for i in range(size)
    ]
    return Suite(
        name="planted",
        version="1",
        license="Apache-2.0",
        source="made by the tests",
        tasks=tuple(tasks),
        worker=WorkerSpec(),
        digest=json_digest([t.digest for t in tasks]),
    )


@dataclass(slots=True, kw_only=True)
class World:
    """A library on disk with its ledger, ready to run."""

    root: Path
    ledger: SqliteLedger
    library: FolderLibrary
    curator: Curator

    def bench(
        self, worker: PlantedWorker, *, run: str = "run-1", seed: int = 0, caps: Caps | None = None
    ) -> Bench:
        """Return a bench for one run."""
        meter = Meter(caps=caps or Caps(), clock=TickingClock())
        meter.start()
        return Bench(
            ledger=self.ledger,
            worker=worker,
            executor=AsyncioExecutor(4),
            meter=meter,
            run=run,
            seed=seed,
        )


def make_world(root: Path, packages: Sequence[Package]) -> World:
    """Write packages into a library folder and open it."""
    (root / "skills").mkdir(parents=True)
    library = FolderLibrary(root / "skills")
    for package in packages:
        library.write(package)
    ledger = SqliteLedger(root / ".skillforge" / "ledger.db")
    curator = Curator(ledger=ledger, library=library)
    curator.sync()
    return World(root=root, ledger=ledger, library=library, curator=curator)
