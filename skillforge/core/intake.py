"""Which skills of a source the library takes, and why it does not take the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from skillforge.core.lint import lint
from skillforge.core.package import Package
from skillforge.core.problem import Problem

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A skill that a source holds."""

    package: Package
    path: str
    """Its folder inside the source; ``.`` for the source itself."""
    problems: tuple[Problem, ...]
    """Everything that is wrong with it, by path inside the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A skill that is not taken."""

    skill: str
    path: str
    code: str
    """``lint``, ``copy``, ``name-twice``, ``same``, ``name-served`` or ``retired``."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of each skill of a source, in the source's order."""

    taken: tuple[Offer, ...]
    skipped: tuple[Skip, ...]


def make_offer(package: Package, path: str) -> Offer:
    """Check a package that was found in a folder of a source."""
    prefix = "" if path == "." else f"{path}/"
    found = [*lint(package), *_check_pointers(package)]
    problems = tuple(replace(problem, path=prefix + problem.path) for problem in found)
    return Offer(package=package, path=path, problems=problems)


def plan_intake(
    offers: Iterable[Offer], served: Mapping[str, str], retired: Mapping[str, str]
) -> Plan:
    """Decide about each skill by itself; of several with one name, the first sound one counts.

    Args:
        offers: The skills of the source.
        served: Version of each skill that the library serves or its folder holds, by name.
        retired: Version of each retired skill, by name.
    """
    taken: dict[str, Offer] = {}
    skipped: list[Skip] = []
    for offer in offers:
        package = offer.package
        why = _why_not(offer, taken.get(package.name), served, retired)
        if why is None:
            taken[package.name] = offer
        else:
            code, reason = why
            skipped.append(Skip(skill=package.name, path=offer.path, code=code, reason=reason))
    return Plan(taken=tuple(taken.values()), skipped=tuple(skipped))


def _why_not(
    offer: Offer, earlier: Offer | None, served: Mapping[str, str], retired: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return code and reason for which a skill is not taken, or None."""
    name, version = offer.package.name, offer.package.version
    errors = [problem for problem in offer.problems if problem.level == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
        return "lint", f"{errors[0].code}: {errors[0].message}{more}"
    if earlier is not None and earlier.package.version == version:
        return "copy", f"a byte-identical copy of {earlier.path}"
    if earlier is not None:
        return "name-twice", f"{earlier.path} has the same name; rename one to import both"
    if served.get(name) == version:
        return "same", "the same bytes are served already"
    if name in served:
        return "name-served", (
            f"the library has another {name} ({served[name][:10]}); rename the new one, or run "
            f"`skillforge retire {name}` first"
        )
    if retired.get(name) == version:
        return "retired", f"these bytes were retired; `skillforge restore {name}` serves them again"
    return None


def _check_pointers(package: Package) -> Iterator[Problem]:
    """Find files that Git LFS keeps elsewhere: what is here only names them."""
    for path, file in package.files.items():
        if file.data.startswith(_LFS_POINTER):
            message = "this is a pointer of Git LFS, not the file; import a checkout that has it."
            yield Problem(path=path, line=0, code="lfs-pointer", level="warning", message=message)
