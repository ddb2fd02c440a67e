"""Rollouts that other processes perform: what the driver does about each.

Their model calls cannot pass the driver's budget, so an attempt passes it as a whole: the most that
it can cost is reserved before it is sent, and its true cost is booked when it comes back. For that
to hold, the worker over there must make no call again that may have been billed already
(`skillforge.workflows.patience.PatientModel.free_only`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from skillforge.core.chat import Cost
from skillforge.core.rollout import Attempt, Failure, FailureKind, Verdict
from skillforge.errors import InfraError
from skillforge.ports import Worker
from skillforge.workflows.meter import Meter
from skillforge.workflows.trial import Scored, Work


class Send(Protocol):
    """Has an attempt performed elsewhere."""

    async def __call__(self, item: Work, *, alone: bool = False) -> Scored:
        """Return what came of it, performed in a process of its own if asked.

        Raises:
            InfraError: The process has died; nobody knows how far the attempt came.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """Pays for each attempt, and sends one that was lost a second time.

    What was lost is booked at its bound, for its calls may have been answered; the second try
    passes the budget like the first. One that is lost twice is an infrastructure failure.
    """

    worker: Worker
    """Knows the most that an attempt can cost."""
    meter: Meter

    async def __call__(self, work: Work, send: Send) -> Scored:
        """Return the attempt, or the failure of the two processes that should have performed it.

        Raises:
            BudgetSpent: With this try, the caps could be passed.
            ConfigError: It cost more than its bound, so that a cap does not hold.
        """
        bound = self.worker.bound(work.task, work.skills)
        said = ""
        for alone in (False, True):
            async with self.meter.reserve("worker", bound) as try_:
                try:
                    scored = await send(work, alone=alone)
                except InfraError as error:
                    said = str(error)
                    continue
                try_.take(scored.attempt)
                return scored
        return _lost(f"lost twice; {said}", Cost(2 * bound.usd, 2 * bound.tokens))


def _lost(message: str, cost: Cost) -> Scored:
    failure = Failure(kind=FailureKind.INFRA, message=message, where="worker")
    attempt = Attempt(
        output="",
        failure=failure,
        cost_usd=cost.usd,
        prompt_tokens=cost.tokens,
        cost_told=False,
    )
    return Scored(attempt, Verdict(score=None, failure=failure))
