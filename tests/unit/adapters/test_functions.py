"""Functions that a suite names: found in its folder first, run without holding anything up."""

import asyncio
import colorsys
import pickle
import sys
import threading
from pathlib import Path

import pytest

from skillforge.adapters.functions import load_function
from skillforge.errors import ConfigError


def call(function, *args):
    """Run a loaded function."""
    return asyncio.run(function.call(*args))


def write(folder: Path, **files: str) -> Path:
    """Write modules into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def test_the_folder_of_the_suite_comes_first(tmp_path):
    """A module of the suite wins over an installed one of the same name."""
    code = "import colorsys\ndef work(): return colorsys.NAME"
    folder = write(tmp_path, this=code, colorsys="NAME = 'mine'")

    assert call(load_function("this:work", folder, "function")) == "mine"
    assert sys.modules["colorsys"] is colorsys  # everybody else keeps theirs
    assert call(load_function("textwrap:dedent", folder, "function"), " a") == "a"


def test_suites_do_not_see_each_others_modules(tmp_path):
    """Two suites whose modules have the same names each get their own, helpers too."""
    one, two = (
        write(
            tmp_path / name, work="import aid\ndef work(): return aid.NAME", aid=f"NAME = {name!r}"
        )
        for name in ("one", "two")
    )

    first, second = (load_function("work:work", folder, "function") for folder in (one, two))

    assert (call(first), call(second)) == ("one", "two")
    assert first.source != second.source


def test_an_edit_is_seen_and_changes_the_source(tmp_path):
    """Within one process, as in a notebook, edited code is loaded anew; so are its helpers."""
    folder = write(tmp_path, work="import aid\ndef work(): return aid.N", aid="N = 1")
    before = load_function("work:work", folder, "function")
    again = load_function("work:work", folder, "function")
    write(folder, aid="N = 22")
    after = load_function("work:work", folder, "function")

    assert (call(before), call(again), call(after)) == (1, 1, 22)
    assert before.source == again.source != after.source


def test_another_process_gets_the_same_code_or_none(tmp_path):
    """A function that is sent elsewhere is imported there; code that differs is refused."""
    folder = write(tmp_path, work="def work(): return 1")
    sent = pickle.dumps(load_function("work:work", folder, "function"))

    assert call(pickle.loads(sent)) == 1
    write(folder, work="def work(): return 2")
    with pytest.raises(ConfigError, match="differs from the code that the command has loaded"):
        pickle.loads(sent)


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        (
            "nothing:work",
            ["module 'nothing' cannot be imported", "ModuleNotFoundError", "{folder}"],
        ),
        ("broken:work", ["module 'broken' cannot be imported", "ZeroDivisionError"]),
        ("leaving:work", ["module 'leaving' cannot be imported", "SystemExit"]),
        ("fine:wrok", ["has no function 'wrok'; it has: work"]),
        ("fine:NAME", ["has no function 'NAME'"]),
        ("fine", ["is 'fine'; expected module:function"]),
    ],
)
def test_what_cannot_be_imported_is_named(tmp_path, reference, parts):
    """The message has the setting, the module, where it was looked for, and what went wrong."""
    folder = write(
        tmp_path,
        broken="1 / 0",
        leaving="import sys; sys.exit(1)",
        fine="NAME = 1\ndef work(): pass",
    )

    with pytest.raises(ConfigError) as caught:
        load_function(reference, folder, "function")

    message = str(caught.value)
    assert message.startswith("[worker] function")
    assert all(part.format(folder=folder) in message for part in parts)


def test_a_plain_function_runs_beside_the_event_loop(tmp_path):
    """While it waits, other work goes on; what it raises arrives where it is awaited."""
    code = "def work(begun, go):\n    begun.set()\n    go.wait()\n    raise StopIteration(7)"
    function = load_function("work:work", write(tmp_path, work=code), "function")
    begun, go = threading.Event(), threading.Event()

    async def run() -> str:
        working = asyncio.create_task(function.call(begun, go))
        await asyncio.to_thread(begun.wait)
        go.set()
        with pytest.raises(RuntimeError, match="7"):
            await working
        return "went on"

    assert asyncio.run(run()) == "went on"


def test_leaving_the_process_is_left_to_the_caller(tmp_path):
    """A plain function that calls ``sys.exit`` ends neither its thread's process nor the loop."""
    code = "import sys\ndef work(): sys.exit('bye')"
    function = load_function("work:work", write(tmp_path, work=code), "function")

    async def run() -> str:
        with pytest.raises(SystemExit, match="bye"):
            await function.call()
        return "went on"

    assert asyncio.run(run()) == "went on"


def test_an_asynchronous_function_runs_in_the_event_loop(tmp_path):
    """It may be asynchronous itself, or return something to await."""
    code = "async def work(): return 'a'\ndef other(): return work()"
    folder = write(tmp_path, work=code)

    assert call(load_function("work:work", folder, "function")) == "a"
    assert call(load_function("work:other", folder, "function")) == "a"
