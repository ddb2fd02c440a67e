"""How fast an endpoint may be called, told by numbers alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillforge.core.pace import MINUTE, Throttle, Window

AMOUNTS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=40)


@settings(deadline=None)
@given(AMOUNTS)
def test_no_minute_holds_more_than_the_limit(steps):
    """Whoever waits as long as told never uses more than the limit in any minute."""
    window, now, used = Window(12), 0, []
    for pause, amount in steps:
        now += pause
        now += window.delay(amount, now)
        assert window.delay(amount, now) == 0
        window.use(amount, now)
        used.append((now, amount))

    for start, _ in used:
        assert sum(n for at, n in used if start <= at < start + MINUTE) <= 12


def test_a_delay_is_no_longer_than_it_must_be():
    """The wait ends with the minute of the entry that makes room, not with the last one's."""
    window = Window(10)
    for at in (0.0, 10.0, 20.0):
        window.use(3, at)

    assert window.delay(1, 30.0) == 0
    assert window.delay(4, 30.0) == 30.0
    assert window.delay(7, 30.0) == 40.0


def test_what_is_larger_than_the_limit_has_a_minute_of_its_own():
    """A call above the limit is not refused for ever: it waits for an empty minute."""
    window = Window(10)
    window.use(1, 0.0)

    assert window.delay(50, 30.0) == 30.0
    assert window.delay(50, 60.0) == 0


def test_an_answer_gives_back_what_its_bound_had_taken():
    """Tokens of the minute are counted as they were used once that is known."""
    throttle = Throttle(4, tokens_per_minute=100)
    call = throttle.begin(90, 0.0)
    assert throttle.delay(50, 1.0) == 59.0

    throttle.end(call, tokens=20)
    assert throttle.delay(50, 1.0) == 0


def test_requests_count_whether_they_are_answered_or_not():
    """A refused request was a request all the same."""
    throttle = Throttle(4, requests_per_minute=2)
    for at in (0.0, 1.0):
        throttle.end(throttle.begin(1, at), busy=True)

    assert throttle.delay(1, 2.0) == 58.0


def test_a_burst_of_refusals_halves_the_calls_at_once_only_once():
    """Calls that began before a decrease are part of the same burst; later ones are not."""
    throttle = Throttle(16)
    burst = [throttle.begin(1, 0.0) for _ in range(16)]
    for call in burst:
        throttle.end(call, busy=True)
    assert throttle.limit == 8

    throttle.end(throttle.begin(1, 1.0), busy=True)
    assert throttle.limit == 4


def test_answers_win_the_calls_at_once_back_one_by_one():
    """A round of answers adds about one call, up to what was asked for."""
    throttle = Throttle(4)
    throttle.end(throttle.begin(1, 0.0), busy=True)
    assert throttle.limit == 2

    limits = []
    for _ in range(12):
        throttle.end(throttle.begin(1, 0.0), tokens=1)
        limits.append(throttle.limit)
    assert limits == sorted(limits)
    assert 2.8 < limits[1] < 3
    assert limits[-1] == 4


def test_at_least_one_call_may_run():
    """However often an endpoint refuses, it is asked again."""
    throttle = Throttle(4)
    for at in range(9):
        throttle.end(throttle.begin(1, float(at)), busy=True)

    assert throttle.limit == 1
    assert throttle.delay(1, 9.0) == 0


@pytest.mark.parametrize("ending", [{"tokens": 1}, {}], ids=["answered", "failed"])
def test_calls_at_once_are_limited(ending):
    """A full endpoint has no time to wait for, only a call that must end."""
    throttle = Throttle(2)
    calls = [throttle.begin(1, 0.0) for _ in range(2)]
    assert throttle.delay(1, 0.0) is None

    throttle.end(calls[0], **ending)
    assert throttle.delay(1, 0.0) == 0
    assert throttle.limit == 2


def test_a_closed_endpoint_opens_when_it_said():
    """What an endpoint asked for is waited for, and an earlier wish does not shorten it."""
    throttle = Throttle(2)
    throttle.close(until=30.0)
    throttle.close(until=10.0)

    assert throttle.delay(1, 12.0) == 18.0
    assert throttle.delay(1, 30.0) == 0
