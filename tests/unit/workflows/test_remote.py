"""What the driver pays for attempts that other processes perform, and what becomes of lost ones."""

import asyncio

import pytest
from support.world import PlantedWorker, TickingClock, suite

from skillforge.core.chat import Cost
from skillforge.core.rollout import Attempt, Failure, FailureKind, Verdict
from skillforge.errors import BudgetSpent, ConfigError, InfraError
from skillforge.workflows.meter import Meter
from skillforge.workflows.remote import Driver
from skillforge.workflows.spend import Caps
from skillforge.workflows.trial import Scored, Work

TASK = suite(["a"]).tasks[0]
BOUND = PlantedWorker().bound(TASK, ()).tokens


class Line:
    """Loses the first tries, then brings back what one attempt used."""

    def __init__(self, losses, tokens=3, *, told=True):
        self.losses, self.tokens, self.told, self.sent = losses, tokens, told, []

    async def __call__(self, item, *, alone=False):
        """Send once."""
        self.sent.append(alone)
        if len(self.sent) <= self.losses:
            raise InfraError("the process was killed")
        attempt = Attempt(output="x", prompt_tokens=self.tokens, cost_told=self.told)
        return Scored(attempt, Verdict(score=1.0))


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


def test_an_attempt_dearer_than_its_bound_is_an_error_where_a_cap_relies_on_it():
    """Elsewhere as here, a bound that does not hold makes no cap hold."""
    with pytest.raises(ConfigError, match=f"at most .* and {BOUND} were expected"):
        drive(Line(0, BOUND + 1), 10 * BOUND)

    assert drive(Line(0, BOUND + 1))[1].tokens == BOUND + 1


def test_the_bill_tells_what_nobody_told():
    """Attempts whose cost is a guess are counted, the lost ones among them."""
    assert drive(Line(0, told=False))[1].roles["worker"].at_bound == 1
    assert drive(Line(1))[1].roles["worker"].at_bound == 1


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
