"""JSON lines: one JSON object a line, with every fault told by its line and byte."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLines:
    """What could be read, and what could not."""

    records: tuple[tuple[int, dict[str, Any]], ...]
    """Line number, from 1, and object."""
    problems: tuple[tuple[int, str], ...]
    """Line number and what is wrong with that line."""


def parse_jsonl(data: bytes) -> JsonLines:
    r"""Parse JSON lines; a bad line hides no other, and blank lines are passed over.

    A record ends at a line feed and nowhere else: U+2028, U+0085 and the like may stand inside
    one. Keys that stand twice and NaN are faults.

    >>> parse_jsonl(b'{"a": 1}\n\n{"a": ').problems
    ((3, 'is no valid JSON (Expecting value, column 7); write one JSON object on each line'),)
    """
    records: list[tuple[int, dict[str, Any]]] = []
    problems: list[tuple[int, str]] = []
    start = 0
    for number, raw in enumerate(data.split(b"\n"), 1):
        try:
            if raw.removeprefix(_BOM if start == 0 else b"").strip():
                records.append((number, _parse(decode_utf8(raw, start=start))))
        except ValueError as error:
            problems.append((number, str(error)))
        start += len(raw) + 1
    return JsonLines(records=tuple(records), problems=tuple(problems))


def decode_utf8(data: bytes, *, start: int = 0) -> str:
    """Decode the bytes that stand at offset ``start`` of a file; a BOM at its start is dropped.

    Raises:
        ValueError: They are not UTF-8; the message names the byte and its offset in the file.
    """
    try:
        return data.decode("utf-8-sig" if start == 0 else "utf-8")
    except UnicodeDecodeError as error:
        # The codec that drops a BOM counts from behind it.
        dropped = len(data) - len(error.object)
        at = start + dropped + error.start
        raise ValueError(
            f"byte {error.object[error.start]:#04x} at offset {at} is not UTF-8; "
            "save the file as UTF-8"
        ) from error


def _parse(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is no valid JSON ({error.msg}, column {error.colno}); "
            "write one JSON object on each line"
        ) from error
    except RecursionError as error:
        raise ValueError("is nested too deeply; expected a flat JSON object") from error
    if not isinstance(value, dict):
        raise ValueError(f"holds a {type(value).__name__}, expected a JSON object; wrap it in one")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in result if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object; keep one")
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number; expected a finite one")
