"""Faults of other tools with reading and finding skills, reported in public: what we do instead.

One test a report. Skills are real folders, read by the command line wherever it shows the fault.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.processes import Done, ProcessServer

import skillforge
from skillforge.adapters.files import discover
from skillforge.adapters.workers import ChatWorker
from skillforge.core.edits import Edit, apply_edit
from skillforge.core.lint import lint
from skillforge.core.package import Package
from skillforge.core.task import Task, VerifierSpec, WorkerSpec
from skillforge.errors import EditError

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
CORPUS = SHARED / "corpus" / "skills"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")


def put(folder: Path, frontmatter: str = "", *, file: str = "SKILL.md") -> Path:
    """Write a skill named like its folder, unless the frontmatter says otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    head = frontmatter or f"name: {folder.name}\ndescription: Does {folder.name}.\n"
    (folder / file).write_bytes(f"---\n{head}---\nBody of {folder.name}.\n".encode())
    return folder


def problems(done: Done) -> list[tuple[str, int, str, str]]:
    """Return path, line, code and level of everything that `validate --json` listed."""
    keys = ("path", "line", "code", "level")
    return [tuple(problem[key] for key in keys) for problem in done.json["problems"]]


def validate(processes: ProcessServer, root: Path, *arguments: str, code: int) -> Done:
    """Run `validate --json` in a folder and check its exit code."""
    done = processes.run("validate", *(arguments or (".",)), "--json", cwd=root)
    assert done.code == code, (done.stdout, done.stderr)
    return done


def project(root: Path) -> Path:
    """Write a project file for the folder `skills` below the root."""
    (root / "skills").mkdir(parents=True, exist_ok=True)
    (root / "skillforge.toml").write_text('[library]\npath = "skills"\n', encoding="utf-8")
    return root


# --- parsing ---


def test_an_unquoted_colon_drops_no_skill(processes, tmp_path):
    """Two good and one bad: all three are seen, the bad one named (vercel-labs/skills#1058)."""
    put(tmp_path / "src" / "a")
    put(tmp_path / "src" / "b", "name: b\ndescription: Configure the harness: Hooks, MCP\n")
    put(tmp_path / "src" / "c")
    done = validate(processes, tmp_path, "src", code=4)
    assert done.json["skills"] == 3
    assert problems(done) == [("src/b/SKILL.md", 3, "yaml-unquoted", "error")]
    taken = processes.run("import", "../src", "--json", cwd=project(tmp_path / "p"))
    assert [entry["skill"] for entry in taken.json["taken"]] == ["a", "c"]
    assert [entry["skill"] for entry in taken.json["skipped"]] == ["b"]


def test_a_bad_value_costs_no_restriction(processes, tmp_path):
    """The allowed tools survive a bad line, which is an error (jaredrhod/ai-marketing-skills#3)."""
    put(tmp_path / "a", "name: a\nallowed-tools: Read\ndescription: Use: always\n")
    (package,) = discover(tmp_path).packages
    assert package.document.frontmatter["allowed-tools"] == "Read"
    assert package.description == "Use: always"
    for arguments in (("a",), ("a", "--strict")):
        validate(processes, tmp_path, *arguments, code=4)


def test_a_description_cut_by_a_comment_is_named(processes, tmp_path):
    """`#28` is a warning, and an error when strict (modelcontextprotocol/inspector#2203)."""
    put(tmp_path / "a", "name: a\ndescription: Covers board #28 (v2) of it\n")
    done = validate(processes, tmp_path, "a", code=0)
    assert problems(done) == [("a/SKILL.md", 3, "yaml-comment", "warning")]
    assert "`description: 'Covers board #28 (v2) of it'`" in done.json["problems"][0]["message"]
    strict = validate(processes, tmp_path, "a", "--strict", code=4)
    assert problems(strict) == [("a/SKILL.md", 3, "yaml-comment", "error")]


