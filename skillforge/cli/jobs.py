"""What the paying commands do with an engine. The command line and the Python API share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from skillforge.cli.engine import Engine
from skillforge.core.arms import Arms
from skillforge.core.gate import Decision
from skillforge.core.library import require_served
from skillforge.core.task import Split, Task
from skillforge.errors import BudgetSpent, SuiteError
from skillforge.workflows.audit import UnitAudit, audit_units, audited_units
from skillforge.workflows.calibrate import Calibration, calibrate, last_calibration
from skillforge.workflows.candidates import SkillReport
from skillforge.workflows.contrast import freeze_context, salt_of, spread
from skillforge.workflows.evaluate import Evaluation, evaluate
from skillforge.workflows.nightly import Nightly, NightlySettings, NightReport, planned_night
from skillforge.workflows.runs import GOES_ON, STARTS_ANEW

P = ParamSpec("P")
R = TypeVar("R")
Spent = Mapping[str, Any]
"""What a run spent, under the names that the commands print."""


def _stays_open(job: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Say how to go on with a run that the budget stops; see `skillforge.workflows.runs`."""

    @wraps(job)
    async def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await job(*args, **kwargs)
        except BudgetSpent as spent:
            raise BudgetSpent(f"{spent}; {GOES_ON}") from spent

    return told


@_stays_open
async def evaluate_skill(
    engine: Engine, skill: str, *, arms: Arms, tasks: int, replicates: int
) -> tuple[Evaluation, Spent]:
    """Measure a skill against its absence, as one run.

    Raises:
        SkillError: The skill is unknown or retired.
        SuiteError: The suite has no confirm tasks for it.
        BudgetSpent: A cap was reached; the run stays open, and asking again goes on with it.
        InfraError: The model cannot be reached; asking again goes on with the run.
    """
    require_served(engine.session.curator.state, skill)
    _warn_of_replicates(engine, replicates)
    request = {"skill": skill, "arms": list(arms), "tasks": tasks, "replicates": replicates}
    run = engine.open("eval", request)
    measured = await evaluate(
        engine.bench(run),
        engine.session.curator,
        engine.suite,
        skill,
        engine.rules,
        tasks=tasks,
        arms=arms,
        retriever=engine.context_retriever(),
        k=engine.evolve_settings.k,
        replicates=replicates,
    )
    return measured, engine.close(run)


def _warn_of_replicates(engine: Engine, replicates: int) -> None:
    """Say once where replicates are asked for that would tell nothing new."""
    if replicates > 1 and engine.suite.worker.samples_greedily:
        engine.progress.announce(
            f"warning: {replicates} replicates at temperature 0 are nearly the same answer "
            f"{replicates} times; set temperature in [worker] of suite {engine.suite.name} above "
            "0, or leave it out for the model's own"
        )


@_stays_open
async def calibrate_worker(engine: Engine, *, tasks: int) -> tuple[Calibration, Spent]:
    """Run a worker against itself on a suite, as one run.

    Raises:
        SuiteError: The suite has no tasks in its propose and screen splits.
        BudgetSpent: A cap was reached; the run stays open, and asking again goes on with it.
        InfraError: The model cannot be reached; asking again goes on with the run.
    """
    run = engine.open("calibrate", {"tasks": tasks})
    skills = engine.session.curator.served()
    found = await calibrate(engine.bench(run), engine.suite, skills, engine.rules, tasks=tasks)
    return found, engine.close(run)


def calibration(engine: Engine) -> Mapping[str, Any] | None:
    """Return how often this worker flips on this suite, if it was ever calibrated."""
    found = last_calibration(engine.session.ledger, engine.suite, engine.worker.fingerprint)
    return None if found is None else {n: found[n] for n in ("flip_rate", "flip_interval", "pairs")}


async def evolve_skill(engine: Engine, skill: str) -> tuple[SkillReport, Spent]:
    """Try to make one skill better, as one run; a spent budget ends it with what there is.

    Raises:
        SkillError: The skill is unknown or retired.
        SuiteError: The suite has no tasks for it in one of the splits.
        InfraError: The model cannot be reached; asking again goes on with the run.
    """
    require_served(engine.session.curator.state, skill)
    _warn_of_replicates(engine, engine.rules.replicates)
    run = engine.open("evolve", {"skill": skill, **engine.evolving})
    evolver = engine.evolver(run, cohort_size=engine.evolve_settings.max_confirm)
    report = await evolver.evolve(skill)
    spent = engine.close(run, report.stopped_by or "done")
    if report.stopped_by:
        report.stopped_by += f"; {STARTS_ANEW}"
    return report, spent


