"""What a command would cost before it begins: the fewest and most rollouts, tokens and USD."""

from __future__ import annotations

from skillforge.cli.engine import Engine
from skillforge.core.task import Split
from skillforge.errors import SuiteError
from skillforge.workflows import carry
from skillforge.workflows.contrast import Report
from skillforge.workflows.estimate import estimate

UNITS, CANDIDATES = 12, 4
"""Units that are audited and edits that are proposed, of one skill; rarely more."""


def of_rollouts(engine: Engine, skills: list[str], low: int, high: int) -> Report:
    """Return the ranges of what so many rollouts on the tasks of some skills may cost.

    Raises:
        SuiteError: The suite has no tasks for them.
        ConfigError: The price of the model is unknown.
    """
    packages = [engine.session.curator.package(name) for name in skills]
    longest = max(packages, key=lambda p: len(p.body))
    suite = engine.suite
    tasks = [t for name in skills for t in suite.select(skill=name)]
    if not tasks:
        raise SuiteError(
            f"suite {suite.name} has no tasks for {', '.join(skills)}: name the skill in the "
            f"tasks' `skill` field, or another suite with --suite; it has tasks for "
            f"{', '.join(suite.skills) or 'no skill'}"
        )
    return estimate(engine.worker, tasks, [longest], fewest=low, most=high).to_json()


def of_evolving(engine: Engine, skills: list[str]) -> Report:
    """Return the ranges of what evolving some skills may cost."""
    return of_rollouts(engine, skills, *_evolving(engine, skills))


def of_night(engine: Engine, skills: list[str]) -> Report:
    """Return the ranges of what a night may cost, audits and composition included."""
    low, high = _evolving(engine, skills)
    rules, audits = engine.rules, engine.session.project.settings.nightly.library_audits
    tasks = len(engine.suite.select(split=Split.CONFIRM))
    # Each test of a composition is on tasks that no test before it has used.
    together = tasks if len(skills) > 1 else 0
    pairs = audits * min(rules.max_tasks, tasks) + together
    return of_rollouts(engine, skills, low, high + 2 * rules.replicates * pairs)


def _evolving(engine: Engine, skills: list[str]) -> tuple[int, int]:
    """Return the fewest and most rollouts of evolving some skills."""
    s, rules, suite = engine.evolve_settings, engine.rules, engine.suite
    fixed = (s.propose_tasks + s.anchors) * len(skills)
    most = fixed + s.anchors * (UNITS + CANDIDATES) * len(skills)
    neighbours = min(s.neighbours, len(suite.skills) - 1)
    beside = 2 * s.max_confirm * neighbours * s.neighbour_tasks
    for skill in skills:
        carried = carry.arms(engine.session.curator, suite.name, skill, s.max_confirm)
        tasks = min(rules.max_tasks, len(suite.select(skill=skill, split=Split.CONFIRM)))
        most += rules.replicates * (tasks * (1 + s.max_confirm + carried) + beside)
    return fixed, most
