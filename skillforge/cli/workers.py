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
    from skillforge.adapters.command_worker import make_command_worker
    from skillforge.adapters.python_worker import PythonWorker
    from skillforge.adapters.workers import ChatWorker

    spec = suite.worker
    if spec.kind == "chat":
        return ChatWorker(model=model, spec=spec)
    if spec.kind == "agent":
        return _agent(suite, model)
    if spec.kind == "command":
        return _metered(make_command_worker(suite, programs), meter)
    if spec.function is None:
        raise ConfigError(
            f"suite {suite.name}: [worker] kind = 'python' needs function = 'module:function'"
        )
    function = _load(suite, spec.function, "function")
    return _metered(PythonWorker(function=function, spec=spec), meter)


def _metered(worker: Worker, meter: Meter | None) -> Worker:
    return worker if meter is None else MeteredWorker(worker=worker, meter=meter)


def _load(suite: Suite, reference: str, setting: str) -> Function:
    assert suite.code is not None  # a suite that names a function was read with its code
    return load_function(reference, suite.code, setting)


def _agent(suite: Suite, model: ChatModel) -> Worker:
    from skillforge.adapters.agent_worker import AgentWorker

    spec = suite.worker
    tools: dict[str, Function] = {}
    for reference in spec.tools:
        tool = _load(suite, reference, "tools")
        if tool.name in tools:
            raise ConfigError(f"[worker] tools: two are called {tool.name!r}; rename one of them")
        tools[tool.name] = tool
    state = _load(suite, spec.state, "state") if spec.state else None
    sources = [f.source for f in (*tools.values(), *([state] if state else []))]
    return AgentWorker(
        model=model, spec=spec, tools=tools, make_state=state, source=json_digest(sources)
    )
