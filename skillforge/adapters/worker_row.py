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
)

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
}
"""Settings that only some kinds of worker have, with those kinds."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Reference = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Limit = Annotated[int, Field(ge=1)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class WorkerRow(BaseModel):
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

    def settings(self) -> dict[str, Any]:
        """Return the table as arguments of `WorkerSpec`."""
        values = self.model_dump().items()
        return {key: tuple(v) if isinstance(v, list) else v for key, v in values}
