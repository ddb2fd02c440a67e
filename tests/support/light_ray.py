"""Ray's processes without what they import and never use.

Ray imports jsonschema, which builds a parser of addresses where ``rfc3987_syntax`` is installed, as
Jupyter wants it: two seconds of CPU for each process of Ray. A node gives itself up whose agents
take more than 15 seconds to start, which on a busy machine they do.
"""

from __future__ import annotations

import os
from pathlib import Path


def light_path(folder: Path, *others: Path) -> str:
    """Hide that package behind a module in a folder; return PYTHONPATH with it and others first."""
    (folder / "rfc3987_syntax.py").write_text('raise ImportError("of no use to Ray")\n')
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join(filter(None, [str(folder), *map(str, others), before]))
