"""Real skills and public tasks that nobody here wrote, through the command line, to a decision."""

import json
from pathlib import Path

import pytest

from skillforge.cli.main import run

SHARED = Path(__file__).resolve().parents[2] / "shared" / "corpus"
REPOSITORIES = ("obra__superpowers", "getsentry__skills", "ComposioHQ__awesome-claude-skills")
PROJECT = """
[library]
path = "skills"

[evolve]
propose_tasks = 3
anchors = 2
max_confirm = 1
wave = 4

[gate]
max_tasks = 8
"""

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared corpus is not here")


@pytest.fixture
def call(tmp_path, capsys):
    """Run a command in a project of its own and return its exit code and JSON."""
    assert run(["init", str(tmp_path)]) == 0
    (tmp_path / "skillforge.toml").write_text(PROJECT, encoding="utf-8")

    def command(*arguments):
        capsys.readouterr()
        code = run([*map(str, arguments), "--json", "--project", str(tmp_path)])
        return code, json.loads(capsys.readouterr().out)

    return command


def test_real_repositories_are_imported_searched_and_evolved(call):
    """Bad files are reported, the rest is loaded and found, and one skill gets an honest decision.

    Three public repositories, one BIG-Bench Hard family, the embedded model.
    """
    taken = 0
    for name in REPOSITORIES:
        code, report = call("import", SHARED / "skills" / name)
        assert code == 0
        assert report["taken"]
        assert all(entry["reason"] for entry in report["skipped"])
        taken += len(report["taken"])
    code, listed = call("list")
    assert len(listed["skills"]) == taken

    code, found = call("search", "write a git commit message", "-k", 3)
    assert "commit" in [hit["skill"] for hit in found["hits"]]
    assert found["omitted"] == taken - 3

    tasks = SHARED / "tasks" / "bbh" / "boolean_expressions.json"
    options = ("--format", "bbh", "--name", "boolean", "--skill", "commit")
    code, imported = call("suite", "import", tasks, *options)
    assert code == 0
    assert imported["taken"] > 200
    assert call("suite", "check", "boolean")[0] == 0

    code, report = call("evolve", "commit", "--suite", "boolean")
    assert code in (0, 3, 4)
    assert report["candidates"]
    for candidate in report["candidates"]:
        assert candidate["decision"]
        assert candidate["reasons"]
    code, replayed = call("replay")
    assert code == 0
    assert replayed["decisions_ok"]
