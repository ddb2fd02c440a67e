"""The seed library and the desk suite that ship with the project are sound."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from skills_ref import validate

ROOT = Path(__file__).resolve().parents[2]
SKILLS = sorted(path.parent for path in (ROOT / "skills").glob("*/SKILL.md"))
SUITE = ROOT / "benchmarks" / "suites" / "desk"
SPLITS = {"propose": 2, "screen": 2, "confirm": 3, "sealed": 1}
"""The splits, and the least number of families that each must have for every skill."""


def read_tasks() -> list[dict[str, Any]]:
    """Return the tasks of the suite in the order of the file."""
    lines = (SUITE / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_suite() -> dict[str, Any]:
    """Return the suite file."""
    return tomllib.loads((SUITE / "suite.toml").read_text(encoding="utf-8"))


def normalised(text: str) -> str:
    """Fold case and white space, the form in which two inputs count as the same."""
    return " ".join(text.lower().split())


def body_of(skill: Path) -> str:
    """Return the text of a skill without its frontmatter."""
    return (skill / "SKILL.md").read_text(encoding="utf-8").split("\n---\n", 1)[1]


def worked_examples(skill: Path) -> list[tuple[str, str]]:
    """Return the `User:` and `Assistant:` pairs of a skill."""
    pattern = r"^User: (.+?)\nAssistant: (.+?)(?=\n\n|\Z)"
    return re.findall(pattern, body_of(skill).strip(), flags=re.MULTILINE | re.DOTALL)


def test_library_has_at_least_ten_skills() -> None:
    """The library is large enough for retrieval and clustering to matter."""
    assert len(SKILLS) >= 10


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)
def test_skill_is_valid(skill: Path) -> None:
    """The reference validator of the Agent Skills format finds nothing wrong."""
    assert validate(skill) == []


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)
def test_links_of_skill_lead_to_files(skill: Path) -> None:
    """Every file that a skill links to is in its package."""
    targets = re.findall(r"\]\(([^)]+)\)", body_of(skill))
    assert [target for target in targets if not (skill / target).is_file()] == []


def test_some_skills_carry_resources() -> None:
    """At least two packages hold more than their SKILL.md."""
    assert sum(len(list(skill.iterdir())) > 1 for skill in SKILLS) >= 2


def test_conversion_script_answers() -> None:
    """The script of the units skill prints the figure that its text promises."""
    script = ROOT / "skills" / "units" / "scripts" / "convert.py"
    run = [sys.executable, str(script), "12", "mile"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout == "19\n"


def test_generator_writes_the_stored_tasks() -> None:
    """The committed tasks are byte for byte what the generator writes."""
    run = [sys.executable, str(SUITE / "generate.py"), "--check"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_task_file_is_small() -> None:
    """The task file stays small enough to live in the repository."""
    assert (SUITE / "tasks.jsonl").stat().st_size < 4_000_000


def test_six_skills_have_enough_tasks_and_families() -> None:
    """At least six skills have eight families and six hundred tasks."""
    families: dict[str, set[str]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for task in read_tasks():
        families[task["skill"]].add(task["family"])
        counts[task["skill"]] += 1
    assert len(counts) >= 6
    assert {skill for skill in counts if len(families[skill]) < 8 or counts[skill] < 600} == set()


def test_task_skills_are_in_the_library() -> None:
    """The oracle skill of every task ships with the project."""
    assert {task["skill"] for task in read_tasks()} <= {skill.name for skill in SKILLS}


def test_ids_are_unique_and_name_their_family() -> None:
    """A task id stands once and begins with its family, which begins with its skill."""
    tasks = read_tasks()
    assert len({task["id"] for task in tasks}) == len(tasks)
    assert all(task["id"].startswith(task["family"] + "/") for task in tasks)
    assert all(task["family"].startswith(task["skill"] + "/") for task in tasks)


def test_no_input_stands_twice() -> None:
    """No two tasks ask the same, whatever the case and white space."""
    counts = Counter(normalised(task["input"]) for task in read_tasks())
    assert [text for text, count in counts.items() if count > 1] == []


def test_every_family_is_in_exactly_one_split() -> None:
    """The splits hold every family once, and none that has no tasks."""
    listed = [name for names in read_suite()["splits"]["families"].values() for name in names]
    assert sorted(listed) == sorted({task["family"] for task in read_tasks()})


def test_every_skill_is_in_every_split() -> None:
    """Each skill has the families it needs in each split, and 225 tasks to decide on."""
    splits = read_suite()["splits"]["families"]
    assert set(splits) == set(SPLITS)
    tasks = read_tasks()
    for skill in {task["skill"] for task in tasks}:
        for split, least in SPLITS.items():
            assert sum(name.startswith(skill + "/") for name in splits[split]) >= least
        decisive = [task for task in tasks if task["family"] in splits["confirm"]]
        assert sum(task["skill"] == skill for task in decisive) >= 225


def test_reference_answers_fit_their_verifier() -> None:
    """Every reference answer is one that its verifier can accept."""
    default = read_suite()["verifier"]["kind"]
    for task in read_tasks():
        kind, answer = task.get("verifier", {}).get("kind", default), task["expected"]
        assert kind in {"exact", "number", "json"}
        assert answer == answer.strip() != ""
        assert "\n" not in answer
        if kind == "number":
            assert re.fullmatch(r"-?\d+", answer)
        if kind == "json":
            assert isinstance(json.loads(answer), dict)


def test_dates_are_real_days() -> None:
    """Every reference date has the form that the skill teaches."""
    answers = [task["expected"] for task in read_tasks() if task["skill"] == "iso-dates"]
    assert all(re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-[0-3]\d", answer) for answer in answers)


def test_worked_examples_are_no_tasks_to_be_judged_on() -> None:
    """No worked example of a skill is a task outside the propose split."""
    proposed = set(read_suite()["splits"]["families"]["propose"])
    kept = {normalised(t["input"]) for t in read_tasks() if t["family"] not in proposed}
    shown = {normalised(user) for skill in SKILLS for user, _ in worked_examples(skill)}
    assert shown
    assert shown & kept == set()
