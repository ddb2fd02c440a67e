"""Which files of a skill are pointed to, and what an edit breaks about it.

A file is pointed to where another text file of the skill names its path, from the root of the
skill or from its own folder, or names a folder above it (``scripts/``). Links, code and running
text count alike. A file that nothing ever pointed to is no orphan: scripts import each other in
ways that nobody can list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename, dirname, join, normpath

from skillforge.core.package import Package
from skillforge.errors import EditError

_PATH = re.compile(r"[\w.\-/]+")


def pointed(package: Package, path: str) -> frozenset[str]:
    """Return the other files of the package that the file at ``path`` points to, if it is text."""
    named = _named(package, path, [*package.files])
    return frozenset(
        other
        for other in package.files
        if other != path and (other in named or any(f"{p}/" in named for p in _folders(other)))
    )


def broken_pointers(before: Package, after: Package) -> tuple[tuple[str, str], ...]:
    """Return (file, target) for what still points to a file that a change removed."""
    gone = before.files.keys() - after.files.keys()
    if not gone:
        return ()
    return tuple(
        (path, target)
        for path in after.files
        for target in sorted(_named(after, path, gone) & gone)
    )


def orphans(before: Package, after: Package) -> tuple[str, ...]:
    """Return the files that were pointed to before a change and are not any more, sorted."""
    changed = [path for path, file in before.files.items() if after.files.get(path) != file]
    lost = {target for path in changed for target in pointed(before, path)} & after.files.keys()
    # what was changed still points to most of it; the rest is read only if it must be
    for path in [*changed, *after.files]:
        if lost and path in after.files:
            lost -= pointed(after, path)
    return tuple(sorted(lost))


def check_pointers(before: Package, after: Package) -> None:
    """Refuse a change after which a file hangs in the air, or a pointer leads to nothing.

    Raises:
        EditError: Names the files and what to edit as well.
    """
    for path, target in broken_pointers(before, after):
        raise EditError(
            f"the edit removes {target!r} from skill {before.name!r}, but {path} still points to "
            f"it; name the unit of {path} that does so in the same PRUNE, or UPDATE it first"
        )
    left = orphans(before, after)
    if left:
        raise EditError(
            f"after the edit nothing in skill {before.name!r} points to {', '.join(left)}; keep "
            f"the pointer in the content, or PRUNE {', '.join(f'file:{path}' for path in left)} as "
            "well"
        )


def _named(package: Package, path: str, files: Iterable[str]) -> frozenset[str]:
    """Return the paths that a text file names, as seen from the root; those of folders end in /.

    Only what ends as one of ``files``, or a folder above one, is looked at: it is much quicker.
    """
    try:
        text = package.files[path].data.decode()
    except UnicodeDecodeError:
        return frozenset()
    ends = {basename(name) for file in files for name in (file, *_folders(file))}
    tokens = (token.rstrip(".") for token in set(_PATH.findall(text)))
    return frozenset(
        normpath(join(folder, token)) + "/" * token.endswith("/")
        for token in tokens
        if basename(token.rstrip("/")) in ends
        for folder in ("", dirname(path))
    )


def _folders(path: str) -> Iterator[str]:
    while path := dirname(path):
        yield path
