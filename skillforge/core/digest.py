"""Content addresses: SHA-256 over bytes and over canonical JSON."""

from __future__ import annotations

import hashlib
import json.encoder
import re
from collections.abc import Callable
from typing import Any


def _make_encode() -> Callable[[object], str]:
    """Return what renders canonical JSON.

    `json.JSONEncoder` makes a C encoder in each call, which takes as long as to encode a small
    object. Where there is one, it is made here once, with the same arguments.
    """
    plain = json.JSONEncoder(
        sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    quoted = json.encoder.encode_basestring
    # no indent, sorted, no key left out, no NaN; and no memory of circles, which recursion ends
    fast = make(None, plain.default, quoted, None, ":", ",", True, False, False)

    def encode(value: object) -> str:
        try:
            return "".join(fast(value, 0))
        except RecursionError:
            return plain.encode(value)  # says whether it is a circle

    return encode


_encode = _make_encode()
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
