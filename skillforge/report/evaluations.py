"""What `eval` prints: one column for each effect, then the tasks that changed with their traces."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from skillforge.core.paired_table import in_words
from skillforge.report.numbers import e_value, interval, money, signed
from skillforge.report.tables import table

Contrast = Mapping[str, Any]


def evaluation(data: Mapping[str, Any]) -> None:
    """Print one evaluation, of two arms or of three."""
    contrasts = data.get("contrasts", [data])
    rows = [[name, *map(show, contrasts)] for name, show in _ROWS.items()]
    title = f"{data['skill']} {data['version'][:10]} on {data['suite']}"
    table([title, *map(_heading, contrasts)], rows)
    for contrast in contrasts:
        _changes(contrast)
    for contrast in contrasts:
        if contrast["voided"]:
            _say(f"{_of(contrast)}dropped: {', '.join(contrast['voided'])}")
        for reason in contrast["reasons"]:
            _say(f"{_of(contrast)}because {reason}")
    if "multiplicity" in data:
        m = data["multiplicity"]
        _say(
            f"{m['contrasts']} contrasts share alpha {m['alpha']:g} (Bonferroni: "
            f"{m['alpha_each']:.2g} each, in decision and MDE; p-values are not adjusted)"
        )
    _say(f"cost {money(data['cost_usd'])}, {data['tokens']} tokens, {data['seconds']:.1f} s")


_ROWS: Mapping[str, Callable[[Contrast], str]] = {
    "pairs": lambda c: f"{c['pairs']} (dropped {sum(c['dropped'].values())})",
    "gains / regressions": lambda c: f"{c['gains']} / {c['regressions']}",
    "residual / retained": lambda c: f"{c['residual']} / {c['retained']}",
    "net, tax (regressions / gains)": lambda c: f"{c['net']:+d}, {_share(c['tax'])}",
    "lift": lambda c: f"{signed(c['lift'])} {interval(c['lift_interval'])}",
    "e-value (harm)": lambda c: f"{e_value(c['e_value'])} ({e_value(c['e_harm'])})",
    "exact McNemar p": lambda c: "-" if c["p_value"] is None else f"{c['p_value']:.3g}",
    "smallest effect found (MDE)": lambda c: signed(c["mde"]),
    "answers cut by max_tokens": lambda c: ", ".join(
        f"{arm} {_share(share)}" for arm, share in c["truncated"].items()
    ),
    "agent failures (score 0)": lambda c: ", ".join(
        f"{arm} {in_words(causes)}" for arm, causes in c["agent_failures"].items()
    ),
    "decision": lambda c: str(c["decision"]),
}


def _changes(contrast: Contrast) -> None:
    """Name the tasks that changed, with the payloads that `skillforge log show` opens."""
    for word in ("gained", "regressed"):
        for changed in contrast[word]:
            traces = ", ".join(
                f"{arm} {' '.join(hashes)}" for arm, hashes in changed["traces"].items()
            )
            _say(f"{_of(contrast)}{word} {changed['task']}: {traces}")


def _heading(contrast: Contrast) -> str:
    return f"{_of(contrast)}{' → '.join(contrast['arms'])}"


def _of(contrast: Contrast) -> str:
    return f"{contrast['effect']}: " if "effect" in contrast else ""


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
