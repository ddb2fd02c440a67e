"""Events, their hashes and the chain."""

import dataclasses
import json

import pytest

from skillforge.core.digest import canonical_json, json_digest, sha256
from skillforge.core.events import GENESIS, NewEvent, check_chain, is_intact, link
from skillforge.core.rollout import FailureKind
from skillforge.errors import LedgerError


def chain(*payloads):
    """Return linked events with these data."""
    events, previous = [], GENESIS
    for seq, data in enumerate(payloads, start=1):
        new = NewEvent(kind="k", data=data, run="r")
        events.append(link(new, seq=seq, at=float(seq), previous=previous))
        previous = events[-1].hash
    return events


def test_the_hash_covers_position_time_content_and_predecessor():
    """An event's hash is the digest of all that it says and of the hash before it."""
    (event,) = chain({"a": 1})

    assert event.hash == json_digest([1, 1.0, "k", "r", {"a": 1}, GENESIS])
    assert event.previous == GENESIS
    assert is_intact(event)


def test_an_intact_chain_is_counted():
    """Checking returns how many events there are; none is a chain too."""
    assert check_chain([]) == 0
    assert check_chain(chain({}, {"a": 1}, {"b": [1, 2]})) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"text": '{"a":2}'},
        {"at": 2.5},
        {"kind": "other"},
        {"run": ""},
        {"previous": GENESIS},
        {"hash": GENESIS},
        {"seq": 5},
    ],
)
def test_any_change_breaks_the_chain_where_it_was_made(change):
    """A changed field is found at its event, and the message says what to do."""
    events = chain({}, {"a": 1}, {})
    events[1] = dataclasses.replace(events[1], **change)

    assert not is_intact(events[1])
    with pytest.raises(LedgerError, match=r"broken at event 2: .* restore ledger\.db"):
        check_chain(events)


def test_a_missing_repeated_or_swapped_event_breaks_the_chain():
    """Order and completeness are part of what is checked."""
    a, b, c = chain({"i": 1}, {"i": 2}, {"i": 3})
    for broken, where in (([b, c], 1), ([a, c], 2), ([a, b, b], 3), ([a, c, b], 2)):
        with pytest.raises(LedgerError, match=f"event {where}:"):
            check_chain(broken)


def test_a_rewritten_event_breaks_the_next_link():
    """Whoever changes an event and its hash too is found at the event after it."""
    events = chain({"score": 0}, {})
    forged = NewEvent(kind="k", data={"score": 1}, run="r")
    events[0] = link(forged, seq=1, at=1.0, previous=GENESIS)

    assert all(map(is_intact, events))
    with pytest.raises(LedgerError, match="event 2:"):
        check_chain(events)


def test_linking_makes_the_data_what_a_store_gives_back():
    """Tuples become lists, keys text and times floats before anything is hashed."""
    new = NewEvent(kind="k", data={"order": ("a", "b"), "by": {10: 1, 9: 2}})
    event = link(new, seq=1, at=7, previous=GENESIS)

    assert event.data == {"order": ["a", "b"], "by": {"10": 1, "9": 2}}
    assert (event.at, type(event.at)) == (7.0, float)
    assert check_chain([event]) == 1


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_numbers_without_a_json_form_are_refused(bad):
    """A NaN would make the digest meaningless."""
    with pytest.raises(ValueError, match="JSON"):
        link(NewEvent(kind="k", data={"x": bad}), seq=1, at=0.0, previous=GENESIS)


def test_events_are_frozen():
    """Neither kind of event can be changed in place."""
    (event,) = chain({})
    for frozen, name in ((event, "seq"), (NewEvent(kind="k", data={}), "kind")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(frozen, name, 2)
    assert hash(event) == hash(dataclasses.replace(event))


def test_canonical_json_does_not_depend_on_key_order():
    """Equal values give equal text, at any depth."""
    assert canonical_json({"b": {"y": 1, "x": 2}, "a": 0}) == '{"a":0,"b":{"x":2,"y":1}}'
    assert json_digest({"a": 1, "b": 2}) == json_digest({"b": 2, "a": 1})
    assert json_digest({"a": 1}) != json_digest({"a": "1"})


@pytest.mark.parametrize(
    "value",
    [
        {"z": [1, 2.5, -0.0, 1e16, 1e-7, 2**70], "a": {"ü": None, "\u2028": (True, False)}, "": ""},
        {3: "number", 1: "keys"},
        [],
        {},
        'text " \\ \x00 \x7f 🧪',
        7,
        1 / 3,
        None,
        FailureKind.INFRA,
    ],
)
def test_canonical_json_is_what_the_standard_library_says(value):
    """Whatever Python, it is `json.dumps` with sorted keys and no spare white space."""
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_json(value) == plain


def test_what_has_no_json_form_is_refused():
    """Numbers that are none, types that JSON cannot hold, and what contains itself."""
    for bad in (float("inf"), {"x": float("nan")}):
        with pytest.raises(ValueError, match="JSON"):
            canonical_json(bad)
    for bad in ({1, 2}, b"bytes", {(1, 2): 3}):
        with pytest.raises(TypeError):
            canonical_json(bad)
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="Circular"):
        canonical_json(endless)


def test_canonical_json_escapes_half_surrogates_and_nothing_else():
    """Text stays readable; what UTF-8 cannot hold is spelt as JSON spells it."""
    assert canonical_json("é 🧪 \u2028") == '"é 🧪 \u2028"'
    assert canonical_json("cut \ud83d") == '"cut \\ud83d"'
    assert len(json_digest(["cut \ud83d"])) == 64


def test_known_digests():
    """SHA-256 of nothing and of an empty object, as any other tool computes them."""
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert json_digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
