"""TOML as text: where a key stands, and how simple values are written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from skillforge.errors import ConfigError

TomlValue = str | bool | int | float | Mapping[str, "TomlValue"]
"""What can be written: plain values, and tables of them."""


def toml_line(text: str, path: Sequence[str]) -> int | None:
    r"""Return the line of a key, or of the nearest table that holds it; None if neither stands.

    >>> toml_line('name = "a"\n[worker]\nkind = 3', ["worker", "kind"])
    3
    """
    section: list[str] = []
    best: int | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if header := re.match(r"\s*\[+([^\]]+)\]", line):
            section = [part.strip(" \"'") for part in header[1].split(".")]
            here = section
        elif key := re.match(r"\s*[\"']?([\w.-]+)[\"']?\s*=", line):
            here = [*section, key[1]]
        else:
            continue
        if here == list(path[: len(here)]):
            best = number
    return best


def render_toml(values: Mapping[str, TomlValue]) -> str:
    r"""Write a table and its sub-tables, plain values first.

    Raises:
        ConfigError: A text holds a lone surrogate, which TOML cannot.

    >>> print(render_toml({"worker": {"kind": "chat"}, "name": 'a "b"\n'}), end="")
    name = "a \"b\"\n"
    <BLANKLINE>
    [worker]
    kind = "chat"
    """
    return "\n".join(_blocks(values, ())).lstrip("\n")


def _blocks(values: Mapping[str, TomlValue], path: tuple[str, ...]) -> list[str]:
    plain = [f"{_key(k)} = {_value(v)}\n" for k, v in values.items() if not isinstance(v, Mapping)]
    header = f"[{'.'.join(map(_key, path))}]\n" if path and plain else ""
    blocks = [header + "".join(plain)] if plain else []
    for key, value in values.items():
        if isinstance(value, Mapping):
            blocks += _blocks(value, (*path, key))
    return blocks


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigError(f"the text {value!r} holds a lone surrogate, expected Unicode; remove it")
    # A JSON text is a TOML text, but for DEL, which TOML wants escaped as well.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
