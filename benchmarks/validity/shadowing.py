"""Five neighbours of an edit: is harm to them seen, and an edit that does none left in peace?

Each neighbour bets on up to 60 tasks of its own, the library with the edit against the library
without. The rule is that of `skillforge.core.shadowing`, taken from it: the average of the five
harm e-values against 1/.20, and a neighbour for which harm of 10 points is refuted bets no more.
Beside it, on the same draws, what the average is there to avoid: five tests, each at .20 or each
at .20/5.

- `flagged`: share of edits that are rejected; where nobody is harmed it is an error, level .20.
- `tasks`: mean tasks of all neighbours together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import table
from simulate import RULES, FloatArray, binary, holds, standard_error

from skillforge.core.course import Course
from skillforge.core.eprocess import e_process, harm_bet
from skillforge.core.futility import futility_process
from skillforge.core.shadowing import average_harm
from skillforge.workflows.evolve import EvolveSettings

NEIGHBOURS, TASKS = EvolveSettings().neighbours, EvolveSettings().neighbour_tasks
SETTINGS: dict[str, tuple[Sequence[float], float]] = {
    "nobody harmed, discordance .2": ((0.0,) * NEIGHBOURS, 0.2),
    "nobody harmed, discordance .4": ((0.0,) * NEIGHBOURS, 0.4),
    "one loses 30 points": ((-0.3,) + (0.0,) * (NEIGHBOURS - 1), 0.4),
    "two lose 30 points": ((-0.3,) * 2 + (0.0,) * (NEIGHBOURS - 2), 0.4),
    "all lose 30 points": ((-0.3,) * NEIGHBOURS, 0.4),
    "all lose 10 points": ((-0.1,) * NEIGHBOURS, 0.4),
}
"""Lift of the edit for each neighbour, and the share of its tasks whose outcome changes."""
OTHERS = {"five tests at .20": 1.0, "five tests at .20/5": float(NEIGHBOURS)}


def skillforge(harm: FloatArray, refuted: FloatArray) -> tuple[bool, int]:
    """Return whether an edit is rejected and the tasks that it took."""
    no = np.zeros(TASKS)
    courses = [
        Course(
            used=np.arange(1, TASKS + 1),
            stakes=no,
            claim=claim,
            harm=no,
            futility=futility,
            charged=claim,
        )
        for claim, futility in zip(harm, refuted, strict=True)
    ]
    standing = average_harm(courses, [TASKS] * len(courses), RULES)
    return standing.harmful, sum(standing.bets)


def separate(harm: FloatArray, refuted: FloatArray, share: float) -> tuple[bool, int]:
    """Hold each neighbour's evidence against a bar of its own."""
    hit = np.argmax(harm >= share / RULES.harm_stop, axis=1)
    crossed = (harm >= share / RULES.harm_stop).any(axis=1)
    futile = np.where(
        (refuted >= 1 / RULES.beta).any(axis=1),
        np.argmax(refuted >= 1 / RULES.beta, axis=1),
        TASKS - 1,
    )
    flagged = crossed & (hit <= futile)
    if flagged.any():
        first = int(hit[flagged].min())
        return True, int(np.minimum(futile, first).sum()) + len(harm)
    return False, int(futile.sum()) + len(harm)


def simulate_edits(edits: int, seed: int) -> list[table.Row]:
    """Return one row per setting and rule, over so many edits."""
    rows = []
    for number, (setting, (lifts, discordance)) in enumerate(SETTINGS.items()):
        rng = np.random.default_rng([seed, number])
        d = np.stack([binary(rng, lift, discordance, (edits, TASKS)) for lift in lifts], axis=1)
        harm = e_process(harm_bet(d), RULES.lambdas)
        refuted = futility_process(-d, RULES.min_effect)
        found = {"skillforge: average": [*map(skillforge, harm, refuted)]}
        for name, share in OTHERS.items():
            found[name] = [separate(h, f, share) for h, f in zip(harm, refuted, strict=True)]
        for name, verdicts in found.items():
            flagged = float(np.mean([flag for flag, _ in verdicts]))
            row = {
                "name": name,
                "setting": setting,
                "flagged": flagged,
                "standard_error": standard_error(flagged, edits),
                "tasks": round(float(np.mean([tasks for _, tasks in verdicts])), 1),
                "edits": edits,
            }
            if not any(lifts):
                row["level"] = RULES.harm_stop
                row["holds"] = holds(flagged, RULES.harm_stop, edits)
            rows.append(row)
    return rows


def measure(quick: bool, seed: int) -> list[table.Row]:
    """Return one row per setting and rule."""
    return simulate_edits(200 if quick else 4_000, seed)


COLUMNS = ("setting", "name", "flagged", "level", "holds", "tasks")

if __name__ == "__main__":
    table.main("shadowing", measure, COLUMNS)
