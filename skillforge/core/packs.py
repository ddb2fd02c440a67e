"""What an exported pack holds: skills, evidence beside each, and a manifest of hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skillforge.core.digest import canonical_json, sha256
from skillforge.core.package import Package, PackageFile

MANIFEST = "skillforge-pack.json"
EVIDENCE = "evidence.json"

HARNESS_FOLDERS: dict[str, str] = {
    "agents": ".agents/skills",
    "claude": ".claude/skills",
}
"""Where each harness reads skills; these two cover nearly all of them."""


def pack_files(
    packages: Sequence[Package], evidence: Mapping[str, Mapping[str, Any]], folder: str
) -> dict[str, PackageFile]:
    """Lay packages out below a harness's folder, with the evidence beside each SKILL.md.

    Args:
        packages: What to export.
        evidence: By skill name; a skill without an entry is exported as ``unmeasured``.
        folder: Folder that the harness reads, relative to the pack.
    """
    files: dict[str, PackageFile] = {}
    for package in packages:
        home = f"{folder}/{package.name}"
        for path, file in package.files.items():
            files[f"{home}/{path}"] = file
        found = evidence.get(package.name, {"evidence": "unmeasured"})
        text = canonical_json({"schema": 1, "skill": package.name, **found}) + "\n"
        files[f"{home}/{EVIDENCE}"] = PackageFile(data=text.encode())
    return files


def manifest(files: Mapping[str, PackageFile]) -> dict[str, Any]:
    """Return hashes of all files and one digest over them."""
    hashes = {path: sha256(file.data) for path, file in sorted(files.items())}
    return {"schema": 1, "files": hashes, "digest": sha256(canonical_json(hashes).encode())}
