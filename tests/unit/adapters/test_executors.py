"""Running attempts at once: bounded, in order of completion, and nothing paid for is lost."""

import asyncio

import pytest

from skillforge.adapters.executors import FULL, AsyncioExecutor
from skillforge.errors import ConfigError


class Desk:
    """Attempts that end when they are told to, in whatever order."""

    def __init__(self):
        self.started, self.landed, self.cancelled = [], [], []
        self.most = 0
        self._gates = {}

    async def attempt(self, item):
        """Wait for the item's turn; an item called ``bad…`` fails then."""
        self.started.append(item)
        self.most = max(self.most, self.in_flight)
        try:
            await self._gate(item).wait()
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        self.landed.append(item)
        if item.startswith("bad"):
            raise ValueError(item)
        return item.upper()

    @property
    def in_flight(self):
        """Attempts that have begun and not ended."""
        return len(self.started) - len(self.landed) - len(self.cancelled)

    def end(self, item):
        """Let an attempt end."""
        self._gate(item).set()

    def _gate(self, item):
        return self._gates.setdefault(item, asyncio.Event())


async def settle():
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


def placed(position, result):
    """Return a result with the place of its item."""
    return position, result


async def collect(executor, attempt, items, into):
    """Append every result to a list as it comes."""
    async for batch in executor.run(attempt, iter(items), placed):
        into.extend(batch)


def test_results_come_in_order_of_completion():
    """What ends first is yielded first, with its place in the list of items."""

    async def scene():
        desk, got = Desk(), []
        run = asyncio.create_task(collect(AsyncioExecutor(3), desk.attempt, ["a", "b", "c"], got))
        for item in "cab":
            await settle()
            desk.end(item)
        await run
        return got

    assert asyncio.run(scene()) == [(2, "C"), (0, "A"), (1, "B")]


@pytest.mark.parametrize(("limit", "count"), [(1, 5), (3, 10), (8, 3), (4, 4)])
def test_never_more_than_the_limit_in_flight(limit, count):
    """As many attempts run as the limit allows, never more, and each item once."""

    async def scene():
        desk, got = Desk(), []
        items = [f"i{n}" for n in range(count)]
        run = asyncio.create_task(collect(AsyncioExecutor(limit), desk.attempt, items, got))
        await settle()
        assert desk.in_flight == min(limit, count)
        for item in items:
            desk.end(item)
            await settle()
        await run
        assert desk.started == items
        assert sorted(got) == [(n, f"I{n}") for n in range(count)]
        return desk.most

    assert asyncio.run(scene()) == min(limit, count)


def test_nothing_to_do():
    """No items, no results, no error."""
    got = []
    asyncio.run(collect(AsyncioExecutor(2), Desk().attempt, [], got))

    assert got == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    """With no attempt in flight nothing would ever run, and nobody would notice."""
    with pytest.raises(ConfigError, match="at least 1"):
        AsyncioExecutor(limit)


def test_an_error_lets_those_in_flight_land_and_is_raised_then():
    """After an error nothing new begins; what is under way is finished and yielded first."""

    async def scene():
        desk, got = Desk(), []
        items = ["a", "bad", "c", "never", "never either"]
        run = asyncio.create_task(collect(AsyncioExecutor(3), desk.attempt, items, got))
        await settle()
        desk.end("bad")
        await settle()
        assert not run.done()
        desk.end("c")
        await settle()
        assert got == [(2, "C")]
        desk.end("a")
        with pytest.raises(ValueError, match="bad"):
            await run
        assert desk.started == ["a", "bad", "c"]
        return got

    assert asyncio.run(scene()) == [(2, "C"), (0, "A")]


def test_an_attempt_that_is_cancelled_from_within_is_an_error():
    """Nobody asked for it: it must not look like an item that was never begun."""

    async def give_up(item):
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="cancelled from within"):
        asyncio.run(collect(AsyncioExecutor(2), give_up, ["a"], []))


