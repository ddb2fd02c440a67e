"""What the ledger tells of a run's spend: bills, claims, and what neither settled."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.chat import Cost
from skillforge.core.events import NewEvent
from skillforge.errors import LedgerError
from skillforge.workflows.account import Account
from skillforge.workflows.meter import Meter
from skillforge.workflows.spend import UNSETTLED, Bill, Caps, Claim


@pytest.fixture
def path(tmp_path):
    """Where the ledger lies."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    """A ledger that waits for nobody."""
    with closing(SqliteLedger(path, patience=0.0)) as ledger:
        yield ledger


def spent(ledger, *events):
    """Store events of a run, and some of another; return what the account says of the first."""
    for run in ("other", "r"):
        ledger.append([NewEvent(kind=kind, data=data, run=run) for kind, data in events])
    ledger.append([NewEvent(kind="spend.claimed", data=claimed(9.0, 9, 9), run="other")])
    return Account(ledger=ledger, run="r").spent()


def claimed(usd, tokens, rollouts, key="claimed"):
    """Return the data of an event with a claim."""
    return {key: {"usd": usd, "tokens": tokens, "rollouts": rollouts}}


BILL = {"bill": {"worker": {"usd": 0.1, "tokens": 10, "calls": 2, "at_bound": 1}}}


def test_bills_and_rollouts_are_added_up(ledger):
    """Whatever event holds them; failed rollouts are attempts as well."""
    found = spent(
        ledger,
        ("rollout.finished", {"key": "k1"}),
        ("rollout.failed", BILL | {"key": "k2"}),
        ("proposals.made", {"bill": {"proposer": BILL["bill"]["worker"]}}),
        ("gate.decided", {"claim": [1.0, 2.0]}),
    )

    assert (found.usd, found.tokens, found.rollouts, found.unsettled) == (0.2, 20, 2, 0)
    assert found.roles == {name: Bill(0.1, 10, 2, 1) for name in ("worker", "proposer")}


def test_what_was_claimed_and_is_in_no_bill_counts_as_spent(ledger):
    """It is in the sums, under a role of its own; the largest claim counts, not the last."""
    found = spent(
        ledger,
        ("spend.claimed", claimed(0.5, 50, 4)),
        ("rollout.finished", BILL | claimed(0.25, 60, 3) | {"key": "k1"}),
    )

    assert (found.usd, found.tokens, found.rollouts, found.unsettled) == (0.5, 60, 4, 3)
    assert found.roles[UNSETTLED] == Bill(0.4, 50, 0, 0)


@pytest.mark.parametrize(("tokens", "rollouts"), [(10, 1), (9, 0)])
def test_an_end_in_order_settles_the_claims(ledger, tokens, rollouts):
    """Neither what was claimed before nor the rounding of sums is left over."""
    found = spent(
        ledger,
        ("spend.claimed", claimed(0.5, 50, 4)),
        ("rollout.finished", BILL | {"key": "k1"}),
        ("spend.booked", claimed(0.1 + 1e-16, tokens, rollouts, key="settled")),
    )

    assert (found.usd, found.tokens, found.rollouts, found.unsettled) == (0.1, 10, 1, 0)
    assert UNSETTLED not in found.roles


def test_attempts_that_could_not_be_stored_are_unsettled_without_a_cost(ledger):
    """Their bill was written once there was room; that they were made is not forgotten."""
    end = BILL | claimed(0.1, 10, 3, key="settled")
    found = spent(ledger, ("spend.claimed", claimed(0.5, 50, 4)), ("spend.booked", end))

    assert (found.usd, found.rollouts, found.unsettled) == (0.1, 3, 3)
    assert found.roles[UNSETTLED] == Bill()


def test_a_claim_is_durable_when_it_returns(ledger, path):
    """Another process finds it at once."""
    Account(ledger=ledger, run="r").claim(Claim(0.5, 7, 2))

    with closing(SqliteLedger(path)) as other:
        assert Account(ledger=other, run="r").spent().usd == 0.5


def test_where_the_ledger_is_locked_nothing_is_paid(ledger, path):
    """A call that needs a claim is refused before it is made; those claimed before are made."""
    account = Account(ledger=ledger, run="r")
    meter = Meter(caps=Caps(usd=1.0), clock=NoClock(), claim=account.claim)
    made = []

    async def call():
        async with meter.reserve("worker", Cost(0.25, 1)):
            made.append(meter.spend.usd)

    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        asyncio.run(call())
        holder.execute("BEGIN IMMEDIATE")
        asyncio.run(call())
        with pytest.raises(LedgerError):
            asyncio.run(call())
        holder.execute("ROLLBACK")
        asyncio.run(call())

    assert made == [0.0, 0.25, 0.5]
    assert account.spent().usd == 1.0


class NoClock:
    """A clock that nobody needs."""

    def now(self):
        """Never."""
        return 0.0