def test_a_nested_flow_sequence_keeps_the_skill(processes, tmp_path):
    """`[ray[train], torch]` is kept as text and reported (synthetic-sciences/openscience#187)."""
    put(tmp_path / "a", "name: a\ndependencies: [ray[train], torch]\ndescription: Trains.\n")
    done = validate(processes, tmp_path, "a", code=4)
    assert done.json["skills"] == 1
    assert [row[1:3] for row in problems(done)] == [(3, "yaml-unquoted"), (3, "field-unknown")]
    assert discover(tmp_path).packages[0].description == "Trains."


@pytest.mark.parametrize("name", ["123", "2024-01-01", "true", "1e3", "007"])
def test_a_name_that_looks_like_a_number_is_a_name(processes, tmp_path, name):
    """No number is made of it, from file to listing (openclaw/openclaw#35293 (issue #35270))."""
    put(project(tmp_path) / "skills" / name)
    validate(processes, tmp_path, "skills", code=0)
    listed = processes.run("list", "--json", cwd=tmp_path)
    assert [row["skill"] for row in listed.json["skills"]] == [name]


def test_there_is_one_parser(processes, tmp_path):
    """Who reads or writes YAML can be counted on one hand; what commands show is what it read.

    Covers openonion/connectonion#633: two parsers gave different metadata for the same file.
    """
    source = Path(skillforge.__file__).parent
    readers = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            from_yaml = isinstance(node, ast.ImportFrom) and (node.module or "")[:4] == "yaml"
            if from_yaml or "yaml" in names:
                readers.add(path.relative_to(source).as_posix())
    assert readers == {"core/frontmatter.py", "core/mend.py", "core/rewrite.py"}
    tricky = 'name: a\ndescription: >-\n  It\'s: --- "x"\n  # no comment\nlicense: no\n'
    put(project(tmp_path) / "skills" / "a", tricky)
    shown = processes.run("show", "a", "--json", cwd=tmp_path)
    assert shown.json["description"] == discover(tmp_path / "skills").packages[0].description
    assert shown.json["description"] == 'It\'s: --- "x" # no comment'


def crlf_skill(folder: Path) -> Path:
    """Write a skill as an editor on Windows does: CRLF and a byte order mark."""
    path = put(folder) / "SKILL.md"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    return path


def test_crlf_and_bom_hide_no_frontmatter(processes, tmp_path):
    """The skill is listed with its description (QwenLM/qwen-code#1528)."""
    crlf_skill(project(tmp_path) / "skills" / "a")
    shown = processes.run("show", "a", "--json", cwd=tmp_path)
    assert shown.json["description"] == "Does a."


def test_no_fence_reaches_a_prompt_and_no_description_is_lost(tmp_path):
    """Bodies enter prompts without frontmatter (mohitagw15856/pm-claude-skills#173 / #194)."""
    crlf_skill(tmp_path / "a")
    (package,) = discover(tmp_path).packages
    worker = ChatWorker(model=None, spec=WorkerSpec())  # type: ignore[arg-type]
    task = Task(
        id="t",
        family="f",
        input="x",
        expected="x",
        skill="a",
        split="confirm",
        verifier=VerifierSpec(kind="exact"),
    )
    system = str(worker.prompt(task, [package]).messages[0].content)
    assert "Body of a." in system
    assert "---" not in system
    assert "\r" not in system
    assert package.description == "Does a."


def test_every_check_says_the_same_of_a_bom(processes, tmp_path):
    """It is a warning here, there and everywhere (NVIDIA/SkillEvaluator#91)."""
    path = crlf_skill(tmp_path / "src" / "a")
    done = validate(processes, tmp_path, "src", code=0)
    assert problems(done) == [("src/a/SKILL.md", 1, "bom", "warning")]
    taken = processes.run("import", "../src", "--json", cwd=project(tmp_path / "p"))
    assert [entry["skill"] for entry in taken.json["taken"]] == ["a"]
    assert (tmp_path / "p" / "skills" / "a" / "SKILL.md").read_bytes() == path.read_bytes()


CONSOLES = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


