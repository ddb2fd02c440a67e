"""A small project on disk, and the model that performs its tasks: a pure function of the request.

Four tiny skills; the suite ``small`` has tasks for three of them. The model writes a word in
capitals, as the task wants, with a chance that the skill text in the request decides; the draw is
a hash of the task, so that every run of the same command sees the same answers.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from support.loopback import Answer, ok

from skillforge.core.digest import json_digest

MODEL = "openai/test"
SKILLS = {
    "shout": ("Writes a word in capitals.", "## Rule\n\nUse capitals.\n\n## Notes\n\nKeep calm.\n"),
    "yell": ("Writes names in capitals, loudly.", "## Rule\n\nUse capitals, please.\n"),
    "mumble": ("Answers quietly.", "## Rule\n\nBe quiet.\n\n## Old way\n\nNever answer.\n"),
    "idle": ("Sorts laundry by colour.", "## Rule\n\nWhites first.\n"),
}
TASKED = ("shout", "yell", "mumble")
SIZES = {"propose": 6, "screen": 6, "confirm": 40, "sealed": 2}
SUITE = """\
name = "small"
version = "1.0.0"
license = "CC0-1.0"
source = "made by a test"

[worker]
kind = "chat"
max_tokens = 16
temperature = 0

[verifier]
kind = "exact"
"""


def answer(body: dict[str, Any]) -> Answer:
    """Perform a task, or propose an edit; equal requests get equal answers."""
    system, user = (str(body["messages"][i]["content"]) for i in (0, -1))
    if system.startswith("You maintain a skill"):
        edit = {"cause": "too quiet", "op": "CREATE", "unit": "", "content": "Be loud and clear."}
        return ok(json.dumps(edit), prompt_tokens=len(user) // 4, completion_tokens=20)
    chance = 0.5 + 0.3 * ("capitals" in system) + 0.4 * ("Assistant:" in system)
    chance -= 0.5 * ("Never answer" in system)
    draw = int(json_digest(user)[:8], 16) / 0xFFFFFFFF
    word = user.rpartition(" ")[2]
    said = word.upper() if draw < chance else word
    return ok(said, prompt_tokens=(len(system) + len(user)) // 4, completion_tokens=2)


def task_rows(skills: Sequence[str] = TASKED, sizes: dict[str, int] = SIZES) -> list[dict]:
    """Return the rows of ``tasks.jsonl``."""
    return [
        {
            "id": f"{skill}/{split}/{i}",
            "family": f"{skill}/{split}-{i % 2}",
            "skill": skill,
            "split": split,
            "input": f"Say this for {skill}: {skill[0]}{split}{i}",
            "expected": f"{skill[0]}{split}{i}".upper(),
        }
        for skill in skills
        for split, size in sizes.items()
        for i in range(size)
    ]


def write_skill(library: Path, name: str, description: str, body: str) -> Path:
    """Write a skill of one file and return its folder."""
    folder = library / name
    folder.mkdir(parents=True)
    text = f"---\nname: {name}\ndescription: {description}\n---\n\n# {name.title()}\n\n{body}"
    (folder / "SKILL.md").write_bytes(text.encode())
    return folder


def write_suite(folder: Path, rows: Sequence[dict], head: str = SUITE) -> Path:
    """Write a suite and return its folder."""
    folder.mkdir(parents=True)
    (folder / "suite.toml").write_text(head, encoding="utf-8")
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "tasks.jsonl").write_text(lines, encoding="utf-8")
    return folder


def write_project(
    root: Path,
    api_base: str,
    *,
    price: float | None = 0.0,
    skills: dict[str, tuple[str, str]] = SKILLS,
    parallel: int = 4,
    extra: str = "",
) -> Path:
    """Write project file, skills and suite; return the project's folder.

    Args:
        root: Folder to make.
        api_base: Address of the model.
        price: USD per million tokens, or None for a project that states no price.
        skills: Description and body of each skill, by name.
        parallel: Attempts in flight.
        extra: More TOML for the end of the project file.
    """
    for name, (description, body) in skills.items():
        write_skill(root / "skills", name, description, body)
    (root / "skills").mkdir(parents=True, exist_ok=True)
    write_suite(root / "suites" / "small", task_rows())
    per_million = f"input_per_million = {price}, output_per_million = {price}"
    prices = "" if price is None else f'"{MODEL}" = {{ {per_million} }}'
    (root / "skillforge.toml").write_text(
        f'[model]\nworker = "{MODEL}"\napi_base = "{api_base}"\nparallel = {parallel}\n'
        "[gate]\nmax_tasks = 40\n"
        "[evolve]\npropose_tasks = 6\nanchors = 6\nmax_confirm = 2\nwave = 8\n"
        "[nightly]\nlibrary_audits = 1\n"
        f"[prices]\n{prices}\n{extra}",
        encoding="utf-8",
    )
    return root


def events(root: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return the data of a project's events of some kinds, all by default, in order.

    Read with SQLite alone, beside whatever process is writing.
    """
    return [data for kind, data in _rows(root) if not kinds or kind in kinds]


def event_kinds(root: Path) -> list[str]:
    """Return the kinds of a project's events in order; none if there is no ledger."""
    return [kind for kind, _ in _rows(root)]


def event_counts(root: Path) -> Counter[str]:
    """Return how many events of each kind a project's ledger holds."""
    return Counter(event_kinds(root))


def _rows(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    path = root / ".skillforge" / "ledger.db"
    if not path.is_file():
        return
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as db:
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone() is None:
            return
        for kind, text in db.execute("SELECT kind, data FROM events ORDER BY seq").fetchall():
            yield kind, json.loads(text)


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by its path; nothing where there is no folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
