"""What the driver pays for attempts that other processes perform, and what becomes of lost ones."""

import asyncio

import pytest
from support.world import PlantedWorker, TickingClock, suite

from skillforge.core.chat import Cost
from skillforge.core.rollout import Attempt, Failure, FailureKind, Verdict
from skillforge.errors import BudgetSpent, InfraError
from skillforge.workflows.meter import Caps, Meter
from skillforge.workflows.remote import Driver
from skillforge.workflows.trial import Scored, Work

TASK = suite(["a"]).tasks[0]
BOUND = PlantedWorker().bound(TASK, ()).tokens


class Line:
    """Loses the first tries, then brings back what one attempt used."""

    def __init__(self, losses, tokens=3):
        self.losses, self.tokens, self.sent = losses, tokens, []

    async def __call__(self, item, *, alone=False):
        """Send once."""
        self.sent.append(alone)
        if len(self.sent) <= self.losses:
            raise InfraError("the process was killed")
        return Scored(Attempt(output="x", prompt_tokens=self.tokens), Verdict(score=1.0))


def drive(line, tokens=None):
    """Drive one attempt; return what came of it, and what was spent."""
    meter = Meter(caps=Caps(tokens=tokens), clock=TickingClock())
    driver = Driver(worker=PlantedWorker(), meter=meter)
    return asyncio.run(driver(Work(TASK, (), 1), line)), meter.spend


@pytest.mark.parametrize("tokens", [0, 3])
def test_an_attempt_that_comes_back_is_booked_at_what_it_cost(tokens):
    """Its bound is reserved and its cost is booked, also where that is nothing."""
    line = Line(0, tokens)
    scored, spend = drive(line, BOUND)

    assert scored.verdict.score == 1.0
    assert (spend.tokens, spend.roles["worker"].calls, line.sent) == (tokens, 1, [False])


def test_a_lost_attempt_is_sent_again_alone_and_paid_at_its_bound():
    """Nobody knows whether its calls were answered."""
    line = Line(1)
    scored, spend = drive(line)

    assert scored.verdict.score == 1.0
    assert (spend.tokens, line.sent) == (BOUND + 3, [False, True])


def test_an_attempt_lost_twice_is_no_zero():
    """It is an infrastructure failure with what both tries may have cost."""
    line = Line(2)
    scored, spend = drive(line)

    assert scored.verdict.score is None
    assert scored.verdict.failure == scored.attempt.failure
    assert scored.verdict.failure == Failure(
        kind=FailureKind.INFRA, message="lost twice; the process was killed", where="worker"
    )
    assert Cost(0.0, scored.attempt.prompt_tokens) == Cost(0.0, 2 * BOUND)
    assert (spend.tokens, line.sent) == (2 * BOUND, [False, True])


def test_the_second_try_passes_the_budget_like_the_first():
    """Where only one fits, a lost attempt ends the run instead of passing the cap."""
    line = Line(1)

    with pytest.raises(BudgetSpent):
        drive(line, 2 * BOUND - 1)

    assert line.sent == [False]
