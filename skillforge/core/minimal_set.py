"""Which few of many things suffice to bring a fault about: delta debugging with few tests.

Divide and conquer over a test that says whether a subset shows the fault: if every superset of a
faulty set is faulty too, the answer is a minimal faulty set, after about ``2k log2(n / k) + 2k``
tests for ``k`` culprits among ``n`` things. `ddmin` (Zeller and Hildebrandt 2002, IEEE Transactions
on Software Engineering 28(2)) answers the same question with up to ``n²`` tests; tests are costly
here. Source: Junker (2004), "QuickXplain", AAAI.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Search = Generator[tuple[Item, ...], bool, tuple[Item, ...]]
"""Yields subsets to test, takes whether each shows the fault, returns a minimal faulty set."""


def minimal_set(items: Sequence[Item]) -> Search[Item]:
    """Search for a minimal faulty subset of ``items``, which show the fault together.

    Args:
        items: At least one thing; that all of them show the fault is taken for granted.

    >>> search, answer = minimal_set("abcdefgh"), None
    >>> try:
    ...     while True:
    ...         answer = search.send(None if answer is None else {"b", "g"} <= set(tested))
    ...         tested = answer
    ... except StopIteration as found:
    ...     print(sorted(found.value))
    ['b', 'g']
    """
    return _within((), tuple(items), grown=False)


def _within(known: tuple[Item, ...], items: tuple[Item, ...], *, grown: bool) -> Search[Item]:
    """Search among ``items`` for what ``known`` lacks; ``grown`` says that it is untested."""
    if grown and (yield known):
        return ()
    if len(items) == 1:
        return items
    middle = len(items) // 2
    left, right = items[:middle], items[middle:]
    needed_right = yield from _within(known + left, right, grown=True)
    needed_left = yield from _within(known + needed_right, left, grown=bool(needed_right))
    return needed_left + needed_right
