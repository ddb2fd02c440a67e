"""Limited subprocesses: whatever a program does, it ends, leaves nothing, and reaches nothing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.programs import DETACH, marker, needs_namespaces, python, run, running

from skillforge.adapters.limited import LimitedPrograms
from skillforge.core.program import SCRATCH, Finished, Limits, Program
from skillforge.errors import ConfigError

BOTH = pytest.mark.parametrize(
    "programs",
    [LimitedPrograms(), LimitedPrograms(namespaces=False)],
    ids=["namespaces", "without"],
)
"""Each behaviour holds with namespaces and without, unless only they can bring it about."""
POLLS = 6000
ROOT = Path(__file__).parents[3]


def polled(condition: Callable[[], bool]) -> None:
    """Wait until something that must come about has come about."""
    for _ in range(POLLS):
        if condition():
            return
        time.sleep(0.01)
    assert condition()


def folder_of(done: Finished) -> Path:
    """Return the fresh folder of a program whose first line on stdout says where it worked."""
    return Path(done.stdout.decode().split("\n")[0]).parent


@BOTH
def test_a_program_that_ends_well(programs: LimitedPrograms) -> None:
    """Output, exit code and files come back, text arguments arrive as they are, the folder goes."""
    code = (
        "import os, sys; print(os.getcwd()); print(sys.argv[1:]); open('made', 'w').write('x'); "
        "os.mkdir('closed', 0); os.mkfifo('pipe'); os.symlink('/etc/passwd', 'link')"
    )
    hostile = ["$(touch /tmp/x); `id`", "two words", "-- \"quoted\" 'text'\n", f"{SCRATCH}/tmp"]

    done = run(*python(code, *hostile), programs=programs, files={"workspace/given": b"\xff\x00"})

    folder = folder_of(done)
    assert (done.exit_code, done.stopped, done.host, done.left) == (0, "", "", 0)
    assert str([*hostile[:3], f"{folder}/tmp"]) in done.stdout.decode()
    assert done.files == {"given": b"\xff\x00", "made": b"x"}
    assert not folder.exists()


def test_what_kept_it_in_is_said() -> None:
    """The report names the confinement, so that nobody takes one for the other."""
    assert run(*python("")).confinement in ("namespaces", "subreaper", "process group")
    notes: list[str] = []
    weaker = LimitedPrograms(namespaces=False, note=notes.append)

    for _ in range(2):
        assert run(*python(""), programs=weaker).confinement != "namespaces"
    assert len(notes) == 1
    assert "can read and write what you can" in notes[0]


@BOTH
def test_a_program_that_fails(programs: LimitedPrograms) -> None:
    """The exit code, the end of stderr and the signal are told."""
    failed = run(*python("import sys; sys.exit('one\\ntwo')"), programs=programs)
    killed = run(*python("import os; os.kill(os.getpid(), 15)"), programs=programs)

    assert (failed.exit_code, failed.complaint(Limits())) == (1, "exit code 1: two")
    assert (killed.exit_code, killed.complaint(Limits())) == (-15, "ended by signal 15")


@BOTH
def test_a_program_that_hangs(programs: LimitedPrograms) -> None:
    """The timeout ends a program that takes no notice of polite signals."""
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)"
    mark = marker()

    done = run(*python(code, mark), programs=programs, timeout=0.5)

    assert done.stopped == "timeout"
    assert "longer than 0.5 s" in done.complaint(Limits(timeout=0.5))
    assert running(mark) == []


@BOTH
@pytest.mark.parametrize("then", ["", "while True: print('y' * 999)"], ids=["ends", "is ended"])
def test_a_program_that_detaches(programs: LimitedPrograms, then: str) -> None:
    """What a program forks into a session of its own ends with it, and is counted if it ended."""
    mark = marker()

    done = run(*python(DETACH + then, mark), programs=programs, output_kib=1)

    assert running(mark) == []
    assert done.stdout.startswith(b"detached\n")
    assert (done.stopped, done.left) == (("output", 0) if then else ("", 1))


@BOTH
def test_zombies(programs: LimitedPrograms) -> None:
    """Children that nobody waited for, and orphans, keep nothing from ending."""
    code = "import os\nfor _ in range(20):\n    os.fork() or os._exit(0)\nprint('done')"

    done = run(*python(code), programs=programs)

    assert (done.exit_code, done.stdout) == (0, b"done\n")


@BOTH
def test_a_flood(programs: LimitedPrograms) -> None:
    """A program that floods stdout is cut at the limit and ended; of stderr the end is kept."""
    out = run(*python("while True: print('y' * 999)"), programs=programs, output_kib=64)
    err = run(
        *python("import sys; [print('e' * 99, file=sys.stderr) for _ in range(99999)]; print(1)"),
        programs=programs,
    )

    assert (out.stopped, len(out.stdout)) == ("output", 64 * 1024)
    assert "more than 64 KiB to stdout" in out.complaint(Limits(output_kib=64))
    assert (err.exit_code, err.stdout) == (0, b"1\n")
    assert len(err.stderr) <= 4096


@BOTH
@pytest.mark.parametrize(
    "code",
    [
        "f = open('big', 'wb')\nwhile True: f.write(bytes(10**6)); f.flush()",
        "i = 0\nwhile True: open(f'f{i}', 'wb').write(bytes(10**5)); i += 1",
        "i = 0\nwhile True: open(f'f{i}', 'wb').truncate(10**6); i += 1",
        "i = 0\nwhile True: open(f'../home/f{i}', 'wb').write(bytes(10**5)); i += 1",
    ],
    ids=["one file", "many files", "holes", "home"],
)
def test_a_full_disk(programs: LimitedPrograms, code: str) -> None:
    """A program that fills its folder, wherever in it, is ended, and its files are dropped."""
    done = run(*python(code), programs=programs, disk_mib=4)

    said = done.complaint(Limits(disk_mib=4))
    assert (done.stopped == "disk" and "more than 4 MiB" in said) or "File too large" in said
    assert sum(map(len, done.files.values())) <= 4 << 20


HOLD = """
import os, time
if os.fork() == 0:
    kept = b"x" * (60 << 20)
    time.sleep(3600)
