"""The public Python API: its names, its start-up, and what its methods do to a real project.

The model is a small HTTP server on loopback. It answers right whenever the skill it is shown says
so, which makes the right decisions known.
"""

import ast
import asyncio
import json
import signal
import subprocess
import sys
import threading
from contextlib import chdir
from pathlib import Path

import polars as pl
import pytest
from support.loopback import LoopbackServer, ok

import skillforge
from skillforge.cli.engine import drive
from skillforge.cli.limits import Limits
from skillforge.errors import (
    BudgetSpent,
    ConfigError,
    LedgerError,
    PackError,
    SkillError,
    SuiteError,
)

NAMES = {
    "Project",
    "SkillforgeError",
    "__version__",
    "audit_figure",
    "evidence_figure",
    "init_project",
    "open_project",
    "paired_figure",
}
METHODS = {
    "adopt",
    "audit",
    "close",
    "clusters",
    "decisions",
    "evaluate",
    "evolve",
    "export",
    "history",
    "nightly",
    "package",
    "pairs",
    "replay",
    "restore",
    "retire",
    "rollback",
    "rollouts",
    "search",
    "skills",
    "spend",
    "units",
}
LIMITS = {
    "seed",
    "model",
    "api_base",
    "executor",
    "address",
    "max_usd",
    "max_tokens",
    "max_rollouts",
    "max_minutes",
}
SHOUT = """\
---
name: shout
description: Says a colour in capital letters. Use when a colour has to be shouted.
---

# Shout

Say the colour.

## Manner

Be brief.
"""
LOUD = """\
---
name: loud
description: Repeats the name of a town in capitals. Use for signposts.
---

# Loud

Write it in capitals.
"""
SETTINGS = """
[evolve]
propose_tasks = 4
anchors = 4
max_confirm = 1

[nightly]
skills = ["shout"]
library_audits = 0

[prices."openai/echo"]
input_per_million = 0
output_per_million = 0
"""
SUITE = """\
name = "colours"
version = "1"
license = "Apache-2.0"
source = "made by the tests"

[verifier]
kind = "exact"
strip = true
"""
LETTERS = "abcdefghijklmnop"


def answer(body):
    """Return what a model does that shouts only where its skill tells it to, by word or example."""
    told = body["messages"][0]["content"]
    asked = body["messages"][-1]["content"]
    return ok(asked.upper() if "capitals" in told or "Assistant:" in told else asked)


def tasks():
    """Yield one row per task: few to propose and screen, many to confirm."""
    for skill in ("shout", "loud"):
        for split, count in {"propose": 4, "screen": 4, "confirm": 30}.items():
            for i in range(count):
                word = f"{skill} {split} {LETTERS[i // 16]}{LETTERS[i % 16]}"
                yield {
                    "id": word.replace(" ", "/"),
                    "family": f"{skill}/{split}",
                    "skill": skill,
                    "input": word,
                    "expected": word.upper(),
                    "split": split,
                }


@pytest.fixture
def server():
    """Return the model's server."""
    with LoopbackServer(answer) as running:
        yield running


@pytest.fixture
def limits(server):
    """Return what every paying call needs to reach the server."""
    return {"api_base": server.url}


@pytest.fixture
def project(tmp_path):
    """Return a project with two skills and a suite for them."""
    for name, text in {"shout": SHOUT, "loud": LOUD}.items():
        (tmp_path / "skills" / name).mkdir(parents=True)
        (tmp_path / "skills" / name / "SKILL.md").write_text(text)
    suite = tmp_path / "suites" / "colours"
    suite.mkdir(parents=True)
    (suite / "suite.toml").write_text(SUITE)
    (suite / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tasks()))
    made = skillforge.init_project(tmp_path, model="openai/echo")
    with (tmp_path / "skillforge.toml").open("a") as file:
        file.write(SETTINGS)
    return made


