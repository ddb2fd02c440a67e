"""Nights in a row err as rarely as one: edits without effect, through the real workflows."""

import asyncio
import math
from dataclasses import replace

from support.proposals import propose
from support.world import PlantedWorker, make_world, skill, suite

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.core.gate import GateRules
from skillforge.core.task import Split
from skillforge.workflows import carry
from skillforge.workflows.admission import Admission
from skillforge.workflows.contrast import Context
from skillforge.workflows.replay import replay

SKILLS, EDITS, NIGHT = 12, 10, 32
"""Skills, edits of each, and fresh tasks that a night bets on for each edit."""


def test_candidates_carried_over_two_nights_rarely_reach_probation(tmp_path):
    """Without an effect, at most α of the candidates are on probation after either night."""
    names = [f"ask-{i}" for i in range(SKILLS)]
    world = make_world(tmp_path, [skill(name, f"# {name}\n\nAnswer.\n") for name in names])
    tasks, rules = suite(names, confirm=2 * NIGHT), GateRules(max_tasks=NIGHT)

    def betting(name, night):
        bench = world.bench(PlantedWorker(base=0.5), run=f"night-{night}", seed=night)
        return Admission(
            bench=replace(bench, executor=AsyncioExecutor(NIGHT)),
            curator=world.curator,
            rules=rules,
            suite=tasks.name,
            skill=name,
            tasks=tasks.select(skill=name, split=Split.CONFIRM),
            context=Context(skill=name),
            wave=NIGHT,
            cohort_size=SKILLS * EDITS,
        )

    remarks, carried = [f"Remark {n}." for n in range(EDITS)], 0
    for name in names:
        base = world.curator.package(name)
        asyncio.run(betting(name, 1).decide(base, propose(world, "night-1", base, remarks)))
        undecided = carry.undecided(world.curator, tasks.name, name, base.version)
        asyncio.run(betting(name, 2).decide(base, undecided))
        carried += len(undecided)

    decided = {e.data["candidate"]: e.data for e in world.ledger.events(kinds=("gate.decided",))}
    wrong = sum(d["decision"] in ("probation", "rolled_back") for d in decided.values())
    error = math.sqrt(rules.alpha * (1 - rules.alpha) / len(decided))
    assert len(decided) == SKILLS * EDITS
    assert carried > len(decided) / 10
    assert max(data["confirm"]["pairs"] for data in decided.values()) > NIGHT
    assert wrong / len(decided) <= rules.alpha + 2 * error
    assert replay(world.ledger).problems == ()
