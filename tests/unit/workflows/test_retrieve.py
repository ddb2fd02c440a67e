"""Looking skills up: what is shown, who is near, and what need not be computed again."""

import numpy as np
from support.world import DotIndex, LetterEmbedder, skill, suite

from skillforge.core.task import Split
from skillforge.workflows.retrieve import KeptEmbedder, build_retriever, corpus_digest

PACKAGES = {
    name: skill(name, f"# {name}\n\n{words}", words)
    for name, words in {
        "ash": "trees that grow by the water",
        "birch": "trees that grow by the road",
        "cedar": "numbers of a list in order",
    }.items()
}


class CountingEmbedder(LetterEmbedder):
    """Embeds by words and notes what it was asked."""

    def __init__(self):
        """Begin without a text."""
        self.asked = []

    def encode(self, texts):
        """Return one row per text."""
        self.asked += texts
        return super().encode(texts)


def test_neighbours_are_the_nearest_without_the_skill_itself():
    """The nearest comes first, and there are no more than there are others."""
    retriever = build_retriever(PACKAGES, LetterEmbedder(), DotIndex)

    assert [hit.skill for hit in retriever.neighbours("ash", 1)] == ["birch"]
    assert [hit.skill for hit in retriever.neighbours("cedar", 9)][-1:] != ["cedar"]
    assert len(retriever.neighbours("cedar", 9)) == 2
    assert retriever.neighbours("ash", 0) == []


def test_what_is_shown_is_what_a_search_finds():
    """Each task gets the packages of its hits, in their order."""
    retriever = build_retriever(PACKAGES, LetterEmbedder(), DotIndex)
    tasks = suite(["ash", "cedar"], confirm=5).select(split=Split.CONFIRM)
    shown = retriever.show(tasks, 2)

    for task in tasks:
        hits = retriever.search(task.input, 2)
        assert [package.name for package in shown[task.id]] == [hit.skill for hit in hits]


def test_an_index_is_known_by_its_embedder_and_its_texts():
    """Another embedder, a changed text or another set of skills gives another digest."""

    class Other(LetterEmbedder):
        fingerprint = "other"

    digest = corpus_digest(PACKAGES, LetterEmbedder())
    changed = PACKAGES | {"ash": skill("ash", "# ash\n\nwater", "trees that grow by the water")}
    fewer = {name: PACKAGES[name] for name in ("ash", "birch")}

    assert digest == corpus_digest(dict(reversed(PACKAGES.items())), LetterEmbedder())
    assert len({digest, corpus_digest(PACKAGES, Other())}) == 2
    assert len({digest, *(corpus_digest(p, LetterEmbedder()) for p in (changed, fewer))}) == 3


def test_a_text_is_embedded_once_while_it_is_kept():
    """Rows are those of the embedder, in the order asked for; the oldest give way."""
    counting = CountingEmbedder()
    kept = KeptEmbedder(counting, most=3)
    first = kept.encode(["a tree", "a list", "a tree"])
    assert counting.asked == ["a tree", "a list"]
    np.testing.assert_array_equal(first, LetterEmbedder().encode(["a tree", "a list", "a tree"]))

    again = kept.encode(["a list", "a road", "by water"])
    assert counting.asked == ["a tree", "a list", "a road", "by water"]
    np.testing.assert_array_equal(again[0], first[1])
    kept.encode(["a tree"])
    assert counting.asked[-1] == "a tree"
    assert kept.encode([]).shape == (0, 64)
    assert kept.fingerprint == counting.fingerprint
