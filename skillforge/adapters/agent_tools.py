"""What an agent can call: the skills on its shelf, and the functions of its suite.

A signature with its annotations and docstring is all that declares a tool: pydantic makes the JSON
schema from it, checks the arguments that a model sends against it, and converts them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import getdoc, signature
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError, validate_call
from pydantic.errors import PydanticUserError

from skillforge.core.chat import ToolCall
from skillforge.core.package import Package
from skillforge.core.shown import body_text, readable_files
from skillforge.errors import ConfigError

Tool = Callable[..., Awaitable[Any]]

_SAID = 200
"""Characters of the model's own words that an answer repeats to it."""


class RefusedError(Exception):
    """What a tool tells the model instead of a result."""


@dataclass(slots=True, kw_only=True)
class Shelf:
    """The skills shown in one attempt, and what was read of them."""

    skills: Mapping[str, Package]
    uses: list[Mapping[str, Any]] = field(default_factory=list)
    """As `skillforge.core.rollout.Attempt` keeps them."""
    step: int = 0

    def __post_init__(self) -> None:
        for name in self.skills:
            self._note(name, "listed", "")

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools that every agent has, whatever skills it is shown."""
        return {"read_skill": self.read_skill, "read_file": self.read_file}

    async def read_skill(self, name: str) -> str:
        """Return the instructions of a skill in the list, and the names of its files."""
        package = self._find(name)
        text = body_text(package)
        if not text:
            raise RefusedError(f"the instructions of {name!r} cannot be read; go on without them")
        self._note(name, "read", package.skill_file)
        others = ", ".join(_resources(package))
        return f"{text}\n\nFiles of this skill: {others}" if others else text

    async def read_file(self, skill: str, path: str) -> str:
        """Return a text file of a skill, by its path relative to the skill."""
        package = self._find(skill)
        wanted = path.removeprefix("./")
        if wanted == package.skill_file:
            return await self.read_skill(skill)
        files = _resources(package)
        if wanted not in files:
            known = ", ".join(files) or "none"
            raise RefusedError(f"skill {skill!r} has no file {path[:_SAID]!r}; it has: {known}")
        text = files[wanted].decode("utf-8", "ignore")
        if text.encode() != files[wanted] or "\0" in text:
            raise RefusedError(f"{path!r} is a binary file; only text files can be read")
        self._note(skill, "file", wanted)
        return text

    def _find(self, name: str) -> Package:
        if name not in self.skills:
            known = ", ".join(self.skills) or "none"
            raise RefusedError(f"there is no skill {name[:_SAID]!r}; there are: {known}")
        return self.skills[name]

    def _note(self, skill: str, what: str, path: str) -> None:
        self.uses.append({"skill": skill, "what": what, "path": path, "step": self.step})


def _resources(package: Package) -> dict[str, bytes]:
    files = readable_files(package).items()
    return {path: file.data for path, file in files if path != package.skill_file}


def give_state(tool: Tool, state: Any) -> Tool:
    """Fill in the parameter ``state``, if it is a tool's first; models do not see it then."""
    wanted = next(iter(signature(tool).parameters), "") == "state"
    return partial(tool, state) if wanted else tool


def declaration(name: str, tool: Tool) -> Mapping[str, Any]:
    """Declare a tool in the OpenAI form.

    Raises:
        ConfigError: Its parameters have no JSON schema.
    """
    try:
        schema = TypeAdapter(cast("Any", tool)).json_schema()
        if schema["type"] != "object":
            raise TypeError("parameters without names")
    except (PydanticUserError, NameError, TypeError) as error:
        raise ConfigError(
            f"[worker] tools: the parameters of {name!r} have no JSON schema "
            f"({str(error).splitlines()[0]}); annotate them with plain types such as str, int, "
            "list[str] or a pydantic model"
        ) from error
    text = getdoc(tool.func if isinstance(tool, partial) else tool) or ""
    return {
        "type": "function",
        "function": {"name": name, "description": text, "parameters": schema},
    }


async def answer(tools: Mapping[str, Tool], call: ToolCall) -> str:
    """Run one call; return what to tell the model: the result, or what to do instead.

    What a tool raises is told, unless it is meant to end the process.
    """
    try:
        result = await _run(tools, call)
        return result if isinstance(result, str) else _json(result)
    except RefusedError as error:
        return f"error: {error}"
    except ValidationError as error:
        rows = error.errors(include_url=False)
        wrong = "; ".join(f"{'.'.join(map(str, row['loc']))}: {row['msg']}" for row in rows)
        return f"error: {call.name}: {wrong}; expected {_parameters(tools[call.name])}"
    except Exception as error:  # noqa: BLE001 - whatever a tool may raise
        return f"error: {call.name} failed: {type(error).__name__}: {error}"


async def _run(tools: Mapping[str, Tool], call: ToolCall) -> Any:
    if call.name not in tools:
        known = ", ".join(tools)
        raise RefusedError(f"there is no tool {call.name[:_SAID]!r}; call one of: {known}")
    arguments = read_arguments(call.arguments)
    if arguments is None:
        raise RefusedError(
            f"the arguments of {call.name} are {call.arguments[:_SAID]!r}; expected one JSON "
            f"object with {_parameters(tools[call.name])}; call it again"
        )
    return await validate_call(tools[call.name])(**arguments)


def read_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments of a call, or None where they are no JSON object."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _parameters(tool: Tool) -> str:
    parameters = signature(tool, eval_str=True).parameters.values()
    return ", ".join(map(str, parameters)) or "no arguments"


def _json(result: Any) -> str:
    return json.dumps(result, ensure_ascii=False, default=str)
