"""Ways to get an edit without effect accepted, and what the core's own functions make of each.

Every row is one attack on edits without effect. `open` is how often it succeeds where only the
point of attack is left unguarded; `guarded` is how often it succeeds through the functions named in
`guard`, called as the workflows call them; `refused` is how often these refuse outright. Success is
probation, with level α = .05; of many attempts by one author (level .10, the false discovery rate)
it is probation of any where they are left open, and promotion from the cohort of them all behind
the guard.

The attacks reorder, rewind, select-K, re-propose and targeted tasks follow the list of Precedent's
regression tests; replicate stuffing, failures on purpose, playing to the verifier and the winner's
curse are added here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import table
from recorded import Outcomes, joined, names, rollout, scores
from simulate import RULES, holds, standard_error

from skillforge.core.events import GENESIS, Event, NewEvent, check_chain, link
from skillforge.core.gate import (
    Basis,
    CohortMember,
    Decision,
    GateResult,
    Registration,
    decide,
    promote,
)
from skillforge.core.library import LibraryState
from skillforge.core.library_fold import fold
from skillforge.core.multiplicity import betting_limit
from skillforge.core.rollout import Pair, pair_up
from skillforge.core.splits import check_splits
from skillforge.core.task import Split, Task, VerifierSpec
from skillforge.core.verify import verify
from skillforge.errors import LedgerError
from skillforge.workflows.contrast import betting_order

TASKS = 120
REFUSED = None
"""What an attempt returns that the core refuses."""
Attempt = Callable[[np.random.Generator], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack, without its guard and with it."""

    name: str
    guard: str
    open: Attempt
    guarded: Attempt
    level: float = RULES.alpha


def accepted(outcomes: Outcomes) -> bool:
    """Whether the gate lets a candidate reach probation."""
    result = decide(outcomes, RULES, Basis.LIFT, enough=1 / RULES.alpha)
    return result.decision is Decision.PROBATION


def closing(outcomes: Outcomes, cohort: int) -> GateResult:
    """Bet on for as long as a cohort of so many candidates asks."""
    return decide(outcomes, RULES, Basis.LIFT, enough=betting_limit(cohort, RULES.fdr))


def promoted(results: Sequence[GateResult]) -> bool:
    """Whether closing a cohort of these candidates promotes any."""
    members = [
        CohortMember(candidate=str(i), decision=r.decision, e_value=r.evidence.e_charged)
        for i, r in enumerate(results)
    ]
    return bool(promote(members, RULES.fdr))


# Reorder: wins first.


def reorder(rng: np.random.Generator, *, registered: bool) -> bool:
    """Hand the rollouts over in the order of what they gained."""
    base, augmented = scores(rng, TASKS)
    tasks = names(TASKS)
    mine = np.argsort(base - augmented, kind="stable")
    order = tasks if registered else [tasks[i] for i in mine]
    return accepted(joined(order, [tasks[i] for i in mine], base[mine], augmented[mine]))


# Rewind: go back to before a loss and run again.


def rewind(rng: np.random.Generator) -> bool:
    """Run every lost pair once more, and keep what comes of it."""
    tasks = names(TASKS)
    first, second = scores(rng, TASKS), scores(rng, TASKS)
    lost = first[1] < first[0]
    base, augmented = (np.where(lost, new, old) for old, new in zip(first, second, strict=True))
    return accepted(joined(tasks, tasks, base, augmented))


def rewind_ledger(rng: np.random.Generator) -> bool | None:
    """Cut the lost pairs out of the ledger, whose chain is checked before it is read."""
    tasks = names(TASKS)
    base, augmented = scores(rng, TASKS)
    events: list[Event] = []
    for task, y0, y1 in zip(tasks, base, augmented, strict=True):
        new = NewEvent(kind="rollout.finished", data={"task": task, "scores": [y0, y1]})
        previous = events[-1].hash if events else GENESIS
        events.append(link(new, seq=len(events) + 1, at=0.0, previous=previous))
    try:
        check_chain([e for e in events if e.data["scores"] != [1.0, 0.0]])
    except LedgerError:
        return REFUSED
    return accepted(joined(tasks, tasks, base, augmented))


# Select-K: report the best of many.


def select(rng: np.random.Generator, *, all_count: bool, k: int = 10) -> bool:
    """Try k edits on the same tasks and the same base rollouts, and hand in the best of them."""
    tasks = names(TASKS)
    base = rng.permutation(np.arange(TASKS) % 2) * 1.0
    # As half of the tasks pass, changing a fifth of the outcomes has no effect on their mean.
    tries = [
        joined(tasks, tasks, base, np.where(rng.random(TASKS) < 0.2, 1 - base, base))
        for _ in range(k)
    ]
    if all_count:
        return promoted([closing(outcomes, k) for outcomes in tries])
    return any(accepted(outcomes) for outcomes in tries)


# Re-propose: the same edit until it passes.


