"""Makes the worker that a suite asks for."""

from __future__ import annotations

from skillforge.adapters.functions import Function, load_function
from skillforge.core.digest import json_digest
from skillforge.core.task import Suite
from skillforge.errors import ConfigError
from skillforge.ports import ChatModel, Programs, Worker
from skillforge.workflows.meter import Meter
from skillforge.workflows.metered import MeteredWorker


def make_worker(suite: Suite, model: ChatModel, meter: Meter | None, programs: Programs) -> Worker:
    """Return the worker of a suite; the suite must be trusted if it brings code.

    Args:
        suite: Says the kind and the settings, and has the code that it names.
        model: The model of ``chat`` and ``agent``, which passes the budget before each call.
        meter: The budget that each attempt of any other kind passes; None where attempts of
            every kind pass it elsewhere.
        programs: What runs the program of a ``command`` worker.

    Raises:
        ConfigError: Code or a program that it names is not there, or its cost is not stated.
    """
    from skillforge.adapters.workers import ChatWorker

    spec = suite.worker
    if spec.kind == "chat":
        return ChatWorker(model=model, spec=spec)
    if spec.kind == "agent":
        return _agent(suite, model)
    worker = _without_model(suite, programs)
    return worker if meter is None else MeteredWorker(worker=worker, meter=meter)


def check_worker(suite: Suite, programs: Programs) -> None:
    """Refuse a worker that could not be made, or whose attempts could not be paid; calls nothing.

    Raises:
        ConfigError: What `make_worker` raises, or the first attempt's bound.
    """
    if suite.worker.kind == "agent":
        _agent_code(suite)
    elif suite.worker.kind != "chat":
        _without_model(suite, programs).bound(suite.tasks[0], [])


def _without_model(suite: Suite, programs: Programs) -> Worker:
    from skillforge.adapters.command_worker import make_command_worker
    from skillforge.adapters.python_worker import PythonWorker

    spec = suite.worker
    if spec.kind == "command":
        return make_command_worker(suite, programs)
    if spec.function is None:
        raise ConfigError(
            f"suite {suite.name}: [worker] kind = 'python' needs function = 'module:function'"
        )
    return PythonWorker(function=_load(suite, spec.function, "function"), spec=spec)


def _load(suite: Suite, reference: str, setting: str) -> Function:
    assert suite.code is not None  # a suite that names a function was read with its code
    return load_function(reference, suite.code, setting)


def _agent(suite: Suite, model: ChatModel) -> Worker:
    from skillforge.adapters.agent_worker import AgentWorker

    tools, state = _agent_code(suite)
    sources = [f.source for f in (*tools.values(), *([state] if state else []))]
    return AgentWorker(
        model=model, spec=suite.worker, tools=tools, make_state=state, source=json_digest(sources)
    )


def _agent_code(suite: Suite) -> tuple[dict[str, Function], Function | None]:
    """Return the tools by name, and what makes their state."""
    spec = suite.worker
    tools: dict[str, Function] = {}
    for reference in spec.tools:
        tool = _load(suite, reference, "tools")
        if tool.name in tools:
            raise ConfigError(f"[worker] tools: two are called {tool.name!r}; rename one of them")
        tools[tool.name] = tool
    return tools, _load(suite, spec.state, "state") if spec.state else None
