"""The file that states under which licence a skill was found."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from skillforge.core.origin import is_license_file


def nearest_license(root: Path, folder: str) -> dict[str, str]:
    """Look in a skill's folder, then upwards to the root of its source.

    Args:
        root: The source.
        folder: The skill's folder inside it, posix.

    Returns:
        ``file``, the path inside the source, and ``sha256`` of its content; empty where there is
        no such file. Links out of the source are not followed.
    """
    root = root.resolve()
    for place in [root / folder, *(root / folder).parents]:
        if not place.is_relative_to(root):
            break
        with suppress(OSError):  # a folder or file that cannot be read states nothing
            names = sorted((p.name for p in place.iterdir() if is_license_file(p.name)), key=len)
            for path in (place / name for name in names):
                real = Path(os.path.realpath(path))
                if real.is_file() and real.is_relative_to(root):
                    with real.open("rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                    return {"file": path.relative_to(root).as_posix(), "sha256": digest}
    return {}