def repropose(rng: np.random.Generator, k: int = 10) -> bool:
    """Propose an edit k times on the same tasks, each time as if it were the first."""
    tasks = names(TASKS)
    return any(accepted(joined(tasks, tasks, *scores(rng, TASKS))) for _ in range(k))


def repropose_fresh(rng: np.random.Generator, k: int = 10) -> bool | None:
    """Register each attempt in a ledger; a lineage cannot bet on a task twice."""
    tasks, state, results = names(TASKS), LibraryState(), list[GateResult]()
    for number in range(k):
        fresh = [task for task in tasks if task not in state.spent_by("skill/author")]
        if not fresh:
            break
        result = closing(joined(fresh, fresh, *scores(rng, len(fresh))), k)
        state = spend(state, str(number), fresh, result.used)
        results.append(result)
    won = promoted(results)
    return won if won or len(results) == k else REFUSED


def spend(state: LibraryState, candidate: str, order: Sequence[str], used: int) -> LibraryState:
    """Fold the registration and the decision of a candidate into the state."""
    registration = Registration(
        candidate=candidate,
        skill="skill",
        base="base",
        version="augmented",
        basis=Basis.LIFT,
        rules=RULES,
        order=tuple(order),
        enough=1.0,
        lineage="skill/author",
    ).to_json()
    decided = {**registration, "decision": "rejected_futile", "unused": list(order[used:])}
    news = [
        NewEvent(kind="gate.registered", data=registration),
        NewEvent(kind="gate.decided", data=decided),
    ]
    return fold([link(new, seq=1, at=0.0, previous="") for new in news], state)


# Targeted tasks: those that the base just failed.


def targeted(rng: np.random.Generator) -> bool:
    """Bet on the tasks that failed in diagnosis, against the failures seen there."""
    ease = rng.beta(0.5, 0.5, 4 * TASKS)
    seen, augmented = (rng.random(ease.size) < ease for _ in range(2))
    kept = np.flatnonzero(~seen)[:TASKS]
    tasks = names(len(kept))
    return accepted(joined(tasks, tasks, seen[kept] * 1.0, augmented[kept] * 1.0))


