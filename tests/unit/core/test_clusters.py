"""Near duplicates, clusters and rank fusion."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillforge.core.clusters import cluster, near_duplicates, rrf


def unit(angles):
    """Return unit vectors in the plane at the given angles, in degrees."""
    radians = np.radians(angles)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_pairs_come_closest_first():
    """Pairs at or above the threshold are listed by falling cosine, smaller id first."""
    pairs = near_duplicates(unit([0, 10, 40]), ["c", "b", "a"], threshold=0.8)

    assert [(first, second) for first, second, _ in pairs] == [("b", "c"), ("a", "b")]
    assert [cosine for *_, cosine in pairs] == pytest.approx([0.9848, 0.8660], abs=1e-4)


def test_pairs_are_found_across_blocks():
    """Rows far apart in a large array are compared too."""
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(2500, 24)).astype(np.float32)
    vectors[2400] = vectors[3]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"{row:04d}" for row in range(len(vectors))]

    assert [pair[:2] for pair in near_duplicates(vectors, ids, 0.999)] == [("0003", "2400")]


def test_a_chain_is_not_one_cluster():
    """Average linkage keeps apart what is only linked through others."""
    groups = cluster(unit([0, 20, 40, 60, 80]), list("abcde"), threshold=0.93)

    assert max(map(len, groups)) < 5
    assert sorted(name for group in groups for name in group) == list("abcde")


@pytest.mark.parametrize("count", [0, 1])
def test_few_ids_need_no_clustering(count):
    """No id makes no group, one id makes one."""
    assert cluster(unit([0] * count).reshape(count, 2), list("a")[:count], 0.5) == (
        (("a",),) if count else ()
    )


def test_identical_rows_are_one_cluster_at_any_threshold():
    """Rounding never parts equal vectors."""
    rng = np.random.default_rng(1)
    row = rng.normal(size=384)
    vectors = np.tile((row / np.linalg.norm(row)).astype(np.float32), (4, 1))

    assert cluster(vectors, list("abcd"), 1.0) == (("a", "b", "c", "d"),)


@settings(deadline=None)
@given(st.lists(st.integers(0, 359), max_size=12), st.floats(-1, 1), st.randoms())
def test_the_order_of_rows_changes_nothing(angles, threshold, random):
    """Clusters and pairs are the same whatever order the skills come in, and clusters partition."""
    ids = [f"s{n:02d}" for n in range(len(angles))]
    vectors = unit(angles).reshape(len(angles), 2)
    shuffled = random.sample(range(len(ids)), len(ids))

    groups = cluster(vectors, ids, threshold)

    assert sorted(name for group in groups for name in group) == ids
    assert cluster(vectors[shuffled], [ids[n] for n in shuffled], threshold) == groups


@pytest.mark.parametrize(
    ("vectors", "ids", "threshold", "word"),
    [
        (unit([0, 1]), ["a"], 0.5, "shape"),
        (unit([0, 1]), ["a", "a"], 0.5, "twice"),
        (unit([0, 1]), ["a", "b"], 1.5, "threshold"),
        (unit([0, 1]) * 2, ["a", "b"], 0.5, "unit rows"),
    ],
)
def test_what_does_not_fit_is_refused(vectors, ids, threshold, word):
    """Errors say what was got and what was expected."""
    with pytest.raises(ValueError, match=word):
        near_duplicates(vectors, ids, threshold)
    with pytest.raises(ValueError, match=word):
        cluster(vectors, ids, threshold)


def test_fusion_scores_by_reciprocal_ranks():
    """Scores are Σ 1/(60 + rank), and an id that both rankings hold wins."""
    merged = rrf([["a", "b"], ["b", "c"]])

    assert merged == (
        ("b", pytest.approx(1 / 62 + 1 / 61)),
        ("a", pytest.approx(1 / 61)),
        ("c", pytest.approx(1 / 62)),
    )


def test_fusion_refuses_nonsense():
    """A doubled id or a k below 1 is an error."""
    with pytest.raises(ValueError, match="twice"):
        rrf([["a", "a"]])
    with pytest.raises(ValueError, match="at least 1"):
        rrf([], k=0)
