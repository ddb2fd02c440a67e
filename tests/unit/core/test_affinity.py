"""Pinning of requests to slots."""

from skillforge.core.affinity import SlotTable


def test_arms_keep_their_slots():
    """Two interleaved strings never share a slot when there are two."""
    table = SlotTable(2)

    assert [table.take(arm) for arm in ("base", "augmented", "augmented", "base")] == [0, 1, 1, 0]


def test_the_idlest_string_gives_way():
    """A new string takes the slot of the one unused for longest."""
    table = SlotTable(2)
    for arm in ("base", "augmented", "base"):
        table.take(arm)

    assert table.take("next") == 1
    assert table.take("base") == 0


def test_without_affinity_the_least_busy_slot_serves():
    """Requests without a string spread over the slots as they are given back."""
    table = SlotTable(2)
    taken = [table.take(""), table.take("")]
    assert table.pending == 2
    table.give_back(1)

    assert (taken, table.pending) == ([0, 1], 1)
    assert table.take("") == 1