def untargeted(rng: np.random.Generator) -> bool | None:
    """Draw the order from the confirm split, with base rollouts of the same run."""
    ease = rng.beta(0.5, 0.5, 2 * TASKS)
    tasks = suite(2 * TASKS)
    if not check_splits(with_smuggled(tasks[: TASKS // 2], tasks)):
        return True
    confirm = [task for task in tasks if task.split is Split.CONFIRM]
    order, _ = betting_order(confirm, RULES, int(rng.integers(2**31)))
    rate = {task.id: p for task, p in zip(tasks, ease, strict=True)}
    base, augmented = ([float(rng.random() < rate[t]) for t in order] for _ in range(2))
    return accepted(joined(order, order, base, augmented))


def suite(count: int) -> list[Task]:
    """Return tasks, the first half for diagnosis and the second for confirmation."""
    return [
        Task(
            id=f"t{i}",
            family=f"f{i}",
            input=f"question {i}",
            expected="yes",
            skill="skill",
            split=Split.PROPOSE if i < count // 2 else Split.CONFIRM,
            verifier=VerifierSpec(kind="exact"),
        )
        for i in range(count)
    ]


def with_smuggled(chosen: Sequence[Task], tasks: Sequence[Task]) -> list[Task]:
    """Return a suite in which diagnosis tasks stand in the confirm split once more."""
    return [*tasks, *(replace(t, id=f"{t.id}/again", split=Split.CONFIRM) for t in chosen)]


# Replicate stuffing: few tasks, many times.


def stuffed(rng: np.random.Generator, *, as_replicates: bool, k: int = 40) -> bool:
    """Run 6 tasks 40 times each; the edit helps some of them and harms as many of all tasks."""
    tasks = names(6)
    ease = rng.uniform(0.35, 0.65, len(tasks))
    moved = ease + rng.choice([-0.35, 0.35], len(tasks))
    base, augmented = (rng.random((k, len(tasks))) < p for p in (ease, moved))
    if not as_replicates:
        each = [f"{task}#{i}" for i in range(k) for task in tasks]
        return accepted(joined(each, each, base.ravel() * 1.0, augmented.ravel() * 1.0))
    arms = (
        {
            task: [rollout(task, arm, float(hits[i, j]), i) for i in range(k)]
            for j, task in enumerate(tasks)
        }
        for arm, hits in (("base", base), ("augmented", augmented))
    )
    return accepted(pair_up(tasks, *arms, replicates=k))


# Failures on purpose: crash where the task is hard.


def crash(rng: np.random.Generator, *, dropped: bool, host: float = 0.0) -> bool:
    """Fail for want of a machine wherever the edit would have turned a pass into a failure.

    Besides, the host takes this share of the attempts of either arm, among which it may be hidden.
    """
    tasks = names(TASKS)
    arms = scores(rng, TASKS)
    lost = arms[1] < arms[0]
    base, augmented = (
        [None if gone else y for y, gone in zip(arm, taken, strict=True)]
        for arm, taken in zip(
            arms, (rng.random(TASKS) < host, lost | (rng.random(TASKS) < host)), strict=True
        )
    )
    outcomes = joined(tasks, tasks, base, augmented)
    return accepted([o for o in outcomes if isinstance(o, Pair)] if dropped else outcomes)


# Playing to the verifier: name every label.


def stuffs_labels(rng: np.random.Generator, *, kind: str) -> bool:
    """Answer with all labels at once where the base names one."""
    labels = ("bug", "feature", "question", "other")
    tasks = names(TASKS)
    spec = VerifierSpec(kind=kind)
    expected = rng.choice(labels, TASKS)
    answers = np.where(rng.random(TASKS) < 0.5, expected, rng.choice(labels, TASKS))
    base = [verify(spec, str(e), str(a)) for e, a in zip(expected, answers, strict=True)]
    augmented = [verify(spec, str(e), " ".join(labels)) for e in expected]
    return accepted(joined(tasks, tasks, base, augmented))


# The winner's curse: choose and confirm on the same tasks.


def curse(rng: np.random.Generator, *, fresh: bool, k: int = 10) -> bool:
    """Choose the best of k edits on screening tasks, and bet on these or on fresh ones."""
    tasks = names(TASKS)
    screened = [joined(tasks, tasks, *scores(rng, TASKS)) for _ in range(k)]
    best = max(screened, key=lambda outcomes: sum(o.difference for o in outcomes))
    return accepted(joined(tasks, tasks, *scores(rng, TASKS)) if fresh else best)


ATTACKS = (
    Attack(
        name="reorder: wins first",
        guard="pair_up along the registered order",
        open=lambda rng: reorder(rng, registered=False),
        guarded=lambda rng: reorder(rng, registered=True),
    ),
    Attack(
        name="rewind: lost pairs run again",
        guard="check_chain of the ledger",
        open=rewind,
        guarded=rewind_ledger,
    ),
    Attack(
        name="select-K: best of 10",
        guard="promote: m counts all that started",
        open=lambda rng: select(rng, all_count=False),
        guarded=lambda rng: select(rng, all_count=True),
        level=RULES.fdr,
    ),
    Attack(
        name="re-propose: 10 times",
        guard="LibraryState.spent_by, promote",
        open=repropose,
        guarded=repropose_fresh,
        level=RULES.fdr,
    ),
    Attack(
        name="targeted tasks: where the base failed",
        guard="check_splits, betting_order, fresh base",
        open=targeted,
        guarded=untargeted,
    ),
    Attack(
        name="replicate stuffing: 6 tasks × 40",
        guard="pair_up averages replicates",
        open=lambda rng: stuffed(rng, as_replicates=False),
        guarded=lambda rng: stuffed(rng, as_replicates=True),
    ),
    Attack(
        name="failures on purpose: crash when losing",
        guard="run_course charges, decide withholds",
        open=lambda rng: crash(rng, dropped=True),
        guarded=lambda rng: crash(rng, dropped=False),
    ),
    Attack(
        name="the same, hidden: host takes 1 in 10",
        guard="run_course charges, decide withholds",
        open=lambda rng: crash(rng, dropped=True, host=0.1),
        guarded=lambda rng: crash(rng, dropped=False, host=0.1),
    ),
    Attack(
        name="playing to the verifier: all labels",
        guard="verify: exact, not contains",
        open=lambda rng: stuffs_labels(rng, kind="contains"),
        guarded=lambda rng: stuffs_labels(rng, kind="exact"),
    ),
    Attack(
        name="winner's curse: best of 10 confirmed",
        guard="fresh tasks after the screen",
        open=lambda rng: curse(rng, fresh=False),
        guarded=lambda rng: curse(rng, fresh=True),
    ),
)


def measure(quick: bool, seed: int) -> list[table.Row]:
    """Return one row per attack."""
    runs, rows = 25 if quick else 250, []
    for number, attack in enumerate(ATTACKS):
        rng = np.random.default_rng([seed, number])
        plain = [bool(attack.open(rng)) for _ in range(runs)]
        tried = [attack.guarded(rng) for _ in range(runs)]
        rate = float(np.mean([bool(found) for found in tried]))
        rows.append(
            {
                "name": attack.name,
                "guard": attack.guard,
                "open": float(np.mean(plain)),
                "guarded": rate,
                "standard_error": standard_error(rate, runs),
                "refused": float(np.mean([found is REFUSED for found in tried])),
                "level": attack.level,
                "holds": holds(rate, attack.level, runs),
                "attempts": runs,
            }
        )
    return rows


COLUMNS = ("name", "open", "guarded", "refused", "level", "holds", "guard")

if __name__ == "__main__":
    table.main("attacks", measure, COLUMNS)
