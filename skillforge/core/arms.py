"""The arms of an evaluation, what each of them shows of the skill, and the effects between them.

With two arms a skill is measured against its absence. With three, that effect is taken apart:
a skill that is only listed may already change what is done, by its description alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import get_args

from skillforge.core.package import Package
from skillforge.core.rollout import Arm
from skillforge.core.shown import description_only
from skillforge.errors import ConfigError, SuiteError

Arms = tuple[Arm, ...]

TWO_ARMS: Arms = ("base", "augmented")
THREE_ARMS: Arms = ("none", "description", "full")

EFFECTS: Mapping[Arms, Mapping[str, tuple[Arm, Arm]]] = MappingProxyType(
    {
        TWO_ARMS: {"whole": ("base", "augmented")},
        THREE_ARMS: {
            "listed": ("none", "description"),
            "body": ("description", "full"),
            "whole": ("none", "full"),
        },
    }
)
"""By the arms that are run, each effect with the arm it starts from and the one it leads to."""


def check_arms(names: Sequence[str]) -> Arms:
    """Return a list of arms if it is one that can be evaluated.

    Raises:
        ConfigError: It names an unknown arm, or is no whole list.
        SuiteError: It names ``raw``: no suite supplies raw trajectories.

    >>> check_arms(["none", "description", "full"])
    ('none', 'description', 'full')
    """
    for arms in EFFECTS:
        if tuple(names) == arms:
            return arms
    allowed = " or ".join(",".join(arms) for arms in EFFECTS)
    given = ",".join(names)
    if "raw" in names:
        raise SuiteError(
            f"arms {given}: the suite supplies no raw trajectories that 'raw' could show in place "
            f"of the skill; expected {allowed}"
        )
    unknown = [name for name in names if name not in get_args(Arm)]
    what = f"there is no arm {unknown[0]!r}" if unknown else "an effect takes all arms, in order"
    raise ConfigError(f"arms {given!r}: {what}; expected {allowed}")


def shown_in(arm: Arm, package: Package) -> Package | None:
    """Return what an arm shows of a skill: nothing, its description, or all of it."""
    if arm in ("base", "none"):
        return None
    return description_only(package) if arm == "description" else package
