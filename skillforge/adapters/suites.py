"""Task suites on disk: a folder with ``suite.toml`` and ``tasks.jsonl``.

Loading reports every problem of both files at once, each with its file and line, because a
suite of hundreds of tasks that is mended one error at a time is not mended.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from skillforge.adapters.suite_code import bind_code, read_task_file
from skillforge.adapters.suite_tables import SplitsTable, SuiteTable, TaskRow
from skillforge.core.digest import json_digest, sha256
from skillforge.core.jsonl import decode_utf8, parse_jsonl
from skillforge.core.splits import (
    Placement,
    SplitPlan,
    dealt_splits,
    listed_splits,
    own_splits,
)
from skillforge.core.suite_catalog import SuiteEntry, pick_suite
from skillforge.core.task import Split, Suite, Task
from skillforge.core.toml_text import toml_line
from skillforge.core.verify import check_options
from skillforge.errors import SuiteError

SUITE_FILE = "suite.toml"
TASKS_FILE = "tasks.jsonl"
_SHOWN = 20

Model = TypeVar("Model", bound=BaseModel)
Rows = Sequence[tuple[int, TaskRow]]


class _Problems:
    """What is wrong with the files of one suite, gathered until all of them are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[str] = []

    def add(self, file: str, line: int | None, message: str) -> None:
        place = self.folder / file
        self.found.append(f"{place}:{line}: {message}" if line else f"{place}: {message}")

    def raise_if_any(self) -> None:
        if not self.found:
            return
        lines = self.found[:_SHOWN]
        if len(self.found) > _SHOWN:
            lines.append(f"… and {len(self.found) - _SHOWN} more")
        count = "1 problem" if len(self.found) == 1 else f"{len(self.found)} problems"
        raise SuiteError(f"suite {self.folder.name!r} has {count}:\n  " + "\n  ".join(lines))


def load_suite(path: Path) -> Suite:
    """Read the suite in a folder.

    Args:
        path: The folder that holds ``suite.toml`` and ``tasks.jsonl``.

    Raises:
        SuiteError: Something in either file is missing or wrong. The message lists the problems
            of both files (the first 20, and how many more there are).
    """
    path = Path(path)
    problems = _Problems(path)
    head_bytes = _read(path / SUITE_FILE, problems)
    rows_bytes = _read(path / TASKS_FILE, problems)
    head = _parse_head(head_bytes, problems) if head_bytes is not None else None
    rows = _parse_rows(rows_bytes, problems) if rows_bytes is not None else []
    plan = _split(head.splits, rows, problems) if head else SplitPlan(splits={}, by="task")
    tasks = [
        task
        for line, row in rows
        if (task := _task(path, line, row, plan.splits.get(row.id), head, problems))
    ]
    problems.raise_if_any()
    assert head is not None
    tables = {SUITE_FILE: head_bytes or b"", TASKS_FILE: rows_bytes or b""}
    return bind_code(
        path,
        Suite(
            name=head.name,
            version=head.version,
            license=head.license,
            source=head.source,
            tasks=tuple(task for task in tasks if task),
            worker=head.worker.spec(),
            digest=json_digest([sha256(data) for data in tables.values()]),
            prices=head.model_dump()["prices"],
            split_by=plan.by,
        ),
        tables,
    )


def _read(file: Path, problems: _Problems) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        message = f"no such file; a suite folder holds {SUITE_FILE} and {TASKS_FILE}; add it"
    except OSError as error:
        message = f"cannot be read ({error.strerror}); expected a readable file"
    problems.add(file.name, None, message)
    return None


def _parse_head(data: bytes, problems: _Problems) -> SuiteTable | None:
    try:
        text = decode_utf8(data)
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = int(line[1]) if line else text.count("\n") + 1
        problems.add(SUITE_FILE, number, f"is no valid TOML: {error}; correct it")
        return None
    except ValueError as error:
        problems.add(SUITE_FILE, None, str(error))
        return None
    return _validate(SuiteTable, values, problems, SUITE_FILE, text)


def _parse_rows(data: bytes, problems: _Problems) -> Rows:
    lines = parse_jsonl(data)
    for number, message in lines.problems:
        problems.add(TASKS_FILE, number, message)
    if not lines.records and not lines.problems:
        problems.add(TASKS_FILE, None, "is empty; expected one task (a JSON object) a line")
    rows: list[tuple[int, TaskRow]] = []
    first: dict[str, int] = {}
    for number, value in lines.records:
        row = _validate(TaskRow, value, problems, TASKS_FILE, number)
        if row is None:
            continue
        if row.id in first:
            message = f"id {row.id!r} is taken by line {first[row.id]}; give each task its own"
            problems.add(TASKS_FILE, number, message)
            continue
        first[row.id] = number
        rows.append((number, row))
    return rows


