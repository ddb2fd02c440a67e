"""Anchors: what the author of an edit read, as a digest, so that it lands on nothing else.

An anchor is the SHA-256 of a unit's bytes, or of its words where white space is not to count. It
agrees with the same text under other line ends, and one over words with any other white space, as
long as no other unit of the skill reads the same: then nobody can tell which one was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from skillforge.core.digest import sha256
from skillforge.core.package import Package
from skillforge.core.units import Unit, parse_units, unit_bytes
from skillforge.errors import EditError

SHORTEST = 8
"""Digits that an anchor must have at least."""
_SHOWN = 12


def digest_of(texts: Sequence[bytes]) -> str:
    """Return the digest of one text, or over the digests of several, in the order given."""
    digests = [sha256(text) for text in texts]
    return digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode())


def units_digest(package: Package, units: Sequence[Unit]) -> str:
    """Return the anchor to quote for units: over their words where that is unique, else exact."""
    texts = [unit_bytes(package, unit) for unit in units]
    return digest_of(texts if any(_twins(package, units)) else [words(text) for text in texts])


def agrees(expected: str, texts: Sequence[bytes]) -> bool:
    """Tell whether the anchor is that of these texts, exactly."""
    return len(expected) >= SHORTEST and digest_of(texts).startswith(expected.lower())


def agrees_loosely(expected: str, texts: Sequence[bytes]) -> bool:
    """Tell whether the anchor is that of these texts but for line ends or white space."""
    return any(agrees(expected, [render(text) for text in texts]) for render in _RENDERINGS)


def check_units(op: str, package: Package, units: Sequence[Unit], expected: str) -> None:
    """Refuse an edit whose anchor is not that of the units it names.

    Raises:
        EditError: The anchor is stale, or it agrees but for white space and another unit reads the
            same. The message says what was found and what to send instead.
    """
    texts = [unit_bytes(package, unit) for unit in units]
    if agrees(expected, texts):
        return
    named, digest = ", ".join(unit.id for unit in units), digest_of(texts)[:_SHOWN]
    if agrees_loosely(expected, texts):
        twins = [unit.id for unit in _twins(package, units)]
        if not twins:
            return
        raise EditError(
            f"{op} is ambiguous: {named} of skill {package.name!r} is what the edit expected but "
            f"for white space, and {', '.join(twins)} reads the same; name the one you mean and "
            f"send its exact `expected_digest`, {digest} for {named}"
        )
    moved = [
        u.id for u in parse_units(package) if agrees_loosely(expected, [unit_bytes(package, u)])
    ]
    where = (
        f"what it expected stands in {' and in '.join(moved)} now: name that"
        if moved
        else f"units near it are {', '.join(_near(package, units[0]))}"
    )
    raise EditError(
        f"{op} is stale: {named} of skill {package.name!r} has digest {digest} and reads "
        f"{_excerpt(texts[0])!r}, the edit expected {expected[:_SHOWN]}; {where}; or read the unit "
        f"again and send `expected_digest` {digest} with an edit of what stands there"
    )


def check_description(op: str, package: Package, expected: str) -> None:
    """Refuse an edit of a description that is not what its author read.

    Raises:
        EditError: The anchor is stale.
    """
    found = package.description
    if not agrees_loosely(expected, [found.encode()]):
        digest = digest_of([found.encode()])[:_SHOWN]
        raise EditError(
            f"{op} is stale: the description of skill {package.name!r} has digest {digest} and "
            f"reads {found[:60]!r}, the edit expected {expected[:_SHOWN]}; read it again and send "
            f"`expected_digest` {digest} with a text for what stands there"
        )


def _near(package: Package, unit: Unit) -> list[str]:
    """Return the ids of the unit, of the two before it and of the two after it."""
    units = parse_units(package)
    place = sum(other.path == unit.path and other.start < unit.start for other in units)
    return [other.id for other in units[max(0, place - 2) : place + 3]]


def _twins(package: Package, units: Sequence[Unit]) -> Iterator[Unit]:
    """Yield the other units that hold the same words as one of these."""
    named = {unit.id for unit in units}
    read = {words(unit_bytes(package, unit)) for unit in units}
    for other in parse_units(package):
        if other.id not in named and words(unit_bytes(package, other)) in read:
            yield other


def words(data: bytes) -> bytes:
    """Return the text with single spaces for all white space."""
    return b" ".join(data.split())


def _with_ends(newline: bytes) -> Callable[[bytes], bytes]:
    def render(data: bytes) -> bytes:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return lines.replace(b"\n", newline)

    return render


_RENDERINGS = (words, *(_with_ends(newline) for newline in (b"\n", b"\r\n", b"\r")))


def _excerpt(data: bytes) -> str:
    text = " ".join(data.decode("utf-8", "replace").split())
    return text if len(text) <= 60 else text[:59] + "…"
