"""A planted world in which one skill has been evolved, for tests that read the ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.world import PlantedWorker, World, make_world, skill, suite

from skillforge.core.gate import GateRules
from skillforge.workflows.candidates import SkillReport
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.runs import close_run, open_run

BODY = "# Ask\n\nAnswer the question.\n\n## Notes\n\nKeep calm.\n\n## Tips\n\nStay warm.\n"


def evolved_world(
    root: Path, *, worker: PlantedWorker | None = None, max_tasks: int = 60, max_confirm: int = 3
) -> tuple[World, SkillReport]:
    """Evolve the skill ``ask`` within one run; worked examples help a lot unless told otherwise."""
    world = make_world(root, [skill("ask", BODY)])
    run = open_run(world.ledger, world.curator.state, "evolve", {"skill": "ask"})
    bench = world.bench(worker or PlantedWorker(base=0.2, examples=0.5), run=run.id)
    evolver = Evolver(
        bench=bench,
        curator=world.curator,
        suite=suite(["ask"]),
        rules=GateRules(max_tasks=max_tasks),
        settings=EvolveSettings(max_confirm=max_confirm),
    )
    report = asyncio.run(evolver.evolve("ask"))
    bench.meter.stop()
    close_run(world.ledger, run.id, stopped_by="done", spend=bench.meter.spend.to_json())
    return world, report
