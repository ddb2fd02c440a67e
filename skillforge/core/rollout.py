"""Rollouts and the pairs made of them.

A rollout is one attempt: task × arm × replicate → a score in [0, 1], or a recorded failure. The
same task and replicate under both arms make a pair. An infrastructure failure voids the pair; a
failure of the agent scores 0.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from skillforge.core.digest import json_digest, sha256
from skillforge.errors import StatisticsError

Arm = Literal["base", "augmented", "none", "description", "full", "raw"]


class FailureKind(StrEnum):
    """Whose fault a failed attempt is."""

    INFRA = "infra"
    """Connection, 429, 5xx, broken verifier, host out of memory or disk: voids the pair."""
    AGENT = "agent"
    """Task timeout, context overflow, step limit, empty answer: scores 0."""


class Cause(StrEnum):
    """What an agent failed by."""

    TIMEOUT = "timeout"
    CONTEXT = "context_overflow"
    STEPS = "step_limit"
    TOKENS = "token_limit"
    OUTPUT = "output_limit"
    """More on stdout or on disk than it may write."""
    CRASH = "crash"
    """Of the agent, or of a tool that it called."""
    EMPTY = "empty_answer"
    REFUSED = "content_filter"
    OUTAGE = "outage"
    """The program said that its model is away: an infrastructure failure on the program's word."""
    OTHER = "other"
    """Nobody wrote it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has no answer."""

    kind: FailureKind
    message: str
    where: str
    """The part that failed: ``model``, ``worker`` or ``verifier``."""
    cause: Cause = Cause.OTHER
    """What the agent failed by; of an infrastructure failure, only whether it is an outage."""


class Verdict(NamedTuple):
    """What a verifier makes of one attempt: a score, or the failure of the verifier itself."""

    score: float | None
    """In [0, 1]; None if the verifier failed."""
    failure: Failure | None = None
    """Of kind ``infra`` and from the ``verifier``: nothing was learnt about the answer."""


class Attempt(NamedTuple):
    """What a worker brings back from one task, before it is scored."""

    output: str
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    """Of all its calls. What calls without an answer may have used counts here, retries included:
    nobody tells their prompt from their answer."""
    completion_tokens: int = 0
    cost_usd: float = 0.0
    """USD, all calls and retries of this attempt included: what the bill holds for it."""
    cost_told: bool = True
    """Whether somebody said what it cost; else tokens and cost are the most that they can be."""
    seconds: float = 0.0
    """Seconds spent inside the model."""
    failure: Failure | None = None
    transcript: tuple[Mapping[str, Any], ...] = ()
    """The messages sent, as JSON objects."""
    uses: tuple[Mapping[str, Any], ...] = ()
    """Which skills an agent met, in order: ``skill``, ``what`` (``listed``, ``read``, ``file``),
    ``path`` of what was read, and ``step`` (0 for the catalogue); empty for other workers."""
    exit_code: int | None = None
    """Exit code of the program that made the attempt, if one did."""
    files: Mapping[str, bytes] = {}
    """The workspace's files after the run, without the skill folders, by relative path."""

    def to_json(self) -> dict[str, Any]:
        """Return what is kept of it outside the chain: text as text, other bytes as base64."""
        kept: dict[str, Any] = {
            "output": self.output,
            "messages": [dict(message) for message in self.transcript],
        }
        if self.exit_code is not None:
            kept["exit_code"] = self.exit_code
        if self.files:
            kept["files"] = {path: _file_json(data) for path, data in self.files.items()}
        return kept