kept = b"x" * (60 << 20)
time.sleep(3600)
"""
"""Two processes that hold 60 MiB each and give nothing back."""


@BOTH
def test_memory(programs: LimitedPrograms) -> None:
    """What a program and its children hold together is limited; passing it is their own failure."""
    done = run(*python(HOLD), programs=programs, memory_mib=100)
    grows = run(*python("x = []\nwhile True: x.append(b'x' * 10**6)"), memory_mib=100)

    assert (done.stopped, done.host) == (grows.stopped, grows.host) == ("memory", "")
    assert "more than 100 MiB of memory" in done.complaint(Limits(memory_mib=100))


@BOTH
@pytest.mark.parametrize(
    ("code", "stopped"),
    [
        ("[os.fork() or time.sleep(1.5) for _ in 'abc']", ""),
        ("more = mmap.mmap(-1, 90 << 20); more.write(b'x' * (90 << 20)); time.sleep(60)", "memory"),
        ("[open(str(i), 'w') for i in range(3000)]; more = b'y' * (90 << 20); time.sleep(60)",
         "memory"),
    ],
    ids=["shared by forks", "shared memory", "beside many files"],
)  # fmt: skip
def test_memory_that_is_shared(programs: LimitedPrograms, code: str, stopped: str) -> None:
    """A page counts once, whoever shares it, and however long the folder takes to look at."""
    start = "import mmap, os, time; kept = b'x' * (60 << 20); "

    done = run(*python(start + code), programs=programs, memory_mib=130)

    assert (done.stopped, done.host) == (stopped, "")


@BOTH
def test_memory_that_is_only_reserved(programs: LimitedPrograms) -> None:
    """Address space that nobody has written to is no memory: runtimes of harnesses reserve much."""
    code = "import mmap; kept = mmap.mmap(-1, 8 << 30, mmap.MAP_PRIVATE); print(len(kept) >> 30)"

    done = run(*python(code), programs=programs, memory_mib=100)

    assert (done.exit_code, done.stdout, done.stopped) == (0, b"8\n", "")


@BOTH
def test_the_environment(programs: LimitedPrograms, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable reaches a program but the few, and those that are listed; HOME is its own."""
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("OTHER_API_KEY", "wanted")
    code = "import os; print(os.getcwd()); print(dict(os.environ))"

    done = run(*python(code), programs=programs, environment=("OTHER_API_KEY",))

    said = done.stdout.decode()
    assert "secret" not in said
    assert "wanted" in said
    assert f"'HOME': '{folder_of(done)}/home'" in said
    assert f"'TMPDIR': '{folder_of(done)}/tmp'" in said


