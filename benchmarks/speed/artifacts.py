"""How fast skills are read, judged, cut and opened, beside skills-ref on the same files.

Run: python benchmarks/speed/artifacts.py [--quick] [--json]

The skills are those of the folder ``../shared/corpus/skills`` beside the checkout, or, where it is
absent, a generated library; each row names which. Times are processor seconds of this process, so
that what else runs on the machine counts little; each is the best of three looks.

Rows:
- ``skillforge load validate hash``: find, read, parse, check and hash every skill;
  ``skills-ref validate``: the reference validator on the same folders.
- ``skillforge units``: cut every skill into its knowledge units.
- ``skillforge open unchanged``: what `skillforge list` does before it prints, in a process of its
  own, on a library of 10,000 skills (1,000 with ``--quick``) that has not changed: wall and
  processor seconds, imports included, and the peak of memory in MB. ``skillforge open first``: the
  same library before anything was known of it. ``skills-ref read properties``: name and description
  of the same skills.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import skills_ref
from report import options, show

from skillforge.adapters.files import discover
from skillforge.core.lint import lint
from skillforge.core.package import Package
from skillforge.core.units import parse_units

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus" / "skills"
LOOKS = 3
SECTION = "\n## Part {}\n\nDo this:\n\n- read it\n- write it, with `code`\n\n| a | b |\n|---|---|\n"
PROBE = """
import json, resource, sys, time
from pathlib import Path
started = time.perf_counter()
from skillforge.cli.session import open_session
with open_session(Path(sys.argv[1])) as session:
    skills = len(session.curator.state.listing(every=False))
seconds = time.perf_counter() - started
used = resource.getrusage(resource.RUSAGE_SELF)
cpu, mb = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
print(json.dumps({"skills": skills, "seconds": seconds, "cpu_seconds": cpu, "mb": mb}))
"""


def generate(root: Path, count: int) -> Path:
    """Write a library of that many skills and return its folder."""
    for i in range(count):
        folder = root / f"skill-{i}"
        folder.mkdir(parents=True)
        body = "".join(SECTION.format(part) for part in range(4 + i % 9))
        head = f"---\nname: skill-{i}\ndescription: Does {i}. Use it when {i} is asked for.\n---\n"
        (folder / "SKILL.md").write_text(f"{head}\n# Skill {i}\n{body}", encoding="utf-8")
    return root


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the processor seconds that the fastest of some looks took."""

    def once() -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    return min(once() for _ in range(LOOKS))


def row(name: str, skills: int, base: float, *, seconds: float, **more: Any) -> dict[str, Any]:
    """Return one row: the ratio is how many times as fast as ``base`` seconds."""
    rate = {"skills": skills, "seconds": seconds, "skills_per_s": skills / seconds}
    return {"name": name, "ratio": base / seconds, **rate, **more}


def reading(root: Path, library: str) -> list[dict[str, Any]]:
    """Measure load, validation, hashing and units on one core."""
    folders = [root / folder for folder in discover(root).folders]

    def all_of_it() -> None:
        for package in discover(root).packages:
            lint(package)
            assert package.version

    def units(packages: Iterable[Package]) -> None:
        for package in packages:
            parse_units(Package(name=package.name, files=package.files))

    packages = discover(root).packages
    ours, cut = cpu_seconds(all_of_it), cpu_seconds(lambda: units(packages))
    theirs = cpu_seconds(lambda: [skills_ref.validate(folder) for folder in folders])
    count, setting = len(folders), {"library": library, "clock": "cpu"}
    return [
        row("skillforge load validate hash", count, theirs, seconds=ours, **setting),
        row("skills-ref validate", count, theirs, seconds=theirs, **setting),
        row("skillforge units", count, theirs, seconds=cut, **setting),
    ]


def opening(root: Path, count: int) -> list[dict[str, Any]]:
    """Measure opening a project with a large library: the first time, and unchanged."""
    (root / "skillforge.toml").write_text('[library]\npath = "skills"\n', encoding="utf-8")
    folders = sorted(generate(root / "skills", count).iterdir())

    def probe() -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(root)], capture_output=True, text=True, check=True
        )
        found: dict[str, float] = json.loads(done.stdout)
        assert found.pop("skills") == count
        return found

    first = probe()
    probe()  # files this fresh are read once more
    again = min((probe() for _ in range(LOOKS)), key=lambda found: found["seconds"])
    started = time.perf_counter()
    for folder in folders:
        skills_ref.read_properties(folder)
    theirs = time.perf_counter() - started
    setting = {"library": "generated", "clock": "wall"}
    return [
        row("skillforge open unchanged", count, theirs, **again, **setting),
        row("skillforge open first", count, theirs, **first, **setting),
        row("skills-ref read properties", count, theirs, seconds=theirs, **setting),
    ]


def measure(quick: bool) -> list[dict[str, Any]]:
    """Measure every row."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if CORPUS.is_dir():
            rows = reading(CORPUS, "shared corpus")
        else:
            rows = reading(generate(root / "small", 300 if quick else 900), "generated")
        return rows + opening(root, 1_000 if quick else 10_000)


def line(row: dict[str, Any]) -> str:
    """Return a row as a line of the table."""
    cpu, mb = row.get("cpu_seconds", row["seconds"]), row.get("mb", 0)
    figures = f"{row['ratio']:6.2f} {row['skills_per_s']:9.0f} {row['seconds']:8.2f} {cpu:6.2f}"
    return f"{figures} {mb:4.0f}  {row['name']} ({row['library']}, {row['clock']})"


if __name__ == "__main__":
    told = options(__doc__).parse_args()
    heading = (
        f"{'ratio':>6} {'skills/s':>9} {'seconds':>8} {'cpu':>6} {'MB':>4}  what (library, clock)"
    )
    show(measure(told.quick), as_json=told.json, heading=heading, line=line)
