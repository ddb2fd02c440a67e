"""What every worker must do: chat, agent and python run the same suite."""

import asyncio
import json
import pickle
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from support.loopback import Answer, LoopbackServer, context_overflow, drop, ok, slow, use
from support.world import skill

from skillforge.adapters.agent_worker import AgentWorker
from skillforge.adapters.functions import load_function
from skillforge.adapters.models import LitellmModel
from skillforge.adapters.python_worker import PythonWorker
from skillforge.adapters.suite_code import read_code
from skillforge.adapters.workers import ChatWorker
from skillforge.core.package import Package
from skillforge.core.rollout import Attempt, FailureKind
from skillforge.core.shown import description_only
from skillforge.core.task import Split, Task, VerifierSpec, WorkerSpec
from skillforge.ports import Worker

KINDS = ["chat", "agent", "python"]
FREE = {"input_per_million": 1.0, "output_per_million": 2.0}
CODE = '''
import json, threading

def work(input, skills, seed):
    """Answer with everything that can be seen, or fail as the input says."""
    if input == "hang":
        threading.Event().wait()
    if input == "no connection":
        raise ConnectionError("refused")
    if input == "too much":
        raise ValueError("more than the context")
    return "" if input == "say nothing" else json.dumps([input, strip(skills)])

def strip(skills):
    return [{k: v for k, v in skill.items() if k != "folder"} for skill in skills]

def look(word: str) -> str:
    """Look a word up."""
    return word
'''


def provider(body: dict) -> Answer:
    """Answer or fail as the task says; an agent reads every skill that it sees."""
    said = body["messages"][1]["content"]
    answers = {
        "hang": slow(60.0),
        "no connection": drop(),
        "too much": context_overflow(),
        "say nothing": ok(""),
    }
    last = body["messages"][-1]
    if body.get("tools") and last["role"] == "user" and "shout" in body["messages"][0]["content"]:
        return use(("read_skill", {"name": "shout"}))
    return answers.get(said, ok("an answer"))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[LoopbackServer]:
    """One HTTP endpoint for all tests of this file."""
    with LoopbackServer(provider) as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind in turn."""
    return request.param


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a suite with some code."""
    (tmp_path / "suite_code.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def make(kind: str, endpoint: LoopbackServer, folder: Path, **settings) -> Worker:
    """Return a worker of one kind."""
    spec = WorkerSpec(
        kind=kind, function="suite_code:work", usd_per_attempt=0.5, tokens_per_attempt=9
    )
    code = read_code(folder, spec, ())
    spec = replace(spec, **settings)
    if kind == "python":
        return PythonWorker(function=load_function("suite_code:work", code, "function"), spec=spec)
    model = LitellmModel("openai/echo", api_base=endpoint.url, prices=FREE)
    if kind == "chat":
        return ChatWorker(model=model, spec=spec)
    look = load_function("suite_code:look", code, "tools")
    return AgentWorker(model=model, spec=spec, tools={"look": look}, source=look.source)


def task(text: str = "a task") -> Task:
    """Return a task."""
    return Task(
        id="t",
        family="f",
        input=text,
        expected=None,
        skill="shout",
        split=Split.CONFIRM,
        verifier=VerifierSpec(kind="contains"),
    )


def attempt(worker: Worker, text: str = "a task", *skills: Package) -> Attempt:
    """Try a task once."""
    return asyncio.run(worker.attempt(task(text), skills, seed=1))


def seen(worker: Worker, endpoint: LoopbackServer, *skills: Package) -> str:
    """Return everything that was to be seen in one attempt, apart from the clock."""
    before = len(endpoint.requests)
    done = attempt(worker, "a task", *skills)
    assert done.failure is None
    requests = endpoint.requests[before:]
    return json.dumps(requests if requests else json.loads(done.output))


def test_an_attempt_brings_an_answer(kind, endpoint, folder):
    """An answer has a text, a reason to end, and no failure."""
    done = attempt(make(kind, endpoint, folder), "a task", skill("shout", "Use capitals."))

    assert done.output
    assert done.failure is None
    assert done.finish_reason == "stop"
    assert done.seconds >= 0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("no connection", FailureKind.INFRA),
        ("too much", FailureKind.AGENT),
        ("say nothing", FailureKind.AGENT),
        ("hang", FailureKind.AGENT),
    ],
)
def test_a_failure_is_part_of_the_attempt(kind, endpoint, folder, text, fault):
    """What goes wrong is returned with its kind and a message, and never raised."""
    timeout = 0.5 if text == "hang" else 30.0

    done = attempt(make(kind, endpoint, folder, timeout=timeout), text)

    assert done.failure is not None
    assert done.failure.kind is fault
    assert done.failure.message


