"""What a suite's folder holds besides its tables: files of tasks, and code that may run."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skillforge.adapters.suite_code import read_code
from skillforge.adapters.suites import load_suite
from skillforge.core.task import Suite, WorkerSpec
from skillforge.errors import SuiteError

HEAD = """name = "tiny"
version = "1"
license = "MIT"
source = "made by hand"
"""
PYTHON = {"kind": "python", "function": "checks:same"}
CHECKS = "def same(output, expected, task):\n    return output == expected\n"
COMMAND = """
[worker]
kind = "command"
command = ["claude", "-p", "{prompt}"]
harness = "codex"
answer_file = "answer.txt"
environment = ["ANTHROPIC_API_KEY"]
usd_per_attempt = 0.5
tokens_per_attempt = 9
timeout = 30
disk_mib = 8
"""


def write(folder: Path, head: str = HEAD, **fields: Any) -> Path:
    """Write a suite of one task, whose verifier is a function unless told otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.toml").write_text(head)
    row = {"id": "a", "family": "f", "input": "say a", "expected": "a", "split": "confirm"}
    (folder / "tasks.jsonl").write_text(json.dumps(row | {"verifier": PYTHON} | fields) + "\n")
    (folder / "checks.py").write_text(CHECKS)
    return folder


def load(folder: Path, head: str = HEAD, **fields: Any) -> Suite:
    """Write and load such a suite."""
    return load_suite(write(folder, head, **fields))


def test_data_only_suites_run_nothing(tmp_path: Path) -> None:
    """A suite of data-only verifiers has no code, whatever else lies in its folder."""
    suite = load(tmp_path, verifier={"kind": "exact"})

    assert suite.code is None
    assert suite.tasks[0].verifier.code == ""


@pytest.mark.parametrize(
    ("verifier", "part"),
    [
        (PYTHON, "verifier python: checks:same"),
        ({"kind": "command", "command": ["cmp", "{output_file}"]}, "'cmp' '{output_file}'"),
        (
            {**PYTHON, "environment": ["JUDGE_KEY"], "network": True},
            "checks:same (gets JUDGE_KEY, the network)",
        ),
        (
            {"kind": "committee", "members": [{"kind": "exact"}, PYTHON], "vote": "majority"},
            "verifier python: checks:same",
        ),
    ],
)
def test_verifiers_that_run_code(tmp_path: Path, verifier: dict[str, Any], part: str) -> None:
    """Each kind that runs something, also as a member of a committee, is named."""
    code = load(tmp_path, verifier=verifier).code

    assert code is not None
    assert len(code.parts) == 1
    assert part in code.parts[0]
    assert list(code.files) == ["checks.py"]


def test_a_command_worker(tmp_path: Path) -> None:
    """The worker's settings are read, and it counts as code, with the variables that it gets."""
    suite = load(tmp_path, HEAD + COMMAND, verifier={"kind": "exact"})

    worker = suite.worker
    assert worker.command == ("claude", "-p", "{prompt}")
    assert (worker.harness, worker.answer_file) == ("codex", "answer.txt")
    assert (worker.limits.timeout, worker.limits.disk_mib) == (30, 8)
    assert worker.limits.environment == ("ANTHROPIC_API_KEY",)
    assert (suite.worker.usd_per_attempt, suite.worker.tokens_per_attempt) == (0.5, 9)
    assert suite.code is not None
    assert suite.code.parts == (
        "worker command: 'claude' '-p' '{prompt}' (gets ANTHROPIC_API_KEY, the network)",
    )


def test_functions_of_workers_are_code(tmp_path: Path) -> None:
    """The function of a python worker, the tools of an agent and their state are named."""
    agent = WorkerSpec(kind="agent", tools=("shop:buy",), state="shop:make")
    python = WorkerSpec(kind="python", function="shop:work")

    parts = [code.parts for w in (agent, python) if (code := read_code(write(tmp_path), w, ()))]

    assert parts == [("tool: shop:buy", "tool: shop:make"), ("worker python: shop:work",)]
    assert read_code(tmp_path, WorkerSpec(), ()) is None


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """The digest covers what was read: a table, or a file of a task, that is another is not."""
    folder, worker = write(tmp_path), WorkerSpec(kind="python", function="shop:work")
    (folder / "in.txt").write_text("now")
    head = (folder / "suite.toml").read_bytes()
    task = replace(load(tmp_path / "other").tasks[0], files={"./in.txt": b"now"})

    assert read_code(folder, worker, [task], {"suite.toml": head}) is not None
    with pytest.raises(SuiteError, match=r"suite.toml changed while the suite was being read"):
        read_code(folder, worker, [task], {"suite.toml": head + b"#"})
    with pytest.raises(SuiteError, match=r"in.txt changed while the suite was being read"):
        read_code(folder, worker, [replace(task, files={"in.txt": b"before"})])


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ('kind = "command"', "a command worker needs `command`"),
        ('kind = "chat"\ncommand = ["x"]', "a setting of command workers"),
        ('kind = "command"\ncommand = []', "a command worker needs `command`"),
        ('kind = "command"\ncommand = ["x"]\nharness = "nano"', "'claude-code'"),
        ('kind = "command"\ncommand = ["x"]\nusd_per_attempt = -1', "usd_per_attempt"),
    ],
)
def test_wrong_workers(tmp_path: Path, worker: str, words: str) -> None:
    """A worker without a command, or with a setting out of range, is told with its line."""
    with pytest.raises(SuiteError, match=r"suite.toml:\d+: ") as error:
        load(tmp_path, f"{HEAD}\n[worker]\n{worker}\n", verifier={"kind": "exact"})

    assert words in str(error.value)


