"""What a worker may see of a skill."""

from __future__ import annotations

from collections.abc import Mapping

from skillforge.core.document import parse_document
from skillforge.core.lines import to_lf
from skillforge.core.package import Package, PackageFile

_PRIVATE = "evals/"
"""Tasks with their answers: nobody who performs a task may read them."""


def body_text(package: Package) -> str:
    r"""Return the instructions of a skill, without frontmatter of any kind.

    A block of frontmatter that stands in the body (a skill wrapped twice) and the fence of one that
    was never closed are left out too: models take them for part of the conversation.

    >>> from skillforge.core.package import PackageFile
    >>> data = b"---\nname: a\n---\n---\ndescription: b\n---\nDo it.\n"
    >>> body_text(Package(name="a", files={"SKILL.md": PackageFile(data=data)}))
    'Do it.'
    """
    text = to_lf(package.document.body).strip()
    while text.startswith("---"):
        inner = parse_document(text.encode("utf-8", "replace"))
        if {"name", "description"} & set(inner.frontmatter):
            text = inner.body.strip()
            continue
        fence, _, rest = text.partition("\n")
        if fence.rstrip() != "---":
            break
        text = rest.strip()
    return text


def readable_files(package: Package) -> Mapping[str, PackageFile]:
    """Return the files of a skill but for its evaluations, by relative path."""
    return {p: f for p, f in package.files.items() if not p.lower().startswith(_PRIVATE)}


def description_only(package: Package) -> Package:
    """Return the skill as the ``description`` arm shows it: frontmatter, and nothing to read.

    What is not there cannot leak, whatever the worker, and the other version gives its rollouts
    keys of their own. A worker shows a skill without a body by its name and description.
    """
    kept = package.document.data[: package.document.body_start]
    return Package(name=package.name, files={package.skill_file: PackageFile(data=kept)})
