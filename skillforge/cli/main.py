"""The `skillforge` command: its groups, its exit codes, and the one place where errors end."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from skillforge import __version__
from skillforge.errors import SkillforgeError

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("setup", "Write a project file."),
    "doctor": ("setup", "Check models, keys, embedder, index, ledger and Ray."),
    "demo": ("demo", "Evolve the shipped library with the embedded model, offline."),
    "validate": ("validate", "Check skill packages against the Agent Skills specification."),
    "import": ("intake", "Take skills from a folder, an archive or a git repository."),
    "list": ("library", "List the skills with status and evidence."),
    "show": ("library", "Show one version of a skill: its units and its text."),
    "history": ("library", "Show every event of a skill's life."),
    "diff": ("library", "Show what changed between two versions of a skill."),
    "adopt": ("library", "Write a staged version to the library's folder."),
    "rollback": ("library", "Serve an earlier version of a skill again."),
    "retire": ("library", "Stop serving a skill; it can be restored byte for byte."),
    "restore": ("library", "Serve a retired skill again, byte for byte."),
    "suite": ("suites", "List, check, trust and import task suites."),
    "eval": ("runs", "Measure a skill against its absence."),
    "evolve": ("runs", "Try to make one skill better."),
    "nightly": ("runs", "Evolve the library under a budget; audit, retire, promote."),
    "audit": ("runs", "Measure what parts are worth by leaving them out."),
    "calibrate": ("studies", "Measure how often a worker disagrees with itself (A/A)."),
    "power": ("studies", "Plan a study: the pairs that an effect needs."),
    "search": ("retrieval", "Find the skills nearest in meaning to a query."),
    "cluster": ("retrieval", "Group close skills and name near-duplicates."),
    "export": ("packs", "Export the served skills with the evidence beside each."),
    "verify": ("packs", "Compare a pack with its manifest."),
    "log": ("ledger", "Print the ledger's events."),
    "replay": ("ledger", "Check the ledger and recompute every decision."),
}
"""Module of each command, and its line in ``--help``.

A module is imported only when its command is named, so that start-up stays fast.
"""

EPILOG = """\b
Exit codes:
  0    done (nightly and demo: whatever was decided)
  1    an error you can mend: bad file, unknown name, missing key
  2    wrong usage
  3    inconclusive: not enough evidence (eval, evolve)
  4    a negative verdict (validate, verify, suite check; evolve adopted nothing)
  5    infrastructure failed, or the budget was spent before any decision
  130  interrupted; the same command goes on where it stopped
"""


class _Lazy(click.Group):
    """Imports a command's module when the command is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        loaded = importlib.import_module(f"skillforge.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = loaded.COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Lazy, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="skillforge")
def cli() -> None:
    """Evolve a library of agent skills on evidence.

    Try it: `skillforge demo` runs the whole job on the shipped library with the embedded model.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; errors become one line on stderr."""
    _tolerate_narrow_consoles()
    try:
        result: Any = cli.main(args=arguments, prog_name="skillforge", standalone_mode=False)
    except SkillforgeError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OSError as error:  # a closed or full standard output among others
        click.echo(f"error: {error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted: what had finished is kept; repeat the command to go on", err=True)
        return 130
    return result if isinstance(result, int) else 0


def _tolerate_narrow_consoles() -> None:
    """Print a replacement instead of failing where the console's encoding lacks a character."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


if __name__ == "__main__":
    main()
