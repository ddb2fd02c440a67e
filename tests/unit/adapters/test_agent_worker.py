"""The tool loop of an agent, against an endpoint that calls tools as it is told."""

import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import Field
from support.loopback import Answer, LoopbackServer, context_overflow, drop, ok, use
from support.world import skill

from skillforge.adapters.agent_worker import RESULT_CHARACTERS, AgentWorker
from skillforge.adapters.models import LitellmModel
from skillforge.core.arms import shown_in
from skillforge.core.chat import ChatReply, ChatRequest, ToolCall
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt, Cause, FailureKind
from skillforge.core.task import Split, Task, VerifierSpec, WorkerSpec
from skillforge.errors import ConfigError

FREE = {"input_per_million": 0.0, "output_per_million": 0.0}
TASK = Task(
    id="t",
    family="f",
    input="Where is order 7?",
    expected=None,
    skill=None,
    split=Split.CONFIRM,
    verifier=VerifierSpec(kind="contains"),
)
ORDERS = (
    skill("orders", "Look at references/codes.md.", "Finds\n- orders.")
    .replace_file("references/codes.md", b"7 is in Graz")
    .replace_file("assets/logo.png", b"\x89PNG\x00\xff")
    .replace_file("assets/long.txt", b"x" * (RESULT_CHARACTERS + 1))
    .replace_file("evals/evals.json", b'{"answer": "Graz"}')
)


@dataclass(frozen=True)
class Own:
    """A function of a suite, asynchronous as the loader makes it."""

    call: Any


@pytest.fixture(scope="module")
def endpoint() -> Iterator[LoopbackServer]:
    """One HTTP endpoint for all tests of this file."""
    with LoopbackServer() as server:
        yield server


def run(
    endpoint: LoopbackServer,
    script: Sequence[Answer],
    *skills: Package,
    tools: dict[str, Any] | None = None,
    state: Any = None,
    **settings: Any,
) -> tuple[Attempt, list[dict]]:
    """Try the task once; return the attempt and the requests that it made."""
    model = LitellmModel("openai/agent", api_base=endpoint.url, prices=FREE)
    worker = AgentWorker(
        model=model,
        spec=WorkerSpec(kind="agent", max_tokens=100, **settings),
        tools={name: Own(tool) for name, tool in (tools or {}).items()},
        make_state=Own(state) if state else None,
    )
    before = len(endpoint.requests)
    endpoint.script(script)
    attempt = asyncio.run(worker.attempt(TASK, skills, seed=5))
    return attempt, endpoint.requests[before:]


def told(requests: list[dict]) -> list[str]:
    """Return what the model was told by its tools."""
    return [m["content"] for m in requests[-1]["messages"] if m["role"] == "tool"]


def test_skills_are_disclosed_step_by_step(endpoint):
    """The catalogue comes first, then the body, then a file; all of it is noted."""
    script = [
        use(("read_skill", {"name": "orders"})),
        use(("read_file", {"skill": "orders", "path": "./references/codes.md"})),
        ok("In Graz."),
    ]

    attempt, requests = run(endpoint, script, ORDERS)

    first = json.dumps(requests[0])
    assert "- orders: Finds - orders.\\n" in first  # one line: no description can add another
    assert "codes.md" not in first
    body, file = told(requests)
    assert body.startswith("Look at references/codes.md.")
    assert body.endswith(
        "Files of this skill: assets/logo.png, assets/long.txt, references/codes.md"
    )
    assert file == "7 is in Graz"
    assert (attempt.output, attempt.failure) == ("In Graz.", None)
    assert [dict(use) for use in attempt.uses] == [
        {"skill": "orders", "what": "listed", "path": "", "step": 0},
        {"skill": "orders", "what": "read", "path": "SKILL.md", "step": 1},
        {"skill": "orders", "what": "file", "path": "references/codes.md", "step": 2},
    ]
    assert attempt.prompt_tokens + attempt.completion_tokens == 30


