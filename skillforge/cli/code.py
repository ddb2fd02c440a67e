"""Code of suites: whether it may run, and what runs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from skillforge.adapters.shipped import shipped_suites
from skillforge.core.task import Code, Suite
from skillforge.core.verify import DataOnlyVerifier
from skillforge.errors import SuiteError
from skillforge.ports import Programs, Verifier
from skillforge.workflows.trust import require_trust

if TYPE_CHECKING:
    from skillforge.adapters.project import Project
    from skillforge.cli.session import Session


def is_shipped(code: Code) -> bool:
    """Whether the code came with this package."""
    return Path(code.folder).is_relative_to(shipped_suites().resolve())


def refuse_untrusted(session: Session, suite: Suite) -> None:
    """Let a suite pass that is data only, shipped, or trusted as it is now.

    Raises:
        SuiteError: Its code is not trusted, or came with a skill.
    """
    if suite.code is None or is_shipped(suite.code):
        return
    refuse_within_skill(suite.code, session.project.root)
    require_trust(session.ledger, suite)


def refuse_within_skill(code: Code, root: Path) -> None:
    """Refuse code that lies inside a skill: evaluations that come with one are data only.

    Raises:
        SuiteError: The folder, or one between it and the project's root, holds a ``SKILL.md``.
    """
    folder = Path(code.folder)
    for parent in (folder, *folder.parents):
        if parent == root.resolve():
            return
        if any((parent / name).is_file() for name in ("SKILL.md", "skill.md")):
            raise SuiteError(
                f"the suite in {folder} came with the skill in {parent} and would run code "
                f"({'; '.join(code.parts[:3])}); suites inside skills are data only: read it, and "
                "copy it among your own suites if you want it"
            )


def make_programs(suite: Suite, project: Project | None) -> Programs:
    """Return what runs the code of a suite that may run, its worker's and its verifiers'.

    Programs see the suite, the library and the ledger as empty folders: answers, and the skills
    of the other arm, are not theirs to find.
    """
    from skillforge.adapters.limited import LimitedPrograms

    hidden = [Path(suite.code.folder)] if suite.code is not None else []
    if project is not None:
        hidden += [project.library, project.state]
    return LimitedPrograms(hidden=tuple(hidden), note=_note)


def _note(text: str) -> None:
    # Not a lambda: what performs attempts is sent to other processes.
    # Nor `click.echo`, which would write into the bar where one is being drawn.
    print(f"note: {text}", file=sys.stderr, flush=True)


def make_verifier(suite: Suite, programs: Programs) -> Verifier:
    """Return what scores the tasks of a suite whose code, if it has any, may run."""
    if suite.code is None:
        return DataOnlyVerifier()
    from skillforge.adapters.verifiers import SuiteVerifier

    return SuiteVerifier(programs=programs, code=suite.code)