@pytest.mark.parametrize(
    ("verifier", "words"),
    [
        ({"kind": "python"}, "'module:function'"),
        ({"kind": "python", "function": "checks.same"}, "'module:function'"),
        ({"kind": "python", "function": "../x:y"}, "'module:function'"),
        ({"kind": "python", "function": "absent:same"}, "holds no absent.py"),
        ({**PYTHON, "timeout": 0}, "expected a number > 0"),
        ({**PYTHON, "shell": True}, "no option 'shell'"),
        ({"kind": "command"}, "a program and its arguments"),
        ({"kind": "command", "command": []}, "a program and its arguments"),
        ({"kind": "command", "command": "rm -rf ~"}, "expected a list of texts"),
        ({"kind": "committee", "members": [PYTHON], "vote": "mean"}, "at least 2 `members`"),
        ({"kind": "committee", "members": [PYTHON, PYTHON]}, "`vote`"),
        ({"kind": "committee", "members": [PYTHON, {"kind": "odd"}], "vote": "mean"}, "unknown"),
        ({"kind": "committee", "members": [1, 2], "vote": "mean"}, "a list of verifiers"),
    ],
)
def test_wrong_verifiers(tmp_path: Path, verifier: dict[str, Any], words: str) -> None:
    """An option that is missing, unknown or of the wrong type is told before anything runs."""
    with pytest.raises(SuiteError) as error:
        load(tmp_path, verifier=verifier)

    assert words in str(error.value)


def test_any_change_changes_the_digest(tmp_path: Path) -> None:
    """Content, name, executable bit and the tables count; compiled files do not."""

    def digest() -> str:
        code = load_suite(tmp_path).code
        assert code is not None
        return code.digest

    write(tmp_path)
    seen = [digest()]
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "checks.cpython-311.pyc").write_bytes(b"x")
    assert digest() == seen[0]
    changes = [
        lambda: (tmp_path / "checks.py").write_text(CHECKS + "# note\n"),
        lambda: (tmp_path / "data.txt").write_text("new"),
        lambda: (tmp_path / "checks.py").chmod(0o755),
        lambda: (tmp_path / "suite.toml").write_text(HEAD + "# note\n"),
    ]
    for change in changes:
        change()
        seen.append(digest())

    assert len(set(seen)) == len(seen)


def test_code_is_part_of_what_is_measured(tmp_path: Path) -> None:
    """A task's digest, and the suite's, change with the verifier's code: no score is reused."""
    before = load(tmp_path)
    (tmp_path / "checks.py").write_text(CHECKS + "\n\nX = 1\n")
    after = load_suite(tmp_path)

    assert before.tasks[0].digest != after.tasks[0].digest
    assert before.digest != after.digest


def test_what_runs_is_what_was_read(tmp_path: Path) -> None:
    """The code is held as it was read; a later change of the folder reaches no run."""
    code = load(tmp_path).code
    (tmp_path / "checks.py").write_text("changed")

    assert code is not None
    assert code.files["checks.py"].data == CHECKS.encode()


@pytest.mark.parametrize("target", ["../outside.py", "gone.py", "folder"])
def test_links_out_of_the_folder(tmp_path: Path, target: str) -> None:
    """A link that leads out of the folder, to a folder, or nowhere is refused with code."""
    (tmp_path / "outside.py").write_text("secret")
    (tmp_path / "suite" / "folder").mkdir(parents=True)
    (tmp_path / "suite" / "linked.py").symlink_to(target)

    with pytest.raises(SuiteError, match="may link to files of its own folder only"):
        load(tmp_path / "suite")
    assert load(tmp_path / "suite", verifier={"kind": "exact"}).code is None


def test_links_within_the_folder(tmp_path: Path) -> None:
    """A link to a file of the same folder is that file."""
    write(tmp_path)
    (tmp_path / "same.py").symlink_to("checks.py")

    code = load_suite(tmp_path).code

    assert code is not None
    assert code.files["same.py"].data == CHECKS.encode()


def test_pipes_are_not_opened(tmp_path: Path) -> None:
    """What is no regular file would block whoever reads it, and is refused."""
    write(tmp_path)
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(SuiteError, match="no regular file"):
        load_suite(tmp_path)


def test_files_of_tasks(tmp_path: Path) -> None:
    """A task's files are read with it, and their bytes are part of its digest."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.bin").write_bytes(b"\xff\x00")
    exact = {"kind": "exact"}
    first = load(tmp_path, verifier=exact, files=["data/in.bin"])
    bare = load(tmp_path, verifier=exact)
    (tmp_path / "data" / "in.bin").write_bytes(b"\xff\x01")
    second = load(tmp_path, verifier=exact, files=["data/in.bin"])

    assert first.tasks[0].files == {"data/in.bin": b"\xff\x00"}
    assert len({suite.tasks[0].digest for suite in (first, bare, second)}) == 3
    assert first.digest != second.digest


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/etc/passwd", "leads out"),
        ("../outside", "leads out"),
        ("data/../../outside", "leads out"),
        ("linked", "leads out"),
        ("..\\outside", "leads out"),
        ("tasks.jsonl", "holds the suite's answers"),
        ("./suite.toml", "holds the suite's answers"),
        ("absent", "is not in the suite's folder"),
        ("data", "is not in the suite's folder"),
    ],
)
def test_files_that_no_task_may_name(tmp_path: Path, name: str, words: str) -> None:
    """Paths that lead out, over links too, the suite's answers, and what is not there."""
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "suite" / "data").mkdir(parents=True)
    (tmp_path / "suite" / "linked").symlink_to("../outside")

    with pytest.raises(SuiteError, match=r"tasks.jsonl:1: task 'a'") as error:
        load(tmp_path / "suite", verifier={"kind": "exact"}, files=[name])

    assert words in str(error.value)