def test_the_description_arm_lists_a_skill_and_refuses_to_read_it(endpoint):
    """The catalogue is that of the full arm; whatever is asked for of the skill is refused."""
    script = [
        use(("read_skill", {"name": "orders"})),
        use(("read_file", {"skill": "orders", "path": "SKILL.md"})),
        use(("read_file", {"skill": "orders", "path": "references/codes.md"})),
        ok("I do not know."),
    ]

    attempt, requests = run(endpoint, script, shown_in("description", ORDERS))
    _, full = run(endpoint, [ok("In Graz.")], ORDERS)

    assert requests[0]["messages"] == full[0]["messages"]
    body, entry, file = told(requests)
    assert (
        body == entry == ("error: the instructions of 'orders' cannot be read; go on without them")
    )
    assert file.startswith("error: skill 'orders' has no file")
    assert [use["what"] for use in attempt.uses] == ["listed"]
    assert [m["role"] for m in attempt.transcript][-2:] == ["tool", "assistant"]


def test_tools_are_the_same_with_and_without_skills(endpoint):
    """An arm without skills has the same tools and instructions, and an empty catalogue."""
    _, [without] = run(endpoint, [ok()])
    _, [with_one] = run(endpoint, [ok()], ORDERS)

    assert without["tools"] == with_one["tools"]
    assert "(none)" in without["messages"][0]["content"]


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (("read_skill", '{"name": "ord'), "expected one JSON object with name: str; call it again"),
        (("read_skill", "[1]"), "expected one JSON object with name: str"),
        (("read_skill", {}), "name: Missing required argument; expected name: str"),
        (("read_skill", {"name": "orders", "x": 1}), "x: Unexpected keyword argument"),
        (("read_skill", {"name": 7}), "name: Input should be a valid string"),
        (("read_skill", {"name": "order"}), "there is no skill 'order'; there are: orders"),
        (("fly to", {}), "there is no tool 'fly to'; call one of: read_skill, read_file"),
        (("read_file", {"skill": "orders", "path": "codes.md"}), "it has: assets/logo.png"),
        (("read_file", {"skill": "orders", "path": "../x"}), "has no file '../x'"),
        (("read_file", {"skill": "orders", "path": "/etc/passwd"}), "has no file '/etc/passwd'"),
        (("read_file", {"skill": "orders", "path": "evals/evals.json"}), "has no file 'evals/"),
        (("read_file", {"skill": "orders", "path": "assets/logo.png"}), "is a binary file"),
    ],
)
def test_a_wrong_call_is_answered_with_what_to_do(endpoint, call, answer):
    """Mistakes of the model cost a step and are explained; the loop goes on."""
    attempt, requests = run(endpoint, [use(call), ok("done")], ORDERS, steps=2)

    [said] = told(requests)
    assert said.startswith("error: ")
    assert answer in said
    assert len(said) < 1000
    assert (attempt.output, attempt.failure) == ("done", None)
    assert [u["what"] for u in attempt.uses] == ["listed"]
    sent = requests[-1]["messages"][-2]["tool_calls"][0]["function"]
    assert isinstance(json.loads(sent["arguments"]), dict)  # some providers parse what comes back
    assert re.fullmatch(r"[A-Za-z0-9_-]+", sent["name"])


