"""Puts together what a paying command runs on: model, worker, budget, bench."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from threading import Event
from typing import Any, NamedTuple, TypeVar

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.local_model import usable_cores
from skillforge.adapters.models import load_litellm
from skillforge.cli.code import make_programs, make_verifier, refuse_untrusted
from skillforge.cli.interrupts import told_of_interrupts
from skillforge.cli.options import Paying
from skillforge.cli.progress import Progress
from skillforge.cli.session import Session, make_model
from skillforge.cli.workers import make_worker
from skillforge.core.events import NewEvent
from skillforge.core.gate import GateRules
from skillforge.core.pace import Throttle
from skillforge.core.splits import check_splits
from skillforge.core.task import Suite
from skillforge.errors import ConfigError, SuiteError
from skillforge.ports import ChatModel, Executor, Programs, Verifier, Worker
from skillforge.workflows.account import Account
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.meter import Meter
from skillforge.workflows.metered import MeteredModel
from skillforge.workflows.patience import Pace, PatientModel
from skillforge.workflows.remote import Driver
from skillforge.workflows.retrieve import Retriever
from skillforge.workflows.runs import DECIDE, Run, close_run, give_up, open_run
from skillforge.workflows.spend import Caps
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
    worker: Worker
    verifier: Verifier
    model: ChatModel
    """The worker's model; a worker that brings its own does not use it."""
    executor: Executor
    close_executor: Callable[[], None]
    proposer: ChatModel
    progress: Progress = field(default_factory=Progress)
    run: Run | None = None
    """The run that is open."""
    stage_only: bool | None = None
    """Whether proven versions wait to be adopted; None leaves it to the project."""

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
        known = settings.evolve.model_dump() | {"k": settings.retrieval.k}
        if self.stage_only is not None:
            known["stage_only"] = self.stage_only
        return EvolveSettings(**known)

    @property
    def evolving(self) -> dict[str, Any]:
        """What of the settings makes one run of `evolve` or `nightly` another than the next."""
        return {"evolve": asdict(self.evolve_settings), "proposer": self.proposer.fingerprint}

    def open(self, command: str, request: Mapping[str, Any]) -> Run:
        """Open the run of a request, or go on with an interrupted one.

        Whatever can change what comes of the run is in the request, so that a changed setting
        starts another run; caps, prices and how many calls are made at once are not.
        """
        full = {
            "suite": self.suite.digest,
            "seed": self.paying.seed,
            "worker": self.worker.fingerprint,
            "rules": self.rules.to_json(),
            "k": self.evolve_settings.k,
            "embedding": self.session.project.settings.embedding.model,
            **request,
        }
        run = open_run(self.session.ledger, self.session.curator.state, command, full)
        if run.resumed:
            self.progress.announce(f"going on with {run.id}, which is open")
        for name, keys in run.otherwise.items():
            why = f"it was begun with another {', '.join(keys)}: this is a run of its own"
            if command in DECIDE:
                give_up(self.session.ledger, name, stopped_by="given up")
                self.progress.announce(f"{name} ends with what it has decided, for {why}")
            else:
                self.progress.announce(f"{name} stays open, for {why}")
        self.run = run
        if unsettled := Account(ledger=self.session.ledger, run=run.id).bind(self.meter):
            self.progress.announce(f"warning: {unsettled}")
        return run

    def leave(self) -> None:
        """End executor and progress; write down what a run has spent and no record shows yet."""
        self.progress.finish()
        self.close_executor()
        if self.run is None:
            return
        with self.meter.record(last=True) as account:
            if account:
                event = NewEvent(kind="spend.booked", data=account, run=self.run.id)
                self.session.ledger.append([event])

    def bench(self, run: Run) -> Bench:
        """Return the bench that a run's rollouts go through; its minutes begin."""
        if self.suite.worker.kind in ("chat", "agent"):
            load_litellm()  # takes seconds, which are no part of the first rollout
        self.meter.start()
        return Bench(
            ledger=self.session.ledger,
            worker=self.worker,
            verifier=self.verifier,
            executor=self.executor,
            meter=self.meter,
            run=run.id,
            seed=self.paying.seed,
            on_rollout=self.progress.rollout,
            on_expected=self.progress.expect,
        )

    def evolver(
        self, run: Run, *, cohort_size: int, library: Mapping[str, str] | None = None
    ) -> Evolver:
        """Return what evolves skills within a run; a library is one for `context_retriever`."""
        return Evolver(
            bench=self.bench(run),
            curator=self.session.curator,
            suite=self.suite,
            rules=self.rules,
            settings=self.evolve_settings,
            proposer=self.proposer,
            retriever=self.context_retriever(library),
            make_retriever=self.session.retriever,
            cohort_size=cohort_size,
        )

    def context_retriever(self, library: Mapping[str, str] | None = None) -> Retriever | None:
        """Return the retriever of a library, where tasks are given more than one skill.

        Args:
            library: Version by skill; None means what is served.
        """
        if self.evolve_settings.k <= 1:
            return None
        if library is None:
            return self.session.retriever()
        package = self.session.curator.package
        return self.session.retriever({name: package(name, v) for name, v in library.items()})

    def close(self, run: Run, stopped_by: str = "done") -> dict[str, Any]:
        """Close a run and return its spend."""
        self.progress.finish()
        self.meter.stop()
        spend = {"model": self.model.name, **self.meter.spend.to_json()}
        close_run(self.session.ledger, run.id, stopped_by=stopped_by, spend=spend)
        self.run = None
        return spend


