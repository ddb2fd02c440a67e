"""Functions that a suite names: found in its folder first, run without holding anything up."""

import asyncio
import colorsys
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from skillforge.adapters.functions import Function, load_function
from skillforge.adapters.suite_code import read_code
from skillforge.core.task import WorkerSpec
from skillforge.errors import ConfigError


def call(function, *args):
    """Run a loaded function."""
    return asyncio.run(function.call(*args))


def load(reference: str, folder: Path) -> Function:
    """Load a function of the suite in a folder as it is now."""
    code = read_code(folder, WorkerSpec(kind="python", function=reference), ())
    assert code is not None
    return load_function(reference, code, "function")


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

    assert call(load("this:work", folder)) == "mine"
    assert sys.modules["colorsys"] is colorsys  # everybody else keeps theirs
    assert call(load("textwrap:dedent", folder), " a") == "a"


def test_suites_do_not_see_each_others_modules(tmp_path):
    """Two suites whose modules have the same names each get their own, helpers too."""
    one, two = (
        write(
            tmp_path / name, work="import aid\ndef work(): return aid.NAME", aid=f"NAME = {name!r}"
        )
        for name in ("one", "two")
    )

    first, second = (load("work:work", folder) for folder in (one, two))

    assert (call(first), call(second)) == ("one", "two")
    assert first.source != second.source


def test_an_edit_is_seen_and_changes_the_source(tmp_path):
    """Within one process, as in a notebook, edited code is loaded anew; so are its helpers."""
    folder = write(tmp_path, work="import aid\ndef work(): return aid.N", aid="N = 1")
    before = load("work:work", folder)
    again = load("work:work", folder)
    write(folder, aid="N = 22")
    after = load("work:work", folder)

    assert (call(before), call(again), call(after)) == (1, 1, 22)
    assert before.source == again.source != after.source


def test_what_runs_is_what_was_read(tmp_path):
    """Once a suite is read, and may be trusted, nothing that happens to its folder runs.

    Neither the module, nor a helper, nor one that is imported when the function is called.
    """
    work = "import aid\ndef work():\n    import late\n    return aid.N, late.N"
    folder = write(tmp_path, work=work, aid="N = 1", late="N = 1")
    code = read_code(folder, WorkerSpec(kind="python", function="work:work"), ())
    write(folder, work="def work(): return 'other'", aid="N = 2", late="N = 2")
    function = load_function("work:work", code, "function")
    shutil.rmtree(folder)

    assert call(function) == (1, 1)


def test_a_function_finds_the_suites_files_beside_it(tmp_path):
    """Data is read from where the code lies, executables stay so, and the answers are not there."""
    code = (
        "import os; from pathlib import Path\n"
        "HERE = Path(__file__).parent\n"
        "def work(): return sorted(\n"
        "    (p.relative_to(HERE).as_posix(), os.access(p, os.X_OK) and p.read_text())\n"
        "    for p in HERE.rglob('*') if p.suffix in ('.txt', '.jsonl')\n"
        ")\n"
    )
    folder = write(tmp_path, work=code)
    (folder / "data").mkdir()
    for name, mode in (("data/run.txt", 0o755), ("plain.txt", 0o644), ("tasks.jsonl", 0o644)):
        (folder / name).write_text("here")
        (folder / name).chmod(mode)

    assert call(load("work:work", folder)) == [("data/run.txt", "here"), ("plain.txt", False)]


def test_another_process_gets_the_same_code(tmp_path):
    """A function that is sent elsewhere takes its code along; the folder need not be there."""
    folder = write(tmp_path, work="import aid\ndef work(): return aid.N", aid="N = 1")
    function = load("work:work", folder)
    (tmp_path / "sent").write_bytes(pickle.dumps(function))
    write(folder, aid="N = 2")
    there = (
        "import asyncio, pickle, sys; from pathlib import Path\n"
        "function = pickle.loads(Path(sys.argv[1]).read_bytes())\n"
        "print(asyncio.run(function.call()), function.source)"
    )
    done = subprocess.run(
        [sys.executable, "-c", there, str(tmp_path / "sent")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["1", function.source]


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
        load(reference, folder)

    message = str(caught.value)
    assert message.startswith("[worker] function")
    assert all(part.format(folder=folder) in message for part in parts)


def test_a_plain_function_runs_beside_the_event_loop(tmp_path):
    """While it waits, other work goes on; what it raises arrives where it is awaited."""
    code = "def work(begun, go):\n    begun.set()\n    go.wait()\n    raise StopIteration(7)"
    function = load("work:work", write(tmp_path, work=code))
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
    function = load("work:work", write(tmp_path, work=code))

    async def run() -> str:
        with pytest.raises(SystemExit, match="bye"):
            await function.call()
        return "went on"

    assert asyncio.run(run()) == "went on"


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("raised", ["asyncio.CancelledError", "GeneratorExit", "BaseException"])
def test_what_a_function_raises_cancels_nobody(tmp_path, kind, raised):
    """A cancellation of its own making is an error of the function, not of whoever waits."""
    code = f"import asyncio\n{kind} work(): raise {raised}('mine')"
    function = load("work:work", write(tmp_path, work=code))

    async def run() -> str:
        with pytest.raises(RuntimeError, match=f"{raised.removeprefix('asyncio.')}: mine"):
            await function.call()
        return "went on"

    assert asyncio.run(run()) == "went on"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_is_called_off_with_whoever_waits(tmp_path, kind):
    """A cancellation from outside stays one."""
    waiting = {"def": "go.wait()", "async def": "await asyncio.sleep(3600)"}[kind]
    code = f"import asyncio\n{kind} work(begun, go):\n    begun.set()\n    {waiting}"
    function = load("work:work", write(tmp_path, work=code))
    begun, go = threading.Event(), threading.Event()

    async def run() -> None:
        working = asyncio.create_task(function.call(begun, go))
        await asyncio.to_thread(begun.wait)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    try:
        asyncio.run(run())
    finally:
        go.set()


def test_an_asynchronous_function_runs_in_the_event_loop(tmp_path):
    """It may be asynchronous itself, or return something to await."""
    code = "async def work(): return 'a'\ndef other(): return work()"
    folder = write(tmp_path, work=code)

    assert call(load("work:work", folder)) == "a"
    assert call(load("work:other", folder)) == "a"
