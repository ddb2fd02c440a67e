"""What goes when a payload is erased: with a version of a skill, the files that it alone has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skillforge.core.package import manifest_files
from skillforge.errors import BlobErased, LedgerError
from skillforge.ports import Ledger

_WITH_PACKAGE = ("skill.imported", "candidate.proposed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What is to be erased."""

    blobs: tuple[str, ...]
    """The hashes that were named, and with each package the files of no other version."""
    erased_before: tuple[str, ...]
    """Those that would be among them, had they not been erased already."""
    shared: tuple[str, ...]
    """Files of those packages that other versions hold too: they stay."""


def plan_erasure(ledger: Ledger, named: Sequence[str]) -> Erasure:
    """Return what erasing some payloads takes along.

    Args:
        ledger: Where they are.
        named: Hashes of payloads; of a package, that of its version (``blob`` of an event).
    """
    gone = tuple(dict.fromkeys(named))
    mine = {digest for blob in gone for digest in _files(ledger, blob)}
    shared = mine & _files_of_others(ledger, gone) if mine else mine
    blobs = (*gone, *sorted(mine - shared - {*gone}))
    before = tuple(blob for blob in blobs if _is_erased(ledger, blob))
    return Erasure(
        blobs=tuple(blob for blob in blobs if blob not in before),
        erased_before=before,
        shared=tuple(sorted(shared)),
    )


def _files_of_others(ledger: Ledger, gone: Sequence[str]) -> set[str]:
    others = {e.data.get("blob", "") for e in ledger.events(kinds=_WITH_PACKAGE)} - {"", *gone}
    return {digest for blob in others for digest in _files(ledger, blob)}


def _is_erased(ledger: Ledger, blob: str) -> bool:
    try:
        ledger.get_blob(blob)
    except BlobErased:
        return True
    except LedgerError:
        pass  # unknown, or damaged: the ledger says so when it is told to erase it
    return False


def _files(ledger: Ledger, blob: str) -> tuple[str, ...]:
    try:
        return manifest_files(ledger.get_blob(blob))
    except LedgerError:
        return ()
