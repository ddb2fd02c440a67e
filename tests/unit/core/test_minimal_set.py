"""Delta debugging: a minimal faulty set, found with few tests."""

import math
from itertools import combinations

import pytest

from skillforge.core.minimal_set import minimal_set


def run(items, faulty):
    """Answer a search with a fault; return what it found and the subsets it tested."""
    search, tested = minimal_set(items), []
    subset = None
    try:
        subset = next(search)
        while True:
            tested.append(subset)
            subset = search.send(faulty(set(subset)))
    except StopIteration as found:
        return found.value, tested


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_planted_set_among_seven_is_found_exactly(size):
    """Exhaustively: whichever set brings the fault about is what is returned, in order."""
    items = tuple("abcdefg")
    for culprits in combinations(items, size):
        found, tested = run(items, set(culprits).issubset)
        assert found == culprits
        assert len(tested) <= 2 * size * math.ceil(math.log2(7 / size)) + 2 * size


def test_of_two_faults_one_is_found_whole():
    """With two independent faults the answer is one of them, not a mixture."""
    for first, second in combinations(combinations(range(8), 2), 2):
        found, _ = run(range(8), lambda s, a=first, b=second: set(a) <= s or set(b) <= s)
        assert set(found) in (set(first), set(second))


def test_one_thing_needs_no_test():
    """What alone is left is the culprit: the caller has tested it already."""
    assert run(["only"], lambda _: True) == (("only",), [])


def test_a_pair_among_ten_needs_few_tests():
    """The bound that makes statistical tests affordable: never more than 14 for a pair of ten."""
    worst = max(len(run(range(10), set(pair).issubset)[1]) for pair in combinations(range(10), 2))
    assert worst <= 14
