"""Packs on disk: written whole or not at all, and verified against their manifest."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillforge.core.digest import canonical_json, sha256
from skillforge.core.package import PackageFile
from skillforge.core.packs import MANIFEST, manifest
from skillforge.errors import PackError

_LITTER = frozenset({"__pycache__", ".DS_Store"})
"""Names that running or looking at a pack leaves behind; no loss when a pack is replaced."""


def write_pack(out: Path, files: Mapping[str, PackageFile]) -> str:
    """Write the files and their manifest into a new folder; return the pack's digest.

    An existing pack of ours is replaced; any other non-empty folder is refused, and so is a pack
    that holds files of someone else.

    Raises:
        PackError: The folder holds something else, or cannot be written.
    """
    listing = manifest(files)
    old = out.with_name(f".{out.name}.old")
    try:
        if old.exists() and not out.exists():  # a crash between the two renames below
            old.rename(out)
        _refuse_foreign(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            for path, file in files.items():
                target = staging / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.data)
                target.chmod(0o755 if file.executable else 0o644)
            (staging / MANIFEST).write_text(canonical_json(listing) + "\n", encoding="utf-8")
            staging.chmod(0o755)
            _replace(out, staging, old)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise PackError(f"{out}: {error}; nothing was half written, mend it and repeat") from error
    digest: str = listing["digest"]
    return digest


def _replace(out: Path, staging: Path, old: Path) -> None:
    """Put the new folder in the place of the old one, or leave the old one there."""
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        out.rename(old)
    try:
        staging.rename(out)
    except OSError:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _refuse_foreign(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise PackError(f"{out} is no folder: name another one with --out")
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / MANIFEST).is_file():
        raise PackError(
            f"{out} is not empty and holds no {MANIFEST}: name another folder with --out"
        )
    added = [p for p in verify_pack(out)["added"] if _LITTER.isdisjoint(p.split("/"))]
    if added:
        raise PackError(
            f"{out} holds files that no pack put there ({', '.join(added[:3])}): move them away, "
            "or name another folder with --out"
        )


def verify_pack(root: Path, digest: str | None = None) -> dict[str, Any]:
    """Compare a pack with its manifest.

    Args:
        root: Folder of the pack.
        digest: Digest that the pack must have, where it was learnt from a trusted place.

    Returns:
        ``ok``, ``digest``, and lists of ``changed``, ``missing`` and ``added`` files.

    Raises:
        PackError: There is no readable manifest.
    """
    path = root / MANIFEST
    try:
        listing = json.loads(path.read_text(encoding="utf-8"))
        expected: dict[str, str] = dict(listing["files"])
        stated = str(listing["digest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PackError(
            f"{path}: no readable manifest ({error}); export the pack again into a new folder"
        ) from error
    try:
        found = {
            file.relative_to(root).as_posix(): _content(file)
            for file in sorted(root.rglob("*"))
            if file != path and (file.is_symlink() or not file.is_dir())
        }
    except OSError as error:
        raise PackError(f"{root}: {error}; a pack that cannot be read whole is not ok") from error
    changed = sorted(p for p in expected if p in found and found[p] != expected[p])
    missing = sorted(set(expected) - set(found))
    added = sorted(set(found) - set(expected))
    actual = sha256(canonical_json(dict(sorted(found.items()))).encode())
    ok = not (changed or missing or added) and actual == stated
    return {
        "ok": ok and (digest is None or digest == actual),
        "digest": actual,
        "stated": stated,
        "expected": digest,
        "changed": changed,
        "missing": missing,
        "added": added,
    }


def _content(file: Path) -> str:
    """Return the hash of a file; what is no file of the pack's own has none."""
    return sha256(file.read_bytes()) if file.is_file() and not file.is_symlink() else "no file"
