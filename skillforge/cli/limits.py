"""What a call of the Python API that runs rollouts can be told, as the commands' options are."""

from __future__ import annotations

from typing import TypedDict

from skillforge.cli.options import Paying
from skillforge.errors import ConfigError


class Limits(TypedDict, total=False):
    """What every call that runs rollouts can be told; the project file says the rest."""

    seed: int
    """Of task order, sampling and proposals, ≥ 0; 0 if left out."""
    model: str | None
    """litellm name of worker and proposer, or ``local/…``."""
    api_base: str | None
    """Address of an OpenAI-compatible endpoint."""
    executor: str | None
    """``asyncio``, or ``ray`` to perform attempts in the processes of a cluster."""
    address: str | None
    """``HOST:PORT`` of a Ray cluster; None starts one on this machine."""
    max_usd: float | None
    """USD."""
    max_tokens: int | None
    """Prompt plus completion tokens."""
    max_rollouts: int | None
    """Attempts made; reused ones are free."""
    max_minutes: float | None
    """Minutes, wall clock, after which no new call is made; anew with each start."""


def paying(limits: Limits) -> Paying:
    """Return the limits with what was left out.

    Raises:
        ConfigError: The seed is below 0.
        TypeError: A name is none of those above.
    """
    told = Paying(**limits)
    at_least(0, seed=told.seed)
    return told


def at_least(least: int, **values: int) -> None:
    """Refuse numbers that are too small.

    Raises:
        ConfigError: One is; it is named.
    """
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name} is {value}; expected a whole number of at least {least}")
