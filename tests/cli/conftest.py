"""What the tests of the command line share."""

from collections.abc import Iterator

import pytest
from support import small_project
from support.loopback import LoopbackServer
from support.processes import ProcessServer


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