def _validate(
    model: type[Model], values: dict[str, Any], problems: _Problems, file: str, where: str | int
) -> Model | None:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            loc = [str(part) for part in detail["loc"]]
            line = where if isinstance(where, int) else toml_line(where, loc)
            problems.add(file, line, _explain(model, loc, detail))
        return None


def _explain(model: type[BaseModel], loc: list[str], detail: Mapping[str, Any]) -> str:
    name = ".".join(loc)
    if detail["type"] == "extra_forbidden":
        known = _fields(model, loc[:-1])
        near = difflib.get_close_matches(loc[-1], known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        return f"unknown field {name!r}; {hint}"
    if detail["type"] == "missing":
        return f"field {name!r} is missing; add it"
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return f"field {name!r} is {_show(detail['input'])}: {message}; correct it"


def _fields(model: type[BaseModel], loc: Iterable[str]) -> list[str]:
    for part in loc:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return list(model.model_fields)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _split(model: SplitsTable, rows: Rows, problems: _Problems) -> SplitPlan:
    """Plan the splits, and give each problem of the plan its line."""
    plan = _plan(model, rows, problems)
    line_of = {row.id: line for line, row in rows}
    for id_, message in plan.problems:
        file = SUITE_FILE if id_ is None else TASKS_FILE
        problems.add(file, line_of.get(id_ or ""), message)
    return plan


def _plan(model: SplitsTable, rows: Rows, problems: _Problems) -> SplitPlan:
    """Give each task its split in the one way that the suite has chosen."""
    tasks = [
        Placement(
            id=row.id,
            family=row.family,
            skill=row.skill,
            split=Split(row.split) if row.split else None,
        )
        for _, row in rows
    ]
    fractions = model.fractions()
    if fractions and model.families is not None:
        problems.add(SUITE_FILE, None, "[splits] has both fractions and families; keep one")
    elif (fractions or model.families is not None) and any(task.split for task in tasks):
        problems.add(TASKS_FILE, None, "tasks name a `split`, but [splits] assigns it; keep one")
    if model.families is not None:
        listed = {Split(name): families for name, families in model.families.items()}
        return listed_splits(tasks, listed)
    if not fractions:
        return own_splits(tasks, by=model.by or "task")
    try:
        return dealt_splits(tasks, fractions, by=model.by or "family")
    except SuiteError as error:
        problems.add(SUITE_FILE, None, str(error))
        return SplitPlan(splits={}, by="task")


def _task(
    folder: Path,
    line: int,
    row: TaskRow,
    split: Split | None,
    head: SuiteTable | None,
    problems: _Problems,
) -> Task | None:
    verifier = row.verifier or (head.verifier if head else None)
    if verifier is None:
        if head:
            message = f"task {row.id!r} has no verifier; add `verifier`, or [verifier] to the suite"
            problems.add(TASKS_FILE, line, message)
        return None
    try:
        check_options(verifier.spec(), row.expected)
        files = {name: read_task_file(folder, name) for name in row.files}
    except SuiteError as error:
        problems.add(TASKS_FILE, line, f"task {row.id!r}: {error}")
        return None
    if split is None:
        return None
    return Task(
        id=row.id,
        family=row.family,
        input=row.input,
        expected=row.expected,
        skill=row.skill,
        split=split,
        verifier=verifier.spec(),
        tags=tuple(row.tags),
        files=files,
    )


def list_suites(roots: Iterable[Path]) -> tuple[SuiteEntry, ...]:
    """Return the suites that stand directly under the given folders, in order of root and name.

    Only ``suite.toml`` is read. One that cannot be read is listed with its problem.
    """
    heads = [
        head
        for root in roots
        if Path(root).is_dir()
        for head in sorted(Path(root).glob(f"*/{SUITE_FILE}"))
    ]
    return tuple(_entry(head.parent) for head in heads)


def _entry(folder: Path) -> SuiteEntry:
    problems = _Problems(folder)
    data = _read(folder / SUITE_FILE, problems)
    head = _parse_head(data, problems) if data is not None else None
    if head is None:
        problem = "\n".join(problems.found)
        return SuiteEntry(name=folder.name, path=str(folder), version="", problem=problem)
    return SuiteEntry(
        name=head.name,
        path=str(folder),
        version=head.version,
        problem="",
        worker=head.worker.kind,
    )


def find_suite(name: str, roots: Iterable[Path]) -> Path:
    """Return the folder of the suite of that name; an earlier root wins over a later one.

    Raises:
        SuiteError: There is none, or one root holds several.
    """
    return Path(pick_suite(name, {str(root): list_suites([root]) for root in roots}).path)
