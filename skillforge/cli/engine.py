"""Puts together what a paying command runs on: model, worker, budget, bench."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any, TypeVar

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.workers import ChatWorker
from skillforge.cli.options import Paying
from skillforge.cli.progress import Progress
from skillforge.cli.session import Session
from skillforge.core.gate import GateRules
from skillforge.core.records import ROLLOUTS, read_rollout
from skillforge.core.splits import check_splits
from skillforge.core.task import Suite
from skillforge.errors import ConfigError, SuiteError
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.meter import Caps, Meter, MeteredModel
from skillforge.workflows.retrieve import Retriever
from skillforge.workflows.runs import Run, close_run, open_run
from skillforge.workflows.trial import Bench

Result = TypeVar("Result")


class WallClock:
    """The system's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


@dataclass(slots=True, kw_only=True)
class Engine:
    """Everything that a paying command needs."""

    session: Session
    suite: Suite
    paying: Paying
    meter: Meter
    worker: ChatWorker
    model: MeteredModel
    proposer: MeteredModel
    progress: Progress = field(default_factory=Progress)

    @property
    def rules(self) -> GateRules:
        """The gate's rules as the project sets them."""
        settings = self.session.project.settings
        fixed = settings.model.deterministic and self.suite.worker.temperature == 0
        return GateRules(**settings.gate.model_dump(), deterministic=fixed)

    @property
    def evolve_settings(self) -> EvolveSettings:
        """How much is tried on one skill, as the project sets it."""
        settings = self.session.project.settings
        return EvolveSettings(**settings.evolve.model_dump(), k=settings.retrieval.k)

    def open(self, command: str, request: Mapping[str, Any]) -> Run:
        """Open the run of a request, or go on with an interrupted one."""
        full = {
            "suite": self.suite.digest,
            "seed": self.paying.seed,
            "worker": self.worker.fingerprint,
            "rules": self.rules.to_json(),
            **request,
        }
        run = open_run(self.session.ledger, self.session.curator.state, command, full)
        if run.resumed:
            self.progress.announce(f"going on with {run.id}, which was interrupted")
            self._carry(run)
        return run

    def _carry(self, run: Run) -> None:
        """Book what the run had spent before it was interrupted."""
        before = list(map(read_rollout, self.session.ledger.events(run=run.id, kinds=ROLLOUTS)))
        self.meter.carry(
            usd=sum(r.cost_usd for r in before),
            tokens=sum(r.prompt_tokens + r.completion_tokens for r in before),
            rollouts=len(before),
        )

    def bench(self, run: Run) -> Bench:
        """Return the bench that a run's rollouts go through."""
        self.meter.start()
        return Bench(
            ledger=self.session.ledger,
            worker=self.worker,
            executor=AsyncioExecutor(self.session.project.settings.model.parallel),
            meter=self.meter,
            run=run.id,
            seed=self.paying.seed,
            on_rollout=self.progress.rollout,
        )

    def evolver(self, run: Run, *, cohort_size: int) -> Evolver:
        """Return what evolves skills within a run."""
        return Evolver(
            bench=self.bench(run),
            curator=self.session.curator,
            suite=self.suite,
            rules=self.rules,
            settings=self.evolve_settings,
            proposer=self.proposer,
            retriever=self.context_retriever(),
            cohort_size=cohort_size,
        )

    def context_retriever(self) -> Retriever | None:
        """Return the base library's retriever, where tasks are given more than one skill."""
        return self.session.retriever() if self.evolve_settings.k > 1 else None

    def close(self, run: Run, stopped_by: str = "done") -> dict[str, Any]:
        """Close a run and return its spend."""
        self.meter.stop()
        spend = self.meter.spend.to_json()
        close_run(self.session.ledger, run, stopped_by=stopped_by, spend=spend)
        return spend


def make_engine(session: Session, suite: str, paying: Paying) -> Engine:
    """Load the suite and put the parts together; flags override the project file.

    Raises:
        SuiteError: The suite is unknown or cannot be read.
        ConfigError: The worker kind or the model is not available.
    """
    loaded, settings = session.suite(suite), session.project.settings
    leaks = check_splits(loaded.tasks, by=loaded.split_by)
    if leaks:
        raise SuiteError(
            f"suite {loaded.name}: {leaks[0]}; `skillforge suite check {loaded.name}` lists all "
            f"{len(leaks)} such problems"
        )
    if loaded.worker.kind != "chat":
        raise ConfigError(
            f"suite {loaded.name} asks for a {loaded.worker.kind!r} worker; this version runs "
            "'chat' workers only"
        )
    budget = settings.budget

    def first(flag: Any, setting: Any) -> Any:
        return setting if flag is None else flag

    caps = Caps(
        usd=first(paying.max_usd, budget.usd),
        tokens=first(paying.max_tokens, budget.tokens),
        rollouts=first(paying.max_rollouts, budget.rollouts),
        minutes=first(paying.max_minutes, budget.minutes),
    )
    meter = Meter(caps=caps, clock=WallClock())
    model = MeteredModel(
        model=session.model(paying.model, paying.api_base, meter.recheck), meter=meter
    )
    proposer_name = paying.model or settings.model.proposer
    proposer = model
    if proposer_name not in (None, model.name):
        proposer = MeteredModel(
            model=session.model(proposer_name, paying.api_base, meter.recheck), meter=meter
        )
    return Engine(
        session=session,
        suite=loaded,
        paying=paying,
        meter=meter,
        worker=ChatWorker(model=model, spec=loaded.worker),
        model=model,
        proposer=proposer,
    )


def drive(work: Coroutine[Any, Any, Result]) -> Result:
    """Run asynchronous work to its end, also where an event loop is running already.

    A running loop (Jupyter has one) cannot be entered again, so the work then gets a thread and a
    loop of its own. An interrupt cancels it: what has finished is kept.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    cancel: Future[Callable[[], object]] = Future()
    over = Event()

    async def cancellable() -> Result:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        cancel.set_result(partial(loop.call_soon_threadsafe, task.cancel))
        try:
            return await work
        finally:
            over.set()

    with ThreadPoolExecutor(1, thread_name_prefix="skillforge") as pool:
        try:
            return pool.submit(asyncio.run, cancellable()).result()
        except KeyboardInterrupt:
            if not over.is_set():
                cancel.result()()
                over.wait()
            raise
