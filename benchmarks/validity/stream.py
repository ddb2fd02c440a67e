"""What is promoted over a month of nights: false discoveries, harm, power, pairs.

A night starts 40 candidates: 20 % good (+15 points), 20 % harmful (−10), 60 % neutral. Ours bets on
up to 160 fresh tasks a night. A candidate without a verdict goes on for a second night with its E
multiplied, if it is on probation or its E is above 1. Its cohort stays that of its first night and
is closed after each of the two, with `core.gate.promote`: current E-values, those that stopped
frozen at theirs, m = all that were ever started.

The others decide once, on all 320 tasks of each candidate; SAFFRON and LORD++ test the stream of
exact McNemar p-values in order. Rows:

- `fdr`: mean share of neutral and harmful edits among those promoted over the whole stream;
  `fdr_cohort`: the same of each night's cohort.
- `harmful`: share of harmful edits among all promotions; `power`: share of good edits promoted.
- `null_nights`: how often five nights without a single good or harmful edit promote anything.
- `pairs`: mean pairs spent on a candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import rules
import table
from simulate import RULES, BoolArray, FloatArray, IntArray, binary, gate, standard_error

from skillforge.core.gate import CohortMember, Decision, promote
from skillforge.core.multiplicity import betting_limit

NIGHTS, NIGHT, CANDIDATES, NULL_NIGHTS = 30, 160, 40, 5
MIXTURE = np.repeat([0.15, -0.10, 0.0], [8, 8, 24])
"""True lifts of a night's candidates."""
DISCORDANCES = (0.2, 0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotions:
    """What was promoted and what it cost, each of shape (cohorts, candidates)."""

    promoted: BoolArray
    pairs: IntArray


def draw(
    rng: np.random.Generator, lifts: FloatArray, discordance: float, cohorts: int
) -> FloatArray:
    """Draw differences of two nights per candidate, cohort by cohort: (cohorts · m, pairs)."""
    shape = (cohorts, 2 * NIGHT)
    columns = [binary(rng, float(lift), discordance, shape) for lift in lifts]
    return np.stack(columns, axis=1).reshape(cohorts * len(lifts), 2 * NIGHT)


def skillforge(d: FloatArray, candidates: int = CANDIDATES) -> Promotions:
    """Run the gate for two nights and close every cohort after each of them."""
    verdicts = gate(d, enough=betting_limit(candidates, RULES.fdr))
    decisions, e_values, used = verdicts.after(NIGHT)
    promoted = close(decisions, e_values, candidates)
    decisions = np.where(promoted, Decision.PROMOTED.value, decisions)
    on = (decisions == Decision.PROBATION) | (
        (decisions == Decision.INSUFFICIENT_EVIDENCE) & (e_values > 1)
    )
    on &= verdicts.stopped > NIGHT
    second = verdicts.after(2 * NIGHT)
    decisions, e_values, used = (
        np.where(on, later, now)
        for now, later in zip((decisions, e_values, used), second, strict=True)
    )
    promoted |= close(decisions, e_values, candidates)
    shape = (-1, candidates)
    return Promotions(promoted=promoted.reshape(shape), pairs=used.reshape(shape))


def close(decisions: np.ndarray, e_values: FloatArray, candidates: int) -> BoolArray:
    """Return who is newly promoted when each cohort, a run of so many candidates, is closed."""
    promoted = np.zeros(len(e_values), dtype=np.bool_)
    for start in range(0, len(e_values), candidates):
        members = [
            CohortMember(candidate=str(i), decision=Decision(decisions[i]), e_value=e_values[i])
            for i in range(start, start + candidates)
        ]
        promoted[[int(name) for name in promote(members, RULES.fdr)]] = True
    return promoted


def once(rule: rules.Rule) -> Callable[[FloatArray], Promotions]:
    """Apply a rule of one look to every candidate, after all pairs."""

    def accept(d: FloatArray) -> Promotions:
        promoted = rule(d).reshape(-1, CANDIDATES)
        return Promotions(promoted=promoted, pairs=np.full(promoted.shape, d.shape[1]))

    return accept


def in_streams(name: str, nights: int) -> rules.Rule:
    """Test the candidates of each stream of so many nights in order."""

    def accept(d: FloatArray) -> BoolArray:
        streams = rules.p_values(d).reshape(-1, nights * CANDIDATES)
        return np.concatenate([rules.online(name, p, RULES.fdr) for p in streams])

    return accept


def contenders(nights: int) -> dict[str, Callable[[FloatArray], Promotions]]:
    """Return every rule, ours first."""
    online = {f"{name} .10": once(in_streams(name, nights)) for name in ("SAFFRON", "LORD++")}
    others = {name: once(rule) for name, rule in rules.OTHERS.items()}
    return {"skillforge": skillforge, **online, **others}


def false_share(promoted: BoolArray, false: BoolArray) -> FloatArray:
    """Return the false share of what each row promoted, 0 where it promoted nothing."""
    return np.asarray((promoted & false).sum(axis=1) / np.maximum(promoted.sum(axis=1), 1))


def judge(found: Promotions, null: Promotions, streams: int) -> table.Row:
    """Hold promotions against the planted lifts."""
    lifts = np.broadcast_to(MIXTURE, found.promoted.shape)
    months = false_share(found.promoted.reshape(streams, -1), (lifts <= 0).reshape(streams, -1))
    power = found.promoted[lifts > 0]
    empty = null.promoted.reshape(-1, NULL_NIGHTS * CANDIDATES).any(axis=1)
    return {
        "fdr": float(months.mean()),
        "fdr_se": float(months.std(ddof=1) / np.sqrt(streams)),
        "fdr_cohort": float(false_share(found.promoted, lifts <= 0).mean()),
        "harmful": float(found.promoted[lifts < 0].sum() / max(found.promoted.sum(), 1)),
        "power": float(power.mean()),
        "power_se": standard_error(float(power.mean()), power.size),
        "null_nights": float(empty.mean()),
        "null_nights_se": standard_error(float(empty.mean()), empty.size),
        "pairs": round(float(found.pairs.mean()), 1),
    }


def simulate_streams(streams: int, months: int, seed: int) -> list[table.Row]:
    """Return one row per discordance and rule, over so many streams and months of null nights."""
    rows = []
    for number, discordance in enumerate(DISCORDANCES):
        rng = np.random.default_rng([seed, number])
        d = draw(rng, MIXTURE, discordance, streams * NIGHTS)
        null = draw(rng, np.zeros(CANDIDATES), discordance, months * NULL_NIGHTS)
        on_null = contenders(NULL_NIGHTS)
        for name, accept in contenders(NIGHTS).items():
            figures = judge(accept(d), on_null[name](null), streams)
            setting = {"discordance": discordance, "streams": streams, "null_months": months}
            rows.append({"name": name, **setting, **figures})
    return rows


def measure(quick: bool, seed: int) -> list[table.Row]:
    """Return one row per discordance and rule."""
    return simulate_streams(*((4, 40) if quick else (40, 300)), seed)


COLUMNS = (
    "discordance", "name", "fdr", "fdr_cohort", "harmful", "power", "null_nights", "pairs",
)  # fmt: skip

if __name__ == "__main__":
    table.main("stream", measure, COLUMNS)
