"""What an exported pack holds: skills, evidence beside each, and a manifest of hashes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from skillforge.core.digest import canonical_json, sha256
from skillforge.core.package import Package, PackageFile
from skillforge.core.rules import Decision
from skillforge.errors import PackError

MANIFEST = "skillforge-pack.json"
EVIDENCE = "evidence.json"

HARNESS_FOLDERS: dict[str, str] = {
    "agents": ".agents/skills",
    "claude": ".claude/skills",
}
"""Where each harness reads skills; these two cover nearly all of them."""

SKILL_FOLDERS: dict[str, str] = {
    **HARNESS_FOLDERS,
    "claude-code": ".claude/skills",
    "codex": ".agents/skills",
    "cursor": ".cursor/skills",
    "droid": ".factory/skills",
    "gemini-cli": ".gemini/skills",
    "github-copilot": ".github/skills",
    "goose": ".goose/skills",
    "kiro": ".kiro/skills",
    "letta-code": ".agents/skills",
    "openclaw": "skills",
    "opencode": ".agents/skills",  # a folder .opencode would make it install packages there
    "openhands": ".openhands/skills",
    "pi": ".pi/skills",
    "qwen": ".qwen/skills",
    "roo": ".roo/skills",
    "windsurf": ".windsurf/skills",
}
"""Where each harness reads the skills of the project that it works in, by the harness's name."""


def pack_files(
    packages: Sequence[Package], evidence: Mapping[str, Mapping[str, Any]], folder: str
) -> dict[str, PackageFile]:
    """Lay packages out below a harness's folder, with the evidence beside each SKILL.md.

    Args:
        packages: What to export.
        evidence: By skill name; a skill without an entry is exported as ``unmeasured``.
        folder: Folder that the harness reads, relative to the pack.

    Raises:
        PackError: A package has an evidence file of its own, which would be lost. One that came
            from an earlier pack is replaced.
    """
    files: dict[str, PackageFile] = {}
    for package in packages:
        home = f"{folder}/{package.name}"
        for path, file in package.files.items():
            files[f"{home}/{path}"] = file
        own = package.files.get(EVIDENCE)
        if own is not None and not _is_evidence(own.data):
            raise PackError(
                f"{package.name} holds an {EVIDENCE} of its own, and the pack keeps its evidence "
                "under that name: rename the file and export again"
            )
        found = evidence.get(package.name, {"evidence": Decision.UNMEASURED.value})
        text = canonical_json({"schema": 1, "skill": package.name, **found}) + "\n"
        files[f"{home}/{EVIDENCE}"] = PackageFile(data=text.encode())
    return files


def _is_evidence(data: bytes) -> bool:
    """Whether a file is the evidence that an earlier pack laid beside a skill."""
    try:
        found = json.loads(data)
    except ValueError:
        return False
    return (
        isinstance(found, dict) and found.get("schema") == 1 and {"skill", "evidence"} <= set(found)
    )


def manifest(files: Mapping[str, PackageFile]) -> dict[str, Any]:
    """Return hashes of all files and one digest over them."""
    hashes = {path: sha256(file.data) for path, file in sorted(files.items())}
    return {"schema": 1, "files": hashes, "digest": sha256(canonical_json(hashes).encode())}
