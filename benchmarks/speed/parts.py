"""What the engine's benchmark is put together from: tasks, skills, workers, and the bench."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slow_model import LATENCY

from skillforge.adapters.executors import AsyncioExecutor
from skillforge.adapters.ledger import SqliteLedger
from skillforge.adapters.models import LitellmModel
from skillforge.adapters.suites import load_suite
from skillforge.adapters.workers import ChatWorker
from skillforge.core.chat import Cost
from skillforge.core.digest import canonical_json
from skillforge.core.pace import Throttle
from skillforge.core.package import Package, PackageFile
from skillforge.core.rollout import Attempt
from skillforge.core.task import Split, Task, VerifierSpec, WorkerSpec
from skillforge.ports import Worker
from skillforge.workflows.account import Account
from skillforge.workflows.contrast import Context, arm_cells
from skillforge.workflows.meter import Meter
from skillforge.workflows.metered import MeteredModel, MeteredWorker
from skillforge.workflows.patience import Pace, PatientModel
from skillforge.workflows.spend import Caps
from skillforge.workflows.trial import Bench, Cell

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT = 64
MakeWorker = Callable[[Meter], Worker]


class WallClock:
    """The system's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


class InstantWorker:
    """Answers with the reference at once; what an attempt gives as seconds is when it ended."""

    fingerprint = "instant"

    def bound(self, task: Task, skills: Sequence[Package]) -> Cost:
        """More than nothing, so that the budget is asked."""
        return Cost(usd=0.001, tokens=100)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Return the reference."""
        return Attempt(
            output=task.expected or "",
            transcript=({"content": task.input},),
            prompt_tokens=40,
            completion_tokens=1,
            seconds=time.perf_counter(),
        )


@dataclass
class TraceWorker(InstantWorker):
    """Answers right or wrong by its seed, with messages cut from agent traces as transcript."""

    traces: Sequence[Sequence[dict[str, Any]]]
    raw: int = 0
    """Bytes of payload so far, as text."""

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Return an answer that no other attempt gives, so that no payload is stored twice."""
        draw = random.Random(seed)
        trace = draw.choice(self.traces)
        at = draw.randrange(max(1, len(trace) - 2))
        answer = task.expected if draw.random() < 0.4 + 0.2 * bool(skills) else "no"
        transcript = (*trace[at : at + 2], {"role": "note", "content": f"{task.id} {seed}"})
        attempt = Attempt(output=answer or "", transcript=transcript, prompt_tokens=40)
        self.raw += len(canonical_json({"output": attempt.output, "messages": transcript}))
        return attempt


@dataclass
class SocketWorker(InstantWorker):
    """Asks the slow model over kept connections, with no client in between."""

    port: int
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def attempt(self, task: Task, skills: Sequence[Package], *, seed: int) -> Attempt:
        """Send the task and wait for the answer."""
        if self.idle:
            reader, writer = self.idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps({"messages": [task.input], "seed": seed}).encode()
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        reply = json.loads(await reader.readexactly(size))
        self.idle.append((reader, writer))
        text = reply["choices"][0]["message"]["content"]
        return Attempt(output=text, transcript=({"content": task.input},), seconds=LATENCY)


def make_bench(
    ledger: SqliteLedger,
    make_worker: MakeWorker,
    run: str = "bench",
) -> Bench:
    """Return a bench under a budget that is never reached, and whose worker asks it."""
    caps = Caps(usd=1e6, tokens=10**12, rollouts=10**9, minutes=1e6)
    account = Account(ledger=ledger, run=run)
    meter = Meter(caps=caps, clock=WallClock(), claim=account.claim)
    meter.start()
    executor = AsyncioExecutor(IN_FLIGHT)
    worker = make_worker(meter)
    return Bench(ledger=ledger, worker=worker, executor=executor, meter=meter, run=run, seed=0)


def metered(worker: Worker) -> MakeWorker:
    """Return what puts a budget before each attempt of a worker."""
    return lambda meter: MeteredWorker(worker=worker, meter=meter)


def through_litellm(url: str) -> MakeWorker:
    """Return what makes a chat worker as the commands do: metered, paced, behind litellm."""
    prices = {"input_per_million": 1.0, "output_per_million": 1.0}
    bare = LitellmModel("openai/loopback", api_base=url, api_key="none", prices=prices)

    def make(meter: Meter) -> Worker:
        model = MeteredModel(model=bare, meter=meter)
        paced = PatientModel(model=model, pace=Pace(Throttle(IN_FLIGHT)))
        return ChatWorker(model=paced, spec=WorkerSpec())

    return make


def both_arms(tasks: Sequence[Task], package: Package, purpose: str = "eval") -> list[Cell]:
    """Return a base and an augmented cell for each task."""
    context = Context(skill=package.name)
    cells = arm_cells(tasks, arm="base", package=None, context=context, purpose=purpose)
    return cells + arm_cells(
        tasks, arm="augmented", package=package, context=context, purpose=purpose
    )


def make_skill(number: int) -> Package:
    """Return a package of one file."""
    text = f"---\nname: skill-{number}\ndescription: Number {number}.\n---\n\nBe number {number}.\n"
    return Package(name=f"skill-{number}", files={"SKILL.md": PackageFile(data=text.encode())})


def make_tasks(count: int) -> list[Task]:
    """Return the shipped tasks, over and over under names of their own."""
    shipped = load_suite(ROOT / "benchmarks/suites/desk").tasks
    return [
        Task(
            id=f"{i // len(shipped)}/{task.id}",
            family=task.family,
            input=task.input,
            expected=task.expected,
            skill=None,
            split=Split.CONFIRM,
            verifier=VerifierSpec(kind="exact"),
        )
        for i, task in ((i, shipped[i % len(shipped)]) for i in range(count))
    ]
