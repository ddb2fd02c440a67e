"""Evolve a library of agent skills on evidence.

The names below are the public Python API. They are loaded when they are first used, so that
``import skillforge`` loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skillforge.api import Project, init_project, open_project
    from skillforge.errors import SkillforgeError
    from skillforge.report.figures import audit_figure, evidence_figure, paired_figure

__version__ = "0.1.0"

__all__ = [
    "Project",
    "SkillforgeError",
    "__version__",
    "audit_figure",
    "evidence_figure",
    "init_project",
    "open_project",
    "paired_figure",
]

_HOMES = {
    "Project": "skillforge.api",
    "SkillforgeError": "skillforge.errors",
    "audit_figure": "skillforge.report.figures",
    "evidence_figure": "skillforge.report.figures",
    "init_project": "skillforge.api",
    "open_project": "skillforge.api",
    "paired_figure": "skillforge.report.figures",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
