"""Nothing measured is lost: kills, interrupts, torn writes and copies of a ledger in use."""

import asyncio
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from support import batch, small_project
from support.loopback import LoopbackServer, slow
from support.processes import Command
from support.small_project import event_counts, events, write_project

from skillforge.adapters.ledger import SqliteLedger
from skillforge.adapters.ledger_check import check_log, index_problems
from skillforge.adapters.salvage import salvage
from skillforge.core.events import check_chain
from skillforge.core.records import ROLLOUTS, read_rollout
from skillforge.errors import LedgerError

PARALLEL = 4
EVAL = ("eval", "shout", "--suite", "small", "--tasks", "20", "--json")


def rollouts(path: Path) -> dict:
    """Return the rollouts of a ledger by key, once its chain and its payloads have been checked."""
    with closing(SqliteLedger(path)) as ledger:
        check_chain(ledger.events())
        for problem in ledger.damaged_blobs():
            raise LedgerError(problem)
        found = [read_rollout(event) for event in ledger.events(kinds=ROLLOUTS)]
        for rollout in found:
            ledger.get_blob(rollout.output_blob)
    by_key = {rollout.key: rollout for rollout in found}
    assert len(by_key) == len(found)  # none twice
    return by_key


@pytest.fixture
def undisturbed(tmp_path):
    """Return what a batch of 600 rollouts comes to in one go."""
    batch.run(tmp_path / "undisturbed.db", 600)
    return rollouts(tmp_path / "undisturbed.db")


# --- kills ---


@pytest.mark.slow
def test_a_batch_killed_at_a_hundred_random_moments_comes_to_the_same(processes, tmp_path):
    """Run again after each kill: the same rollouts, none twice, none lost, the chain intact."""
    count, rng, killed = 1500, random.Random(1644), 0

    def start(name: str) -> Command:
        arguments = (f"{name}.db", str(count), f"{name}.txt")
        return processes.start_call("batch", *arguments, cwd=tmp_path)

    start("first").wait()
    started = time.monotonic()
    assert start("undisturbed").wait().code == 0
    duration = time.monotonic() - started
    whole = rollouts(tmp_path / "undisturbed.db")
    assert len(whole) == count

    for name in map(str, range(1000)):
        code = None
        while code != 0:
            at = time.monotonic() + rng.uniform(0, duration)
            code = start(name).kill_when(lambda at=at: time.monotonic() >= at).code
            assert code in (0, -signal.SIGKILL)
            killed += code == -signal.SIGKILL
            found = rollouts(tmp_path / f"{name}.db")
            assert found.items() <= whole.items()
            assert counted(tmp_path / f"{name}.txt") <= found.keys()
        assert found == whole
        if killed >= 100:
            break


def counted(path: Path) -> set[str]:
    """Return the keys of the rollouts that a batch has counted, as far as it came to."""
    return set(path.read_text().split()) if path.exists() else set()


# --- interrupts ---


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_one_interrupt_finishes_what_is_in_flight(processes, tmp_path, sent):
    """After Ctrl-C, or the end of a `timeout`, no new attempt begins; what is under way is stored.

    The exit code is 130.
    """
    with LoopbackServer(lambda body: slow(0.05, small_project.answer(body))) as server:
        root = write_project(tmp_path / "project", server.url, parallel=PARALLEL)
        command = processes.start(*EVAL, cwd=root)
        ended = command.kill_when(lambda: event_counts(root)["rollout.finished"] >= 6, sent)
        assert ended.code == 130
        assert "press Ctrl-C again" in ended.stderr
        finished = event_counts(root)["rollout.finished"]
        assert 6 <= finished == len(server.requests) < 40

        assert processes.run(*EVAL, cwd=root).code in (0, 3)
        assert len(server.requests) == event_counts(root)["rollout.finished"] == 40


