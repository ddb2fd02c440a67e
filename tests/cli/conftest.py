"""What the tests of the command line share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import small_project
from support.loopback import LoopbackServer
from support.processes import Done, ProcessServer

from skillforge.adapters.models import load_litellm
from skillforge.cli.main import run


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessServer]:
    """Where commands are started; they find a key for the loopback model."""
    with ProcessServer({"OPENAI_API_KEY": "test"}) as processes:
        yield processes


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    """One model for all tests of a file: its address is part of what identifies a rollout."""
    with LoopbackServer(small_project.answer) as server:
        yield server


@pytest.fixture
def commands_of(monkeypatch, capfd) -> Callable[[Path], Callable[..., Done]]:
    """What runs commands on a project in this process, so that the embedder is loaded once."""

    def enter(root: Path) -> Callable[..., Done]:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.chdir(root)
        load_litellm()
        capfd.readouterr()

        def call(*arguments: str) -> Done:
            code = run(list(arguments))
            out, err = capfd.readouterr()
            return Done(code=code, stdout=out, stderr=err)

        return call

    return enter
