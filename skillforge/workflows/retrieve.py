"""Which skills a task gets: dense retrieval over the served library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skillforge.core.clusters import cluster, near_duplicates
from skillforge.core.digest import json_digest
from skillforge.core.package import Package
from skillforge.core.task import Task
from skillforge.ports import Embedder, VectorIndex

BODY_CHARACTERS = 400
"""How much of a body is embedded with name and description; the model reads 256 word pieces."""


def index_text(package: Package) -> str:
    """Return the text under which a skill is found: name, description, start of the body.

    The body is part of it because leaving it out costs 29–44 points of Hit@1 (SkillRouter 2026,
    arXiv:2603.22455).
    """
    return f"{package.name}. {package.description}\n{package.body[:BODY_CHARACTERS]}"


@dataclass(frozen=True, slots=True)
class KeptEmbedder:
    """An embedder that keeps the rows of the texts it saw last.

    The same tasks are looked up in one library after another, with an edit and without.
    """

    embedder: Embedder
    most: int = 20_000
    """Texts kept; 30 MB at 384 dimensions."""
    _rows: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    @property
    def fingerprint(self) -> str:
        """Identity of the embedder underneath."""
        return self.embedder.fingerprint

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text in their order; only texts that are not kept are computed."""
        new = list(dict.fromkeys(text for text in texts if text not in self._rows))
        if new or not texts:
            rows = self.embedder.encode(new)
            self._rows.update(zip(new, rows, strict=True))
        found = np.stack([self._rows[text] for text in texts]) if texts else rows
        for text in list(self._rows)[: max(0, len(self._rows) - self.most)]:
            del self._rows[text]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One skill found."""

    skill: str
    version: str
    score: float
    """Cosine similarity in [-1, 1]."""


Shown = dict[str, tuple[Package, ...]]
"""What each task gets, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retriever:
    """A served library with its vectors and index."""

    packages: Mapping[str, Package]
    embedder: Embedder
    names: tuple[str, ...]
    """Row order of the vectors."""
    vectors: NDArray[np.float32] = field(repr=False)
    index: VectorIndex = field(repr=False)

    def search(self, query: str, k: int, *, without: frozenset[str] = frozenset()) -> list[Hit]:
        """Return the best ``k`` skills for a query, leaving some skills out."""
        return self.search_many([query], k, without=without)[0]

    def search_many(
        self, queries: Sequence[str], k: int, *, without: frozenset[str] = frozenset()
    ) -> list[list[Hit]]:
        """Return the best ``k`` skills for each query."""
        if not self.names or not queries or k < 1:
            return [[] for _ in queries]
        return self._nearest(self.embedder.encode(queries), k, without)

    def show(self, tasks: Sequence[Task], k: int) -> Shown:
        """Return the best ``k`` skills for each task, as it gets them."""
        found = self.search_many([task.input for task in tasks], k)
        return {
            task.id: tuple(self.packages[hit.skill] for hit in hits)
            for task, hits in zip(tasks, found, strict=True)
        }

    def neighbours(self, skill: str, count: int) -> list[Hit]:
        """Return the ``count`` skills that are nearest to one of the library."""
        if count < 1:
            return []
        row = self.names.index(skill)
        return self._nearest(self.vectors[row : row + 1], count, frozenset({skill}))[0]

    def _nearest(
        self, vectors: NDArray[np.float32], k: int, without: frozenset[str]
    ) -> list[list[Hit]]:
        found, rows = self.index.search(vectors, k + len(without))
        results = []
        for row_scores, row_numbers in zip(found, rows, strict=True):
            hits = [
                Hit(skill=name, version=self.packages[name].version, score=float(score))
                for score, number in zip(row_scores, row_numbers, strict=True)
                if number >= 0 and (name := self.names[int(number)]) not in without
            ]
            results.append(hits[:k])
        return results

    def clusters(self, threshold: float) -> tuple[tuple[str, ...], ...]:
        """Return groups of skills whose texts are close."""
        return cluster(self.vectors, self.names, threshold)

    def duplicates(self, threshold: float) -> tuple[tuple[str, str, float], ...]:
        """Return pairs of skills with a cosine of at least ``threshold``."""
        return near_duplicates(self.vectors, self.names, threshold)


def corpus_digest(packages: Mapping[str, Package], embedder: Embedder) -> str:
    """Identify an index by the texts it was built from and the model that embedded them."""
    texts = {name: index_text(package) for name, package in packages.items()}
    return json_digest([embedder.fingerprint, texts])


def build_retriever(
    packages: Mapping[str, Package],
    embedder: Embedder,
    make_index: Callable[[NDArray[np.float32]], VectorIndex],
) -> Retriever:
    """Embed every served skill and index the vectors."""
    names = tuple(sorted(packages))
    texts = [index_text(packages[name]) for name in names]
    vectors = embedder.encode(texts) if names else np.zeros((0, 1), dtype=np.float32)
    return Retriever(
        packages=packages,
        embedder=embedder,
        names=names,
        vectors=vectors,
        index=make_index(vectors),
    )
