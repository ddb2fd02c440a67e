"""The Verifier port: every implementation keeps the same promises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skillforge.adapters.limited import LimitedPrograms
from skillforge.adapters.verifiers import SuiteVerifier
from skillforge.core.package import PackageFile
from skillforge.core.rollout import Attempt
from skillforge.core.task import Code, Split, Task, VerifierSpec
from skillforge.core.verify import DataOnlyVerifier
from skillforge.ports import Verifier

CODE = Code(
    parts=(),
    folder="nowhere",
    files={"checks.py": PackageFile(data=b"def same(o, e, t): return bool(o) and o.strip() == e")},
    digest="d",
)
PROGRAMS = SuiteVerifier(programs=LimitedPrograms(), code=CODE)
EXACT = {"kind": "exact", "strip": True}
PYTHON = {"kind": "python", "function": "checks:same"}
COMMAND = {"kind": "command", "command": ["cmp", "-s", "{output_file}", "{expected_file}"]}


@pytest.mark.parametrize(
    ("verifier", "spec"),
    [
        (DataOnlyVerifier(), EXACT),
        (PROGRAMS, EXACT),
        (PROGRAMS, PYTHON),
        (PROGRAMS, COMMAND),
        (PROGRAMS, {"kind": "committee", "members": [EXACT, PYTHON], "vote": "majority"}),
    ],
    ids=["data only", "data only beside code", "python", "command", "committee"],
)
def test_verdicts(verifier: Verifier, spec: dict[str, Any]) -> None:
    """The reference passes, wrong and empty answers fail, two runs agree, nothing is raised."""
    options = {key: value for key, value in spec.items() if key != "kind"}
    task = Task(
        id="t",
        family="f",
        input="say yes",
        expected="yes",
        skill=None,
        split=Split.CONFIRM,
        verifier=VerifierSpec(kind=spec["kind"], options=options),
    )
    answers = {"yes": 1.0, "no": 0.0, "": 0.0, "\0\ud800⁂": 0.0}

    for answer, score in answers.items():
        verdicts = [asyncio.run(verifier.verify(task, Attempt(output=answer))) for _ in range(2)]
        assert [verdict.score for verdict in verdicts] == [score, score]
        assert [verdict.failure for verdict in verdicts] == [None, None]
