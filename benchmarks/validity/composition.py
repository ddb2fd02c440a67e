"""Ten edits that were each found good: is a harmful interaction caught, and named exactly?

Each of ten edits is worth 0 or 1 point alone. In a planted set one or two pairs of edits do harm
together: −15 points on the tasks that show them. The rule is that of
`skillforge.workflows.composition`, taken from it: all edits are measured together, a joint loss is
reduced by `core.minimal_set`, the t-th proof of the night claims at `spending_alpha(t, .05)`, and a
minimal set is rolled back only when it is proven. Only the contrast itself is simulated: fresh
tasks at discordance .25, through the gate, in waves of 8.

- `caught`: share of nights in which the joint loss was proven; `exact`: in which what was rolled
  back is planted pairs and nothing else, and none of them is left.
- `left`: share of planted pairs still served; `innocent`: mean edits rolled back without a part in
  any; `false`: share of nights that rolled back a set without a joint loss. Level: .05.
- `tests`, `pairs`: means per night.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import table
from rules import SELECTION
from simulate import RULES, binary, gate, holds, in_waves, standard_error

from skillforge.workflows.composition import (
    HORIZON,
    AcceptedEdit,
    Composer,
    CompositionReport,
    Edits,
)

EDITS, LOSS, DISCORDANCE = 10, 0.15, 0.25
LIFTS = np.array([0.0, 0.01] * 2 + [0.0] * 5 + [0.01])
LONGEST = HORIZON * RULES.max_tasks
"""Most tasks of one test in a project that leaves `max_tasks` at its default."""
PLANTED = {
    "nothing planted": (),
    "one pair": ((2, 7),),
    "two pairs": ((2, 7), (0, 4)),
    "two pairs, one edit in both": ((2, 7), (2, 5)),
}


@dataclass(slots=True)
class Night:
    """The rule of a night's composition check over contrasts whose truth is known."""

    pairs: tuple[tuple[int, ...], ...]
    """Edits that do harm together."""
    rng: np.random.Generator
    longest: int
    """Most tasks of one test."""
    spent: int = 0
    max_tests: int = 60

    check = Composer.check
    _reduce = Composer._reduce
    _search = Composer._search

    def lift(self, edits: Edits) -> float:
        """Return what a set of edits is worth together."""
        chosen = {int(edit.skill) for edit in edits}
        harm = LOSS * sum(set(pair) <= chosen for pair in self.pairs)
        return float(LIFTS[sorted(chosen)].sum() - harm)

    async def _harmful(self, edits: Edits, report: CompositionReport, *, proof: bool) -> bool:
        """Bet that taking a set of edits back helps."""
        alpha = report.alpha(RULES, proof=proof)
        gain = -self.lift(edits)
        d = binary(self.rng, gain, max(DISCORDANCE, abs(gain)), (1, self.longest))
        verdicts = gate(d, replace(RULES, alpha=alpha), enough=1 / alpha)
        self.spent += int(in_waves(np.minimum(verdicts.stopped, self.longest), self.longest)[0])
        shown = bool(verdicts.reached_probation[0])
        skills = [edit.skill for edit in edits]
        report.tests.append({"skills": skills, "proof": proof, "harmful": shown})
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one night rolled back."""

    sets: tuple[Edits, ...]
    unfounded: bool
    """Whether a set without a joint loss was rolled back."""
    tests: int
    pairs: int


def skillforge(night: Night, edits: Edits) -> Found:
    """Run the check of a night."""
    report = CompositionReport(edits=edits)
    asyncio.run(night.check(report))
    return Found(
        sets=tuple(report.harmful),
        unfounded=any(night.lift(found) >= 0 for found in report.harmful),
        tests=len(report.tests),
        pairs=night.spent,
    )


def latest_first(night: Night, edits: Edits) -> Found:
    """Measure all on 40 tasks and take the latest back while they lose over 5 points.

    SkillAdaptor's holistic validation, with its threshold for a regression.
    """
    left, tests, unfounded = edits, 0, False
    while len(left) > 1:
        tests += 1
        lift = night.lift(left)
        if binary(night.rng, lift, max(DISCORDANCE, abs(lift)), (1, SELECTION)).mean() >= -0.05:
            break
        unfounded |= lift >= 0
        left = left[:-1]
    back = edits[len(left) :]
    sets = (back,) if back else ()
    return Found(sets=sets, unfounded=unfounded, tests=tests, pairs=tests * SELECTION)


RULES_OF_A_NIGHT: dict[str, tuple[Callable[[Night, Edits], Found], int]] = {
    "skillforge": (skillforge, LONGEST),
    "skillforge, 200 tasks a test": (skillforge, RULES.max_tasks),
    "latest first (SkillAdaptor)": (latest_first, SELECTION),
}


def one_night(
    name: str, pairs: tuple[tuple[int, ...], ...], rng: np.random.Generator
) -> dict[str, float]:
    """Run a rule once and hold what it rolled back against what was planted."""
    rule, longest = RULES_OF_A_NIGHT[name]
    # The planted pairs stand anywhere among the edits.
    edits = tuple(
        AcceptedEdit(skill=str(i), parent="old", version="new", candidate=str(i))
        for i in rng.permutation(EDITS)
    )
    found = rule(Night(pairs, rng, longest), edits)
    named = {frozenset(int(edit.skill) for edit in back) for back in found.sets}
    planted = {frozenset(pair) for pair in pairs}
    back = frozenset[int]().union(*named)
    left = [pair for pair in planted if not pair & back]
    return {
        "caught": bool(planted) and bool(named),
        "exact": bool(planted) and not left and named <= planted,
        "left": len(left) / max(len(planted), 1),
        "innocent": len(back.difference(*planted)),
        "false": found.unfounded,
        "tests": found.tests,
        "pairs": found.pairs,
    }


def simulate_nights(nights: int, seed: int, names: Sequence[str]) -> list[table.Row]:
    """Return one row per planted setting and named rule, over so many nights."""
    rows = []
    for number, (setting, pairs) in enumerate(PLANTED.items()):
        for name in names:
            rng = np.random.default_rng([seed, number])
            found = [one_night(name, pairs, rng) for _ in range(nights)]
            means = {key: float(np.mean([night[key] for night in found])) for key in found[0]}
            rows.append(
                {
                    "name": name,
                    "setting": setting,
                    **{key: round(mean, 3) for key, mean in means.items()},
                    "exact_se": standard_error(means["exact"], nights),
                    "level": RULES.harm_retire,
                    "holds": holds(means["false"], RULES.harm_retire, nights),
                    "nights": nights,
                }
            )
    return rows


def measure(quick: bool, seed: int) -> list[table.Row]:
    """Return one row per planted setting and rule."""
    return simulate_nights(40 if quick else 400, seed, tuple(RULES_OF_A_NIGHT))


COLUMNS = (
    "setting", "name", "caught", "exact", "left", "innocent", "false", "level", "holds", "tests",
    "pairs",
)  # fmt: skip

if __name__ == "__main__":
    table.main("composition", measure, COLUMNS)
