"""Suites are code: nothing of one runs before it was looked at and trusted, as it is now."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes import ProcessServer
from support.small_project import (
    SUITE,
    event_kinds,
    events,
    task_rows,
    write_project,
    write_suite,
)

from skillforge.adapters.shipped import shipped_suites
from skillforge.cli.code import is_shipped
from skillforge.core.task import Code

CHECKS = """
def same(output, expected, task):
    return output == expected
"""
HEAD = SUITE.replace('name = "small"', 'name = "coded"').replace(
    'kind = "exact"', 'kind = "python"\nfunction = "checks:same"'
)


@pytest.fixture
def root(server, tmp_path) -> Path:
    """A project with a suite whose verifier is a function."""
    root = write_project(tmp_path / "project", server.url)
    rows = task_rows(sizes={"propose": 1, "confirm": 1})
    folder = write_suite(root / "suites" / "coded", rows, HEAD)
    (folder / "checks.py").write_text(CHECKS)
    return root


def test_nothing_runs_before_it_is_trusted(processes: ProcessServer, root: Path) -> None:
    """Every command that would run the code stops with exit code 1, and says how to go on."""
    for command in (
        ("suite", "check", "coded"),
        ("eval", "shout", "--suite", "coded"),
        ("evolve", "shout", "--suite", "coded"),
        ("nightly", "--suite", "coded"),
        ("audit", "units", "shout", "--suite", "coded"),
        ("eval", "shout", "--suite", "coded", "--dry-run"),
    ):
        done = processes.run(*command, cwd=root)

        assert done.code == 1, command
        assert "suite coded is not trusted" in done.stderr
        assert "verifier python: checks:same" in done.stderr
        assert "skillforge suite trust coded --show" in done.stderr
    assert "run.started" not in event_kinds(root)


def test_looking_and_trusting(processes: ProcessServer, root: Path) -> None:
    """`--show` prints what would run and trusts nothing; without it the digest is recorded."""
    shown = processes.run("suite", "trust", "coded", "--show", "--json", cwd=root).json
    before = event_kinds(root)
    trusted = processes.run("suite", "trust", "coded", cwd=root)
    checked = processes.run("suite", "check", "coded", "--json", cwd=root)

    assert shown["code"]["parts"] == ["verifier python: checks:same"]
    assert [file["path"] for file in shown["code"]["files"]] == ["checks.py"]
    assert (shown["trusted"], "suite.trusted" in before) == (False, False)
    assert "checks.py" in trusted.stdout
    assert [e["digest"] for e in events(root, "suite.trusted")] == [shown["code"]["digest"]]
    assert checked.code == 0, checked.stderr
    assert checked.json["ok"]
    assert processes.run("replay", cwd=root).code == 0


def test_a_change_needs_a_new_look(processes: ProcessServer, root: Path) -> None:
    """A suite that has changed since does not run until it is trusted again."""
    processes.run("suite", "trust", "coded", cwd=root)
    with (root / "suites" / "coded" / "checks.py").open("a") as file:
        file.write("# changed\n")
    changed = processes.run("suite", "check", "coded", cwd=root)
    again = [
        processes.run("suite", *arguments, cwd=root).code
        for arguments in (("trust", "coded"), ("check", "coded"))
    ]

    assert changed.code == 1
    assert "suite coded has changed since it was trusted" in changed.stderr
    assert again == [0, 0]


def test_an_evaluation_runs_trusted_code(processes: ProcessServer, root: Path) -> None:
    """The verifier of a trusted suite scores the rollouts."""
    processes.run("suite", "trust", "coded", cwd=root)
    done = processes.run("eval", "shout", "--suite", "coded", "--tasks", "1", "--json", cwd=root)

    assert done.json["pairs"] == 1, done.stderr
    assert {data["failure"] for data in events(root, "rollout.finished")} == {None}


def test_suites_within_skills(processes: ProcessServer, root: Path) -> None:
    """Code that came with a skill neither runs nor can be trusted where it is."""
    within = root / "skills" / "shout" / "suite"
    (root / "suites" / "coded").rename(within)
    for action in ("check", "trust"):
        done = processes.run("suite", action, str(within), cwd=root)

        assert done.code == 1
        assert "came with the skill in" in done.stderr
    assert "suite.trusted" not in event_kinds(root)


def test_shipped_suites_are_trusted(tmp_path: Path) -> None:
    """Code that came with the package runs without an event; a copy of it elsewhere does not."""
    code = Code(parts=("x",), folder=str(shipped_suites().resolve() / "s"), files={}, digest="d")

    assert is_shipped(code)
    assert not is_shipped(replace(code, folder=str(tmp_path / "s")))


def test_data_only_suites_need_no_trust(processes: ProcessServer, root: Path) -> None:
    """They run as they are, and trusting them says so."""
    trusted = processes.run("suite", "trust", "small", "--json", cwd=root)
    checked = processes.run("suite", "check", "small", cwd=root)

    assert json.loads(trusted.stdout)["code"] is None
    assert checked.code == 0
    assert "suite.trusted" not in event_kinds(root)
