"""What the ledger holds of a run's spend: bills of what was booked, claims on what may follow.

Events of a run carry, beside their own data:

- ``bill``, what was booked since the bill before, by role;
- ``claimed``, how much the run may have cost in all by the next record of it. It is durable before
  that much is spent, so that a crash hides nothing: what was claimed and is in no bill counts as
  spent when the run goes on, though some of it never was (at most about three times the most that
  has been in flight, or waited to be stored, since the start began);
- ``settled``, at the end of a start that ended in order before its run did: what all has cost. It
  takes the place of the claims before it, so that such an end leaves nothing unsettled, but for
  attempts that could not be stored.

A run of free calls whose tokens and rollouts have no cap claims nothing; a cap that it gets later
counts what was stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from skillforge.core.events import NewEvent
from skillforge.core.records import ROLLOUTS
from skillforge.ports import Ledger
from skillforge.workflows.meter import ROUNDING, Meter
from skillforge.workflows.spend import UNSETTLED, Bill, Claim, Spend


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The spend of one run, as the ledger tells it."""

    ledger: Ledger
    run: str

    def claim(self, claim: Claim) -> None:
        """Make a claim durable.

        Raises:
            LedgerError: It cannot be written; then nothing of it may be spent.
        """
        data = {"claimed": claim._asdict()}
        self.ledger.append([NewEvent(kind="spend.claimed", data=data, run=self.run)])

    def bind(self, meter: Meter) -> str:
        """Have a meter count what the run has spent, and claim here what is to come.

        Returns:
            What the user is to be told of what is unsettled; "" where nothing is.
        """
        spent = self.spent()
        meter.carry(spent)
        meter.claim = self.claim
        if (lost := spent.roles.get(UNSETTLED)) is None:
            return ""
        return (
            f"{spent.unsettled} rollouts without a record, and ${lost.usd:.4g} and {lost.tokens} "
            "tokens that are in no bill, count as spent: they may have been in flight when the run "
            "was cut off"
        )

    def spent(self) -> Spend:
        """Return what the run has spent so far, with what was claimed and never settled."""
        spend, claim = Spend(), Claim()
        for event in self.ledger.events(run=self.run):
            for role, bill in event.data.get("bill", {}).items():
                spend.book(role, Bill(**bill))
            spend.rollouts += event.kind in ROLLOUTS
            if "claimed" in event.data:  # not always more: two may be written at the same time
                claim = claim.most(Claim(**event.data["claimed"]))
            if "settled" in event.data:
                claim = Claim(**event.data["settled"])
        _add_unsettled(spend, claim)
        return spend


def _add_unsettled(spend: Spend, claim: Claim) -> None:
    """Count what was claimed beyond the bills as spent."""
    usd, tokens = claim.usd - spend.usd, max(0, claim.tokens - spend.tokens)
    spend.unsettled = max(0, claim.rollouts - spend.rollouts)
    spend.rollouts += spend.unsettled
    bill = Bill(usd=usd if usd > ROUNDING * claim.usd else 0.0, tokens=tokens)
    if spend.unsettled or bill != Bill():
        spend.book(UNSETTLED, bill)
