"""Run rollouts: reuse what is in the ledger, run the rest interleaved, store each before it counts.

This is the only place where attempts become rollouts. `Perform` may run anywhere; the bench around
it alone knows the ledger and the budget. Everything that can go wrong with one attempt ends up in
its record; what concerns the whole run (no budget, no disk, an endpoint that never answers) is
raised.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from skillforge.core.digest import canonical_json, json_digest, sha256
from skillforge.core.events import NewEvent
from skillforge.core.package import Package
from skillforge.core.records import read_rollout, write_rollout
from skillforge.core.rollout import (
    Arm,
    Attempt,
    FailureKind,
    Rollout,
    Verdict,
    condition_digest,
    rollout_key,
    rollout_seed,
)
from skillforge.core.task import Task
from skillforge.core.verify import DataOnlyVerifier
from skillforge.errors import BudgetSpent, InfraError
from skillforge.ports import Executor, Ledger, Verifier, Worker
from skillforge.workflows.meter import Meter

SWITCH = 0.0005
"""Seconds, at most, that the thread which writes waits for attempts to let it go on."""
YOUNG = 10_000
"""New objects after which the garbage collector looks for circles among them."""
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


class Work(NamedTuple):
    """What an attempt needs to know."""

    task: Task
    skills: tuple[Package, ...]
    seed: int


class Scored(NamedTuple):
    """An attempt with what its verifier says of it."""

    attempt: Attempt
    verdict: Verdict


class Landed(NamedTuple):
    """A rollout in the form in which the ledger keeps it."""

    rollout: Rollout
    event: NewEvent
    payload: bytes


@dataclass(frozen=True, slots=True)
class Perform:
    """Attempts and scores: the part of a rollout that may run in any process."""

    worker: Worker
    verifier: Verifier

    async def __call__(self, work: Work) -> Scored:
        """Try the task once and score what came of it."""
        attempt = await self.worker.attempt(work.task, work.skills, seed=work.seed)
        if attempt.failure is None:
            return Scored(attempt, await self.verifier.verify(work.task, attempt))
        infra = attempt.failure.kind is FailureKind.INFRA
        return Scored(attempt, Verdict(score=None if infra else 0.0, failure=attempt.failure))


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
    on_expected: Callable[[int], None] = lambda _: None
    """Called with the number of rollouts that are going to be run, for progress."""
    _failures: list[Rollout] = field(default_factory=list)
    """The failures since the last rollout that was scored."""

    async def rollouts(self, cells: Sequence[Cell]) -> list[Rollout]:
        """Return one rollout per cell, in the order of the cells.

        Finished ones are read from the ledger; the others run in a seeded random order, so that
        drift of the model or the host hits all arms alike.

        Raises:
            BudgetSpent: A cap was reached; what finished before is in the ledger.
            InfraError: Nothing but infrastructure failures came back.
            LedgerError: The ledger cannot be written.
        """
        keys = self._keys(cells)
        found = self.ledger.find_rollouts(list(dict.fromkeys(keys)))
        done = {key: read_rollout(event) for key, event in found.items()}
        self.meter.spend.cached += len(done)
        missing = {k: c for k, c in zip(keys, cells, strict=True) if k not in done}
        self.on_expected(len(missing))
        with self.meter.rollout_phase(), _busy_process():
            await self._run(self._interleaved(missing), done)
        rollouts = [_under(c.arm, done[k]) for k, c in zip(keys, cells, strict=True)]
        _refuse_if_nothing_worked(rollouts)
        return rollouts

    def _keys(self, cells: Sequence[Cell]) -> list[str]:
        """Return the key of each cell; what cells have in common is digested once."""
        worker = self.worker.fingerprint
        tasks: dict[int, str] = {}
        conditions: dict[tuple[str, ...], str] = {}
        keys = []
        for cell in cells:
            if (task := tasks.get(id(cell.task))) is None:
                task = tasks[id(cell.task)] = cell.task.digest
            shown = [package.version for package in cell.skills]
            if (condition := conditions.get((cell.scope, *shown))) is None:
                condition = conditions[cell.scope, *shown] = condition_digest(
                    worker=worker, shown=shown, scope=cell.scope, seed=self.seed
                )
            keys.append(rollout_key(condition, task, cell.replicate))
        return keys

    def _interleaved(self, missing: Mapping[str, Cell]) -> list[tuple[str, Cell]]:
        rng = np.random.default_rng([self.seed, int(json_digest(sorted(missing))[:8], 16)])
        entries = list(missing.items())
        return [entries[i] for i in rng.permutation(len(entries))]

    async def _run(self, order: Sequence[tuple[str, Cell]], done: dict[str, Rollout]) -> None:
        """Run cells, admitting each when there is room for it; add the rollouts by their keys.

        Cancelled once, it begins nothing more, and what is in flight lands; cancelled a second
        time, it drops what is in flight.
        """
        before, admitted, stopped = len(done), 0, False

        def admit() -> Iterator[Work]:
            nonlocal admitted
            for key, cell in order:
                if stopped:
                    return
                self._refuse_if_unreachable()
                self.meter.admit_rollout()
                admitted += 1
                yield Work(cell.task, cell.skills, rollout_seed(key))

        def land(at: int, scored: Scored) -> Landed:
            return self._landed(*order[at], scored)

        async def keep() -> None:
            perform = Perform(self.worker, self.verifier)
            try:
                async with aclosing(self.executor.run(perform, admit(), land)) as arriving:
                    async for batch in arriving:
                        await self._store(batch)
                        done.update((landed.rollout.key, landed.rollout) for landed in batch)
            except BudgetSpent:
                for _ in range(admitted - (len(done) - before)):
                    self.meter.forget_rollout()
                raise

        keeping = asyncio.create_task(keep())
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            stopped = True
            await keeping
            raise

    def _landed(self, key: str, cell: Cell, scored: Scored) -> Landed:
        payload = canonical_json(scored.attempt.to_json()).encode()
        rollout = _rollout(key, cell, scored, sha256(payload), self.executor.limit)
        if rollout.score is None:
            kind = "rollout.failed"
            self._failures.append(rollout)
        else:
            kind = "rollout.finished"
            self._failures.clear()
        event = NewEvent(kind=kind, data=write_rollout(rollout), run=self.run)
        return Landed(rollout, event, payload)

    async def _store(self, batch: Sequence[Landed]) -> None:
        """Make a batch durable in one transaction, then count it; attempts go on meanwhile.

        What the meter has to say since the batch before goes with it.
        """
        rollouts, (*events, last), payloads = zip(*batch, strict=True)
        with self.meter.record() as account:
            last = replace(last, data={**last.data, **account})
            await asyncio.to_thread(self.ledger.record, [*events, last], blobs=payloads)
        for rollout in rollouts:
            self.on_rollout(rollout)

    def _refuse_if_unreachable(self) -> None:
        if len(self._failures) >= INFRA_LIMIT:
            raise _unreachable(self._failures)


@contextmanager
def _busy_process() -> Iterator[None]:
    """Set this process up for attempts that never wait.

    Its threads take turns more often than every 5 ms: a write gives up its turn a few dozen times,
    and attempts would keep it for that long each time. Its garbage collector starts less often
    than after 700 new objects: a rollout makes few circles, and now and then the collector stops
    everything for a tenth of a second to look through whatever the process holds.
    """
    switch, (young, *old) = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH)
    gc.set_threshold(max(young, YOUNG), *old)
    try:
        yield
    finally:
        gc.set_threshold(young, *old)
        sys.setswitchinterval(switch)


def _refuse_if_nothing_worked(rollouts: Sequence[Rollout]) -> None:
    if rollouts and all(rollout.score is None for rollout in rollouts):
        raise _unreachable(rollouts)


def _unreachable(failed: Sequence[Rollout]) -> InfraError:
    failure = failed[-1].failure
    where = failure.where if failure else ""
    why = f"in the {where}: {failure.message}" if failure else "without a reason"
    mend = "check the model with `skillforge doctor`" if where == "model" else f"mend the {where}"
    return InfraError(
        f"{len(failed)} attempts in a row failed {why}; nothing was scored: {mend}, then run the "
        "same command again",
        where=where,
    )


def _under(arm: Arm, rollout: Rollout) -> Rollout:
    """Return a rollout as one of an arm: equal conditions give it to both arms."""
    return rollout if rollout.arm == arm else rollout._replace(arm=arm)


def _rollout(key: str, cell: Cell, scored: Scored, blob: str, parallel: int) -> Rollout:
    attempt = scored.attempt
    return Rollout(
        key=key,
        task=cell.task.id,
        family=cell.task.family,
        arm=cell.arm,
        subject=cell.subject,
        replicate=cell.replicate,
        score=scored.verdict.score,
        output_blob=blob,
        purpose=cell.purpose,
        parallel=parallel,
        failure=scored.verdict.failure,
        finish_reason=attempt.finish_reason,
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
        cost_usd=attempt.cost_usd,
        seconds=attempt.seconds,
        uses=attempt.uses,
    )
