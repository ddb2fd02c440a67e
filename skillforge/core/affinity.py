"""Which of a few caches serves which kind of request."""

from __future__ import annotations

from collections import OrderedDict


class SlotTable:
    """Pins strings to slots; when there are more strings than slots, the idlest one gives way.

    Not thread-safe: the caller holds a lock.

    >>> table = SlotTable(2)
    >>> [table.take("base"), table.take("augmented"), table.take("base")]
    [0, 1, 0]
    """

    def __init__(self, count: int) -> None:
        self._owner: OrderedDict[str, int] = OrderedDict()
        self._pending = [0] * count

    @property
    def pending(self) -> int:
        """Requests that are not done."""
        return sum(self._pending)

    def take(self, affinity: str) -> int:
        """Return the slot for a request and count the request as pending there.

        Args:
            affinity: Equal strings get the same slot; "" takes the least busy slot.
        """
        slot = self._choose(affinity)
        self._pending[slot] += 1
        return slot

    def give_back(self, slot: int) -> None:
        """Count one request of that slot as done."""
        self._pending[slot] -= 1

    def _choose(self, affinity: str) -> int:
        if not affinity:
            return self._pending.index(min(self._pending))
        if affinity not in self._owner:
            taken = set(self._owner.values())
            free = [slot for slot in range(len(self._pending)) if slot not in taken]
            self._owner[affinity] = free[0] if free else self._owner.popitem(last=False)[1]
        self._owner.move_to_end(affinity)
        return self._owner[affinity]
