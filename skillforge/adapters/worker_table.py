"""The ``[worker]`` table of a suite, as pydantic checks it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from skillforge.core.packs import SKILL_FOLDERS
from skillforge.core.patterns import safe_pattern
from skillforge.core.prompts import check_template
from skillforge.core.task import WorkerSpec
from skillforge.errors import SuiteError

_KINDS = {
    "template": ("chat", "agent"),
    "steps": ("agent",),
    "token_limit": ("agent",),
    "tools": ("agent",),
    "state": ("agent",),
    "function": ("python",),
    "usd_per_attempt": ("python", "command"),
    "tokens_per_attempt": ("python", "command"),
    "command": ("command",),
    "harness": ("command",),
    "answer_file": ("command",),
    "outage": ("command",),
    "environment": ("command",),
    "network": ("command",),
    "memory_mib": ("command",),
    "disk_mib": ("command",),
    "output_kib": ("command",),
}
"""Settings that only some kinds of worker have, with those kinds."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Reference = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Limit = Annotated[int, Field(ge=1)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class WorkerTable(BaseModel):
    """One ``[worker]`` table; a setting of another kind of worker is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["chat", "agent", "command", "python"] = "chat"
    max_tokens: Limit = 64
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    stop: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    preamble: str = WorkerSpec().preamble
    timeout: float = Field(120.0, gt=0, allow_inf_nan=False)
    template: str | None = None
    steps: Limit = WorkerSpec().steps
    token_limit: Limit = WorkerSpec().token_limit
    tools: Annotated[list[Reference], BeforeValidator(_listed)] = Field(default_factory=list)
    state: Reference | None = None
    function: Reference | None = None
    usd_per_attempt: Usd | None = None
    tokens_per_attempt: Annotated[int, Field(ge=0)] = 0
    command: list[str] = Field(default_factory=list)
    harness: Literal[tuple(SKILL_FOLDERS)] = "claude-code"  # type: ignore[valid-type]
    answer_file: str = ""
    outage: str = ""
    environment: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    network: bool = True
    memory_mib: Limit | None = None
    disk_mib: Limit = WorkerSpec().disk_mib
    output_kib: Limit = WorkerSpec().output_kib

    @field_validator(*_KINDS)
    @classmethod
    def _fits(cls, value: Any, info: ValidationInfo) -> Any:
        kinds, kind = _KINDS[str(info.field_name)], info.data.get("kind", "chat")
        if kind not in kinds:
            raise ValueError(f"a setting of {' and '.join(kinds)} workers, but kind is {kind!r}")
        if info.field_name == "template" and value is not None:
            try:
                check_template(kind, value)
            except SuiteError as error:
                raise ValueError(str(error)) from error
        return value

    @field_validator("outage")
    @classmethod
    def _is_regular(cls, value: str) -> str:
        try:
            outage = safe_pattern(value)
        except SuiteError as error:
            raise ValueError(str(error)) from error
        if value and outage.search(""):
            raise ValueError("it fits any text; give words that only an outage brings about")
        return value

    @model_validator(mode="after")
    def _has_its_command(self) -> WorkerTable:
        if self.kind == "command" and not self.command:
            raise ValueError("a command worker needs `command`, a list of program and arguments")
        return self

    def spec(self) -> WorkerSpec:
        """Return the worker as the core knows it."""
        values: dict[str, Any] = self.model_dump()
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return WorkerSpec(**values | lists)
