"""The errors a user can meet, as one tree.

    SkillforgeError                 something the user can mend (exit code 1)
    ├── SkillError                  a skill package that cannot be read or does not exist
    ├── EditError                   an edit that does not fit the skill it names
    ├── SuiteError                  a suite, a task or a reference answer that is wrong
    ├── ConfigError                 a setting, model name, key or price that is missing or wrong
    ├── LedgerError                 the event store is locked, damaged or full
    │   └── BlobErased              a payload was erased on purpose
    ├── PackError                   a pack that cannot be written or differs from its manifest
    ├── StatisticsError             numbers that do not define the statistic asked for
    ├── BudgetSpent                 a cap was reached before any decision (exit code 5)
    └── InfraError                  the model, the network or the host failed (exit code 5)

Two kinds of trouble are kept apart. What concerns the run as a whole is raised as one of these.
What concerns one attempt at one task is not raised at all: it is recorded as a
`skillforge.core.rollout.Failure` and counted in every comparison.

A message says what is wrong, where, what was found, what was expected, and what to do.
"""

from __future__ import annotations

__all__ = [
    "BlobErased",
    "BudgetSpent",
    "ConfigError",
    "EditError",
    "InfraError",
    "LedgerError",
    "PackError",
    "SkillError",
    "SkillforgeError",
    "StatisticsError",
    "SuiteError",
]


class SkillforgeError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 1


class SkillError(SkillforgeError):
    """A skill package cannot be read, or no skill of that name or version exists."""


class EditError(SkillforgeError):
    """An edit is a no-op, stale, ambiguous, or would damage the package."""


class SuiteError(SkillforgeError):
    """A suite file, a task or a reference answer is wrong."""


class ConfigError(SkillforgeError):
    """A setting, model name, key or price is missing or wrong."""


class LedgerError(SkillforgeError):
    """The ledger is locked by another process, damaged, or cannot be written."""


class BlobErased(LedgerError):  # noqa: N818 - a state, not a fault
    """A payload was erased on purpose; its event stands."""


class PackError(SkillforgeError):
    """A pack cannot be written, or its files differ from its manifest."""


class StatisticsError(SkillforgeError):
    """The numbers given do not define the statistic asked for."""


class BudgetSpent(SkillforgeError):  # noqa: N818 - a state, not a fault
    """A cap of the budget was reached before anything could be decided."""

    exit_code = 5


class InfraError(SkillforgeError):
    """The model, the network or this machine failed; nothing was scored.

    Args:
        message: What failed, and what to do.
        where: The part that failed: ``model``, ``worker``, ``verifier``; "" if unknown.
    """

    exit_code = 5

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(message)
        self.where = where
