"""Write public task files as suites: BIG-Bench Hard and GSM8K.

A licence beside the source is recorded and copied, and a canary goes along with its tasks.
What is left out of a suite, and why: `skillforge.core.task_source`.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skillforge.core.jsonl import decode_utf8, parse_jsonl
from skillforge.core.splits import DEFAULT_FRACTIONS, MIN_FAMILIES
from skillforge.core.task import VerifierSpec
from skillforge.core.task_source import (
    EXACT,
    NUMBER,
    SkippedTask,
    SourceTask,
    choose_verifier,
    usable_tasks,
)
from skillforge.core.toml_text import TomlValue, render_toml
from skillforge.errors import SuiteError

_GOLD = re.compile(r"#### *(\S.*?)\s*$")
_LICENSES = {"MIT License": "MIT", "Apache License": "Apache-2.0", "BSD 3-Clause": "BSD-3-Clause"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LICENSE_FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import wrote, and what it left out."""

    name: str
    path: str
    """The folder of the new suite."""
    license: str
    taken: int
    """Tasks written."""
    families: Mapping[str, int] = field(hash=False)
    """Tasks of each family."""
    skipped: tuple[SkippedTask, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as one JSON object."""
        return {"schema": 1, **asdict(self)}


class _Source:
    """The usable examples of some files, and what had to be left out so far."""

    def __init__(self) -> None:
        self.tasks: list[SourceTask] = []
        self.skipped: list[SkippedTask] = []
        self.canaries: list[str] = []

    def skip(self, where: str, reason: str) -> None:
        self.skipped.append(SkippedTask(where=where, reason=reason))

    def take(self, file: Path, verifier: VerifierSpec | None, rows: Sequence[_Raw]) -> None:
        """Add the rows of one family; without a verifier, choose the one that fits them."""
        good: list[tuple[int, str, str, str]] = []
        for number, where, question, answer in rows:
            if not isinstance(question, str) or not isinstance(answer, str):
                self.skip(where, f"found {str((question, answer))[:80]}, expected two texts")
            elif not question.strip() or not answer.strip():
                self.skip(where, "the input or the reference answer is empty")
            else:
                good.append((number, where, question, answer.strip()))
        chosen = verifier or choose_verifier([answer for *_, answer in good])
        self.tasks += [
            SourceTask(
                id=f"{file.stem}-{number:04}",
                family=file.stem,
                where=where,
                input=question,
                expected=answer,
                verifier=chosen,
            )
            for number, where, question, answer in good
        ]


_Raw = tuple[int, str, object, object]
"""Number in the file, place, input and reference, as the file gives them."""

_Reader = Callable[[_Source, Path], None]


def import_bbh(
    path: Path,
    out: Path,
    *,
    name: str,
    skill: str | None = None,
    license: str | None = None,  # noqa: A002
    version: str = "1",
    source: str = "BIG-Bench Hard",
    max_tokens: int = 64,
) -> ImportReport:
    """Write a suite from a BIG-Bench Hard file, or from the files of a folder.

    Each file is a family. From eight files on, families are split as wholes; below, tasks are.

    Args:
        path: A JSON file ``{"canary", "examples": [{"input", "target"}]}`` or a folder of them.
        out: The folder to write; it must not exist.
        name: The name of the suite.
        skill: The oracle skill of all tasks.
        license: The licence of the tasks; None takes it from a LICENSE file beside them.
        version: The version of the suite.
        source: Where the tasks come from.
        max_tokens: Upper bound of tokens of one answer.

    Raises:
        SuiteError: The source cannot be read or holds no usable task, or ``out`` exists.
    """
    head = _head(name, version, license or _license(path), source, max_tokens)
    return _import(path, out, "*.json", _read_bbh, head, skill)


def import_gsm8k(
    path: Path,
    out: Path,
    *,
    name: str,
    skill: str | None = None,
    license: str | None = None,  # noqa: A002
    version: str = "1",
    source: str = "GSM8K",
    max_tokens: int = 256,
) -> ImportReport:
    """Write a suite from GSM8K: JSON lines of ``question`` and ``answer`` (ends in ``#### n``).

    Args:
        path: A JSONL file, or a folder of them; each file is a family.
        out: The folder to write; it must not exist.
        name: The name of the suite.
        skill: The oracle skill of all tasks.
        license: The licence of the tasks; None takes it from a LICENSE file beside them.
        version: The version of the suite.
        source: Where the tasks come from.
        max_tokens: Upper bound of tokens of one answer.

    Raises:
        SuiteError: The source cannot be read or holds no usable task, or ``out`` exists.
    """
    head = _head(name, version, license or _license(path), source, max_tokens)
    return _import(path, out, "*.jsonl", _read_gsm8k, head, skill)


def _read_bbh(found: _Source, file: Path) -> None:
    value = json.loads(decode_utf8(file.read_bytes()))
    rows = value.get("examples") if isinstance(value, dict) else None
    if not isinstance(rows, list) or not rows:
        raise ValueError('holds no list "examples" of {"input", "target"}; is it a BBH file?')
    if "canary" in value:
        found.canaries.append(str(value["canary"]))
    raw: list[_Raw] = []
    for number, row in enumerate(rows, 1):
        pair = (row.get("input"), row.get("target")) if isinstance(row, dict) else (row, None)
        raw.append((number, f"{file}: example {number}", *pair))
    found.take(file, None, raw)


def _read_gsm8k(found: _Source, file: Path) -> None:
    lines = parse_jsonl(file.read_bytes())
    for number, message in lines.problems:
        found.skip(f"{file}:{number}", message)
    raw: list[_Raw] = []
    for number, row in lines.records:
        where = f"{file}:{number}"
        gold = _GOLD.search(str(row.get("answer")))
        if gold is None:
            found.skip(where, "the answer does not end in a line '#### n'")
        else:
            raw.append((number, where, row.get("question"), gold[1]))
    found.take(file, NUMBER, raw)


def _import(
    path: Path,
    out: Path,
    pattern: str,
    read: _Reader,
    head: dict[str, TomlValue],
    skill: str | None,
) -> ImportReport:
    if out.exists() or out.is_symlink():
        raise SuiteError(f"{out} exists already, expected a new folder; remove it or name another")
    found = _Source()
    for file in sorted(path.glob(pattern)) if path.is_dir() else [path]:
        try:
            read(found, file)
        except OSError as error:
            found.skip(str(file), f"cannot be read ({error.strerror})")
        except (ValueError, RecursionError) as error:
            found.skip(str(file), str(error))
    tasks, unusable = usable_tasks(found.tasks)
    skipped = (*found.skipped, *unusable)
    if not tasks:
        reasons = "".join(f"\n  {skip.where}: {skip.reason}" for skip in skipped[:5])
        raise SuiteError(f"no usable task in {path}, expected {pattern} files{reasons}")
    families = Counter(task.family for task in tasks)
    files = {
        "suite.toml": _suite_toml(head, len(families), found.canaries).encode(),
        "tasks.jsonl": "".join(_row(task, skill) for task in tasks).encode(),
    }
    if license_file := _license_file(path):
        files["LICENSE"] = license_file.read_bytes()
    _write_folder(out, files)
    return ImportReport(
        name=str(head["name"]),
        path=str(out),
        license=str(head["license"]),
        taken=len(tasks),
        families=dict(families),
        skipped=skipped,
    )


def _head(
    name: str, version: str, license_name: str, source: str, max_tokens: int
) -> dict[str, TomlValue]:
    if not _NAME.fullmatch(name):
        raise SuiteError(
            f"the suite name {name!r} is not valid, expected at most 64 letters, digits, '.', '_' "
            "and '-', the first a letter or digit; choose another"
        )
    return {
        "name": name,
        "version": version,
        "license": license_name,
        "source": source,
        "worker": {"kind": "chat", "max_tokens": max_tokens, "temperature": 0},
        "verifier": EXACT.to_json(),
    }


def _suite_toml(head: Mapping[str, TomlValue], families: int, canaries: Sequence[str]) -> str:
    by = "family" if families >= MIN_FAMILIES else "task"
    shares = {split.value: share for split, share in DEFAULT_FRACTIONS.items()}
    comment = "".join(f"# {_one_line(text)}\n" for text in sorted(set(canaries)))
    return comment + render_toml({**head, "splits": {"by": by, **shares}})


def _row(task: SourceTask, skill: str | None) -> str:
    row: dict[str, Any] = {
        "id": task.id,
        "family": task.family,
        "input": task.input,
        "expected": task.expected,
    }
    if skill is not None:
        row["skill"] = skill
    if task.verifier != EXACT:
        row["verifier"] = task.verifier.to_json()
    return json.dumps(row, ensure_ascii=False) + "\n"


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _license_file(path: Path) -> Path | None:
    folder = path if path.is_dir() else path.parent
    return next((folder / name for name in _LICENSE_FILES if (folder / name).is_file()), None)


def _license(path: Path) -> str:
    """Return the name of the licence beside the source, ``unknown`` where none is told."""
    file = _license_file(path)
    if file is None:
        return "unknown"
    text = file.read_text(encoding="utf-8", errors="replace")
    return next((short for title, short in _LICENSES.items() if title in text), "see LICENSE")


def _write_folder(out: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder so that it appears whole or not at all."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise SuiteError(f"{out} cannot be written ({error.strerror}); choose another") from error
    try:
        for name, data in files.items():
            (temporary / name).write_bytes(data)
        temporary.chmod(0o755)
        temporary.rename(out)
    except OSError as error:
        raise SuiteError(f"{out} cannot be written ({error.strerror}); choose another") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
