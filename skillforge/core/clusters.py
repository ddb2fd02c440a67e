"""Which skills lie close together, and how to merge several rankings into one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

ROWS_AT_A_TIME = 1024
"""Rows compared at once, so that memory grows with n and not with its square."""


def near_duplicates(
    vectors: NDArray[np.float32], ids: Sequence[str], threshold: float = 0.85
) -> tuple[tuple[str, str, float], ...]:
    """Return the pairs whose cosine is at least ``threshold``, closest first.

    Each pair stands once, its smaller id first; ties are ordered by id. Time O(n²·dim).

    Args:
        vectors: Shape (n, dim), rows of length 1.
        ids: One distinct id per row.
        threshold: Least cosine similarity, in [-1, 1].

    Raises:
        ValueError: Shapes, ids or threshold do not fit.

    >>> near_duplicates(np.eye(2, dtype=np.float32)[[0, 0, 1]], ["a", "b", "c"])
    (('a', 'b', 1.0),)
    """
    _check(vectors, ids, threshold)
    pairs: list[tuple[str, str, float]] = []
    for start in range(0, len(ids), ROWS_AT_A_TIME):
        cosines = _cosines(vectors[start : start + ROWS_AT_A_TIME], vectors[start:])
        for row, column in np.argwhere(np.triu(cosines >= threshold, k=1)):
            first, second = sorted((ids[start + row], ids[start + column]))
            pairs.append((first, second, float(cosines[row, column])))
    return tuple(sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1])))


def cluster(
    vectors: NDArray[np.float32], ids: Sequence[str], threshold: float
) -> tuple[tuple[str, ...], ...]:
    """Return a partition of the ids into groups whose members are alike on average.

    Agglomerative, average linkage on cosine distance: two groups are joined while the mean cosine
    between their members is at least ``threshold``. The order of the rows does not matter. Every
    id stands in exactly one group, alone if need be; groups come largest first, then by id. Time
    and memory O(n²).

    Args:
        vectors: Shape (n, dim), rows of length 1.
        ids: One distinct id per row.
        threshold: Least mean cosine similarity, in [-1, 1].

    Raises:
        ValueError: Shapes, ids or threshold do not fit.

    >>> cluster(np.eye(2, dtype=np.float32)[[0, 1, 0]], ["a", "b", "c"], 0.8)
    (('a', 'c'), ('b',))
    """
    _check(vectors, ids, threshold)
    order = sorted(range(len(ids)), key=lambda row: ids[row])
    names = [ids[row] for row in order]
    if len(names) < 2:
        return tuple((name,) for name in names)
    rows = vectors[order]
    upper = np.triu_indices(len(names), k=1)
    distances = np.round(1.0 - _cosines(rows, rows)[upper], 6)  # float noise must not split ties
    tree = linkage(np.maximum(distances, 0.0), method="average")
    labels = fcluster(tree, t=1.0 - threshold + 1e-6, criterion="distance")
    groups: dict[int, list[str]] = {}
    for name, label in zip(names, labels.tolist(), strict=True):
        groups.setdefault(label, []).append(name)
    return tuple(sorted((tuple(g) for g in groups.values()), key=lambda g: (-len(g), g)))


def rrf(rankings: Sequence[Sequence[str]], k: int = 60) -> tuple[tuple[str, float], ...]:
    """Merge rankings by reciprocal rank fusion, best first.

    An id scores ``Σ 1 / (k + rank)`` over the rankings that hold it, ranks from 1; ties are
    ordered by id. Needs no comparable scores (Cormack, Clarke and Büttcher 2009).

    Args:
        rankings: Ids, best first, no id twice in one ranking.
        k: How little the first ranks count more than later ones, ≥ 1.

    Raises:
        ValueError: k is below 1, or a ranking holds an id twice.

    >>> [name for name, _ in rrf([["a", "b"], ["b", "c"]])]
    ['b', 'a', 'c']
    """
    if k < 1:
        raise ValueError(f"rrf: k is {k}; expected at least 1")
    scores: dict[str, float] = {}
    for number, ranking in enumerate(rankings):
        if len(set(ranking)) < len(ranking):
            raise ValueError(f"rrf: ranking {number} holds an id twice; expected distinct ids")
        for rank, name in enumerate(ranking, start=1):
            scores[name] = scores.get(name, 0.0) + 1.0 / (k + rank)
    return tuple(sorted(scores.items(), key=lambda entry: (-entry[1], entry[0])))


def _cosines(rows: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosines of unit rows, kept within [-1, 1] against rounding."""
    product = rows.astype(np.float64) @ others.astype(np.float64).T
    return np.clip(product, -1.0, 1.0)


def _check(vectors: NDArray[np.float32], ids: Sequence[str], threshold: float) -> None:
    if vectors.ndim != 2 or len(vectors) != len(ids):
        raise ValueError(
            f"vectors: got shape {vectors.shape} for {len(ids)} ids; expected one row per id"
        )
    if len(set(ids)) < len(ids):
        raise ValueError("ids: got one twice; expected distinct ids")
    if not -1.0 <= threshold <= 1.0:
        raise ValueError(f"threshold: got {threshold}; expected a cosine in [-1, 1]")
    lengths = np.linalg.norm(vectors, axis=1)
    if len(ids) and not np.allclose(lengths, 1.0, atol=1e-3):
        raise ValueError(
            f"vectors: got lengths {lengths.min():.3g} to {lengths.max():.3g}; expected unit rows"
        )