def narrow(console: str, root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a process of its own on a console that cannot show everything."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
    return subprocess.run(
        [sys.executable, "-m", "skillforge", *arguments],
        cwd=root,
        env=environment | CONSOLES[console],
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("console", CONSOLES)
def test_files_are_utf8_whatever_the_locale_says(tmp_path, console):
    """Text beyond ASCII is read alike in every locale (agentskills/agentskills#536)."""
    put(project(tmp_path) / "skills" / "a", "name: a\ndescription: Größe → 日本語 🦊\n")
    done = narrow(console, tmp_path, "show", "a", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["description"] == "Größe → 日本語 🦊"


@pytest.mark.parametrize("console", CONSOLES)
def test_what_a_console_lacks_is_replaced(tmp_path, console):
    """Findings with emoji and check marks are printed, exit code and all.

    Covers JuliusBrussee/caveman#203; agentrust-io/cmcp#396; Aider-AI/aider#4279.
    """
    put(project(tmp_path) / "skills" / "b", "name: b\ndescription: ✓ done: 🦊█\n")
    done = narrow(console, tmp_path, "validate", "skills")
    assert done.returncode == 4
    assert b"Traceback" not in done.stderr
    assert done.stdout.startswith(b"skills/b/SKILL.md:3: error: the value of `description`")
    assert b" done: " in done.stdout
    listed = narrow(console, tmp_path, "list")
    assert listed.returncode == 0, listed.stderr


def test_a_blank_description_passes_no_gate(processes, tmp_path):
    """Validation, import and edits refuse it alike (bytedance/deer-flow#4867)."""
    put(tmp_path / "src" / "a", "name: a\ndescription: '  '\n")
    done = validate(processes, tmp_path, "src", code=4)
    assert problems(done) == [("src/a/SKILL.md", 3, "description-blank", "error")]
    root = project(tmp_path / "p")
    taken = processes.run("import", "../src", "--json", cwd=root)
    assert [entry["skill"] for entry in taken.json["skipped"]] == ["a"]
    assert list((root / "skills").iterdir()) == []
    (good,) = discover(put(tmp_path / "good")).packages
    with pytest.raises(EditError):
        apply_edit(good, Edit(op="UPDATE", target="description", content=" \n"))


# --- finding ---


@needs_corpus
def corpus(repository: str) -> list[tuple[str, Package]]:
    """Return folder and package of each skill of one repository of the corpus."""
    found = discover(CORPUS / repository)
    return list(zip(found.folders, found.packages, strict=True))


def coded(packages: list[tuple[str, Package]], code: str) -> list[str]:
    """Return the folders of the skills with that finding."""
    return [folder for folder, p in packages if any(q.code == code for q in lint(p))]


@needs_corpus
def test_a_name_that_is_not_the_folders_still_loads():
    """In vercel-labs' own collection four differ; all load (vercel-labs/agent-skills#80)."""
    packages = corpus("vercel-labs__agent-skills")
    different = coded(packages, "name-mismatch")
    assert len(packages) == 7
    assert len(different) == 4
    names = {folder: p.document.frontmatter["name"] for folder, p in packages}
    assert names["skills/react-best-practices"] == "vercel-react-best-practices"


@needs_corpus
def test_title_case_names_are_counted_exactly():
    """30 of the 107 here, and one more with another name than its folder; 98 of all 895.

    Covers composio-community/awesome-codex-skills#223 (64 + 1 of about 880 there).
    """
    packages = corpus("ComposioHQ__awesome-claude-skills")
    assert len(packages) == 107
    assert len(coded(packages, "name-case")) == 30
    assert len(coded(packages, "name-mismatch")) == 31
    everything = discover(CORPUS)
    counts = Counter(
        folder.partition("__")[0]
        for folder, p in zip(everything.folders, everything.packages, strict=True)
        if any(q.code == "name-case" for q in lint(p))
    )
    assert counts == {"AmnadTaowsoam": 36, "ComposioHQ": 30, "sickn33": 31, "letta-ai": 1}


def test_45_lower_case_files_are_45_skills(processes, tmp_path):
    """None is missing, each is warned of (laurigates/claude-plugins#1606)."""
    for number in range(45):
        put(tmp_path / "plugins" / f"p{number % 5}" / f"s{number}", file="skill.md")
    done = validate(processes, tmp_path, "plugins", code=0)
    assert done.json["skills"] == 45
    assert Counter(row[2:] for row in problems(done)) == {("skill-file-case", "warning"): 45}


@pytest.mark.parametrize("file", ["SKILL.md", "skill.md", "Skill.md", "SKILL.MD"])
def test_case_decides_nothing_but_a_warning(processes, tmp_path, file):
    """What works on one disk works on another (anthropics/claude-code#16983)."""
    put(tmp_path / "a", file=file)
    done = validate(processes, tmp_path, "a", code=0)
    assert done.json["skills"] == 1
    expected = [] if file == "SKILL.md" else [(f"a/{file}", 0, "skill-file-case", "warning")]
    assert problems(done) == expected


def test_links_to_skills_are_followed_and_dangling_ones_ignored(processes, tmp_path):
    """A linked folder is a skill, a broken link is nothing (vercel-labs/skills#965)."""
    put(tmp_path / "lib" / "node_modules" / "a")
    (tmp_path / "lib" / "a").symlink_to("node_modules/a", target_is_directory=True)
    (tmp_path / "lib" / "gone").symlink_to("nowhere", target_is_directory=True)
    (tmp_path / "lib" / "loop").symlink_to(".", target_is_directory=True)
    done = validate(processes, tmp_path, "lib", code=0)
    assert done.json["skills"] == 1
    assert problems(done) == []


def test_a_template_in_assets_is_no_skill(processes, tmp_path):
    """`{setup-skill-name}` is a file of its skill (bmad-code-org/BMAD-METHOD#2255)."""
    skill = put(tmp_path / "a")
    put(skill / "assets" / "setup", "name: '{setup-skill-name}'\ndescription: x\n")
    done = validate(processes, tmp_path, ".", code=0)
    assert done.json["skills"] == 1
    assert "assets/setup/SKILL.md" in discover(tmp_path).packages[0].files


def test_what_two_ways_lead_to_counts_once(processes, tmp_path):
    """Nested paths, a folder link and a file link are one skill (initializ/forge#512)."""
    put(tmp_path / "lib" / "a")
    (tmp_path / "lib" / "b").symlink_to("a", target_is_directory=True)
    (tmp_path / "lib" / "c").mkdir()
    (tmp_path / "lib" / "c" / "SKILL.md").symlink_to("../a/SKILL.md")
    done = validate(processes, tmp_path, "lib", "lib/a", "lib/b", "lib/a/SKILL.md", code=0)
    assert done.json["skills"] == 1
    assert problems(done) == [("lib/c", 0, "link-twice", "warning")]


def test_one_skill_under_two_names_is_a_copy(processes, tmp_path):
    """A copy under a hash is reported as such (anthropics/claude-code#62708)."""
    put(tmp_path / "a")
    put(tmp_path / "cache" / "3f2a9c", "name: a\ndescription: Does a.\n")
    (tmp_path / "cache" / "3f2a9c" / "SKILL.md").write_bytes((tmp_path / "a/SKILL.md").read_bytes())
    put(tmp_path / "other" / "a", "name: a\ndescription: Another.\n")
    done = validate(processes, tmp_path, "a", "cache", "other", code=4)
    found = problems(done)
    assert ("cache/3f2a9c", 0, "copy", "warning") in found
    assert ("other/a", 0, "name-twice", "error") in found
    twice = {p["path"]: p["message"] for p in done.json["problems"] if p["line"] == 0}
    assert twice["cache/3f2a9c"].startswith("this is a byte-identical copy of a;")
    assert twice["other/a"].startswith("a has the same name;")


def test_every_report_about_reading_is_covered():
    """Each parse and discover row of the shared list is named by a test."""
    listed = SHARED / "cases" / "public-reports.jsonl"
    if not listed.is_file():
        pytest.skip("the shared list is not here")
    rows = [json.loads(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    refs = [row["ref"] for row in rows if row["group"] in ("parse", "discover")]
    here = Path(__file__).resolve().parents[1]
    text = "\n".join(path.read_text(encoding="utf-8") for path in here.rglob("test_*.py"))
    text = re.sub(r"\s+", " ", text)
    assert len(refs) == 19
    assert [ref for ref in refs if ref not in text] == []