def test_secrets_of_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside namespaces no other process can be seen, so that /proc tells no secret."""
    needs_namespaces()
    environment = os.environ | {"SOME_API_KEY": f"secret-{marker()}"}
    code = """
import glob
for path in glob.glob('/proc/*/environ'):
    try:
        print(open(path, 'rb').read())
    except OSError:
        pass  # what cannot be read tells nothing
"""
    sleeper = [sys.executable, "-c", "input()"]
    with subprocess.Popen(sleeper, env=environment, stdin=subprocess.PIPE) as other:
        done = run(*python(code))
        other.communicate(b"\n")

    assert b"PATH" in done.stdout
    assert b"SOME_API_KEY" not in done.stdout


def test_nothing_outside_can_be_written(tmp_path: Path) -> None:
    """Inside namespaces, absolute paths, parent folders and links lead to nothing writable."""
    needs_namespaces()
    (tmp_path / "mine").write_text("as it was")
    code = f"""
import os
os.symlink({str(tmp_path)!r}, 'link')
for path in [{str(tmp_path / "mine")!r}, 'link/mine', 'link/new', '../../escaped-{os.getpid()}',
             os.path.expanduser('~/allowed')]:
    try:
        open(path, 'w').write('changed')
        print('wrote', path)
    except OSError as error:
        print(error.strerror)
os.system('umount /proc; mount -o remount,rw /')
open('/dev/null', 'w').write('x')
"""
    done = run(*python(code))

    lines = done.stdout.decode().splitlines()
    assert (done.exit_code, lines[:4]) == (0, ["Read-only file system"] * 4)
    assert lines[4].startswith("wrote")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"mine": "as it was"}


@BOTH
def test_home_is_private(programs: LimitedPrograms) -> None:
    """What a program leaves in its HOME is gone with it, and the user's HOME is as it was."""
    name = f".{marker()}"
    code = f"import os; open(os.path.expanduser('~/{name}'), 'w').write('x')"

    assert run(*python(code), programs=programs).exit_code == 0
    assert not (Path.home() / name).exists()


def test_hidden_folders(tmp_path: Path) -> None:
    """What is hidden from a program seems empty to it, unless the interpreter itself lies there."""
    needs_namespaces()
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "SKILL.md").write_text("candidate")
    (tmp_path / "library" / "within").mkdir()
    folders = ("library", "library/within", "none")
    hidden = LimitedPrograms(hidden=(*(tmp_path / f for f in folders), Path(sys.prefix)))

    done = run(
        *python(f"import os; print(os.listdir({str(tmp_path / 'library')!r}))"), programs=hidden
    )

    assert (done.stdout, done.confinement) == (b"[]\n", "namespaces")


def test_the_network(tmp_path: Path) -> None:
    """Inside namespaces the network can be taken away, but not a program's own loopback."""
    needs_namespaces()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outside = f"""
import socket
try:
    socket.create_connection(('127.0.0.1', {port}), 5).close()
    print('reached')
except OSError:
    print('refused')
with socket.create_server(('127.0.0.1', 0)) as own:
    socket.create_connection(own.getsockname(), 5).close()
"""
        off = run(*python(outside), network=False)
        on = run(*python(outside), network=True)

    assert (off.exit_code, off.stdout) == (0, b"refused\n")
    assert (on.exit_code, on.stdout) == (0, b"reached\n")


def test_identity(tmp_path: Path) -> None:
    """A program is known by its bytes, and one of a Node package by its manifest as well.

    Wrappers of such packages, links to a file that starts a binary elsewhere, do not change with
    the version. Public report covered: EvolvingLMMs-Lab/lmms-eval#1217.
    """
    package = tmp_path / "node_modules" / "harness"
    (package / "bin").mkdir(parents=True)
    start, link = package / "bin" / "start.js", tmp_path / "harness"
    start.write_text("#!/bin/sh\n")
    start.chmod(0o755)
    link.symlink_to(start)
    seen = [LimitedPrograms().identity(str(link))]
    for version in ("1", "2", "1"):
        (package / "package.json").write_text(f'{{"version": "{version}"}}')
        seen.append(LimitedPrograms().identity(str(link)))

    assert seen[0] == hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert seen[1] == seen[3]
    assert len(set(seen)) == 3
    assert LimitedPrograms().identity("no-such-program-here") == ""


