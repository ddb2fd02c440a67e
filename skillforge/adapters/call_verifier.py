"""Calls one verifier function of a suite and writes its score to stdout.

`skillforge.adapters.verifiers` starts this file as a script of its own. Arguments: the folder with
the suite's code, ``module:function``, and a JSON file with ``output``, ``expected`` and ``task``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Print the score; whatever the function itself prints goes to stderr."""
    verdict = os.dup(1)
    os.dup2(2, 1)
    folder, named, case = sys.argv[1:]
    sys.path.insert(0, folder)
    module, _, name = named.partition(":")
    call = json.loads(Path(case).read_bytes())
    score = getattr(importlib.import_module(module), name)(
        call["output"], call["expected"], call["task"]
    )
    if hasattr(score, "__await__"):
        import asyncio

        async def wait() -> object:
            return await score

        score = asyncio.run(wait())
    if not isinstance(score, int | float):
        raise TypeError(f"{named} returned {score!r}, expected a number in [0, 1] or a bool")
    os.write(verdict, f"{float(score)}\n".encode())


if __name__ == "__main__":
    main()
