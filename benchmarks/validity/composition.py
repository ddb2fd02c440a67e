"""Ten edits that were each found good: is a harmful interaction caught, and named exactly?

Each of ten edits is worth 0 or 1 point alone. In a planted set one or two pairs of edits do harm
together: −15 points on the tasks that show them. The rule is that of
`skillforge.workflows.composition`, taken from it: all edits are measured together, a joint loss is
reduced by `core.minimal_set`, the t-th test of the night claims at `spending_alpha(t, .05)`, and a
minimal set is rolled back only when it is proven. Only the contrast itself is simulated: fresh
tasks at discordance .25 (the wider, the more edits differ), through the gate, in waves of 8.

- `caught`: share of nights in which the joint loss was proven; `exact`: in which what was rolled
  back is planted pairs and nothing else, and none of them is left.
- `left`: share of planted pairs still served; `innocent`: mean edits rolled back without a part in
  any; `false`: share of nights that rolled back a set without a joint loss. Level: .05.
- `tests`, `pairs`: means per night.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import numpy as np
import table
from simulate import RULES, binary, gate, holds, in_waves, standard_error

from skillforge.core.multiplicity import spending_alpha
from skillforge.workflows.composition import AcceptedEdit, Composer, CompositionReport, Edits

EDITS, LOSS, DISCORDANCE = 10, 0.15, 0.25
LIFTS = np.array([0.0, 0.01] * 2 + [0.0] * 5 + [0.01])
LONGEST = 600
"""Most tasks of one test."""
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
    spent: int = 0
    max_tests: int = 40
    losses: list[float] = field(default_factory=list)
    """True joint lift of every set that was tested."""

    check = Composer.check
    _reduce = Composer._reduce

    def lift(self, edits: Edits) -> float:
        """Return what a set of edits is worth together."""
        chosen = {int(edit.skill) for edit in edits}
        harm = LOSS * sum(set(pair) <= chosen for pair in self.pairs)
        return float(LIFTS[sorted(chosen)].sum() - harm)

    async def _harmful(self, edits: Edits, report: CompositionReport) -> bool:
        """Bet that taking a set of edits back helps."""
        alpha = spending_alpha(len(report.tests) + 1, RULES.harm_retire)
        gain = -self.lift(edits)
        d = binary(self.rng, gain, max(DISCORDANCE, abs(gain)), (1, LONGEST))
        verdicts = gate(d, replace(RULES, alpha=alpha), enough=1 / alpha)
        self.spent += int(in_waves(np.minimum(verdicts.stopped, LONGEST), LONGEST)[0])
        proven = bool(verdicts.reached_probation[0])
        report.tests.append({"skills": [edit.skill for edit in edits], "harmful": proven})
        return proven


def edits() -> Edits:
    """Return the edits of one night, named by number."""
    return tuple(
        AcceptedEdit(skill=str(i), parent="old", version="new", candidate=str(i))
        for i in range(EDITS)
    )


def one_night(pairs: tuple[tuple[int, ...], ...], rng: np.random.Generator) -> dict[str, float]:
    """Run the check once and hold what it rolled back against what was planted."""
    # The planted pairs stand anywhere among the edits.
    order = tuple(edits()[i] for i in rng.permutation(EDITS))
    night, report = Night(pairs, rng), CompositionReport(edits=order)
    asyncio.run(night.check(report))
    named = [frozenset(int(edit.skill) for edit in found) for found in report.harmful]
    planted = {frozenset(pair) for pair in pairs}
    back = frozenset[int]().union(*named)
    left = [pair for pair in planted if not pair & back]
    return {
        "caught": bool(planted) and bool(named),
        "exact": bool(planted) and not left and set(named) <= planted,
        "left": len(left) / max(len(planted), 1),
        "innocent": len(back.difference(*planted)),
        "false": any(night.lift(found) >= 0 for found in report.harmful),
        "tests": len(report.tests),
        "pairs": night.spent,
    }


def measure(quick: bool, seed: int) -> list[table.Row]:
    """Return one row per planted setting."""
    nights, rows = 40 if quick else 400, []
    for number, (setting, pairs) in enumerate(PLANTED.items()):
        rng = np.random.default_rng([seed, number])
        found = [one_night(pairs, rng) for _ in range(nights)]
        means = {name: float(np.mean([night[name] for night in found])) for name in found[0]}
        rows.append(
            {
                "name": "skillforge",
                "setting": setting,
                **{name: round(means[name], 3) for name in means},
                "exact_se": standard_error(means["exact"], nights),
                "level": RULES.harm_retire,
                "holds": holds(means["false"], RULES.harm_retire, nights),
                "nights": nights,
            }
        )
    return rows


COLUMNS = (
    "setting", "caught", "exact", "left", "innocent", "false", "level", "holds", "tests", "pairs",
)  # fmt: skip

if __name__ == "__main__":
    table.main("composition", measure, COLUMNS)
