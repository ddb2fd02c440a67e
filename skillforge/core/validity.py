"""Whether the inputs of a contrast can carry a verdict: failures, cut answers, wavering verifiers.

A gate that is right about numbers can still be wrong about a skill, if the numbers reached it in a
way that differs between the arms. What is found here is named in the reasons of a decision; where
it can make a useless edit look good, the verdict is withheld.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skillforge.core.evidence import Evidence
from skillforge.core.paired_table import in_words
from skillforge.core.paired_tests import mcnemar_exact
from skillforge.core.rollout import Outcome, Pair
from skillforge.core.rules import Basis

DIFFERS = 0.05
"""Two-sided exact p-value from which on two arms are said to differ in how they fail."""

_FAILED_SHARE = 0.1
"""Surplus failures of one arm, as a share of the pairs, from which on they differ as well."""
_NAMED = 8
"""Tasks whose pair was lost that are named; the others are counted."""
_IDLE_SHARE = 0.5
"""Share of tasks with equal full or zero marks in both arms from which on it is remarked on."""
_SLOWER = 3.0
"""Ratio of the arms' seconds from which on it is remarked on, if it is as sure as this:"""
_SURE = 0.01


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is the matter with the inputs."""

    reason: str
    withholds: bool = False
    """Whether it could make a useless edit look good."""


def examine(pairs: Sequence[Pair], evidence: Evidence, basis: Basis) -> list[Finding]:
    """Look for what could bias a contrast, or leave it without information.

    Args:
        pairs: What was bet on, shape (n,), n ≥ 0.
        evidence: The numbers of these pairs, with the voids.
        basis: The registered claim.

    Returns:
        Findings in the order in which they are to be read; nothing if all is well.
    """
    found = [*_constant(pairs, basis), *_failures(evidence), *_truncation(pairs)]
    found += _agent_failures(pairs, evidence)
    return [*found, *_wavering(pairs), *_latency(pairs), *_idle(evidence)]


def _constant(pairs: Sequence[Pair], basis: Basis) -> Iterator[Finding]:
    scores = {score for pair in pairs for score in (pair.base, pair.augmented)}
    if len(scores) != 1:
        return
    level = scores.pop()
    which = {0.0: "fails", 1.0: "passes"}.get(level, f"scores {level:g}")
    yield Finding(f"every task {which} in both arms: the tasks cannot tell the arms apart")
    if basis is Basis.NON_INFERIORITY and level == 0:
        yield Finding("a skill that never works cannot tell what a unit does", withholds=True)


def _failures(evidence: Evidence) -> Iterator[Finding]:
    dropped = evidence.table.dropped
    if not sum(dropped.values()):
        return
    base, augmented = dropped.get("base", 0), dropped.get("augmented", 0)
    p = mcnemar_exact(augmented, base, "two-sided")
    names = evidence.voided[:_NAMED]
    more = len(evidence.voided) - len(names)
    yield Finding(
        f"pairs voided by infrastructure failures, by arm: {dict(dropped)} (exact p {p:.2g}): "
        f"{', '.join(names)}{f' and {more} more' if more else ''}"
    )
    if _uneven(base, augmented, p, evidence):
        yield Finding("infrastructure failures differ between the arms", withholds=True)


def _uneven(base: int, augmented: int, p: float, evidence: Evidence) -> bool:
    """Whether the arms differ in how often they fail: surely, or by a tenth of the pairs."""
    return p <= DIFFERS or abs(base - augmented) > _FAILED_SHARE * evidence.table.pairs


def _truncation(pairs: Sequence[Pair]) -> Iterator[Finding]:
    base, augmented = (sum(1 for p in pairs if p.truncated[arm] > 0) for arm in (0, 1))
    if not base + augmented:
        return
    more_base = sum(1 for p in pairs if p.truncated[0] > p.truncated[1])
    more_augmented = sum(1 for p in pairs if p.truncated[1] > p.truncated[0])
    p = mcnemar_exact(more_base, more_augmented, "two-sided")
    yield Finding(
        f"tasks with answers cut at the token limit: {base} of {len(pairs)} in the base arm, "
        f"{augmented} in the augmented arm (exact p {p:.2g})"
    )
    # A base answer that was cut may be a pass that nobody saw; a cut augmented one counts as the
    # failure that it is under this limit.
    if p <= DIFFERS and more_base > more_augmented:
        yield Finding("the base arm's answers are cut off more often", withholds=True)


def _agent_failures(pairs: Sequence[Pair], evidence: Evidence) -> Iterator[Finding]:
    """Say what the agent failed by, in which arm, and how much of the outcomes that makes.

    Nothing is withheld: an attempt that ran out of time or steps has failed its task, and if the
    skill is why, that is what it does. But a reader must see what the lift is made of.
    """
    failed = evidence.table.agent_failures
    if not any(failed.values()):
        return
    more = [sum(1 for p in pairs if len(p.failed[i]) > len(p.failed[1 - i])) for i in (0, 1)]
    p = mcnemar_exact(more[0], more[1], "two-sided")
    said = ", ".join(f"{in_words(causes)} in the {arm} arm" for arm, causes in failed.items())
    yield Finding(f"agent failures, which score 0: {said} (exact p {p:.2g})")
    if _uneven(more[0], more[1], p, evidence):
        i = 0 if more[0] > more[1] else 1
        outcome = (Outcome.GAIN, Outcome.REGRESSION)[i]
        changed = [pair for pair in pairs if pair.outcome is outcome]
        share = sum(1 for pair in changed if pair.failed[i])
        of = f": {share} of {len(changed)} {outcome.value}s are that" if changed else ""
        yield Finding(f"the agent fails more often in the {('base', 'augmented')[i]} arm{of}")


def _wavering(pairs: Sequence[Pair]) -> Iterator[Finding]:
    tasks = [pair.task for pair in pairs if pair.wavering]
    if tasks:
        shown = ", ".join(tasks[:3]) + (" …" if len(tasks) > 3 else "")
        yield Finding(
            f"the verifier gave the same answer different scores on {len(tasks)} tasks ({shown}); "
            "mend it and prove it with `suite check`",
            withholds=True,
        )


def _latency(pairs: Sequence[Pair]) -> Iterator[Finding]:
    base, augmented = (sum(pair.seconds[arm] for pair in pairs) for arm in (0, 1))
    slower = sum(1 for p in pairs if p.seconds[1] > p.seconds[0])
    faster = sum(1 for p in pairs if p.seconds[1] < p.seconds[0])
    if mcnemar_exact(slower, faster, "two-sided") > _SURE or min(base, augmented) == 0:
        return
    for slow, ratio in (("augmented", augmented / base), ("base", base / augmented)):
        if ratio >= _SLOWER:
            yield Finding(f"the {slow} arm takes at least {_SLOWER:g} times as long as the other")


def _idle(evidence: Evidence) -> Iterator[Finding]:
    passed, failed = evidence.all_pass, evidence.all_fail
    if _IDLE_SHARE <= passed + failed < 1:
        yield Finding(
            f"{passed:.0%} of the tasks pass in both arms and {failed:.0%} fail in both: only the "
            "others can show a difference"
        )