def test_the_public_names_are_these():
    """Names that notebooks rely on come and go only on purpose."""
    assert set(skillforge.__all__) == NAMES
    assert set(dir(skillforge)) >= NAMES
    assert all(getattr(skillforge, name) is not None for name in NAMES)
    assert {name for name in vars(skillforge.Project) if not name.startswith("_")} == METHODS
    assert set(Limits.__annotations__) == LIMITS


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name is told as Python tells it."""
    with pytest.raises(AttributeError, match="has no attribute 'open_projekt'"):
        _ = skillforge.open_projekt


def test_the_version_is_a_literal():
    """The build reads the version from the text of the module, without running it."""
    tree = ast.parse(Path(skillforge.__file__).read_text(encoding="utf-8"))
    values = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__version__"
    ]
    assert values == [skillforge.__version__]


def test_importing_the_package_loads_next_to_nothing():
    """Neither the API nor numpy or polars is loaded before a public name is used."""
    code = (
        "import sys, skillforge; assert skillforge.__version__; dir(skillforge);"
        "print([m for m in ('numpy', 'polars', 'click', 'pydantic', 'skillforge.api')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_opening_a_project_loads_no_model():
    """The API itself loads neither models nor frames: they come with the call that needs them."""
    code = (
        "import sys, skillforge; skillforge.open_project;"
        "print([m for m in ('polars', 'torch', 'litellm', 'faiss', 'matplotlib')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_project_is_found_from_below(project, tmp_path):
    """Without a folder, the nearest project upwards is opened."""
    with chdir(tmp_path / "skills" / "loud"):
        found = skillforge.open_project()

    assert found.root == project.root == tmp_path.resolve()
    assert repr(found) == f"Project({str(tmp_path.resolve())!r})"


def test_a_folder_without_a_project_is_an_error(tmp_path):
    """The error says what is missing and how to make it."""
    with pytest.raises(ConfigError, match=r"no skillforge\.toml .*skillforge init"):
        skillforge.open_project(tmp_path)


def test_the_shipped_skills_fill_a_new_library_but_replace_nothing(tmp_path):
    """What lies in the library's folder already is left as it is."""
    mine = tmp_path / "lib" / "ticket-line"
    mine.mkdir(parents=True)
    (mine / "SKILL.md").write_text(SHOUT.replace("name: shout", "name: ticket-line"))
    made = skillforge.init_project(tmp_path, library="lib", shipped=True)

    assert "Say the colour" in made.package("ticket-line").body
    assert "units" in made.skills()["skill"].to_list()
    with pytest.raises(ConfigError, match="exists already"):
        skillforge.init_project(tmp_path)


def test_evaluate_measures_a_skill_against_its_absence(project, limits):
    """A skill that makes every task pass gains every pair, and nothing is decided about it."""
    found = project.evaluate("loud", "colours", tasks=10, **limits)

    assert (found.skill, found.result.evidence.table.gains) == ("loud", 10)
    assert found.result.evidence.lift == 1.0
    assert project.decisions().height == 0
    assert project.rollouts()["arm"].value_counts().sort("arm").rows() == [
        ("augmented", 10),
        ("base", 10),
    ]


def test_evaluate_takes_an_effect_apart(project, limits):
    """With three arms the effects of being listed and of the body stand beside the whole."""
    arms = ("none", "description", "full")
    found = project.evaluate("loud", "colours", arms=arms, tasks=4, **limits)

    assert [effect.name for effect in found.effects] == ["listed", "body", "whole"]
    assert found.result.evidence.lift == 1.0
    with pytest.raises(ConfigError, match="expected base,augmented or none,description,full"):
        project.evaluate("loud", "colours", arms=["full"], **limits)


def test_evolve_adopts_what_helps_and_everything_can_be_read_back(project, limits, tmp_path):
    """One skill goes the whole way: decided, adopted, replayed, rolled back, retired, restored."""
    before = project.package("shout")
    report = project.evolve("shout", "colours", **limits)
    served = project.package("shout")

    assert report.adopted == served.version != before.version
    assert "Assistant: SHOUT" in served.body
    assert project.skills().filter(pl.col("skill") == "shout")["status"].item() == "probation"
    assert project.history("shout")["event"].to_list()[-1] == "version.adopted"

    (row,) = project.decisions().filter(pl.col("version") == report.adopted).rows(named=True)
    pairs = project.pairs(row["candidate"])
    assert (row["decision"], row["e_value"]) == ("probation", pairs["e_value"][-1])
    assert set(pairs["outcome"]) == {"gain"}
    assert project.spend()["command"].to_list() == ["evolve"]
    replayed = project.replay()
    assert replayed.chain_ok
    assert replayed.decisions >= 1
    assert replayed.problems == ()

    assert project.rollback("shout") == before.version
    assert (tmp_path / "skills/shout/SKILL.md").read_text() == SHOUT
    assert project.retire("shout", reason="test") == before.version
    assert project.skills()["skill"].to_list() == ["loud"]
    assert project.restore("shout") == before.version
    assert (tmp_path / "skills/shout/SKILL.md").read_text() == SHOUT


def test_a_spent_budget_ends_evolve_early_and_evaluate_with_an_error(project, limits, server):
    """A cap is never passed; what was measured is kept and used by the next call."""
    report = project.evolve("shout", "colours", max_rollouts=6, **limits)
    assert report.stopped_by is not None
    assert report.adopted is None
    assert project.rollouts().height == 6

    with pytest.raises(BudgetSpent):
        project.evaluate("loud", "colours", tasks=8, max_rollouts=10, **limits)
    asked = len(server.requests)
    assert project.evaluate("loud", "colours", tasks=8, **limits).result.evidence.table.pairs == 8
    assert len(server.requests) == asked + 6