def _file_json(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


class Rollout(NamedTuple):
    """One scored attempt, as it stands in the ledger.

    It is a tuple, as `Attempt` and `Verdict` are, for there may be a million of them: a frozen
    dataclass of as many fields takes four times as long to make.
    """

    key: str
    """Digest of everything that can change the result; see `rollout_key`."""
    task: str
    family: str
    arm: Arm
    subject: str
    """What the arm stands for: the version under test, or "" where no skill was."""
    replicate: int
    score: float | None
    """In [0, 1]; None where an infrastructure failure left nothing to score."""
    failure: Failure | None
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    """USD, retries included; tokens too. See `Attempt`."""
    seconds: float
    output_blob: str
    """Hash of the stored output and transcript."""
    purpose: str
    """What it was run for: ``propose``, ``screen``, ``confirm``, ``audit``, ``eval``."""
    uses: tuple[Mapping[str, Any], ...] = ()
    """Which skills an agent met; see `Attempt`."""
    parallel: int = 0
    """Most attempts that were in flight beside it, itself included; 0 where nobody wrote it down.

    It is no part of the key: load changes when an answer comes, and only seldom which.
    """


def condition_digest(*, worker: str, shown: Sequence[str], scope: str, seed: int) -> str:
    """Return the identity of what all rollouts of one arm have in common.

    Args:
        worker: Fingerprint of the worker: kind, model, template and every sampling setting.
        shown: Versions of the packages shown, in order; a version is a digest of all its bytes.
        scope: The run in which the rollout may be reused; confirm rollouts carry the run's id.
        seed: Seed of the run.
    """
    return json_digest([worker, list(shown), scope, seed])


def rollout_key(condition: str, task: str, replicate: int) -> str:
    """Return the identity of a rollout, 64 hex digits: all that can change its result.

    It begins with its condition, so that rollouts of one arm stand side by side in an index, and
    ends in 192 bits over condition, task and replicate.

    Args:
        condition: See `condition_digest`.
        task: Digest of the task with its verifier.
        replicate: 0-based number of the attempt.
    """
    return condition[:16] + sha256(f"{condition}{task}{replicate}".encode())[:48]


def rollout_seed(key: str) -> int:
    """Return the seed of an attempt, in [0, 2³¹): the same for the same key, whenever it is run."""
    return int(key[-8:], 16) >> 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """A pair that an infrastructure failure took from the contrast."""

    task: str
    arm: str
    """The arm that failed, or ``both``."""
    least: float = -1.0
    """Least that the difference can have been where only the augmented arm failed, in [-1, 0]."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that failed, one or two."""
        return ("base", "augmented") if self.arm == "both" else (self.arm,)


class Outcome(StrEnum):
    """The four outcomes of a pair, by pass or fail at score ≥ 0.5."""

    GAIN = "gain"
    REGRESSION = "regression"
    RESIDUAL = "residual"
    RETAINED = "retained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Base and augmented rollouts of one task, replicates averaged."""

    task: str
    family: str
    base: float
    """Mean score of the base arm, in [0, 1]."""
    augmented: float
    """Mean score of the augmented arm, in [0, 1]."""
    truncated: tuple[float, float] = (0.0, 0.0)
    """Share of the answers cut at the token limit, base and augmented, each in [0, 1]."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Mean seconds inside the model, base and augmented."""
    failed: tuple[tuple[Cause, ...], tuple[Cause, ...]] = ((), ())
    """What attempts of the agent failed by, base and augmented; each of them scored 0."""
    wavering: bool = False
    """Whether the verifier scored one and the same answer differently."""

    def __post_init__(self) -> None:
        """Refuse a score that is none.

        Raises:
            StatisticsError: A score is NaN or outside [0, 1].
        """
        for arm, score in (("base", self.base), ("augmented", self.augmented)):
            _check_score(score, f"task {self.task!r}, {arm} arm")

    @property
    def difference(self) -> float:
        """Augmented minus base, in [-1, 1]."""
        return self.augmented - self.base

    @property
    def outcome(self) -> Outcome:
        """Which of the four outcomes the pair is, passing at a mean score of at least 0.5."""
        passed_base, passed_augmented = self.base >= 0.5, self.augmented >= 0.5
        if passed_augmented:
            return Outcome.RETAINED if passed_base else Outcome.GAIN
        return Outcome.REGRESSION if passed_base else Outcome.RESIDUAL


def pair_up(
    tasks: Iterable[str],
    base: Mapping[str, list[Rollout]],
    augmented: Mapping[str, list[Rollout]],
    *,
    replicates: int = 1,
) -> list[Pair | Void]:
    """Join the rollouts of two arms by task, in the order of ``tasks``.

    Stops at the first task of which one of the arms has not finished all replicates: evidence is
    read along the completed prefix only. A task on which any rollout failed for infrastructure
    reasons is void.

    Args:
        tasks: Task ids, each once.
        base: Rollouts of the base arm by task id.
        augmented: Rollouts of the augmented arm by task id.
        replicates: Rollouts of each task and arm that make it complete, at least 1.

    Raises:
        StatisticsError: A task stands twice in the order, has more rollouts in one arm than in the
            other or the same replicate twice, or a score is NaN or outside [0, 1]; the message
            names the task.
    """
    joined: list[Pair | Void] = []
    order = tuple(tasks)
    refuse_repeats(order)
    for task in order:
        left, right = base.get(task, []), augmented.get(task, [])
        if min(len(left), len(right)) < replicates:
            break
        _check_replicates(task, left, right)
        failed = [
            name
            for name, arm in (("base", left), ("augmented", right))
            if any(r.score is None for r in arm)
        ]
        if failed:
            joined.append(_void(task, failed, left, right))
        else:
            joined.append(_pair(task, left, right))
    return joined


def refuse_repeats(tasks: Sequence[str]) -> None:
    """Refuse an order in which a task stands twice: it would count as two pieces of evidence.

    Raises:
        StatisticsError: One does; the message names it and both places, counted from 1.
    """
    if len(set(tasks)) == len(tasks):
        return
    first: dict[str, int] = {}
    for place, task in enumerate(tasks, start=1):
        if first.setdefault(task, place) != place:
            raise StatisticsError(
                f"task {task!r} stands at places {first[task]} and {place} of the order, expected "
                "once: each task is one piece of evidence; remove one of them"
            )


def _pair(task: str, left: Sequence[Rollout], right: Sequence[Rollout]) -> Pair:
    arms = (left, right)
    truncated = [sum(r.finish_reason == "length" for r in arm) / len(arm) for arm in arms]
    seconds = [sum(r.seconds for r in arm) / len(arm) for arm in arms]
    failed = [tuple(r.failure.cause for r in arm if r.failure) for arm in arms]
    return Pair(
        task=task,
        family=left[0].family,
        base=_mean(left),
        augmented=_mean(right),
        truncated=(truncated[0], truncated[1]),
        seconds=(seconds[0], seconds[1]),
        failed=(failed[0], failed[1]),
        wavering=any(map(_wavers, arms)),
    )


def _void(
    task: str, failed: Sequence[str], left: Sequence[Rollout], right: Sequence[Rollout]
) -> Void:
    """Return a void; where the base arm was scored, with what failed in the other arm at 0."""
    if "base" in failed:
        return Void(task=task, arm="both" if len(failed) > 1 else "base")
    scored = sum(rollout.score or 0.0 for rollout in right) / len(right)
    return Void(task=task, arm="augmented", least=min(scored - _mean(left), 0.0))


def _check_replicates(task: str, left: Sequence[Rollout], right: Sequence[Rollout]) -> None:
    if len(left) != len(right):
        raise StatisticsError(
            f"task {task!r} has {len(left)} base and {len(right)} augmented rollouts, expected as "
            "many in both arms; run the missing replicates, or leave the task out"
        )
    for name, arm in (("base", left), ("augmented", right)):
        numbers = [r.replicate for r in arm]
        if len(set(numbers)) < len(numbers):
            raise StatisticsError(
                f"task {task!r}, {name} arm: replicates {numbers}, expected each number once; "
                "one rollout must not count twice"
            )
        for rollout in arm:
            if rollout.score is not None:
                _check_score(
                    rollout.score, f"task {task!r}, {name} arm, replicate {rollout.replicate}"
                )


def _check_score(score: float, where: str) -> None:
    if not 0.0 <= score <= 1.0:
        raise StatisticsError(
            f"{where}: score {score!r}, expected a number within [0, 1]; scores are fractions, and "
            "an attempt that could not be scored is a failure"
        )


def _wavers(arm: Sequence[Rollout]) -> bool:
    """Whether two rollouts of one arm hold the same words and different scores."""
    scores: dict[str, float | None] = {}
    return any(scores.setdefault(r.output_blob, r.score) != r.score for r in arm)


def _mean(rollouts: Sequence[Rollout]) -> float:
    scores = [r.score for r in rollouts if r.score is not None]
    return sum(scores) / len(scores)