def test_a_polite_end_in_the_background(tmp_path):
    """SIGTERM does the same where a shell has the command pass over Ctrl-C, as after ``&``."""
    with LoopbackServer(lambda body: slow(0.05, small_project.answer(body))) as server:
        root = write_project(tmp_path / "project", server.url, parallel=PARALLEL)
        python = [sys.executable, "-m", "skillforge", *EVAL]
        shell = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *python]
        with subprocess.Popen(shell, cwd=root, stderr=subprocess.PIPE, text=True) as command:
            while event_counts(root)["rollout.finished"] < 6:
                assert command.poll() is None
                time.sleep(0.005)
            command.send_signal(signal.SIGINT)
            command.send_signal(signal.SIGTERM)
            _, said = command.communicate()
        assert command.returncode == 130
        assert "finishing what is in flight" in said
        assert "Traceback" not in said
        assert event_counts(root)["rollout.finished"] == len(server.requests) < 40


def test_a_second_interrupt_stops_at_once(processes, tmp_path):
    """Where what is in flight does not end, Ctrl-C again does; what had finished is kept.

    What was dropped is in the bill at its bound: of its cost, nothing is said to be in none.
    """
    held, number = 8, itertools.count(1)

    def answer(body):
        return slow(3600 if next(number) > held else 0, small_project.answer(body))

    with LoopbackServer(answer) as server:
        root = write_project(tmp_path / "project", server.url, price=100.0, parallel=PARALLEL)
        command = processes.start(*EVAL, cwd=root)
        while len(server.requests) < held + PARALLEL or (
            event_counts(root)["rollout.finished"] < held
        ):
            assert command.poll() is None
            time.sleep(0.005)
        command.kill(signal.SIGINT)
        while "press Ctrl-C again" not in command.stderr:
            assert command.poll() is None
            time.sleep(0.005)
        command.kill(signal.SIGINT)
        ended = command.wait()
        kept = event_counts(root)["rollout.finished"]
        server.script(small_project.answer)
        again = processes.run(*EVAL, cwd=root)
    assert ended.code == 130
    assert "Traceback" not in ended.stderr
    assert kept == held
    (warning,) = [line for line in again.stderr.splitlines() if "warning: " in line]
    dropped = f"{PARALLEL} rollouts without a record, and $0 and 0 tokens that are in no bill"
    assert dropped in warning
    assert again.json["spend"]["roles"]["worker"]["at_bound"] == PARALLEL


# --- torn writes ---