def test_audit_measures_each_unit(project, limits):
    """Units of a skill that fails everything cannot be told apart, and the audit says so."""
    found = project.audit("shout", "colours", tasks=4, **limits)

    assert [u.unit.id for u in found.units] == ["intro", "section:manner"]
    assert {u.pairs for u in found.units} == {4}
    assert not found.informative


def test_units_join_to_the_file(project):
    """The units of a package cover its bytes in order."""
    data = project.package("shout").files["SKILL.md"].data
    units = project.units("shout")

    assert b"".join(data[u.start : u.end] for u in units) == data


def test_calls_work_inside_a_running_event_loop(project, limits):
    """As in Jupyter: work that needs a loop gets a thread and a loop of its own."""

    async def cell():
        project.evaluate("loud", "colours", tasks=4, **limits)
        return project.rollouts().height

    assert asyncio.run(cell()) == 8


def test_an_interrupt_cancels_work_in_a_running_loop():
    """Interrupting a cell ends the work in its thread, and its clean-up runs."""
    ended = []

    async def work():
        try:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def cell():
        drive(work())

    loop = asyncio.new_event_loop()
    # Whoever started the tests in the background may have switched interrupts off.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
        signal.signal(signal.SIGINT, before)
    assert ended == [True]


def test_errors_inside_a_running_loop_are_the_same(project):
    """An error of the work reaches the caller as it is."""

    async def cell():
        project.evaluate("laud", "colours")

    with pytest.raises(SkillError, match="did you mean loud"):
        asyncio.run(cell())


def test_a_night_runs_what_the_project_file_names(project, limits):
    """The nightly call evolves, promotes and says what it left unmeasured."""
    report = project.nightly("colours", **limits)

    assert [skill.skill for skill in report.skills] == ["shout"]
    assert report.unmeasured == ["loud"]
    assert [p["skill"] for p in report.promoted] == ["shout"]
    assert "promoted" in project.decisions()["decision"].to_list()


def test_search_and_clusters_go_by_meaning(project):
    """The nearer skill comes first, and every skill stands in one group."""
    hits = project.search("shout the colour red", k=1)

    assert [hit.skill for hit in hits] == ["shout"]
    assert sorted(name for group in project.clusters(0.99) for name in group) == ["loud", "shout"]


def test_export_writes_packs_with_evidence(project, tmp_path):
    """Each named harness gets a pack; an unknown one is refused before anything is written."""
    with pytest.raises(PackError, match="expected one of agents, claude"):
        project.export(tmp_path / "packs", harnesses=["claud"])
    assert not (tmp_path / "packs").exists()

    (pack,) = project.export(tmp_path / "packs", harnesses=["claude"])
    evidence = Path(pack["path"]) / ".claude/skills/loud/evidence.json"
    assert json.loads(evidence.read_text())["evidence"] == "unmeasured"
    assert pack["skills"] == 2


def test_mistakes_are_told_before_anything_is_paid(project, limits, server):
    """Unknown names, numbers out of range and misspelt limits are errors at once."""
    with pytest.raises(SkillError, match="did you mean loud"):
        project.history("laud")
    with pytest.raises(SuiteError):
        project.evaluate("loud", "colors", **limits)
    with pytest.raises(ConfigError, match="tasks is 0; expected a whole number of at least 1"):
        project.evaluate("loud", "colours", tasks=0, **limits)
    with pytest.raises(ConfigError, match="tasks is 1; expected a whole number of at least 2"):
        project.audit("loud", "colours", tasks=1, **limits)
    with pytest.raises(ConfigError, match="seed is -1"):
        project.evolve("loud", "colours", seed=-1, **limits)
    with pytest.raises(TypeError, match="max_rollout"):
        project.evolve("loud", "colours", max_rollout=1, **limits)
    assert server.requests == []


def test_only_one_writes_at_a_time_and_readers_go_on(project, monkeypatch):
    """While another holds the project, writing is refused and reading works."""
    from filelock import FileLock

    monkeypatch.setenv("SKILLFORGE_LIBRARY_LOCK_SECONDS", "0")
    with FileLock(project.root / ".skillforge" / "lock"):
        assert project.skills().height == 2
        with pytest.raises(LedgerError, match="another skillforge command is writing"):
            project.retire("loud")
    assert project.retire("loud")


def test_leaving_the_block_closes_the_handle_for_now(project):
    """A handle is a context manager, and works again after it was closed."""
    with project as inside:
        assert inside is project
    assert project.skills().height == 2
