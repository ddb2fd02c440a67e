"""Where the seed library and suite that ship with this package lie."""

from __future__ import annotations

from pathlib import Path

from skillforge.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]


def _find(installed: str, checkout: str) -> Path:
    """Return the copy inside an installed wheel, or the folder of a checkout."""
    for path in (_PACKAGE / "_shipped" / installed, _PACKAGE.parent / checkout):
        if path.is_dir():
            return path
    raise ConfigError(
        f"the shipped {installed} are missing from this installation: install "
        "skillforge-evolve anew"
    )


def shipped_skills() -> Path:
    """Return the folder of the seed library."""
    return _find("skills", "skills")


def shipped_suites() -> Path:
    """Return the folder of the shipped suites."""
    return _find("suites", "benchmarks/suites")
