"""What the rollouts in the ledger say of an edit's neighbours, and what is decided on it.

Everything here follows from events: the run that bets (`skillforge.workflows.neighbours`) asks it
whether to go on, and a replay asks it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from skillforge.core.course import run_course
from skillforge.core.events import Event, NewEvent
from skillforge.core.gate import Decision, Registration
from skillforge.core.paired_table import in_words, tabulate
from skillforge.core.paired_tests import mcnemar_exact
from skillforge.core.records import registered_outcomes
from skillforge.core.rollout import Pair, Void
from skillforge.core.rules import GateRules
from skillforge.core.shadowing import AverageHarm, average_harm
from skillforge.core.validity import DIFFERS
from skillforge.ports import Ledger
from skillforge.workflows.contrast import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourVerdict:
    """What the rollouts in the ledger say of an edit's neighbours."""

    standing: AverageHarm
    unused: tuple[str, ...]
    """Registered tasks that were not bet on."""
    found: Report
    """What the commands print of it."""

    def to_json(self) -> Report:
        """Return what the ledger keeps of it."""
        return {
            "decision": self.found["decision"],
            "reasons": self.found["reasons"],
            "unused": list(self.unused),
            "found": self.found,
        }


def read_verdict(ledger: Ledger, registered: Event, stopped: str | None = None) -> NeighbourVerdict:
    """Recompute a verdict from the rollouts in the ledger.

    Args:
        ledger: Where the rollouts are.
        registered: The event that fixed neighbours, tasks and orders.
        stopped: Why the bets ended before there was a verdict, if they did.
    """
    contrasts = contrasts_of(registered)
    outcomes = [
        registered_outcomes(ledger.events, registered.run, one, decided="neighbours.decided")
        for one in contrasts
    ]
    courses = [
        run_course(done, one.rules, one.basis, blocks=one.blocks, pool=one.pool)
        for done, one in zip(outcomes, contrasts, strict=True)
    ]
    totals = [len(one.blocks or one.order) for one in contrasts]
    standing = average_harm(courses, totals, contrasts[0].rules if contrasts else GateRules())
    rows: dict[str, Report] = {}
    unused: list[str] = []
    bet: list[Pair | Void] = []
    for i, one in enumerate(contrasts):
        bets = standing.bets[i]
        used = int(courses[i].used[bets - 1]) if bets else 0
        rows[one.skill] = _row(outcomes[i][:used], standing.e_values[i], standing.futile[i])
        unused += one.order[used:]
        bet += outcomes[i][:used]
    failed = _agent_failures(bet)
    near = [
        {**hit, **rows.get(hit["skill"], _row((), 1.0, False))} for hit in registered.data["near"]
    ]
    spent = registered.data["spent"]
    return NeighbourVerdict(
        standing=standing,
        unused=tuple(unused),
        found={
            "candidate": registered.data["candidate"],
            "decision": _decision(standing, near, spent).value,
            "stopped_by": None if standing.final else stopped,
            "e_value": standing.average,
            "agent_failures": failed,
            "neighbours": near,
            "reasons": [_because(standing, near, spent, stopped), *_failing(failed)],
        },
    )


def settle(ledger: Ledger, run: str) -> None:
    """Cut off every check of a run that will not go on; another run asks the neighbours again."""
    decided = {e.data["candidate"] for e in ledger.events(run=run, kinds=("neighbours.decided",))}
    for registered in ledger.events(run=run, kinds=("neighbours.registered",)):
        if registered.data["candidate"] not in decided:
            decide(ledger, registered, "its run was given up")


def decide(ledger: Ledger, registered: Event, stopped: str | None) -> Report:
    """Write the verdict down; return what the commands print of it.

    Args:
        ledger: Where the rollouts are, and the verdict goes.
        registered: The event that fixed neighbours, tasks and orders.
        stopped: Why the bets ended before there was a verdict, if they did.
    """
    verdict = read_verdict(ledger, registered, stopped)
    kept = {name: registered.data[name] for name in ("candidate", "skill", "version", "lineage")}
    data = {**kept, **verdict.to_json()}
    ledger.append([NewEvent(kind="neighbours.decided", data=data, run=registered.run)])
    return verdict.found


def is_checked(ledger: Ledger, candidate: str) -> bool:
    """Whether the last check of a candidate's neighbours, if there was one, came to its end."""
    decided = list(ledger.events(kinds=("neighbours.decided",), about=(candidate,)))
    return not decided or not decided[-1].data["found"]["stopped_by"]


def contrasts_of(registered: Event) -> list[Registration]:
    """Return the claims that were registered, one for each neighbour."""
    return [Registration.from_json(data) for data in registered.data["contrasts"]]


def _row(outcomes: Sequence[Pair | Void], e_value: float, futile: bool) -> Report:
    """Return the numbers of one neighbour; its lift is that of the edit, not of taking it back."""
    lifts = [-o.difference for o in outcomes if isinstance(o, Pair)]
    failed = [o.arm for o in outcomes if isinstance(o, Void)]
    return {
        "tasks": len(outcomes),
        "dropped": {"with": failed.count("base"), "without": failed.count("augmented")},
        "lift": sum(lifts) / len(lifts) if lifts else None,
        "e_harm": e_value,
        "futile": futile,
    }


def _agent_failures(outcomes: Sequence[Pair | Void]) -> dict[str, dict[str, int]]:
    """Return what the agent failed by on the tasks of all neighbours, with the edit and without."""
    failed = tabulate(o for o in outcomes if isinstance(o, Pair)).agent_failures
    return {"with": dict(failed["base"]), "without": dict(failed["augmented"])}


def _failing(failed: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if any(failed.values()):
        said = " and ".join(f"{in_words(causes)} {arm}" for arm, causes in failed.items())
        yield f"agent failures on its neighbours' tasks, which score 0: {said} the edit"


def _decision(standing: AverageHarm, near: Sequence[Report], spent: Sequence[str]) -> Decision:
    if standing.harmful:
        return Decision.REJECTED_HARM
    return Decision.INSUFFICIENT_EVIDENCE if spent or _hides(near) else Decision.PROBATION


def _hides(near: Sequence[Report]) -> bool:
    """Whether infrastructure fails more often with the edit, so that harm may not be seen."""
    with_, without = (sum(row["dropped"][arm] for row in near) for arm in ("with", "without"))
    return with_ > without and mcnemar_exact(with_, without, "two-sided") <= DIFFERS


def _because(
    standing: AverageHarm, near: Sequence[Report], spent: Sequence[str], stopped: str | None
) -> str:
    asked = [row for row in near if row["tasks"]]
    names = ", ".join(row["skill"] for row in near)
    said = ", ".join(
        f"{row['skill']} {100 * row['lift']:+.0f} points (E harm {row['e_harm']:.3g})"
        for row in asked
        if row["lift"] is not None
    )
    average = f"average harm evidence of its neighbours {standing.average:.3g}"
    if standing.harmful:
        return f"{average} on their own tasks: {said}"
    if _hides(near):
        return f"verdict withheld: infrastructure fails its neighbours' tasks more often; {average}"
    if spent:
        return (
            f"verdict withheld: all confirm tasks of {', '.join(spent)} that it shows something "
            f"else are spent: add tasks to their confirm split; {average}"
        )
    if not standing.final:
        return f"not adopted yet: the check of its neighbours was cut off ({stopped}); {average}"
    if not near:
        return "no other served skill has confirm tasks in the suite: no neighbour was checked"
    if not asked:
        return f"it changes nothing that the fresh tasks of its neighbours ({names}) are shown"
    return f"no harm to its neighbours shown; {average} on their own tasks: {said}"
