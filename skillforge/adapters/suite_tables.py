"""What the two files of a suite may hold; pydantic stays at this edge."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from skillforge.adapters.worker_table import WorkerTable
from skillforge.core.splits import SplitBy
from skillforge.core.task import Split, VerifierSpec


def _printable(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text that is not blank")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("expected Unicode text without lone surrogates")
    return text


def _reference(value: object) -> object:
    # A function and not a union: a union reports one fault once for each of its members.
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    elif not isinstance(value, str | None):
        raise ValueError('expected a text, or an object for verifier "json"; put it in quotes')
    return _printable(value) if isinstance(value, str) and value.strip() else value


def _price(value: object) -> object:
    numbers: Iterable[Any] = value.values() if isinstance(value, dict) else [value]
    if not all(type(n) in (int, float) and 0 <= n < math.inf for n in numbers):
        raise ValueError("expected a number ≥ 0 (USD), or a table of them")
    return value


Text = Annotated[str, AfterValidator(_printable)]
Price = Annotated[Any, AfterValidator(_price)]
SplitName = Literal["propose", "screen", "confirm", "sealed"]


class Row(BaseModel):
    """A table or row in which every field is known, and has its type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class VerifierTable(BaseModel):
    """``[verifier]`` of the suite or ``verifier`` of a task; the kind decides on the options."""

    model_config = ConfigDict(extra="allow", strict=True)
    kind: Text

    def spec(self) -> VerifierSpec:
        """Return the verifier as the core knows it."""
        return VerifierSpec(kind=self.kind, options=dict(self.model_extra or {}))


class SplitsTable(Row):
    """``[splits]`` of the suite."""

    by: SplitBy | None = None
    families: dict[SplitName, list[Text]] | None = None
    propose: float | None = None
    screen: float | None = None
    confirm: float | None = None
    sealed: float | None = None

    def fractions(self) -> dict[Split, float]:
        """Return the fractions that are stated."""
        given = {split: getattr(self, split.value) for split in Split}
        return {split: share for split, share in given.items() if share is not None}


class SuiteTable(Row):
    """``suite.toml``."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
    version: Text
    license: Text
    source: Text
    description: str = ""
    worker: WorkerTable = Field(default_factory=lambda: WorkerTable.model_validate({}))
    verifier: VerifierTable | None = None
    splits: SplitsTable = SplitsTable()
    prices: dict[Text, Price] = Field(default_factory=dict)


class TaskRow(Row):
    """One line of ``tasks.jsonl``."""

    id: Text
    family: Text
    input: Text
    expected: Annotated[Any, AfterValidator(_reference)] = None
    skill: Text | None = None
    split: SplitName | None = None
    verifier: VerifierTable | None = None
    tags: list[Text] = Field(default_factory=list)
    files: list[Text] = Field(default_factory=list)
