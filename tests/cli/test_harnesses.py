"""Real agent harnesses as command workers, where they are on PATH, with a model on loopback.

Tried with Claude Code 2.1.197, Codex 0.171.0, Gemini CLI 0.61.0 and opencode 1.18.33, each from
the npm registry. No harness gets an account or a key, or reaches anything but the loopback.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.loopback import Answer, LoopbackServer, slow, status
from support.model_protocols import Call, reply
from support.processes import Done, ProcessServer
from support.programs import marker, running
from support.small_project import events, write_project, write_suite

from skillforge.adapters.command_worker import make_command_worker
from skillforge.adapters.limited import LimitedPrograms
from skillforge.adapters.suites import load_suite
from skillforge.core.rollout import FailureKind

NAME, ABOUT, BODY = "harbour-word", "Says how the harbour office writes.", "Use capitals, 4711."
PROMPTS = (
    "Write WORD-alpha.",
    "--help WORD-beta",
    "Write \"WORD-gamma\"\n\n'then' $(stop) `x` {workspace} é",
)
HEAD = """\
name = "errands"
version = "1"
license = "CC0-1.0"
source = "made by a test"

[verifier]
kind = "exact"
strip = true

[worker]
kind = "command"
usd_per_attempt = 0.0
timeout = 240
memory_mib = 2048
disk_mib = 256
"""
CODEX = """\
harness = "codex"
command = [
  "codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
  "-c", 'openai_base_url="{model}/v1"', "--model", "gpt-5", "--", "{prompt}",
]
environment = ["CODEX_API_KEY"]
outage = "unexpected status|exceeded retry limit|stream disconnected"
"""
CLAUDE = """\
harness = "claude-code"
command = ["claude", "--model", "claude-opus-4-8", "-p", "--", "{prompt}"]
environment = [
  "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
  "CLAUDE_CODE_MAX_RETRIES",
]
outage = "API Error"
"""
GEMINI = """\
harness = "gemini-cli"
command = [
  "gemini", "--skip-trust", "--yolo", "--model", "gemini-2.5-flash", "--prompt={prompt}",
]
environment = ["GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_VERTEX_BASE_URL"]
"""
OPENCODE = """\
harness = "opencode"
command = ["opencode", "run", "--model", "here/test", "--", "{prompt}"]
environment = [
  "OPENCODE_CONFIG_CONTENT", "OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH",
  "npm_config_registry",
]
"""


class Harness(NamedTuple):
    """A harness, how a suite runs it, and by which of its tools a model reads a skill."""

    program: str
    worker: str
    read: Call

    def require(self) -> None:
        """Skip the test where it is not installed."""
        if shutil.which(self.program) is None:
            pytest.skip(f"{self.program} is not on PATH")


LOOK = {"cmd": f"cat .agents/skills/{NAME}/SKILL.md"}
HARNESSES = {
    harness.program: harness
    for harness in (
        Harness("claude", CLAUDE, ("Skill", {"skill": NAME})),
        Harness("codex", CODEX, ("exec_command", LOOK)),
        Harness("gemini", GEMINI, ("activate_skill", {"name": NAME})),
        Harness("opencode", OPENCODE, ("skill", {"name": NAME})),
    )
}
EACH = pytest.mark.parametrize("name", HARNESSES)
pytestmark = pytest.mark.slow


def settings(url: str) -> dict[str, str]:
    """Return the variables that the harnesses are pointed at a model with."""
    here = {"npm": "@ai-sdk/openai-compatible", "models": {"test": {}}}
    here |= {"options": {"baseURL": f"{url}/v1", "apiKey": "none"}}
    return {
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "CODEX_API_KEY": "none",
        "GOOGLE_API_KEY": "none",
        "GOOGLE_GENAI_USE_VERTEXAI": "true",
        "GOOGLE_VERTEX_BASE_URL": url,
        "OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"here": here}}),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "npm_config_registry": "http://127.0.0.1:9",
    }


def texts(value: Any) -> Iterator[str]:
    """Yield every text inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from texts(part)


def word(body: dict[str, Any]) -> str:
    """Return the word that a request's task wants, as the task writes it."""
    return re.findall(r"WORD-([a-z]+)", json.dumps(body))[-1]


