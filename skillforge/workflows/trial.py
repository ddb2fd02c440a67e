"""Run rollouts: reuse what is in the ledger, run the rest interleaved, store each before it counts.

This is the only place where attempts become rollouts. Everything that can go wrong with one
attempt ends up in its record; what concerns the whole run (no budget, no disk, an endpoint that
never answers) is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from skillforge.core.digest import canonical_json, json_digest, sha256
from skillforge.core.events import NewEvent
from skillforge.core.package import Package
from skillforge.core.records import read_rollout, write_rollout
from skillforge.core.rollout import (
    Arm,
    Attempt,
    Failure,
    FailureKind,
    Rollout,
    Verdict,
    rollout_key,
)
from skillforge.core.task import Task
from skillforge.core.verify import DataOnlyVerifier
from skillforge.errors import BudgetSpent, InfraError
from skillforge.ports import Executor, Ledger, Verifier, Worker
from skillforge.workflows.meter import Meter

INFRA_LIMIT = 6
"""Failures in a row, with nothing finished in between, after which the run is called off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One rollout to run."""

    task: Task
    arm: Arm
    skills: tuple[Package, ...]
    """The packages shown, in order."""
    subject: str
    """What the arm stands for: the version under test, or "" where no skill is."""
    purpose: str
    replicate: int = 0
    scope: str = ""
    """Run within which the rollout may be reused; "" for any."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """Everything that rollouts of one run have in common."""

    ledger: Ledger
    worker: Worker
    executor: Executor
    meter: Meter
    run: str
    seed: int
    verifier: Verifier = field(default_factory=DataOnlyVerifier)
    """What scores the attempts; code of a suite needs one that can run it."""
    on_rollout: Callable[[Rollout], None] = lambda _: None
    """Called after each rollout is durable, for progress."""
    _failures_in_a_row: int = field(default=0)

    async def rollouts(self, cells: Sequence[Cell]) -> list[Rollout]:
        """Return one rollout per cell, in the order of the cells.

        Finished ones are read from the ledger; the others run in a seeded random order, so that
        drift of the model or the host hits all arms alike.

        Raises:
            BudgetSpent: A cap was reached; what finished before is in the ledger.
            InfraError: Nothing but infrastructure failures came back.
            LedgerError: The ledger cannot be written.
        """
        keys = [self._key(cell) for cell in cells]
        found = {key: self.ledger.find_rollout(key) for key in dict.fromkeys(keys)}
        done = {key: read_rollout(event) for key, event in found.items() if event is not None}
        self.meter.spend.cached += len(done)
        missing = {k: c for k, c in zip(keys, cells, strict=True) if k not in done}
        rng = np.random.default_rng([self.seed, int(json_digest(sorted(missing))[:8], 16)])
        order = [list(missing.items())[i] for i in rng.permutation(len(missing))]
        with self.meter.rollout_phase():
            async for position, rollout in self.executor.run(self._attempt, order):
                done[order[position][0]] = rollout
        self._refuse_if_nothing_worked([done[key] for key in keys])
        return [replace(done[k], arm=c.arm) for k, c in zip(keys, cells, strict=True)]

    def _key(self, cell: Cell) -> str:
        return rollout_key(
            worker=self.worker.fingerprint,
            task=cell.task.digest,
            shown=json_digest([package.version for package in cell.skills]),
            replicate=cell.replicate,
            scope=cell.scope,
            seed=self.seed,
        )

    async def _attempt(self, entry: tuple[str, Cell]) -> Rollout:
        key, cell = entry
        self.meter.admit_rollout()
        seed = int(key[:8], 16) >> 1
        try:
            attempt = await self.worker.attempt(cell.task, cell.skills, seed=seed)
        except BudgetSpent:
            self.meter.forget_rollout()
            raise
        rollout, blob = _record(key, cell, attempt, await self._verdict(cell.task, attempt))
        kind = "rollout.failed" if rollout.score is None else "rollout.finished"
        data = {**write_rollout(rollout), "bill": self.meter.unrecorded()}
        event = NewEvent(kind=kind, data=data, run=self.run)
        self.ledger.record([event], blobs=[blob])
        self.on_rollout(rollout)
        self._watch(rollout)
        return rollout

    async def _verdict(self, task: Task, attempt: Attempt) -> Verdict:
        if attempt.failure is None:
            return await self.verifier.verify(task, attempt)
        infra = attempt.failure.kind is FailureKind.INFRA
        return Verdict(score=None if infra else 0.0, failure=attempt.failure)

    def _watch(self, rollout: Rollout) -> None:
        self._failures_in_a_row = 0 if rollout.score is not None else self._failures_in_a_row + 1
        if self._failures_in_a_row >= INFRA_LIMIT and rollout.failure is not None:
            raise InfraError(_unreachable(rollout.failure, self._failures_in_a_row))

    @staticmethod
    def _refuse_if_nothing_worked(rollouts: Sequence[Rollout]) -> None:
        failures = [r.failure for r in rollouts if r.score is None and r.failure is not None]
        if failures and len(failures) == len(rollouts):
            raise InfraError(_unreachable(failures[0], len(failures)))


def _unreachable(failure: Failure, count: int) -> str:
    return (
        f"{count} attempts in a row failed in the {failure.where}: {failure.message}; nothing was "
        "scored: check the model with `skillforge doctor`, then run the same command again"
    )


def _record(key: str, cell: Cell, attempt: Attempt, verdict: Verdict) -> tuple[Rollout, bytes]:
    """Turn a scored attempt into a rollout and the blob that holds its words and files."""
    blob = canonical_json(attempt.to_json()).encode()
    rollout = Rollout(
        key=key,
        task=cell.task.id,
        family=cell.task.family,
        arm=cell.arm,
        subject=cell.subject,
        replicate=cell.replicate,
        score=verdict.score,
        failure=verdict.failure,
        finish_reason=attempt.finish_reason,
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
        cost_usd=attempt.cost_usd,
        seconds=attempt.seconds,
        output_blob=sha256(blob),
        purpose=cell.purpose,
        uses=attempt.uses,
    )
    return rollout, blob