CHANGED = {
    "kind": "other",
    "max_tokens": 65,
    "temperature": 0.0,
    "stop": ("x",),
    "preamble": "Be brief.",
    "timeout": 7.0,
    "template": "{{ preamble }}",
    "steps": 3,
    "token_limit": 999,
    "tools": ("suite_code:look",),
    "state": "suite_code:state",
    "function": "suite_code:look",
    "usd_per_attempt": 0.25,
    "tokens_per_attempt": 3,
}


def test_every_setting_is_part_of_the_fingerprint(kind, endpoint, folder):
    """A worker is known by all of its settings: no two that differ share a rollout."""
    names = [field.name for field in fields(WorkerSpec)]
    assert set(CHANGED) <= set(names)
    prints = {make(kind, endpoint, folder).fingerprint}
    prints |= {
        make(kind, endpoint, folder)
        .__class__(**_parts(make(kind, endpoint, folder), **{name: value}))
        .fingerprint
        for name, value in CHANGED.items()
    }

    assert len(prints) == len(CHANGED) + 1


def _parts(worker, **settings) -> dict:
    """Return a worker's parts with some settings changed."""
    parts = {f.name: getattr(worker, f.name) for f in fields(worker) if f.init}
    return parts | {"spec": replace(worker.spec, **settings)}


def test_temperature_zero_is_not_the_models_own(kind, endpoint, folder):
    """Greedy decoding and a temperature left open give rollouts different keys."""
    greedy = make(kind, endpoint, folder, temperature=0.0)

    assert greedy.fingerprint != make(kind, endpoint, folder, temperature=None).fingerprint


@pytest.mark.parametrize("kind", ["agent", "python"])
def test_other_code_is_another_worker(kind, endpoint, folder):
    """An edit of the suite's code changes the fingerprint, and its undoing restores it."""
    before = make(kind, endpoint, folder).fingerprint
    (folder / "suite_code.py").write_text(CODE + "# edited\n", encoding="utf-8")
    edited = make(kind, endpoint, folder).fingerprint
    (folder / "suite_code.py").write_text(CODE, encoding="utf-8")

    assert edited != before
    assert make(kind, endpoint, folder).fingerprint == before


def test_the_base_arm_sees_no_byte_of_the_candidate(kind, endpoint, folder):
    """What the base arm sees is what it would see had the candidate never existed."""
    worker = make(kind, endpoint, folder)
    context, candidate = skill("quiet", "Whisper."), skill("shout", "Use capitals.", "Loudly.")

    never = seen(worker, endpoint, context)
    augmented = seen(worker, endpoint, candidate, context)
    base = seen(worker, endpoint, context)

    assert base == never
    assert "capitals" in augmented
    assert not any(word in base for word in ("shout", "capitals", "Loudly"))


def test_the_description_arm_shows_name_and_description_only(kind, endpoint, folder):
    """A skill that is only listed is seen by its name and description; its body is nowhere."""
    worker = make(kind, endpoint, folder)
    package = skill("shout", "Use capitals.", "Loudly.").replace_file("references/more.md", b"More")

    shown = seen(worker, endpoint, description_only(package))

    assert "shout" in shown
    assert "Loudly." in shown
    assert "capitals" not in shown
    assert "more.md" not in shown


def test_the_bound_holds(kind, endpoint, folder):
    """No attempt costs more than was announced before it."""
    worker, package = make(kind, endpoint, folder), skill("shout", "Use capitals.")

    most = worker.bound(task(), [package])
    done = attempt(worker, "a task", package)

    assert 0 < done.cost_usd <= most.usd
    assert 0 < done.prompt_tokens + done.completion_tokens <= most.tokens


def test_a_worker_goes_to_another_process(kind, endpoint, folder):
    """A worker that was pickled is the same one and does the same."""
    worker = make(kind, endpoint, folder)

    other = pickle.loads(pickle.dumps(worker))

    assert other.fingerprint == worker.fingerprint
    assert attempt(other).output == attempt(worker).output


def test_no_frontmatter_fence_reaches_a_model(kind, endpoint, folder):
    """Frontmatter stays out, also with CRLF, twice, or never closed (pm-claude-skills#173)."""
    head, worker = "---\nname: shout\ndescription: Loud.\n---\n", make(kind, endpoint, folder)
    texts = [head + "Use capitals.\n", head * 2 + "Use capitals.\n", "---\nUse capitals.\n"]
    texts += [text.replace("\n", "\r\n") for text in texts]

    for text in texts:
        package = skill("shout", "").replace_file("SKILL.md", text.encode())
        shown = seen(worker, endpoint, package)
        assert "Use capitals." in shown
        assert "---" not in shown