def test_parallel_calls_are_answered_each_by_its_id(endpoint):
    """Several calls in one turn are one step, run in order and answered under their ids."""
    calls = [("read_skill", {"name": "orders"}), ("nothing", {}), ("read_skill", {"name": "x"})]

    attempt, requests = run(endpoint, [use(*calls), ok("done")], ORDERS, steps=2)

    answers = [m for m in requests[-1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in answers] == ["call-0", "call-1", "call-2"]
    assert [m["content"][:6] for m in answers] == ["Look a", "error:", "error:"]
    assert attempt.failure is None


def test_an_endless_loop_ends_at_the_step_limit(endpoint):
    """A model that goes on calling tools is stopped, and that is the agent's failure."""
    attempt, requests = run(endpoint, [use(("read_skill", {"name": "orders"}))], ORDERS, steps=4)

    assert len(requests) == 4
    assert attempt.failure is not None
    assert attempt.failure.kind is FailureKind.AGENT
    assert "step limit: no answer within 4 steps" in attempt.failure.message
    assert attempt.failure.cause is Cause.STEPS


def test_the_token_limit_is_never_passed(endpoint):
    """No call is made that could take the attempt over its limit; what was used is counted."""
    script = [use(("read_file", {"skill": "orders", "path": "assets/long.txt"}))]

    attempt, requests = run(endpoint, script, ORDERS, token_limit=20_000)

    assert len(requests) == 1
    assert attempt.failure is not None
    assert attempt.failure.kind is FailureKind.AGENT
    assert "token limit" in attempt.failure.message
    assert attempt.failure.cause is Cause.TOKENS
    assert 0 < attempt.prompt_tokens + attempt.completion_tokens <= 20_000


def test_the_bound_is_the_token_limit_at_the_models_prices():
    """All of the limit is read or written; no more is written than the steps allow."""
    prices = {"input_per_million": 1.0, "output_per_million": 5.0}
    model = LitellmModel("openai/agent", prices=prices)

    def usd(**settings: int) -> float:
        worker = AgentWorker(model=model, spec=WorkerSpec(kind="agent", **settings))
        most = worker.bound(TASK, [ORDERS])
        assert most.tokens == settings["token_limit"]
        return most.usd

    some = usd(token_limit=1_000_000, steps=10, max_tokens=1000)
    every = usd(token_limit=1_000_000, steps=1000, max_tokens=1000)

    assert some == pytest.approx(0.99 * 1.0 + 0.01 * 5.0)
    assert every == pytest.approx(5.0)


def test_a_long_result_is_cut_and_says_so(endpoint):
    """No tool can flood the context."""
    script = [use(("read_file", {"skill": "orders", "path": "assets/long.txt"})), ok("done")]

    _, requests = run(endpoint, script, ORDERS)

    [said] = told(requests)
    assert len(said) < RESULT_CHARACTERS + 100
    assert said.endswith(f"of {RESULT_CHARACTERS + 1} characters)")


@pytest.mark.parametrize(
    ("last", "kind", "cause", "free"),
    [
        (context_overflow(), FailureKind.AGENT, Cause.CONTEXT, True),
        (drop(), FailureKind.INFRA, Cause.OTHER, False),
    ],
)
def test_a_call_without_an_answer_ends_the_attempt(endpoint, last, kind, cause, free):
    """A full context is the agent's failure, a lost connection is nobody's; both keep the cost.

    A refused call costs nothing; one that was lost may have been billed and counts at its bound.
    """
    attempt, _ = run(endpoint, [use(("read_skill", {"name": "orders"})), last], ORDERS)

    assert attempt.failure is not None
    assert (attempt.failure.kind, attempt.failure.cause) == (kind, cause)
    used = attempt.prompt_tokens + attempt.completion_tokens
    assert used == 10 if free else used > 10
    assert len(attempt.uses) == 2


def test_no_answer_at_all_is_the_agents_failure(endpoint):
    """A last turn without text leaves the last text there was, and without any it fails."""
    silent, _ = run(endpoint, [ok(" ")])
    earlier, _ = run(
        endpoint, [use(("read_skill", {"name": "orders"}), text="Graz"), ok("")], ORDERS
    )

    assert silent.failure is not None
    assert (silent.failure.message, silent.failure.cause) == ("empty answer", Cause.EMPTY)
    assert (earlier.output, earlier.failure) == ("Graz", None)


def test_a_cut_turn_marks_the_attempt(endpoint):
    """``length`` anywhere in the loop is kept, whatever follows it (allenai/olmo-eval#399)."""
    cut = ok("", finish_reason="length", calls=[("read_skill", '{"name": "or')])

    attempt, _ = run(endpoint, [cut, ok("done")], ORDERS)
    whole, _ = run(endpoint, [use(("read_skill", {"name": "orders"})), ok("done")], ORDERS)

    assert (attempt.finish_reason, whole.finish_reason) == ("length", "stop")


def test_halves_of_surrogates_do_not_break_the_next_request(endpoint):
    """Models and tools may write what no request can carry; it is replaced."""

    async def odd(word: str) -> str:
        return "\ud83d" + word

    script = [use(("odd", '{"word": "\\ud83d"}'), text="\ud800"), ok("done")]

    attempt, requests = run(endpoint, script, tools={"odd": odd})

    assert (attempt.output, attempt.failure) == ("done", None)
    assert "?" in told(requests)[0]


# Tools of the suite


async def count(state: dict, order: Annotated[str, Field(description="Its number.")], by: int = 1):
    """Count an order and return how often it was counted."""
    state[order] = state.get(order, 0) + by
    return state


class Hasty:
    """A model that asks for one tool, in no time."""

    name = fingerprint = "hasty"

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Ask for the tool."""
        return ChatReply(
            text="",
            finish_reason="tool_calls",
            prompt_tokens=1,
            completion_tokens=1,
            cost_usd=0.0,
            seconds=0.0,
            tool_calls=(ToolCall(id="", name="hang", arguments=""),),
        )

    def cost_bound(self, request: ChatRequest) -> float:
        """Cost nothing."""
        return 0.0

    def token_bound(self, request: ChatRequest) -> int:
        """Use two tokens."""
        return 2


async def fresh(task: dict) -> dict:
    """Make the state of an attempt."""
    return {"task": task["id"]}


def test_a_signature_declares_a_tool(endpoint):
    """Parameters, their types and descriptions come from the function; the state is not shown."""
    _, [request] = run(endpoint, [ok()], tools={"count": count})

    declared = request["tools"][-1]["function"]
    assert declared["name"] == "count"
    assert declared["description"] == "Count an order and return how often it was counted."
    assert declared["parameters"]["required"] == ["order"]
    assert set(declared["parameters"]["properties"]) == {"order", "by"}
    assert declared["parameters"]["properties"]["order"]["description"] == "Its number."


def test_each_attempt_has_a_state_of_its_own(endpoint):
    """Tools of one attempt share a state; the next attempt finds a fresh one."""
    script = [use(("count", {"order": "7"}), ("count", {"order": "7", "by": "2"})), ok("done")]

    for _ in range(2):
        _, requests = run(endpoint, script, tools={"count": count}, state=fresh)
        assert [json.loads(text) for text in told(requests)] == [
            {"task": "t", "7": 1},
            {"task": "t", "7": 3},
        ]
    _, requests = run(endpoint, script, tools={"count": count})
    assert json.loads(told(requests)[1]) == {"7": 3}


def test_a_tool_that_raises_is_reported(endpoint):
    """The model learns what went wrong and can go on."""

    async def broken() -> None:
        raise LookupError("no such order")

    attempt, requests = run(endpoint, [use(("broken", "")), ok("done")], tools={"broken": broken})

    assert told(requests) == ["error: broken failed: LookupError: no such order"]
    assert attempt.failure is None


def test_a_tool_that_crashes_is_the_agents_failure(endpoint):
    """A tool that would end the process ends the attempt."""

    async def leave() -> None:
        sys.exit("bye")

    attempt, _ = run(endpoint, [use(("leave", {}))], tools={"leave": leave})

    assert attempt.failure is not None
    assert attempt.failure.kind is FailureKind.AGENT
    assert "tool leave crashed: SystemExit: bye" in attempt.failure.message
    assert attempt.failure.cause is Cause.CRASH


def test_a_tool_that_never_ends_is_the_agents_failure():
    """The time of the attempt bounds its tools."""

    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    spec = WorkerSpec(kind="agent", timeout=0.05)
    worker = AgentWorker(model=Hasty(), spec=spec, tools={"hang": Own(hang)})
    attempt = asyncio.run(worker.attempt(TASK, [], seed=0))

    assert attempt.failure is not None
    assert attempt.failure.kind is FailureKind.AGENT
    assert "timeout: tool hang was still running" in attempt.failure.message
    assert attempt.failure.cause is Cause.TIMEOUT


def test_a_state_that_cannot_be_made_voids_the_attempt(endpoint):
    """Broken code of the suite is not the agent's fault: no call is made."""

    async def broken(task: dict) -> None:
        raise OSError("no disk")

    attempt, requests = run(endpoint, [ok()], state=broken)

    assert requests == []
    assert attempt.failure is not None
    assert attempt.failure.kind is FailureKind.INFRA
    assert "OSError: no disk" in attempt.failure.message


async def unfit(lock: threading.Lock) -> None:
    """Take what no JSON can hold."""


async def nameless(*words: str) -> None:
    """Take words without names."""


@pytest.mark.parametrize(
    ("name", "tool", "message"),
    [
        ("read_skill", count, "rename yours"),
        ("unfit", unfit, "have no JSON schema"),
        ("nameless", nameless, "parameters without names"),
    ],
)
def test_a_tool_that_cannot_be_offered_is_refused(endpoint, name, tool, message):
    """Names that are taken and parameters without a schema stop the run before it begins."""
    with pytest.raises(ConfigError, match=message):
        run(endpoint, [ok()], tools={name: tool})


def test_a_model_that_calls_no_tools_is_refused():
    """The embedded model would ignore tools without a word; it is not asked."""
    worker = AgentWorker(model=LitellmModel("local/smollm2"), spec=WorkerSpec(kind="agent"))

    with pytest.raises(ConfigError, match="calls no tools"):
        asyncio.run(worker.attempt(TASK, [], seed=0))
