"""Runs a job, and where its model cannot be reached runs it anew with the fallback model.

A fallback cannot step in within a run. The two rollouts of a pair must be by one model, and more
than that: evidence is bound to the worker that was registered before the first rollout, so a pair
by another worker could not count in the same contrast, whichever arm it stands in. Therefore a pair
whose call fails is void, a run whose model stays away is called off and left open, and the job then
starts anew, as a run of its own, in which the fallback performs every rollout and writes the
proposals. Nothing that one of them measured enters the other's evidence. The open run goes on when
the same command is given again and its model answers. The caps are for both runs together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from skillforge.cli.engine import Engine, make_engine
from skillforge.errors import InfraError

Result = TypeVar("Result")


async def with_fallback(engine: Engine, job: Callable[[Engine], Awaitable[Result]]) -> Result:
    """Run a job to its end.

    Raises:
        InfraError: The model cannot be reached, nor can the fallback if there is one.
    """
    try:
        return await _run(engine, job)
    except InfraError as error:
        standby = _standby(engine) if error.where == "model" else None
        if standby is None:
            raise
        name = standby.model.name
        engine.progress.announce(f"{error}; starting anew with the fallback {name}")
        return await _run(standby, job)


async def _run(engine: Engine, job: Callable[[Engine], Awaitable[Result]]) -> Result:
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
