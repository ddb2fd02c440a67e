"""Options and output that commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click

from skillforge.workflows.spend import Caps

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_OK, EXIT_INCONCLUSIVE, EXIT_NEGATIVE = 0, 3, 4


class Number(click.FloatRange):
    """A finite number within a range, of which NaN is never outside."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or refuse it as wrong usage."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"got {number}, expected a finite number.", param, ctx)
        return number


def project_option(command: Command) -> Command:
    """Add ``--project``."""
    return click.option(
        "--project",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder with skillforge.toml; default: the nearest one upwards from here.",
    )(command)


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object instead of tables."
    )(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paying:
    """What whatever pays is told; None leaves it to the project file."""

    model: str | None = None
    api_base: str | None = None
    executor: str | None = None
    address: str | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    max_rollouts: int | None = None
    max_minutes: float | None = None
    dry_run: bool = False
    seed: int = 0

    def caps(self, budget: Caps) -> Caps:
        """Return the caps: each as told, or else as in the budget."""
        told = {name: getattr(self, f"max_{name}") for name in Caps.__dataclass_fields__}
        return replace(budget, **{name: cap for name, cap in told.items() if cap is not None})


_PAYING = (
    click.option("--model", help="litellm model name for worker and proposer."),
    click.option("--api-base", help="Address of an OpenAI-compatible endpoint."),
    click.option(
        "--executor",
        type=click.Choice(["asyncio", "ray"]),
        help="Perform attempts in this process, or in those of a Ray cluster.",
    ),
    click.option("--address", help="HOST:PORT of a Ray cluster, or auto; default: start one."),
    click.option("--max-usd", type=Number(0), help="Cap of USD."),
    click.option("--max-tokens", type=click.IntRange(0), help="Cap of tokens."),
    click.option("--max-rollouts", type=click.IntRange(0), help="Cap of rollouts."),
    click.option(
        "--max-minutes",
        type=Number(0),
        help="No new calls after that; a run that is gone on with has them anew.",
    ),
    click.option("--dry-run", is_flag=True, help="Print what it would cost; spend nothing."),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True),
)


def paying_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add model, caps, dry run and seed; the command gets them as one ``paying`` argument."""

    @wraps(command)
    def gathered(**values: Any) -> int:
        paying = Paying(**{name: values.pop(name) for name in Paying.__dataclass_fields__})
        return command(paying=paying, **values)

    for option in reversed(_PAYING):
        gathered = option(gathered)
    return gathered


def emit(data: Mapping[str, Any], as_json: bool, show: Callable[[Mapping[str, Any]], None]) -> None:
    """Print a result: as one JSON object, or by a function that shows it to people."""
    if as_json:
        narrow = not (sys.stdout.encoding or "").lower().startswith("utf")
        click.echo(json.dumps({"schema": 1, **data}, ensure_ascii=narrow, allow_nan=False))
    else:
        show(data)
