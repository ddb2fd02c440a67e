"""Tasks, suites and splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from skillforge.core.digest import json_digest, sha256
from skillforge.core.package import PackageFile
from skillforge.core.program import Limits


class Split(StrEnum):
    """What a task may be used for; the four are disjoint in tasks and in normalised inputs."""

    PROPOSE = "propose"
    """Diagnosis: seen by proposers."""
    SCREEN = "screen"
    """Choosing among edits, and frozen leave-one-out audits."""
    CONFIRM = "confirm"
    """Every gate decision; a task is spent once per lineage."""
    SEALED = "sealed"
    """The final report only."""


SCORING = 1
"""Version of what the data-only verifiers make of an answer; with another one, no score of before
is reused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSpec:
    """Which verifier scores an answer, and its options."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    code: str = ""
    """Digest of the suite's code, where the verifier runs any of it."""

    def to_json(self) -> dict[str, Any]:
        """Return the spec as one flat JSON object."""
        code = {"code": self.code} if self.code else {}
        return {"kind": self.kind, **self.options, **code}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem with a verifier."""

    id: str
    family: str
    """The template or source the task was made from."""
    input: str
    expected: str | None
    """The reference answer, if the verifier needs one."""
    skill: str | None
    """The oracle skill: the one that ought to help."""
    split: Split
    verifier: VerifierSpec
    tags: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """What the workspace holds at the start, by path relative to the suite's folder."""

    @property
    def digest(self) -> str:
        """SHA-256 of everything in the task that can change a score."""
        parts: list[Any] = [self.id, self.input, self.expected, self.verifier.to_json()]
        if self.files:
            parts.append({path: sha256(data) for path, data in self.files.items()})
        if SCORING > 1:  # the first was not written down
            parts.append(SCORING)
        return json_digest(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What performs the tasks of a suite: the kind of worker and its settings."""

    kind: str = "chat"
    max_tokens: int = 64
    """Upper bound of tokens of one answer, ≥ 1."""
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    """Texts at which an answer ends, in both arms."""
    preamble: str = "You are a helpful assistant."
    """First line of the system message, in both arms."""
    timeout: float = 120.0
    """Seconds, wall clock, for one attempt; of an agent, those in the model and in tools."""
    template: str | None = None
    """jinja2 text of the system message of ``chat`` and ``agent``; None takes the worker's own."""
    steps: int = 20
    """Model calls that one attempt of an ``agent`` may make, ≥ 1."""
    token_limit: int = 200_000
    """Tokens, prompts and completions together, that one attempt of an ``agent`` may use, ≥ 1."""
    tools: tuple[str, ...] = ()
    """Functions that an ``agent`` may call, each ``module:function``."""
    state: str | None = None
    """``module:function`` that makes what the tools of one attempt work on."""
    function: str | None = None
    """``module:function`` that is the ``python`` worker."""
    usd_per_attempt: float | None = None
    """The most, in USD, that one attempt of ``python`` or ``command`` can cost; None is unknown."""
    tokens_per_attempt: int = 0
    """The most tokens that one attempt of ``python`` or ``command`` can use."""
    command: tuple[str, ...] = ()
    """Program and arguments of a ``command`` worker, started anew for each attempt. In an argument,
    ``{prompt}`` stands for the task's input, ``{workspace}`` for the folder that the program runs
    in and ``{suite}`` for a copy of the suite's code."""
    harness: str = "claude-code"
    """Whose folder the skills are laid in; see `skillforge.core.packs.SKILL_FOLDERS`."""
    answer_file: str = ""
    """File of the workspace that holds the answer of a ``command`` worker; "" for stdout."""
    outage: str = ""
    """Regular expression found in what a ``command`` worker's program wrote last, when it failed
    because its model could not be reached, which is no zero; "" if it never says so."""
    environment: tuple[str, ...] = ()
    """See `Limits`, as the four below; all of them hold for ``command`` workers."""
    network: bool = True
    memory_mib: int | None = None
    disk_mib: int = 64
    output_kib: int = 1024

    def to_json(self) -> dict[str, Any]:
        """Return every setting, for fingerprints; `outage`, younger than those, where it is set."""
        names = (n for n in self.__dataclass_fields__ if n != "outage" or self.outage)
        return {name: getattr(self, name) for name in names}

    @property
    def samples_greedily(self) -> bool:
        """Whether replicates are asked for at temperature 0, which is not the same as unset."""
        return self.temperature == 0 and self.kind in {"chat", "agent"}

    @property
    def limits(self) -> Limits:
        """What the program of a ``command`` worker may use."""
        return Limits(**{name: getattr(self, name) for name in Limits.__dataclass_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The part of a suite that is no data: it runs only after it was trusted by digest."""

    parts: tuple[str, ...]
    """What would run, for people: one line for each verifier and worker."""
    folder: str
    """Where the suite was read from."""
    files: Mapping[str, PackageFile] = field(hash=False)
    """The files that may run, by relative path, as they were when the suite was read."""
    digest: str
    """SHA-256 over every file of the suite's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A named set of tasks."""

    name: str
    version: str
    license: str
    source: str
    tasks: tuple[Task, ...]
    worker: WorkerSpec
    digest: str
    """SHA-256 over suite.toml, tasks.jsonl, the files of tasks, and code that runs."""
    prices: Mapping[str, Any] = field(default_factory=dict, hash=False)
    split_by: Literal["family", "task"] = "task"
    """``family`` where the suite promises that no family of a skill stands in two splits."""
    code: Code | None = field(default=None, hash=False)
    """What of the suite runs on this machine; None where it is data only."""

    def select(self, *, skill: str | None = None, split: Split | None = None) -> tuple[Task, ...]:
        """Return the tasks of one skill and one split, in file order; None means any."""
        return tuple(
            t
            for t in self.tasks
            if (skill is None or t.skill == skill) and (split is None or t.split == split)
        )

    @property
    def skills(self) -> tuple[str, ...]:
        """The oracle skills named by the tasks, sorted."""
        return tuple(sorted({t.skill for t in self.tasks if t.skill}))