def in_use(folder: Path, count: int = 600) -> Path:
    """Return a ledger as a process that was killed leaves it: some in the file, some in the log."""
    path = folder / "live.db"
    ledger = SqliteLedger(path)
    asyncio.run(batch.bench(ledger).rollouts(batch.cells(count // 2)))
    ledger._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for upto in range(count // 2, count + 1, count // 20):
        asyncio.run(batch.bench(ledger).rollouts(batch.cells(upto)))
    copy = folder / "copy.db"
    for ending in ("", "-wal"):
        shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
    ledger.close()
    return copy


def test_a_log_cut_off_anywhere_loses_the_end_and_nothing_else(tmp_path, undisturbed):
    """A torn last write takes no other one with it; the batch then fills the gap.

    Report: huggingface/OpenEnv#1154.
    """
    source = in_use(tmp_path)
    wal = Path(f"{source}-wal").read_bytes()
    rng, found = random.Random(1154), set()
    for size in (0, 1, 40, len(wal) - 1, *(rng.randrange(len(wal)) for _ in range(8))):
        path = tmp_path / f"cut-{size}.db"
        shutil.copyfile(source, path)
        Path(f"{path}-wal").write_bytes(wal[:size])
        kept = rollouts(path)
        assert kept.items() <= undisturbed.items()
        assert len(kept) >= 300
        found.add(len(kept))
        batch.run(path, 600)
        assert rollouts(path) == undisturbed
    assert len(found) > 1


@pytest.mark.parametrize("with_log", [False, True])
def test_a_ledger_copied_while_in_use_is_a_ledger(tmp_path, undisturbed, with_log):
    """The file alone holds what had moved into it, with its log all; the batch fills the gap."""
    path = in_use(tmp_path)
    if not with_log:
        Path(f"{path}-wal").unlink()
    kept = rollouts(path)
    assert len(kept) == (600 if with_log else 300)
    assert kept.items() <= undisturbed.items()
    batch.run(path, 600)
    assert rollouts(path) == undisturbed


def whole(folder: Path) -> Path:
    """Return a ledger of one file with 600 rollouts."""
    path = folder / "whole.db"
    batch.run(path, 600)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def test_a_file_cut_short_is_refused_and_salvaged(tmp_path, undisturbed):
    """Opening says that it is damaged; salvage saves the beginning, and the batch the rest."""
    path = whole(tmp_path)
    os.truncate(path, path.stat().st_size * 2 // 3)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="log salvage"):
        rollouts(path)
    done = salvage(path, tmp_path / "saved.db")

    assert path.read_bytes() == before
    assert 0 < done.events < 600
    with closing(SqliteLedger(tmp_path / "saved.db")) as ledger:
        assert check_chain(ledger.events()) == done.events
        named = {e.data["output_blob"] for e in ledger.events(kinds=ROLLOUTS)}
    assert done.lost <= named
    assert len(named - done.lost) <= done.blobs
    assert done.lost  # a file without its end lacks payloads of events that it still holds
    batch.run(tmp_path / "saved.db", 600)
    with closing(SqliteLedger(tmp_path / "saved.db")) as ledger:
        found = [read_rollout(event) for event in ledger.events(kinds=ROLLOUTS)]
    assert {rollout.key: rollout for rollout in found} == undisturbed


def test_flipped_bytes_are_found_and_never_believed(tmp_path, undisturbed):
    """Wherever bytes flip, what is read is right or an error; salvage saves an intact beginning."""
    source = whole(tmp_path)
    data = source.read_bytes()
    rng, noticed = random.Random(7), 0
    for turn in range(12):
        path = tmp_path / f"flipped-{turn}.db"
        at = rng.randrange(8192, len(data) - 64)
        path.write_bytes(data[:at] + bytes(b ^ 0x5A for b in data[at : at + 64]) + data[at + 64 :])
        try:
            assert rollouts(path).items() <= undisturbed.items()
        except LedgerError:
            noticed += 1
        saved = tmp_path / f"saved-{turn}.db"
        salvage(path, saved)
        with closing(SqliteLedger(saved)) as ledger:
            check_chain(ledger.events())
            found = [read_rollout(event) for event in ledger.events(kinds=ROLLOUTS)]
        assert {r.key: r for r in found}.items() <= undisturbed.items()
    assert noticed


def damage_index(path: Path) -> None:
    """Flip a byte of a page that holds nothing but an index over kinds of events."""
    data, size = bytearray(path.read_bytes()), 4096
    leaf, word = 10, b"rollout.finished"
    page = next(
        at for at in range(0, len(data), size) if data[at] == leaf and word in data[at : at + size]
    )
    data[data.index(word, page)] ^= 0x5A
    path.write_bytes(data)


def test_a_damaged_index_is_found_and_built_anew(tmp_path, undisturbed):
    """Every event and its hash are whole, but one is not found where it is looked for."""
    path = whole(tmp_path)
    assert list(index_problems(path)) == []
    damage_index(path)
    with closing(SqliteLedger(path)) as ledger:
        assert check_chain(ledger.events()) == len(list(ledger.events()))
    (problem, *_) = index_problems(path)

    assert "log salvage" in problem
    salvage(path, tmp_path / "saved.db")
    assert list(index_problems(tmp_path / "saved.db")) == []
    assert rollouts(tmp_path / "saved.db") == undisturbed


def test_a_full_disk_stops_the_batch_whole(processes, tmp_path, undisturbed):
    """What does not fit is not counted; with room again, the batch goes on where it stopped."""
    SqliteLedger(tmp_path / "full.db").close()
    command = processes.start_call(
        "batch", "full.db", "600", "counted", cwd=tmp_path, file_limit=200_000
    )
    assert command.wait().code == 1
    assert "free some disk space" in command.stderr
    kept = rollouts(tmp_path / "full.db")
    assert counted(tmp_path / "counted") <= kept.keys()
    batch.run(tmp_path / "full.db", 600)
    assert rollouts(tmp_path / "full.db") == undisturbed


@pytest.mark.parametrize("of", ["another ledger", "an earlier state"])
def test_a_log_that_is_not_the_ledgers_is_refused_before_it_is_applied(tmp_path, of):
    """SQLite would write its old or foreign pages over the file; moved away, all is there."""
    path = in_use(tmp_path)
    foreign = Path(f"{path}-wal").read_bytes()
    if of == "another ledger":
        path = whole(tmp_path)
    else:
        batch.run(path, 700)
        rollouts(path)  # closing moves the log into the file
    before, known = path.read_bytes(), rollouts(path)
    log = Path(f"{path}-wal")
    log.write_bytes(foreign)
    with pytest.raises(LedgerError, match=r"-wal is no log of .*move .*-wal to another folder"):
        check_log(path)
    saved = salvage(path, tmp_path / "saved.db")

    assert path.read_bytes() == before
    assert saved.events == len(known)
    log.unlink()
    check_log(path)
    assert rollouts(path) == known


def test_the_log_that_a_kill_leaves_is_the_ledgers(tmp_path, undisturbed):
    """What had not moved into the file yet is read, whole or cut off, and so is a new ledger's."""
    path = in_use(tmp_path)
    log = Path(f"{path}-wal")
    data = log.read_bytes()
    for size in (len(data), len(data) // 2, 0):
        log.write_bytes(data[:size])
        check_log(path)
    log.write_bytes(data)
    assert rollouts(path) == undisturbed
    check_log(tmp_path / "none.db")


# --- the command line ---


def test_a_foreign_log_stops_a_command_and_the_way_out_works(server, processes, tmp_path):
    """The command ends with what was found and what to do; nothing of the ledger has changed."""
    root = write_project(tmp_path / "project", server.url)
    assert processes.run(*EVAL, cwd=root).code in (0, 3)
    counts, path = event_counts(root), root / ".skillforge" / "ledger.db"
    before, log = path.read_bytes(), Path(f"{path}-wal")
    shutil.copyfile(f"{in_use(tmp_path)}-wal", log)
    refused = processes.run("list", cwd=root)

    assert refused.code == 1
    assert "move ledger.db-wal to another folder, then run the same command" in refused.stderr
    assert path.read_bytes() == before
    log.rename(tmp_path / "moved")
    assert processes.run("replay", cwd=root).code == 0
    assert event_counts(root) == counts

    damage_index(path)
    found = processes.run("replay", cwd=root)
    assert found.code == 4
    assert "skillforge log salvage --out FILE" in found.stdout
    assert processes.run("log", "salvage", "--out", "saved.db", cwd=root).code == 0
    (root / "saved.db").replace(path)
    assert processes.run("replay", cwd=root).code == 0
    assert event_counts(root) == counts


def test_a_damaged_project_is_explained_and_salvaged(server, processes, tmp_path):
    """Commands refuse a ledger that was cut short and name the way out, which works."""
    root = write_project(tmp_path / "project", server.url)
    assert processes.run(*EVAL, cwd=root).code in (0, 3)
    path = root / ".skillforge" / "ledger.db"
    os.truncate(path, path.stat().st_size * 2 // 3)
    refused = processes.run("list", cwd=root)
    assert refused.code == 1
    assert "skillforge log salvage" in refused.stderr

    saved = processes.run("log", "salvage", "--out", "saved.db", "--json", cwd=root)
    assert saved.code == 0, saved.stderr
    assert saved.json["events"] > 0
    (root / "saved.db").replace(path)
    assert processes.run("replay", cwd=root).code == 0
    assert processes.run(*EVAL, cwd=root).code in (0, 3)
    keys = [data["key"] for data in events(root, "rollout.finished")]
    assert len(keys) == len(set(keys)) == 40