def test_programs_that_cannot_be_run(tmp_path: Path) -> None:
    """A program that is not there is an error that names it and says what to do."""
    (tmp_path / "plain").write_text("no program")
    for name in ("no-such-program-here", "./absent", str(tmp_path / "plain")):
        with pytest.raises(ConfigError, match=r"cannot be run.*install it"):
            run(name)


def test_long_arguments() -> None:
    """An argument of 100 kB arrives; what the system cannot start is no fault of the program."""
    fits = run(*python("import sys; print(len(sys.argv[1]))", "é" * 50_000))
    too_long = run(*python("", "x" * 10**6))

    assert fits.stdout == b"50000\n"
    assert (too_long.exit_code, too_long.host) == (None, "Argument list too long")


@BOTH
def test_an_interrupt(programs: LimitedPrograms) -> None:
    """Cancelling ends the program, and what it has detached, before the folder is removed."""
    mark = marker()
    program = Program(argv=tuple(python(DETACH + "time.sleep(3600)", mark)))

    async def cancelled() -> None:
        task = asyncio.create_task(programs.run(program))
        for _ in range(POLLS):
            if len(running(mark)) >= 2:
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("the program never started")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert running(mark) == []


@BOTH
def test_the_owner_is_killed(programs: LimitedPrograms, tmp_path: Path) -> None:
    """After `kill -9` of whoever asked for it, no process and no folder stays behind."""
    mark = marker()
    owner = textwrap.dedent(f"""
        import asyncio
        from skillforge.adapters.limited import LimitedPrograms
        from skillforge.core.program import Program
        programs = LimitedPrograms(namespaces={programs.namespaces})
        argv = {tuple(python(DETACH + "time.sleep(3600)", mark))!r}
        asyncio.run(programs.run(Program(argv=argv)))
    """)
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", owner], env=environment) as process:
        polled(lambda: len({*running(mark)} - {process.pid}) >= 2)
        process.send_signal(signal.SIGKILL)

    polled(lambda: not running(mark) and not any(tmp_path.iterdir()))


def test_a_repository_around_it(tmp_path: Path) -> None:
    """A fresh folder inside a repository would show its files to the program, and is refused."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "tmp").mkdir()
    code = """
import asyncio
from skillforge.adapters.limited import LimitedPrograms
from skillforge.core.program import Program
asyncio.run(LimitedPrograms().run(Program(argv=("true",))))
"""
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )

    assert "is a git repository" in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def on_a_machine(setup: str, code: str, tmp_path: Path) -> str:
    """Run some Python where a shell command has set up a machine; return what it printed."""
    needs_namespaces()
    if shutil.which("unshare") is None:
        pytest.skip("such a machine is made by `unshare`, which is not here")
    driver = f"""
import asyncio, sys
from skillforge.adapters.limited import LimitedPrograms
from skillforge.core.program import Program
argv = (sys.executable, "-I", "-S", "-c", {code!r})
done = asyncio.run(LimitedPrograms(note=print).run(Program(argv=argv)))
print(done.exit_code, done.confinement, done.host)
"""
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{setup} && "$@"']
    done = subprocess.run(
        [*inside, "sh", sys.executable, "-c", driver],
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_machine_whose_disk_is_full(tmp_path: Path) -> None:
    """A program that fails for want of space on the machine says nothing about the program."""
    write = "open('big', 'wb').write(bytes(10**7))"

    said = on_a_machine(f"mount -t tmpfs -o size=2m tmpfs {tmp_path}", write, tmp_path)

    assert said == "1 namespaces out of disk\n"


def test_a_system_that_refuses_namespaces(tmp_path: Path) -> None:
    """The program runs all the same, and what is weaker is said."""
    said = on_a_machine("echo 0 > /proc/sys/user/max_user_namespaces", "", tmp_path)

    assert "this system gives programs no namespaces" in said
    assert said.endswith("0 subreaper \n")
