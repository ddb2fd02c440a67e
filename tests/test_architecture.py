"""The shape of the code: which way imports run, and how fast the command starts."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import skillforge

ROOT = Path(skillforge.__file__).parent
LAYERS = {
    "errors": set(),
    "core": {"errors", "core"},
    "ports": {"errors", "core"},
    "workflows": {"errors", "core", "ports", "workflows"},
    "adapters": {"errors", "core", "ports"},
    "analytics": {"errors", "core", "ports"},
    "report": {"errors", "core", "ports", "report"},
    "api": {"errors", "core", "ports", "workflows", "adapters", "analytics", "report", "cli"},
    "cli": {"errors", "core", "ports", "workflows", "adapters", "analytics", "report", "cli"},
}
CORE_MAY_USE = {"numpy", "scipy", "yaml", "markdown_it", "jinja2"}
HEAVY = {
    "torch",
    "litellm",
    "faiss",
    "ray",
    "xllamacpp",
    "sentence_transformers",
    "sklearn",
    "polars",
}


def modules():
    """Return every module of the package with its layer."""
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        layer = relative.parts[0].removesuffix(".py")
        if layer not in ("__init__", "__main__") and "_shipped" not in relative.parts:
            yield path, layer


def imports(path, *, top_level=False):
    """Yield the modules that a file imports; only those at its top level if asked."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_run_one_way():
    """No layer imports one that stands above or beside it."""
    wrong = []
    for path, layer in modules():
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "skillforge" and len(parts) > 1 and parts[1] in LAYERS:
                own = layer == "adapters" and parts[1] == "adapters"
                if parts[1] not in LAYERS[layer] and not (own and is_own_part(path, parts)):
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def is_own_part(path, parts):
    """Whether an adapter imports a helper of its own: a module named after a part of it."""
    return (path.name, parts[2:3]) in OWN_PARTS


OWN_PARTS = [
    ("files.py", ["skill_folders"]),
    ("files.py", ["folder_writes"]),
    ("files.py", ["stat_cache"]),
    ("suites.py", ["suite_code"]),
    ("suites.py", ["suite_tables"]),
    ("suite_tables.py", ["worker_table"]),
    ("agent_worker.py", ["agent_tools"]),
    ("local_model.py", ["local_answer"]),
    ("models.py", ["model_prices"]),
    ("blobs.py", ["codec"]),
    ("ledger.py", ["blobs"]),
    ("ledger.py", ["codec"]),
    ("ledger.py", ["tables"]),
    ("salvage.py", ["blobs"]),
    ("salvage.py", ["ledger"]),
]
"""Adapters cut in two for length."""


def test_core_is_pure():
    """The core imports the standard library and the few pure packages it is allowed."""
    wrong = []
    for path, layer in modules():
        if layer == "core":
            for name in imports(path):
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names | CORE_MAY_USE | {"skillforge"}:
                    wrong.append(f"{path.name} imports {name}")
                if top in {"random", "time", "socket", "subprocess", "sqlite3", "pathlib", "os"}:
                    wrong.append(f"{path.name} imports {name}")
    assert not wrong


def test_heavy_libraries_are_imported_where_they_are_used():
    """No module imports a heavy library at its top level."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, _ in modules()
        for name in imports(path, top_level=True)
        if name.split(".")[0] in HEAVY
    ]
    assert not wrong


def test_modules_stay_short():
    """No module is longer than 400 lines."""
    long = {p.name: n for p, _ in modules() if (n := len(p.read_text().splitlines())) > 400}
    assert not long


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_the_command_starts_without_loading_the_world(arguments):
    """`--version` and `--help` load none of the heavy libraries, nor numpy."""
    code = (
        "import sys; from skillforge.cli.main import run; "
        f"run({arguments!r}); print([m for m in {sorted(HEAVY | {'numpy'})!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stderr == ""
