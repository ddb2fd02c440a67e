"""What `doctor` looks at."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from support.loopback import LoopbackServer, status

from skillforge.adapters import local_model
from skillforge.adapters.doctor import PACKAGES, Check, checks
from skillforge.adapters.embedder import SentenceEmbedder, packaged_folder
from skillforge.adapters.index import open_index
from skillforge.adapters.models import LitellmModel
from skillforge.core.suite_catalog import SuiteEntry
from skillforge.errors import ConfigError


def look(tmp_path: Path, **settings) -> dict[str, Check]:
    """Return the checks by name."""
    found = checks(**{"model": "local/smollm2", "state": tmp_path / "not" / "yet", **settings})
    return {check.name: check for check in found}


def test_a_complete_machine_passes(tmp_path):
    """Here everything is installed, and nothing is written."""
    found = look(
        tmp_path,
        weights=local_model.find_weights,
        embedder_weights=lambda: packaged_folder(verify=True),
    )

    assert all(check.ok and not check.fix for check in found.values()), found
    assert {"python", "model weights", "embedder weights", "sqlite", "free disk"} <= set(found)
    assert set(PACKAGES.values()) <= set(found)
    assert list(tmp_path.iterdir()) == []


def test_missing_weights_say_what_to_do(tmp_path):
    """A check that fails carries the error's advice and hides no other check."""

    def missing(name: str) -> Path:
        raise ConfigError(f"{name}: not installed; run pip")

    found = look(tmp_path, weights=missing)

    assert not found["model weights"].ok
    assert "run pip" in found["model weights"].fix
    assert found["sqlite"].ok


def test_suites_are_shown_with_their_worker(tmp_path):
    """Each suite has its kind of worker; one that cannot be read says why."""
    sound = SuiteEntry(name="a", path="suites/a", version="1", problem="", worker="agent")
    broken = SuiteEntry(name="b", path="suites/b", version="", problem="suite.toml:3: mend it")

    found = look(tmp_path, suites=[sound, broken])

    assert found["suite a"].detail == "agent worker, suites/a"
    assert (found["suite b"].ok, found["suite b"].fix) == (False, "suite.toml:3: mend it")


def test_nothing_heavy_is_loaded_and_a_missing_package_is_named(tmp_path):
    """The checks look packages up without importing them; a missing one comes with its command."""
    code = (
        "import json, sys; from pathlib import Path\n"
        "from skillforge.adapters.doctor import PACKAGES, checks\n"
        "wanted = {**PACKAGES, 'no_such_module': 'no-such-dist'}\n"
        "found = checks(model='local/smollm2', state=Path(sys.argv[1]), packages=wanted)\n"
        "heavy = {'torch', 'faiss', 'litellm', 'xllamacpp'} & set(sys.modules)\n"
        "bad = [c.to_json() for c in found if not c.ok]\n"
        "print(json.dumps([sorted(heavy), bad]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    heavy, bad = json.loads(done.stdout)

    assert heavy == []
    assert [(check["name"], check["fix"]) for check in bad] == [
        ("no-such-dist", "run: pip install no-such-dist")
    ]


def test_an_extra_is_needed_only_where_it_is_asked_for(tmp_path):
    """Ray is shown with its version, without being imported; without it, nothing is wrong."""
    extras = {"ray": "skillforge-evolve[ray]", "no_such_module": "skillforge-evolve[none]"}
    loaded = "ray" in sys.modules
    found = look(tmp_path, extras=extras)
    asked_for = look(tmp_path, extras=extras, needed=("no_such_module",))["no_such_module (extra)"]

    assert found["ray (extra)"] == Check(name="ray (extra)", ok=True, detail=version("ray"))
    assert ("ray" in sys.modules) == loaded
    absent = found["no_such_module (extra)"]
    assert (absent.ok, absent.fix) == (True, "")
    assert absent.detail == "not installed; if you want it: pip install 'skillforge-evolve[none]'"
    assert (asked_for.ok, asked_for.fix) == (False, "run: pip install 'skillforge-evolve[none]'")


def test_keys_are_looked_up_per_provider(tmp_path):
    """A missing key is named; an unknown provider is told apart; nothing else is printed."""
    code = (
        "import json, sys; from pathlib import Path\n"
        "from skillforge.adapters.doctor import checks\n"
        "for name in ('openai/gpt-4o-mini', 'anthropic/claude-3-haiku', 'nowhere/x'):\n"
        "    found = checks(model=name, state=Path(sys.argv[1]))\n"
        "    print(json.dumps([c.to_json() for c in found if 'key' in c.name]))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "OPENAI_API_KEY": "sk-test"},
    )
    openai, anthropic, nowhere = (json.loads(line)[0] for line in done.stdout.splitlines())

    assert openai["ok"]
    assert "ANTHROPIC_API_KEY" in anthropic["fix"]
    assert nowhere["detail"] == "unknown provider"
    assert "sk-test" not in done.stdout + done.stderr


def test_a_state_folder_that_cannot_be_written_is_found():
    """Where nothing can be written, both the folder and the ledger's check fail with advice."""
    found = look(Path("/proc/self"), state=Path("/proc/self"))

    assert not found["state folder"].ok
    assert "writable" in found["state folder"].fix
    assert not found["sqlite"].ok


def test_deep_checks_use_the_real_things(tmp_path):
    """One completion, one embedding and one search are made and reported."""
    with LoopbackServer() as server:
        prices = {"input_per_million": 1, "output_per_million": 1}
        chat = LitellmModel("openai/echo", api_base=server.url, prices=prices)
        found = look(tmp_path, deep=True, chat=chat, embedder=SentenceEmbedder(), index=open_index)

    assert found["completion"].ok
    assert found["embedding"].detail == "384 numbers"
    assert found["index"].ok


def test_a_model_that_fails_is_a_failed_check(tmp_path):
    """A failing call is reported, not raised."""
    with LoopbackServer([status(401, "bad key")]) as server:
        free = {"input_per_million": 0, "output_per_million": 0}
        chat = LitellmModel("openai/echo", api_base=server.url, prices=free)
        found = look(tmp_path, deep=True, chat=chat)

    assert not found["completion"].ok
    assert "check the API key" in found["completion"].fix