def model(harness: Harness) -> Any:
    """Return a model that reads the skill if it is listed, and then does as it says."""

    def answer(body: dict[str, Any]) -> Answer:
        seen = "\n".join(texts(body))
        if BODY in seen:
            return reply(body, word(body).upper())
        if ABOUT in seen and harness.read[0] in seen and "tools" in body:
            return reply(body, call=harness.read)
        return reply(body, word(body))

    return answer


def write(root: Path, harness: Harness, url: str, prompts: tuple[str, ...] = PROMPTS) -> Path:
    """Write a project with one skill and a suite that the harness performs."""
    write_project(root, url, skills={NAME: (ABOUT, f"## Rule\n\n{BODY}\n")}, parallel=2)
    row = {"skill": NAME, "split": "confirm", "family": "words"}
    rows = [
        row | {"id": f"task/{i}", "input": prompt, "expected": word({"": prompt}).upper()}
        for i, prompt in enumerate(prompts)
    ]
    write_suite(root / "suites" / "errands", rows, HEAD + harness.worker.replace("{model}", url))
    return root


def evaluate(processes: ProcessServer, root: Path, url: str) -> Done:
    """Trust the suite, and try the skill with it."""
    trusted = processes.run("suite", "trust", "errands", cwd=root)
    assert trusted.code == 0, trusted.stderr
    run = ("eval", NAME, "--suite", "errands", "--json")
    return processes.run(*run, cwd=root, env=settings(url))


@EACH
def test_a_skill_reaches_the_model_in_its_arm_alone(processes, tmp_path, name):
    """The harness lists the skill where we lay it, reads it when asked, and we read its answer.

    The prompt arrives whole, also where it begins like an option, under limits of memory and disk.
    """
    harness = HARNESSES[name]
    harness.require()
    with LoopbackServer(model(harness)) as server:
        url = server.url.removesuffix("/v1")
        root = write(tmp_path / "project", harness, url)
        done = evaluate(processes, root, url)
        requests = [list(texts(body)) for body in server.requests]

    failures = [r["failure"] for r in events(root, "rollout.finished", "rollout.failed")]
    assert failures == [None] * 6, done.stderr
    assert (done.json["gains"], done.json["lift"]) == (3, 1.0)
    for prompt in PROMPTS:
        forms = (prompt, prompt.replace('"', '\\"'))  # opencode quotes what has spaces
        about = [seen for seen in requests if any(f in text for text in seen for f in forms)]
        listed = [seen for seen in about if any(ABOUT in text for text in seen)]
        assert [seen for seen in listed if any(NAME in text for text in seen)] == listed
        assert [seen for seen in listed if any(BODY in text for text in seen)]
        assert [seen for seen in about if not any(NAME in text for text in seen)]


@EACH
def test_a_harness_whose_model_never_answers_is_ended(monkeypatch, tmp_path, name):
    """The timeout ends the harness, and whatever it has started, at its model call or before."""
    harness = HARNESSES[name]
    harness.require()
    mark = marker()
    with LoopbackServer([slow(3600)]) as server:
        url = server.url.removesuffix("/v1")
        for variable, value in settings(url).items():
            monkeypatch.setenv(variable, value)
        root = write(tmp_path / "project", harness, url, (f"WORD-x {mark}",))
        head = root / "suites" / "errands" / "suite.toml"
        head.write_text(head.read_text().replace("timeout = 240", "timeout = 12"))
        suite = load_suite(root / "suites" / "errands")
        worker = make_command_worker(suite, LimitedPrograms())
        got = asyncio.run(worker.attempt(suite.tasks[0], (), seed=0))

    assert got.failure is not None
    assert got.failure.message == f"{name}: it ran longer than 12 s"
    assert running(mark) == []


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_model_that_is_away_is_no_zero(processes, tmp_path, name):
    """What the harness says of an outage, as the suite words it, voids the attempt."""
    harness = HARNESSES[name]
    harness.require()
    with LoopbackServer([status(401)]) as server:
        url = server.url.removesuffix("/v1")
        root = write(tmp_path / "project", harness, url, PROMPTS[:1])
        done = evaluate(processes, root, url)

    kinds = {r["failure"]["kind"] for r in events(root, "rollout.failed")}
    assert (done.code, kinds) == (5, {FailureKind.INFRA.value}), done.stderr
    assert events(root, "rollout.finished") == []
    assert "401" in done.stderr