def make_engine(
    session: Session, suite: str, paying: Paying, *, caps: Caps | None = None
) -> Engine:
    """Load the suite and put the parts together; flags override the project file.

    Args:
        session: The open project.
        suite: Name of the suite.
        paying: What the command was told.
        caps: What may be spent; None takes what the command and the project file say.

    Raises:
        SuiteError: The suite is unknown, cannot be read, or runs code that is not trusted.
        ConfigError: The worker kind or the model is not available.
    """
    loaded, settings = session.suite(suite), session.project.settings
    refuse_untrusted(session, loaded)
    leaks = check_splits(loaded.tasks, by=loaded.split_by)
    if leaks:
        raise SuiteError(
            f"suite {loaded.name}: {leaks[0]}; `skillforge suite check {loaded.name}` lists all "
            f"{len(leaks)} such problems"
        )
    caps = caps or paying.caps(Caps(**settings.budget.model_dump()))
    meter = Meter(caps=caps, clock=WallClock())
    make = ModelMaker(session=session, suite=loaded, paying=paying, meter=meter)
    proposer = paying.model or settings.model.proposer or settings.model.worker
    programs = make_programs(loaded, session.project)
    return Engine(
        session=session,
        suite=loaded,
        paying=paying,
        meter=meter,
        verifier=make_verifier(loaded, programs),
        proposer=make.model(proposer, role="proposer"),
        **make_workplace(make, programs)._asdict(),
    )


class Workplace(NamedTuple):
    """Who performs attempts, and where."""

    model: ChatModel
    worker: Worker
    executor: Executor
    close_executor: Callable[[], None]


def make_workplace(make: ModelMaker, programs: Programs) -> Workplace:
    """Return worker and executor as flags and project file choose them.

    Raises:
        ConfigError: The worker kind, the model or the executor is not available.
    """
    settings, told = make.session.project.settings, make.paying
    name = told.model or settings.model.worker
    kind, address = told.executor or settings.executor.kind, told.address
    if kind == "ray":
        return _ray_workplace(make, programs, name, address or settings.executor.address)
    if kind != "asyncio" or address is not None:
        raise ConfigError(
            f"executor {kind!r} with address {address!r}; expected 'asyncio' without address, or "
            "'ray'"
        )
    model = make.model(name, role="worker")
    worker = make_worker(make.suite, model, make.meter, programs)
    return Workplace(model, worker, AsyncioExecutor(settings.model.parallel), lambda: None)


def _ray_workplace(
    make: ModelMaker, programs: Programs, name: str, address: str | None
) -> Workplace:
    """Return a worker that pays nothing itself, and an executor that pays for its attempts."""
    from skillforge.adapters.ray_executor import RayExecutor

    settings = make.session.project.settings
    if name.startswith("local/") and make.suite.worker.kind in ("chat", "agent"):
        raise ConfigError(
            f"model {name!r} is served inside one process, and the servers of several starve each "
            "other: use the executor 'asyncio', or an endpoint that Ray's processes share, such "
            "as ollama/MODEL"
        )
    processes = min(settings.executor.processes or usable_cores(), settings.model.parallel)
    model = make.unmetered_model(name, processes)
    worker = make_worker(make.suite, model, None, programs)
    driver = Driver(worker=worker, meter=make.meter)
    local = AsyncioExecutor(settings.model.parallel)
    executor = RayExecutor(local, processes=processes, address=address, driver=driver)
    return Workplace(model, worker, executor, executor.close)


@dataclass(slots=True, kw_only=True)
class ModelMaker:
    """Makes the models of one run: metered, patient, and paced by what they share an endpoint."""

    session: Session
    suite: Suite
    paying: Paying
    meter: Meter
    _paces: dict[str, Pace] = field(default_factory=dict)

    def model(self, name: str, *, role: str) -> ChatModel:
        """Return the model of that name, for a role in the bill.

        Raises:
            ConfigError: The weights of a local model are missing.
        """
        settings, told = self.session.project.settings.model, self.paying.api_base
        endpoint = (settings.api_base if told is None else told) or name.partition("/")[0]
        pace = self._paces.setdefault(endpoint, Pace(self._throttle()))
        metered = MeteredModel(model=self._bare(name), meter=self.meter, role=role)
        return PatientModel(model=metered, pace=pace)

    def unmetered_model(self, name: str, processes: int) -> ChatModel:
        """Return the model of that name for workers in so many processes, which share the pace.

        It repeats no call that may have been billed, so that an attempt costs its bound at most.
        """
        pace = Pace(self._throttle(processes))
        return PatientModel(model=self._bare(name), pace=pace, free_only=True)

    def _bare(self, name: str) -> ChatModel:
        return make_model(self.session.project, name, self.paying.api_base, self.suite.prices)

    def _throttle(self, processes: int = 1) -> Throttle:
        """Return the throttle of each of some processes at the same endpoint."""
        settings = self.session.project.settings.model
        requests, tokens = settings.requests_per_minute, settings.tokens_per_minute
        return Throttle(
            settings.parallel,
            requests_per_minute=requests and requests / processes,
            tokens_per_minute=tokens and tokens / processes,
        )


def drive(work: Coroutine[Any, Any, Result]) -> Result:
    """Run asynchronous work to its end, also where an event loop is running already.

    A running loop (Jupyter has one) cannot be entered again, so the work then gets a thread and a
    loop of its own. An interrupt cancels it: what is in flight is finished and kept. A second one
    stops it at once. What code of a suite prints meanwhile goes to stderr: stdout is for results.
    """
    with redirect_stdout(sys.stderr):
        return _driven(work)


def _driven(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(told_of_interrupts(work))
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
            while not over.is_set():
                cancel.result()()
                with suppress(KeyboardInterrupt):
                    over.wait()
            raise