def test_the_first_of_several_errors_is_raised():
    """Errors of the others that were in flight do not hide the cause."""

    async def scene():
        desk = Desk()
        items = ["bad one", "bad two"]
        run = asyncio.create_task(collect(AsyncioExecutor(2), desk.attempt, items, []))
        await settle()
        desk.end("bad two")
        await settle()
        desk.end("bad one")
        with pytest.raises(ValueError, match="bad two"):
            await run

    asyncio.run(scene())


def test_a_run_that_is_cancelled_drops_what_is_in_flight():
    """It stops at once and leaves no task behind."""

    async def scene():
        desk, got = Desk(), []
        items = ["a", "b", "c", "d"]
        run = asyncio.create_task(collect(AsyncioExecutor(2), desk.attempt, items, got))
        await settle()
        desk.end("a")
        await settle()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert got == [(0, "A")]
        assert sorted(desk.cancelled) == ["b", "c"]
        assert desk.started == ["a", "b", "c"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scene())


def test_closing_the_results_early_cancels_what_is_in_flight():
    """Whoever stops reading stops the work."""

    async def scene():
        desk = Desk()
        results = AsyncioExecutor(2).run(desk.attempt, iter("abc"), placed)
        desk.end("a")
        assert await anext(results) == [(0, "A")]
        await results.aclose()
        assert desk.in_flight == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scene())


def test_a_result_that_cannot_land_is_an_error_like_any_other():
    """What is made of a result is made in its turn; the others in flight land all the same."""

    def land(position, result):
        if result == "B":
            raise ValueError("cannot be kept")
        return result

    async def scene():
        desk, got = Desk(), []

        async def read():
            async for batch in AsyncioExecutor(2).run(desk.attempt, iter("abc"), land):
                got.extend(batch)

        run = asyncio.create_task(read())
        for item in "ba":
            desk.end(item)
            await settle()
        with pytest.raises(ValueError, match="cannot be kept"):
            await run
        assert desk.started == ["a", "b"]
        return got

    assert asyncio.run(scene()) == ["A"]


def test_a_slow_reader_loses_nothing():
    """Results wait for the reader, however far ahead the attempts are."""

    async def scene():
        desk, got = Desk(), []
        items = [f"i{n}" for n in range(6)]
        for item in items:
            desk.end(item)
        async for batch in AsyncioExecutor(3).run(desk.attempt, iter(items), placed):
            await settle()
            got.extend(batch)
        return got

    assert sorted(asyncio.run(scene())) == [(n, f"I{n}") for n in range(6)]


def test_an_item_is_pulled_when_there_is_room_for_it():
    """The iterator is asked no earlier: what it admits begins at once."""

    async def scene():
        desk, pulled = Desk(), []

        def items():
            for item in "abcd":
                pulled.append(item)
                yield item

        run = asyncio.create_task(collect(AsyncioExecutor(2), desk.attempt, items(), []))
        await settle()
        assert pulled == desk.started == ["a", "b"]
        desk.end("b")
        await settle()
        assert pulled == desk.started == ["a", "b", "c"]
        for item in "acd":
            desk.end(item)
        await run

    asyncio.run(scene())


def test_an_error_of_the_iterator_lets_those_in_flight_land():
    """A budget that is spent between two items throws nothing away that is under way."""

    async def scene():
        desk, got = Desk(), []

        def items():
            yield from "ab"
            raise ValueError("spent")

        run = asyncio.create_task(collect(AsyncioExecutor(3), desk.attempt, items(), got))
        await settle()
        for item in "ba":
            desk.end(item)
            await settle()
        with pytest.raises(ValueError, match="spent"):
            await run
        return got

    assert asyncio.run(scene()) == [(1, "B"), (0, "A")]


def test_attempts_that_never_wait_do_not_hold_results_back():
    """The reader has its turn once results are due, though no attempt lets the loop go."""

    async def at_once(item):
        return item

    async def scene():
        sizes = []
        async for batch in AsyncioExecutor(8).run(at_once, iter(range(3 * FULL)), placed):
            sizes.append(len(batch))
        return sizes

    sizes = asyncio.run(scene())
    assert sum(sizes) == 3 * FULL
    assert max(sizes) <= FULL