def audit_anchors(engine: Engine, skill: str, tasks: int) -> list[Task]:
    """Return the screen tasks that an audit of a skill's units runs on.

    Raises:
        SuiteError: The suite has none for the skill.
    """
    available = engine.suite.select(skill=skill, split=Split.SCREEN)
    if not available:
        raise SuiteError(f"suite {engine.suite.name} has no screen tasks for {skill}")
    return spread(available, tasks, engine.paying.seed, salt_of(skill), 1)


@_stays_open
async def audit_skill_units(engine: Engine, skill: str, *, tasks: int) -> tuple[UnitAudit, Spent]:
    """Measure every unit of a skill by leaving it out, as one run.

    Raises:
        SkillError: The skill is unknown or retired.
        SuiteError: The suite has no screen tasks for it.
        BudgetSpent: A cap was reached; the run stays open, and asking again goes on with it.
        InfraError: The model cannot be reached; asking again goes on with the run.
    """
    require_served(engine.session.curator.state, skill)
    anchors = audit_anchors(engine, skill, tasks)
    run = engine.open("audit", {"skill": skill, "tasks": tasks})
    context = freeze_context(engine.context_retriever(), skill, anchors, engine.evolve_settings.k)
    package = engine.session.curator.package(skill)
    units = audited_units(package, parts=True)
    found = await audit_units(engine.bench(run), package, units, anchors, context)
    return found, engine.close(run)


def night_order(engine: Engine) -> list[str]:
    """Return the skills that a night evolves: those named, or all the suite has tasks for.

    Never measured ones come first; one that is named and was retired since is passed over.

    Raises:
        SkillError: One that is named is unknown, or all of them are retired.
        SuiteError: No served skill has tasks in the suite.
    """
    curator, settings = engine.session.curator, engine.session.project.settings.nightly
    if settings.skills:
        retired = {name for name, skill in curator.state.skills.items() if not skill.served}
        going = [name for name in settings.skills if name not in retired]
        for name in going or settings.skills:
            require_served(curator.state, name)
        for name in settings.skills:
            if name in retired:
                engine.progress.announce(f"{name} of [nightly] skills is retired: left out")
        return going
    known = [name for name in curator.state.served if name in engine.suite.skills]
    if not known:
        if not curator.state.skills:
            require_served(curator.state, "")
        raise SuiteError(
            f"suite {engine.suite.name} has no tasks for any served skill: name another with "
            f"--suite; it has tasks for {', '.join(engine.suite.skills) or 'no skill'}"
        )
    unmeasured = Decision.UNMEASURED.value
    return sorted(known, key=lambda n: curator.state.skills[n].evidence != unmeasured)


async def run_night(engine: Engine, order: list[str]) -> tuple[NightReport, Spent]:
    """Run one night over some skills, in this order; one that goes on keeps its own.

    Raises:
        InfraError: The model cannot be reached; asking again goes on with the run.
    """
    session, settings = engine.session, engine.session.project.settings.nightly
    _warn_of_replicates(engine, engine.rules.replicates)
    audits = {"library_audits": settings.library_audits}
    run = engine.open("nightly", {"skills": list(settings.skills), **audits, **engine.evolving})
    state = session.curator.state
    served = {name: state.skill(name).current for name in state.served}
    order, library = planned_night(session.ledger, run.id, order, served)
    cohort_size = len(order) * engine.evolve_settings.max_confirm
    night = Nightly(
        evolver=engine.evolver(run, cohort_size=cohort_size, library=library),
        suite=engine.suite,
        settings=NightlySettings(skills=tuple(order), **audits),
        make_retriever=session.retriever,
        announce=engine.progress.announce,
    )
    report = await night.run(order)
    spent = engine.close(run, report.stopped_by)
    if report.stopped_by != "done":
        report.stopped_by += f"; {STARTS_ANEW}"
    return report, spent
