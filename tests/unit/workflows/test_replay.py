"""Replay and checkpoints: what is read fast is what the whole ledger adds up to."""

import pytest
from support.evolved import evolved_world

from skillforge.core.checkpoint import FOLD, read_state, write_state
from skillforge.core.library_fold import FOLDED, fold
from skillforge.workflows import curate
from skillforge.workflows.curate import Curator
from skillforge.workflows.replay import replay


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a world whose skill was evolved."""
    return evolved_world(tmp_path_factory.mktemp("world"))[0]


def again(world):
    """Return a curator that opens the ledger anew."""
    return Curator(ledger=world.ledger, library=world.library)


def test_a_state_comes_back_from_its_bytes(world):
    """Reading what was written gives an equal state and digest."""
    state = world.curator.state

    assert read_state(write_state(state)) == state
    assert read_state(write_state(state)).digest == state.digest


def test_a_state_of_other_rules_is_not_read(world):
    """A checkpoint of an older fold is worth nothing."""
    data = write_state(world.curator.state).replace(b'"fold":%d' % FOLD, b'"fold":0')

    assert read_state(data) is None


def test_opening_goes_on_from_the_checkpoint(world):
    """The state is the same with it, and only later events are folded."""
    events = list(world.ledger.events(kinds=FOLDED))
    middle = events[len(events) // 2]
    before = fold(e for e in events if e.seq <= middle.seq)
    world.ledger.save_checkpoint(middle, write_state(before))
    opened = again(world)

    assert opened.state == fold(events)
    assert [e.seq for e in opened._unkept] == [e.seq for e in events if e.seq > middle.seq]
    assert replay(world.ledger).problems == ()


def test_a_checkpoint_is_kept_once_it_is_worth_it(world):
    """A short ledger needs none; a long one gets one at its last folded event."""
    opened = again(world)
    opened._unkept = [*opened._unkept] * 0
    state = opened.state
    opened._unkept = list(world.ledger.events(kinds=FOLDED)) * curate.CHECKPOINT_EVERY
    opened.keep_checkpoint()
    event, data = world.ledger.load_checkpoint()

    assert event.seq == list(world.ledger.events(kinds=FOLDED))[-1].seq
    assert read_state(data) == state


def test_replay_does_not_trust_the_checkpoint(world):
    """One that says something else than the events is a problem that is named."""
    last = list(world.ledger.events(kinds=FOLDED))[-1]
    world.ledger.save_checkpoint(last, write_state(fold([])))
    (problem,) = replay(world.ledger).problems

    assert "checkpoint" in problem
    world.ledger.save_checkpoint(last, write_state(fold(world.ledger.events(kinds=FOLDED))))
    assert replay(world.ledger).problems == ()


def test_an_erased_payload_changes_no_decision(world):
    """Rollouts whose words are gone still count, and replay says what was erased and why."""
    before = replay(world.ledger)
    blobs = [e.data["output_blob"] for e in world.ledger.events(kinds=("rollout.finished",))]
    world.ledger.erase(blobs[:3], reason="a leaked key")
    after = replay(world.ledger)

    assert after.problems == ()
    assert (after.decisions, after.state_digest) == (before.decisions, before.state_digest)
    assert after.erased == ({"blobs": blobs[:3], "reason": "a leaked key"},)
