"""Content addresses: SHA-256 over bytes and over canonical JSON."""

from __future__ import annotations

import hashlib
import json
import re

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode
_SURROGATE = re.compile("[\ud800-\udfff]")


def sha256(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 lower-case hex digits.

    >>> sha256(b"")[:12]
    'e3b0c44298fc'
    """
    return hashlib.sha256(data).hexdigest()


def canonical_json(value: object) -> str:
    """Render ``value`` as JSON with sorted keys and no spare white space.

    Equal values give equal text whatever the order of their keys. NaN and infinities raise
    ``ValueError``: they have no JSON form and would make a digest meaningless. Halves of
    surrogate pairs, which models do send and UTF-8 cannot hold, are escaped.

    >>> canonical_json({"b": 1, "a": [True, None]})
    '{"a":[true,null],"b":1}'
    """
    text = _encode(value)
    if text.isascii():
        return text
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def json_digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of ``value``.

    >>> json_digest({"a": 1, "b": 2}) == json_digest({"b": 2, "a": 1})
    True
    """
    return sha256(canonical_json(value).encode())
