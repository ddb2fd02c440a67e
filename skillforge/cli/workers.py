"""Makes the worker that a suite asks for."""

from __future__ import annotations

from pathlib import Path

from skillforge.adapters.functions import Function, load_function
from skillforge.core.digest import json_digest
from skillforge.core.task import Suite, WorkerSpec
from skillforge.errors import ConfigError
from skillforge.ports import ChatModel, Worker
from skillforge.workflows.meter import Meter, MeteredWorker


def make_worker(suite: Suite, folder: Path, model: ChatModel, meter: Meter) -> Worker:
    """Return the worker of a suite; the suite must be trusted if it brings code.

    Args:
        suite: Says the kind and the settings.
        folder: The suite's folder, where its code is looked for first.
        model: The model of ``chat`` and ``agent``, which passes the budget before each call.
        meter: The budget that each attempt of any other kind passes.

    Raises:
        ConfigError: The kind is unknown, or code that it names cannot be imported.
    """
    from skillforge.adapters.python_worker import PythonWorker
    from skillforge.adapters.workers import ChatWorker

    spec = suite.worker
    if spec.kind == "chat":
        return ChatWorker(model=model, spec=spec)
    if spec.kind == "agent":
        return _agent(spec, folder, model)
    if spec.kind == "python":
        if spec.function is None:
            raise ConfigError(
                f"suite {suite.name}: [worker] kind = 'python' needs function = 'module:function'"
            )
        function = load_function(spec.function, folder, "function")
        return MeteredWorker(worker=PythonWorker(function=function, spec=spec), meter=meter)
    raise ConfigError(
        f"suite {suite.name} asks for a {spec.kind!r} worker; this version runs 'chat', 'agent' "
        "and 'python' workers"
    )


def _agent(spec: WorkerSpec, folder: Path, model: ChatModel) -> Worker:
    from skillforge.adapters.agent_worker import AgentWorker

    tools: dict[str, Function] = {}
    for reference in spec.tools:
        tool = load_function(reference, folder, "tools")
        if tool.name in tools:
            raise ConfigError(f"[worker] tools: two are called {tool.name!r}; rename one of them")
        tools[tool.name] = tool
    state = load_function(spec.state, folder, "state") if spec.state else None
    code = [f.source for f in (*tools.values(), *([state] if state else []))]
    return AgentWorker(
        model=model, spec=spec, tools=tools, make_state=state, source=json_digest(code)
    )
