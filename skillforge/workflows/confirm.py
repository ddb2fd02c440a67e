"""Confirm: bet on fresh tasks in a registered order until the gate has spoken.

The registration is in the ledger before the first rollout, and decisions are read from the ledger
alone, so that `replay` can recompute every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from skillforge.core.events import NewEvent
from skillforge.core.gate import GateResult, Registration, decide
from skillforge.core.records import registered_outcomes
from skillforge.core.task import Task
from skillforge.errors import BudgetSpent
from skillforge.ports import Ledger
from skillforge.workflows.trial import Bench, Cell

CellsFor = Callable[[str, Sequence[Task]], list[Cell]]
"""Returns the cells of one arm, named by its subject, over some tasks."""


async def confirm(
    bench: Bench,
    registrations: Sequence[Registration],
    tasks: Mapping[str, Task],
    cells_for: CellsFor,
    *,
    wave: int,
) -> dict[str, GateResult]:
    """Run registered contrasts that share base and fresh tasks; return a result per candidate.

    The base arm is run once for all of them. A spent budget ends the betting: the results then
    stand on the completed prefix.

    Raises:
        BudgetSpent: As the last thing, after every decision has been written.
        InfraError: The model cannot be reached; nothing is decided, a rerun goes on from here.
    """
    order = [tasks[name] for name in registrations[0].fresh] if registrations else []
    spent: BudgetSpent | None = None
    for start in range(0, len(order), wave):
        active = [r for r in registrations if not read_result(bench.ledger, bench.run, r).final]
        if not active:
            break
        chunk = order[start : start + wave]
        cells = cells_for(active[0].base, chunk)
        for registration in active:
            cells += cells_for(registration.version, chunk)
        try:
            await bench.rollouts(cells)
        except BudgetSpent as error:
            spent = error
            break
    results = {r.candidate: read_result(bench.ledger, bench.run, r) for r in registrations}
    for registration in registrations:
        _record(bench.ledger, bench.run, registration, results[registration.candidate])
    if spent is not None:
        raise spent
    return results


def read_result(ledger: Ledger, run: str, registration: Registration) -> GateResult:
    """Recompute a decision from the rollouts in the ledger.

    Once a decision has been written down, it stands on the tasks that it used, also if a later
    rerun under a larger budget adds rollouts.
    """
    used = _used(ledger, run, registration)
    result = decide(
        registered_outcomes(ledger.events, run, registration)[:used],
        registration.rules,
        registration.basis,
        enough=registration.enough,
        blocks=registration.blocks,
        pool=registration.pool,
        on_probation=registration.on_probation,
    )
    reasons = (*result.reasons, *_history(registration))
    return replace(result, reasons=reasons, final=result.final or used is not None)


def _history(registration: Registration) -> Iterator[str]:
    """Say what became of the evidence of earlier runs."""
    if registration.carried:
        runs = ", ".join(f"{bets} in {run}" for run, bets in registration.carried)
        yield f"goes on with the evidence of earlier runs; tasks bet on: {runs}"
    if registration.restarted:
        yield f"evidence begins anew at 1: {registration.restarted}"


def _used(ledger: Ledger, run: str, registration: Registration) -> int | None:
    """Return how many tasks a written decision used, or None if there is none yet."""
    about = (registration.candidate,)
    for event in ledger.events(run=run, kinds=("gate.decided",), about=about):
        return int(event.data["used"])
    return None


def register(bench: Bench, registrations: Sequence[Registration]) -> None:
    """Write registrations down before the first rollout of any of them."""
    events = [
        NewEvent(kind="gate.registered", data=r.to_json(), run=bench.run) for r in registrations
    ]
    bench.ledger.append(events)


def registered(bench: Bench, skill: str) -> dict[str, Registration]:
    """Return what this run has registered for a skill, by candidate."""
    events = bench.ledger.events(run=bench.run, kinds=("gate.registered",))
    found = [Registration.from_json(dict(event.data)) for event in events]
    return {r.candidate: r for r in found if r.skill == skill}


def settle(ledger: Ledger, run: str) -> None:
    """Decide all that a run has registered on what was bet by now, for it will not go on."""
    for event in ledger.events(run=run, kinds=("gate.registered",)):
        registration = Registration.from_json(dict(event.data))
        _record(ledger, run, registration, read_result(ledger, run, registration))


def _record(ledger: Ledger, run: str, registration: Registration, result: GateResult) -> None:
    """Write a decision down once."""
    if _used(ledger, run, registration) is not None:
        return
    data = {
        "candidate": registration.candidate,
        "skill": registration.skill,
        "version": registration.version,
        "lineage": registration.lineage,
        "unused": list(registration.order[result.used :]),
        "looks": registration.looks,
        "tried": registration.tried,
        **result.to_json(),
    }
    ledger.append([NewEvent(kind="gate.decided", data=data, run=run)])
