"""Audits: what a unit of a skill is worth, and what a skill does to the library around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from skillforge.core.digest import json_digest
from skillforge.core.gate import Basis, Decision, GateResult, GateRules, Registration
from skillforge.core.library import LibraryState
from skillforge.core.package import Package
from skillforge.core.task import Split, Suite, Task
from skillforge.core.units import Unit, leave_out, parse_units, removable, sections
from skillforge.workflows import contrast, measured
from skillforge.workflows.confirm import confirm, register, registered
from skillforge.workflows.contrast import Context, Report, salt_of
from skillforge.workflows.propose import UnitUtility
from skillforge.workflows.retrieve import Retriever
from skillforge.workflows.trial import Bench, Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitAudit:
    """The utilities of a skill's units, frozen against one version of it."""

    units: tuple[UnitUtility, ...]
    informative: bool
    """False where every anchor fails with and without each unit: nothing can be told apart."""


def audited_units(package: Package, *, parts: bool = False) -> tuple[Unit, ...]:
    """Return what an audit leaves out: whole sections, and their parts too if asked for.

    Other files are not audited: a chat worker never shows them.
    """
    level = [*sections(package), *(parse_units(package) if parts else ())]
    unique = {unit.id: unit for unit in removable(level) if unit.path == package.skill_file}
    return tuple(unique.values())


async def audit_units(
    bench: Bench,
    package: Package,
    units: Sequence[Unit],
    anchors: Sequence[Task],
    context: Context,
) -> UnitAudit:
    """Measure the frozen leave-one-out utility of some units of a skill.

    Estimand: mean over the anchor tasks of score(skill) − score(skill without the unit). One set
    of base rollouts serves all units: (units + 1) × anchors rollouts. Source: SkillProx, frozen
    audit; whether a unit is then removed is the gate's to say, on other tasks.
    """
    arms = [package, *(leave_out(package, unit.id) for unit in units)]
    cells: list[Cell] = []
    for i, shown in enumerate(arms):
        cells += contrast.arm_cells(
            anchors,
            arm="augmented" if i else "base",
            package=shown,
            context=context,
            purpose="screen",
        )
    rollouts = await bench.rollouts(cells)
    size = len(anchors)
    without = {u.id: rollouts[i * size : (i + 1) * size] for i, u in enumerate(units, start=1)}
    found = measured.record(bench, measured.AUDIT, package, rollouts[:size], without)
    utilities = tuple(
        UnitUtility(
            unit=unit,
            utility=numbers["lift"] or 0.0,
            interval=None if numbers["interval"] is None else tuple(numbers["interval"]),
            pairs=numbers["outcomes"]["pairs"],
        )
        for unit in units
        for numbers in [found[unit.id]]
    )
    informative = any(rollout.score for rollout in rollouts)
    return UnitAudit(units=utilities, informative=informative)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Where a skill is retrieved."""

    suite: str
    skill: str
    tasks: tuple[Task, ...]
    """Confirm tasks that get the skill."""
    foreign: int
    """How many of them another skill was made for."""

    @property
    def foreign_share(self) -> float:
        """The share of its exposures that another skill was made for, in [0, 1]."""
        return self.foreign / len(self.tasks)


def exposures(suite: Suite, retriever: Retriever, k: int) -> list[Exposure]:
    """Replay retrieval over the confirm tasks; the likeliest shadows first.

    A skill that is retrieved for tasks another skill was made for may shadow it, all the more if
    it is retrieved for nothing else.
    """
    tasks = suite.select(split=Split.CONFIRM)
    exposed: dict[str, list[Task]] = {}
    for task, hits in zip(tasks, retriever.search_many([t.input for t in tasks], k), strict=True):
        for hit in hits:
            exposed.setdefault(hit.skill, []).append(task)
    found = [
        Exposure(
            suite=suite.name,
            skill=skill,
            tasks=tuple(ts),
            foreign=sum(t.skill != skill for t in ts),
        )
        for skill, ts in exposed.items()
    ]
    return sorted(found, key=lambda e: (-e.foreign_share, -e.foreign, e.skill))


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryAudit:
    """What one skill does to the tasks that retrieve it."""

    skill: str
    version: str
    result: GateResult

    @property
    def harmful(self) -> bool:
        """Whether leaving the skill out is proven to help, which is enough to retire it."""
        return self.result.decision is Decision.PROBATION

    def to_json(self) -> Report:
        """Return the audit as a JSON object."""
        lift = self.result.evidence.lift
        return {
            "skill": self.skill,
            "version": self.version,
            "utility": None if lift is None else -lift,
            "contrast": "library without the skill minus library with it",
            "harmful": self.harmful,
            **self.result.to_json(),
        }


async def audit_skill(
    bench: Bench,
    retriever: Retriever,
    exposure: Exposure,
    rules: GateRules,
    *,
    k: int,
    wave: int,
    state: LibraryState,
) -> LibraryAudit:
    """Compare the library with and without one skill, on fresh tasks that retrieve it.

    The candidate is the library without the skill, so that the gate's claim is "leaving it out
    helps": the mirror image of the harm process of the skill. Estimand: mean over exposed tasks of
    score(library without) − score(library), both through retrieval; what takes the skill's place
    is whatever the index ranks next. The claim must reach 1/harm_retire, because the skill is
    served; evidence that it helps, or futility, ends the audit early.
    """
    skill = exposure.skill
    version = retriever.packages[skill].version
    with_, without = f"with:{version}", f"without:{version}"
    known = [r for r in registered(bench, skill).values() if r.version == without]
    if not known:
        known = [_audit_registration(bench, exposure, rules, with_, without, state)]
        register(bench, known)
    registration = known[0]
    # A scope of its own: these rollouts stand for whole libraries and are not shared with others.
    scope = f"{bench.run}/library-audit"

    def cells_for(subject: str, wave_tasks: Sequence[Task]) -> list[Cell]:
        left_out = frozenset({skill}) if subject == without else frozenset[str]()
        found = retriever.search_many([t.input for t in wave_tasks], k, without=left_out)
        return [
            Cell(
                task=task,
                arm="augmented" if subject == without else "base",
                skills=tuple(retriever.packages[hit.skill] for hit in hits),
                subject=subject,
                purpose="confirm",
                replicate=replicate,
                scope=scope,
            )
            for task, hits in zip(wave_tasks, found, strict=True)
            for replicate in range(rules.replicates)
        ]

    by_id = {task.id: task for task in exposure.tasks}
    results = await confirm(bench, [registration], by_id, cells_for, wave=wave)
    return LibraryAudit(skill=skill, version=version, result=results[registration.candidate])


def _audit_registration(
    bench: Bench,
    exposure: Exposure,
    rules: GateRules,
    with_: str,
    without: str,
    state: LibraryState,
) -> Registration:
    lineage = f"{exposure.suite}/{exposure.skill}/library-audit"
    spent = state.spent_by(lineage)
    fresh = [t for t in exposure.tasks if t.id not in spent]
    order, blocks = contrast.betting_order(
        fresh, rules, bench.seed, salt_of(exposure.skill), 3, fewest=1
    )
    return Registration(
        candidate=json_digest([bench.run, lineage, without])[:12],
        skill=exposure.skill,
        base=with_,
        version=without,
        basis=Basis.LIFT,
        rules=replace(rules, alpha=rules.harm_retire),
        order=order,
        enough=1 / rules.harm_retire,
        lineage=lineage,
        blocks=blocks,
        pool=len(fresh),
    )
