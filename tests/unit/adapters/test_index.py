"""The FAISS index and its file."""

import numpy as np
import pytest

from skillforge.adapters.index import FaissIndex, load_index, open_index
from skillforge.errors import ConfigError

IDS = [f"s{row}" for row in range(50)]


@pytest.fixture
def vectors():
    """Fifty random unit vectors."""
    rows = np.random.default_rng(5).normal(size=(50, 16)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_search_agrees_with_brute_force(vectors):
    """Scores and rows are those of a sorted matrix product."""
    scores, rows = open_index(vectors).search(vectors[:7], 5)
    full = vectors[:7] @ vectors.T

    np.testing.assert_array_equal(rows, np.argsort(-full, axis=1)[:, :5])
    np.testing.assert_allclose(scores, -np.sort(-full, axis=1)[:, :5], atol=1e-6)


@pytest.mark.parametrize(("k", "columns"), [(0, 0), (-1, 0), (1, 1), (50, 50), (99, 50)])
def test_no_more_rows_come_back_than_there_are(vectors, k, columns):
    """The answer has min(k, size) columns."""
    scores, rows = open_index(vectors).search(vectors[:2], k)

    assert scores.shape == rows.shape == (2, columns)
    assert rows.dtype == np.int64


def test_an_empty_index_finds_nothing(vectors):
    """An index of no skills answers every query with no row."""
    assert open_index(np.zeros((0, 16), np.float32)).search(vectors, 3)[1].shape == (50, 0)


def test_equal_scores_are_ordered_by_row():
    """Duplicates come in the order of their rows."""
    vectors = np.tile(np.array([[1.0, 0.0]], np.float32), (6, 1))

    assert open_index(vectors).search(vectors[:1], 6)[1].tolist() == [[0, 1, 2, 3, 4, 5]]


def test_a_query_of_another_model_is_refused(vectors):
    """Vectors of another dimension are an error, not a crash."""
    with pytest.raises(ConfigError, match="another embedding model"):
        open_index(vectors).search(np.ones((1, 3), np.float32), 1)


@pytest.mark.parametrize("wrong", [np.ones(3), np.full((2, 2), np.nan)])
def test_an_array_that_cannot_be_indexed_is_refused(wrong):
    """One dimension or a NaN is an error that says so."""
    with pytest.raises(ConfigError, match="finite numbers"):
        FaissIndex(wrong.astype(np.float32))


def test_a_saved_index_comes_back_the_same(vectors, tmp_path):
    """Save and load keep ids, order and scores."""
    path = tmp_path / "deep" / "skills.index"
    open_index(vectors).save(path, ids=IDS, fingerprint="texts")

    index, ids = load_index(path, "texts")

    assert list(ids) == IDS
    np.testing.assert_array_equal(index.search(vectors, 9), open_index(vectors).search(vectors, 9))
    assert [p.name for p in path.parent.iterdir()] == ["skills.index"]


def test_an_index_may_be_read_by_whom_other_files_may(vectors, tmp_path):
    """A project is read by other users too."""
    path, other = tmp_path / "index.faiss", tmp_path / "other"
    open_index(vectors).save(path, ids=IDS, fingerprint="texts")
    other.touch()

    assert path.stat().st_mode == other.stat().st_mode


def test_a_stale_index_is_not_loaded(vectors, tmp_path):
    """Another fingerprint than that of what was indexed makes the file worthless."""
    path = tmp_path / "skills.index"
    open_index(vectors).save(path, ids=IDS, fingerprint="texts")

    assert load_index(path, "other texts") is None


@pytest.mark.parametrize("keep", [0, 10, 500, -1])
def test_a_damaged_index_is_not_loaded(vectors, tmp_path, keep):
    """A cut file is rebuilt, not trusted."""
    path = tmp_path / "skills.index"
    open_index(vectors).save(path, ids=IDS, fingerprint="texts")
    path.write_bytes(path.read_bytes()[:keep])

    assert load_index(path, "texts") is None
    assert load_index(tmp_path / "none", "texts") is None


def test_the_wrong_number_of_ids_is_refused(vectors, tmp_path):
    """Each row needs one id, and nothing is written otherwise."""
    with pytest.raises(ConfigError, match="49 ids for 50 rows"):
        open_index(vectors).save(tmp_path / "x", ids=IDS[:-1], fingerprint="f")

    assert not (tmp_path / "x").exists()


def test_a_place_that_cannot_be_written_is_a_config_error(vectors, tmp_path):
    """A file in the way of a folder is named in the error."""
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="cannot be written"):
        open_index(vectors).save(tmp_path / "file" / "x", ids=IDS, fingerprint="f")
