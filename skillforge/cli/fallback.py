"""Runs a job, and where its model cannot be reached runs it anew with the fallback model.

A fallback cannot step in within a run. The two rollouts of a pair must be by one model, and more
than that: evidence is bound to the worker that was registered before the first rollout, so a pair
by another worker could not count in the same contrast, whichever arm it stands in. Therefore a pair
whose call fails is void, a run whose model stays away is called off and left open, and the job then
starts anew, as a run of its own, in which the fallback performs every rollout and writes the
proposals. Nothing that one of them measured enters the other's evidence. The open run goes on when
the same command is given again and its model answers.

The caps are for both runs together: the fallback gets what the first has left of them, and the
report shows what both have spent, the first one's part beside the sum. In the ledger each run has
its own bill.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import TypeVar

from skillforge.cli.engine import Engine, make_engine
from skillforge.cli.jobs import Spent
from skillforge.errors import InfraError
from skillforge.workflows.spend import Caps

Result = TypeVar("Result")
Job = Callable[[Engine], Awaitable[tuple[Result, Spent]]]


async def with_fallback(engine: Engine, job: Job[Result]) -> tuple[Result, Spent]:
    """Run a job to its end; return its result, and what was spent on it by both models.

    Raises:
        InfraError: The model cannot be reached, nor can the fallback if there is one.
    """
    try:
        return await _run(engine, job)
    except InfraError as error:
        standby = _standby(engine) if error.where == "model" else None
        if standby is None:
            raise
        name, left = standby.model.name, _left(standby.meter.caps)
        engine.progress.announce(f"{error}; starting anew with the fallback {name}{left}")
        result, spent = await _run(standby, job)
        first = {"model": engine.model.name, **engine.meter.spend.to_json()}
        both = standby.meter.spend.plus(engine.meter.spend)
        return result, {**spent, **both.to_json(), "first": first}


def _left(caps: Caps) -> str:
    left = [f"{cap:,.4g} {what}" for what, cap in asdict(caps).items() if cap is not None]
    return f", with {', '.join(left)} left of the budget" if left else ""


async def _run(engine: Engine, job: Job[Result]) -> tuple[Result, Spent]:
    try:
        return await job(engine)
    finally:
        engine.leave()


def _standby(engine: Engine) -> Engine | None:
    """Return an engine with the fallback model and what is left of the caps, if there is one."""
    settings = engine.session.project.settings.model
    if settings.fallback in (None, engine.model.name):
        return None
    engine.meter.stop()
    paying = replace(
        engine.paying, model=settings.fallback, api_base=settings.fallback_api_base or ""
    )
    caps = engine.meter.caps.less(engine.meter.spend)
    standby = make_engine(engine.session, engine.suite.name, paying, caps=caps)
    standby.progress, standby.stage_only = engine.progress, engine.stage_only
    return standby
