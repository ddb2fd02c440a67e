"""The wheel works where there is no checkout: it holds what the demo needs, and the demo runs."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import small_project
from support.loopback import LoopbackServer

from skillforge import __version__

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel of this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out))
    done = subprocess.run([*build, str(CHECKOUT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A new environment with the wheel in it; dependencies come from the present one."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False, symlinks=True)
    # A path in a .pth file is not searched for .pth files: the editable install stays outside.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = (sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install")
    options = ("--quiet", "--no-deps", "--no-index", "--force-reinstall", "--ignore-installed")
    subprocess.run([*pip, *options, str(wheel)], check=True, capture_output=True, text=True)
    return home


@pytest.fixture
def outside(installed, tmp_path) -> Iterator:
    """Return a function that runs a program of the new environment outside the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    environment |= {"OPENAI_API_KEY": "test"}

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(installed / "bin" / program), *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_wheel_holds_the_seed_library_and_no_tests(wheel):
    """Skills and suites travel inside; tests, notebooks and benchmarks stay outside."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"skillforge", f"skillforge_evolve-{__version__}.dist-info"}
    shipped = {name for name in names if name.startswith("skillforge/_shipped/")}
    for skill in (CHECKOUT / "skills").glob("*/SKILL.md"):
        assert f"skillforge/_shipped/skills/{skill.parent.name}/SKILL.md" in shipped
    assert "skillforge/_shipped/suites/desk/suite.toml" in shipped
    assert "skillforge/_shipped/suites/desk/tasks.jsonl" in shipped
    assert "skillforge/py.typed" in names
    assert not [name for name in names if "__pycache__" in name or "/test_" in name]
    (metadata,) = (name for name in names if name.endswith("/METADATA"))
    assert f"Version: {__version__}" in zipfile.ZipFile(wheel).read(metadata).decode()


def test_the_installed_command_is_not_the_checkout(outside, installed):
    """The command answers with its version, from the files of the wheel."""
    assert outside("skillforge", "--version").stdout == f"skillforge, version {__version__}\n"
    where = outside("python", "-c", "import skillforge; print(skillforge.__file__)").stdout
    assert Path(where.strip()).is_relative_to(installed)


def test_the_shipped_skills_are_valid(outside, installed):
    """`validate` accepts every skill of the installed seed library."""
    (shipped,) = installed.glob("lib/python*/site-packages/skillforge/_shipped/skills")
    done = outside("skillforge", "validate", str(shipped), "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["skills"] == len(list((CHECKOUT / "skills").glob("*/SKILL.md")))


def test_the_demo_runs_from_the_wheel(outside, tmp_path):
    """With a model whose price is listed, the demo runs within its caps to packs that verify."""
    with LoopbackServer(small_project.answer) as server:
        model = ("--model", "openai/gpt-4o-mini", "--api-base", server.url)
        call = ("demo", "--json", *model, "--dir", "demo", "--max-rollouts", "20", "--max-usd", "1")
        done = outside("skillforge", *call)
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == 20
    night = json.loads(done.stdout)
    assert night["spend"]["rollouts"] == 20
    assert 0 < night["spend"]["usd"] < 1
    assert "20 rollouts" in night["stopped_by"]
    for pack in night["packs"]:
        where = str(tmp_path / pack["path"])
        assert outside("skillforge", "verify", where, "--digest", pack["digest"]).returncode == 0
    assert outside("skillforge", "replay", "--project", "demo").returncode == 0
