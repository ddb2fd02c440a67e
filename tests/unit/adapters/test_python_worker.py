"""The python worker: what a function gets, what it may return, and what its failures are."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.world import skill

from skillforge.adapters.python_worker import PythonWorker
from skillforge.core.rollout import Attempt, Cause, FailureKind
from skillforge.core.task import Split, Task, VerifierSpec, WorkerSpec
from skillforge.errors import ConfigError, InfraError

TASK = Task(
    id="t",
    family="f",
    input="2 + 2",
    expected="4",
    skill="sums",
    split=Split.CONFIRM,
    verifier=VerifierSpec(kind="exact"),
)


@dataclass(frozen=True)
class Own:
    """A function, asynchronous as the loader makes it."""

    call: Any
    source: str = "1"


def attempt(
    function: Any, *skills: Any, seed: int = 3, usd: float | None = 0.5, tokens: int = 100
) -> Attempt:
    """Try the task once."""
    spec = WorkerSpec(
        kind="python", function="mine:work", usd_per_attempt=usd, tokens_per_attempt=tokens
    )
    worker = PythonWorker(function=Own(function), spec=spec)
    return asyncio.run(worker.attempt(TASK, skills, seed=seed))


def test_a_function_gets_the_task_the_skills_and_the_seed():
    """Each skill has name, description, body and, for the time of the call, a folder."""
    package = skill("sums", "Add.").replace_file("scripts/add.sh", b"#!/bin/sh", executable=True)
    package = package.replace_file("evals/evals.json", b"{}")
    seen: list[Any] = []

    async def work(text: str, skills: list[dict], seed: int) -> str:
        folder = Path(skills[0].pop("folder"))
        script = folder / "scripts" / "add.sh"
        files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        seen.extend([text, skills, seed, files, bool(script.stat().st_mode & 0o100), folder])
        return "4"

    done = attempt(work, package)

    about = {"name": "sums", "description": "Does a thing for a test.", "body": "Add."}
    assert seen[:5] == ["2 + 2", [about], 3, ["SKILL.md", "scripts/add.sh"], True]
    assert not seen[5].exists()
    assert done.output == "4"
    assert done.uses == ()


def test_what_a_function_says_it_used_is_booked():
    """Tokens and cost come from the answer, and from the suite where the answer says nothing."""

    async def told(*_: Any) -> dict:
        return {"output": "4", "prompt_tokens": 7, "completion_tokens": 2, "cost_usd": 0.01}

    async def silent(*_: Any) -> str:
        return "4"

    async def broken(*_: Any) -> str:
        raise ValueError

    said, unsaid, failed = attempt(told), attempt(silent), attempt(broken)

    assert (said.prompt_tokens, said.completion_tokens, said.cost_usd) == (7, 2, 0.01)
    assert (said.cost_told, unsaid.cost_told, failed.cost_told) == (True, False, False)
    for done in (unsaid, failed):
        assert (done.completion_tokens, done.cost_usd) == (100, 0.5)


@pytest.mark.parametrize(
    ("said", "usd", "tokens", "told"),
    [
        ({"cost_usd": 0, "completion_tokens": 0}, 0.0, 0, True),
        ({"cost_usd": 0.0}, 0.0, 100, False),
        ({"completion_tokens": 0}, 0.5, 0, False),
        ({"prompt_tokens": 30}, 0.5, 100, False),
    ],
    ids=["nothing", "no tokens said", "no cost said", "half of the tokens said"],
)
def test_a_cost_of_nothing_is_a_cost(said, usd, tokens, told):
    """What is told is booked, also 0; what is not is booked at what the suite states, no more."""

    async def work(*_: Any) -> dict:
        return {"output": "4", **said}

    done = attempt(work)

    assert (done.cost_usd, done.prompt_tokens + done.completion_tokens) == (usd, tokens)
    assert done.cost_told is told


def test_where_nothing_can_be_paid_there_is_nothing_to_tell():
    """A function that the suite calls free is not asked what it cost."""

    async def work(*_: Any) -> str:
        return "4"

    assert attempt(work, usd=0.0, tokens=0).cost_told


def test_without_a_stated_price_nothing_runs():
    """An attempt of unknown cost is refused, with the setting to add."""

    async def work(*_: Any) -> str:
        return "4"

    with pytest.raises(ConfigError, match="add usd_per_attempt = USD"):
        attempt(work, usd=None)


@pytest.mark.parametrize(
    ("answer", "cause"), [("", Cause.EMPTY), (ValueError(), Cause.CRASH), (None, Cause.TIMEOUT)]
)
def test_what_a_function_fails_by_is_told(answer, cause):
    """Silence, an error of its own, and the end of its time are counted apart."""

    async def work(*_: Any) -> str:
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.get_running_loop().create_future()
        return answer

    spec = WorkerSpec(kind="python", function="mine:work", usd_per_attempt=0.0, timeout=0.05)
    worker = PythonWorker(function=Own(work), spec=spec)
    done = asyncio.run(worker.attempt(TASK, [], seed=0))

    assert done.failure is not None
    assert (done.failure.kind, done.failure.cause) == (FailureKind.AGENT, cause)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("no sum\nat all"), FailureKind.AGENT, "mine:work: at all"),
        (KeyError("x"), FailureKind.AGENT, "mine:work: KeyError: 'x'"),
        (SystemExit(3), FailureKind.AGENT, "mine:work: SystemExit: 3"),
        (TimeoutError("own"), FailureKind.AGENT, "mine:work: TimeoutError: own"),
        (ConnectionResetError("gone"), FailureKind.INFRA, "mine:work: ConnectionResetError: gone"),
        (OSError(28, "No space left"), FailureKind.INFRA, "No space left"),
        (OSError(2, "No such file"), FailureKind.AGENT, "mine:work: FileNotFoundError"),
        (MemoryError(), FailureKind.INFRA, "mine:work: MemoryError"),
        (InfraError("no host"), FailureKind.INFRA, "no host"),
    ],
)
def test_what_a_function_raises_is_its_failure(error, kind, message):
    """An error scores 0, one of the network voids the pair; its last line is kept."""

    async def work(*_: Any) -> str:
        raise error

    done = attempt(work)

    assert done.failure is not None
    assert done.failure.kind is kind
    assert message in done.failure.message


@pytest.mark.parametrize(
    "returned",
    [
        *(None, 4, {}, b"4", {"output": 4}, {"output": "4", "cost": 1}),
        *({"output": "4", tokens: 2**53 + 1} for tokens in ("prompt_tokens", "completion_tokens")),
    ],
)
def test_a_wrong_return_says_what_was_expected(returned):
    """Anything but a text or a mapping with the known keys is the function's failure."""

    async def work(*_: Any) -> Any:
        return returned

    done = attempt(work)

    assert done.failure is not None
    assert done.failure.kind is FailureKind.AGENT
    assert "expected a text, or a mapping with output" in done.failure.message
