"""System messages: a template over a preamble and the skills shown, which it sees as data.

The text of a skill is a value that is put in, never a part of the template, so that nothing in it
can run; and a template sees neither the task nor the arm, so that arms differ by the skills alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from skillforge.core.chat import ChatRequest, Message
from skillforge.core.digest import json_digest
from skillforge.core.package import Package
from skillforge.core.shown import body_text
from skillforge.core.task import Task, WorkerSpec
from skillforge.errors import SuiteError

if TYPE_CHECKING:
    from jinja2 import Template

CHAT_TEMPLATE = """\
{{ preamble }}{% for skill in skills %}

{{ skill.body or skill.name ~ ": " ~ skill.description }}{% endfor %}"""
"""The bodies of the skills; one without a body by its name and description."""

AGENT_TEMPLATE = """\
{{ preamble }}

Skills are folders of instructions for kinds of tasks. Compare the task with the descriptions \
below before you begin. Where one fits, read that skill with read_skill and do what it says; files \
that it names are read with read_file. When you are done, answer without calling a tool.

Skills:
{% for skill in skills %}- {{ skill.name }}: {{ skill.description }}
{% else %}(none)
{% endfor %}"""
"""The catalogue; bodies and files are read on demand."""

TEMPLATES = {"chat": CHAT_TEMPLATE, "agent": AGENT_TEMPLATE}
"""By kind of worker: those that have a system message."""

Fields = Mapping[str, str]
_SAMPLE = {"name": "a-skill", "description": "What it does.", "body": "How it is done."}


def first_request(
    kind: str,
    spec: WorkerSpec,
    task: Task,
    skills: Sequence[Package],
    tools: tuple[Mapping[str, Any], ...] = (),
) -> ChatRequest:
    """Return the request with which a ``chat`` or ``agent`` worker begins a task.

    Raises:
        SuiteError: The template of the suite does not fit these skills.
    """
    system = system_message(kind, spec.template, spec.preamble, skills)
    return ChatRequest(
        messages=(
            Message(role="system", content=system),
            Message(role="user", content=task.input),
        ),
        max_tokens=spec.max_tokens,
        temperature=spec.temperature,
        stop=spec.stop,
        timeout=spec.timeout,
        tools=tools,
        affinity=json_digest([skill.version for skill in skills])[:16],
    )


def system_message(
    kind: str, template: str | None, preamble: str, skills: Sequence[Package]
) -> str:
    """Render the system message of a ``chat`` or ``agent`` worker.

    A template has ``preamble`` and ``skills``, each with ``name`` and ``description``, both on one
    line, and for ``chat`` with ``body``.

    Raises:
        SuiteError: The template does not fit these skills.
    """
    shown = []
    for skill in skills:
        fields = {"name": _line(skill.name), "description": _line(skill.description)}
        shown.append(fields | ({"body": body_text(skill)} if kind == "chat" else {}))
    return _render(template or TEMPLATES[kind], preamble, shown)


def check_template(kind: str, template: str) -> None:
    """Render a suite's own template with no skill, one and several.

    Raises:
        SuiteError: It cannot be read or rendered; the message names the line within it.
    """
    kept = _SAMPLE if kind == "chat" else {k: v for k, v in _SAMPLE.items() if k != "body"}
    for count in (0, 1, 3):
        _render(template, "A preamble.", [kept] * count)


def _line(text: str) -> str:
    return " ".join(text.split())


def _render(template: str, preamble: str, skills: Sequence[Fields]) -> str:
    try:
        return _compiled(template).render(preamble=preamble, skills=skills)
    except Exception as error:  # whatever the expressions of a template may raise
        frames = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == "<template>"]
        line = getattr(error, "lineno", None) or (frames or [1])[-1]
        raise SuiteError(
            f"template, line {line}: {error} (with {len(skills)} skills shown); it may use "
            "`preamble` and `skills`, each with `name`, `description` and, for chat, `body`"
        ) from error


@lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False
    )
    return environment.from_string(template)
