"""The contract of the Ledger port, and what SQLite in particular must stand.

Another store joins the contract by one more entry in `STORES`.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from skillforge.adapters.ledger import MIGRATIONS, SqliteLedger
from skillforge.core.digest import sha256
from skillforge.core.events import GENESIS, Event, NewEvent, check_chain
from skillforge.errors import BlobErased, LedgerError

STORES = {"sqlite": lambda folder: SqliteLedger(folder / "ledger.db")}
"""By name: opens the store that lives in a folder, creating it if need be."""

NASTY = "line\u2028sep par\u2029 nel\u0085 nul\x00 tab\t ‮rtl‬ é é 🧪👩‍👩‍👧 \\ \" '"


def new(kind="skill.imported", run="", **data):
    """Return an event that has not been stored yet."""
    return NewEvent(kind=kind, data=data, run=run)


@pytest.fixture(params=sorted(STORES))
def reopen(request, tmp_path):
    """Return a function that opens the same store anew; all are closed at the end."""
    opened = []

    def open_again():
        opened.append(STORES[request.param](tmp_path))
        return opened[-1]

    yield open_again
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(reopen):
    """Return an empty ledger."""
    return reopen()


# --- The port ---------------------------------------------------------------------------------


def test_a_new_ledger_is_empty(ledger):
    """A store without events yields none and finds nothing."""
    assert list(ledger.events()) == []
    assert ledger.find_rollouts(["k"]) == {}


def test_appending_nothing_stores_nothing(ledger):
    """An empty append is legal and leaves no trace."""
    assert ledger.append([]) == ()
    assert list(ledger.events()) == []


def test_the_first_event_hangs_on_genesis(ledger):
    """Sequence numbers start at 1 and the first link is the genesis hash."""
    (event,) = ledger.append([new(x=1)])

    assert (event.seq, event.previous) == (1, GENESIS)


def test_what_append_returns_is_what_is_read_back(ledger, reopen):
    """Tuples, text keys and whole numbers look the same before and after a round trip."""
    returned = ledger.append([new(pairs=(("a", 1), ("b", 2)), by={10: "x", 9: "y"}, whole=3)])
    returned += ledger.append([new(kind="run.started", run="r", fingerprint="f")])

    assert tuple(reopen().events()) == returned
    assert check_chain(returned) == 2


def test_a_stored_event_does_not_follow_the_callers_dictionary(ledger):
    """Changing the data after the append changes neither the returned event nor the store."""
    data = {"order": ["a", "b"]}
    (event,) = ledger.append([NewEvent(kind="gate.registered", data=data)])
    data["order"].append("c")

    assert event.data == {"order": ["a", "b"]}
    assert list(ledger.events()) == [event]


def test_events_come_in_the_order_of_appending(ledger):
    """Order within an append and between appends is kept."""
    ledger.append([new(i=0), new(i=1)])
    ledger.append([new(i=2)])

    assert [(e.seq, e.data["i"]) for e in ledger.events()] == [(1, 0), (2, 1), (3, 2)]


def test_filters_narrow_and_combine(ledger):
    """``after``, ``kinds`` and ``run`` each narrow the events, and all three together."""
    ledger.append(
        [
            new("run.started", run="r1"),
            new("gate.decided", run="r1"),
            new("gate.decided", run="r2"),
            new("skill.retired"),
            new("gate.decided", run="r1"),
        ]
    )

    def seqs(**filters):
        return [e.seq for e in ledger.events(**filters)]

    assert seqs(after=3) == [4, 5]
    assert seqs(after=5) == seqs(after=99) == []
    assert seqs(kinds=("gate.decided", "skill.retired")) == [2, 3, 4, 5]
    assert seqs(kinds=()) == seqs(kinds=("no.such",)) == []
    assert seqs(run="r1") == [1, 2, 5]
    assert seqs(run="") == [4]
    assert seqs(after=2, kinds=("gate.decided",), run="r1") == [5]


def test_reading_while_appending_is_safe(ledger):
    """Events appended during an iteration neither break it nor get lost."""
    ledger.append([new(i=i) for i in range(3)])
    for event in ledger.events():
        ledger.append([new(copy=event.data["i"])])

    assert len(list(ledger.events())) == 6


def test_text_of_any_kind_survives(ledger, reopen):
    """Line separators, control characters and emoji come back as they went in."""
    (event,) = ledger.append([new(text=NASTY, **{NASTY: [NASTY]})])
    (read,) = reopen().events()

    assert read == event
    assert read.data == {"text": NASTY, NASTY: [NASTY]}
    assert check_chain([read]) == 1


def test_half_a_surrogate_pair_survives(ledger, reopen):
    """A lone surrogate, which JSON can spell and UTF-8 cannot, neither breaks nor is lost."""
    ledger.append([new(text="cut \ud83d here")])
    (read,) = reopen().events()

    assert read.data == {"text": "cut \ud83d here"}
    assert check_chain([read]) == 1


@pytest.mark.parametrize(
    "number",
    [0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 2**53 + 1, 2**70, -7, 1e-7],
)
def test_numbers_round_trip_exactly(ledger, reopen, number):
    """Floats and integers of any size come back bit by bit."""
    ledger.append([new(number=number)])
    (read,) = reopen().events()

    assert repr(read.data["number"]) == repr(number)
    assert check_chain([read]) == 1


def test_blobs_come_back_byte_for_byte(ledger, reopen):
    """Empty, binary and large blobs are found under their SHA-256, also after a restart."""
    blobs = [b"", bytes(range(256)), os.urandom(300_000), NASTY.encode()]
    digests = [ledger.put_blob(blob) for blob in blobs]
    again = reopen()

    assert digests == [sha256(blob) for blob in blobs]
    assert [again.get_blob(digest) for digest in digests] == blobs


def test_storing_a_blob_twice_is_storing_it_once(ledger):
    """The same bytes have the same address, alone and together with events."""
    assert ledger.put_blob(b"same") == ledger.put_blob(b"same")
    ledger.record([new(blob=sha256(b"same"))], blobs=[b"same", b"same"])

    assert ledger.get_blob(sha256(b"same")) == b"same"


def test_an_unknown_blob_is_an_error(ledger):
    """Asking for what was never stored names the address and says what to do."""
    with pytest.raises(LedgerError, match=r"nothing is stored under 0000.*restore"):
        ledger.get_blob("0" * 64)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1, 2}, b"bytes"])
def test_an_event_that_cannot_be_stored_takes_everything_with_it(ledger, bad):
    """Neither the good events of the batch nor its blobs are kept, and the next append works."""
    ledger.append([new(i=0)])
    with pytest.raises((ValueError, TypeError)):
        ledger.record([new(i=1), new(i=bad)], blobs=[b"orphan"])

    assert [e.data["i"] for e in ledger.events()] == [0]
    with pytest.raises(LedgerError):
        ledger.get_blob(sha256(b"orphan"))
    ledger.append([new(i=2)])
    assert check_chain(ledger.events()) == 2


def test_a_finished_rollout_without_key_is_refused(ledger):
    """A rollout that could never be found again is not stored."""
    with pytest.raises(KeyError):
        ledger.record([new("rollout.finished", score=1.0)], blobs=[b"output"])

    assert list(ledger.events()) == []


def test_only_finished_rollouts_are_found(ledger):
    """A failed rollout and other events with that key are not taken for a result."""
    ledger.append([new("rollout.failed", key="k"), new("gate.decided", key="k")])
    assert ledger.find_rollouts(["k"]) == {}

    (finished,) = ledger.append([new("rollout.finished", key="k", score=1.0)])
    assert ledger.find_rollouts(["other", "k", "k"]) == {"k": finished}


def test_the_first_of_two_results_stands(ledger):
    """If a rollout was finished twice, the earlier one is the result for good."""
    first, _ = ledger.append(
        [new("rollout.finished", key="k", score=s) for s in (0.0, 1.0)],
    )

    assert ledger.find_rollouts(["k"]) == {"k": first}


def test_a_clock_of_whole_seconds_keeps_the_chain(tmp_path):
    """Times are floats in the chain whatever the clock returns."""
    ledger = SqliteLedger(tmp_path / "ledger.db", clock=lambda: 1_700_000_000)
    returned = ledger.append([new(i=1), new(i=2)])

    assert tuple(ledger.events()) == returned
    assert check_chain(ledger.events()) == 2
    ledger.close()


# --- SQLite: what must not be changed -----------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    """Return the file of a ledger with three events, one rollout among them."""
    ledger = SqliteLedger(tmp_path / "ledger.db", clock=iter([1.5, 2.5, 3.5]).__next__)
    ledger.append([new(i=1), new("rollout.finished", run="r", key="k", score=0.0), new(i=3)])
    ledger.put_blob(b"a secret")
    ledger.close()
    return ledger.path


def raw(path, *statements):
    """Run statements through a connection that knows nothing of ledgers."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            for statement in statements:
                connection.execute(statement)
    finally:
        connection.close()


def reading(path):
    """Return the events of a ledger file."""
    ledger = SqliteLedger(path)
    try:
        return list(ledger.events())
    finally:
        ledger.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET data = '{}'",
        "UPDATE events SET at = 0 WHERE seq = 2",
        "DELETE FROM events",
        "DELETE FROM events WHERE seq = 3",
    ],
)
def test_events_cannot_be_changed_or_deleted(path, statement):
    """The database itself refuses, whoever asks."""
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        raw(path, statement)
    assert check_chain(reading(path)) == 3


DROP = (
    "DROP TRIGGER events_keep",
    "DROP TRIGGER events_stay",
    "DROP INDEX events_by_about",  # it reads the data as JSON
)


@pytest.mark.parametrize(
    ("tampering", "bad"),
    [
        ("UPDATE events SET data = '{\"i\":2}' WHERE seq = 1", 1),
        ("UPDATE events SET at = 9.5 WHERE seq = 1", 1),
        ("UPDATE events SET kind = 'skill.retired' WHERE seq = 3", 3),
        ("UPDATE events SET run = 'other' WHERE seq = 2", 2),
        ("UPDATE events SET hash = previous WHERE seq = 2", 2),
        ("UPDATE events SET previous = hash WHERE seq = 3", 3),
        ("UPDATE events SET seq = 4 WHERE seq = 3", 3),
        ("DELETE FROM events WHERE seq = 1", 1),
        ("DELETE FROM events WHERE seq = 2", 2),
    ],
)
def test_tampering_is_found_and_located(path, tampering, bad):
    """Behind the triggers' back, any change breaks the chain at the event that was touched."""
    raw(path, *DROP, tampering)
    with pytest.raises(LedgerError, match=rf"broken at event {bad}:.*restore"):
        check_chain(reading(path))


@pytest.mark.parametrize("text", ["not json", '{"i": NaN}', ""])
def test_an_event_that_is_no_json_is_named(path, text):
    """Data that cannot be read is an error with the event's number, not a crash."""
    raw(path, *DROP, f"UPDATE events SET data = '{text}' WHERE seq = 3")
    with pytest.raises(LedgerError, match=r"event 3 .* no JSON"):
        [event.data for event in reading(path)]


@pytest.mark.parametrize(
    "tampering",
    [
        """UPDATE events SET data = '{"key":"k","score":1.0}' WHERE seq = 2""",
        "UPDATE events SET key = 'other' WHERE seq = 2",
    ],
)
def test_a_changed_rollout_is_not_reused(path, tampering):
    """A rollout whose content or key no longer fits its hash is run again."""
    raw(path, *DROP, tampering)
    ledger = SqliteLedger(path)

    assert ledger.find_rollouts(["k"]) == ledger.find_rollouts(["other"]) == {}
    ledger.close()


def test_an_erased_blob_is_an_error_and_the_chain_stands(path):
    """Erasing a payload breaks no link, and asking for it says that it was erased."""
    raw(path, "UPDATE blobs SET data = NULL")
    ledger = SqliteLedger(path)

    with pytest.raises(LedgerError, match="it was erased"):
        ledger.get_blob(sha256(b"a secret"))
    assert check_chain(ledger.events()) == 3
    assert ledger.get_blob(ledger.put_blob(b"a secret")) == b"a secret"
    ledger.close()


@pytest.mark.parametrize("garbage", ["x'00'", "x''", "'text'", "7"])
def test_a_damaged_blob_is_an_error(path, garbage):
    """Bytes that no longer decompress are reported, with what to do."""
    raw(path, f"UPDATE blobs SET data = {garbage}")
    ledger = SqliteLedger(path)

    with pytest.raises(LedgerError, match=r"cannot be read.*restore"):
        ledger.get_blob(sha256(b"a secret"))
    ledger.close()


def test_a_blob_of_other_content_is_an_error(path):
    """A blob that was replaced by another one does not pass under the old address."""
    ledger = SqliteLedger(path)
    other = ledger.put_blob(b"harmless")
    swap = f"(SELECT data FROM blobs WHERE hash = '{other}')"
    raw(path, f"UPDATE blobs SET data = {swap}")

    with pytest.raises(LedgerError, match="hash to"):
        ledger.get_blob(sha256(b"a secret"))
    ledger.close()


# --- SQLite: files that are something else ------------------------------------------------------


def test_a_file_that_is_no_database(tmp_path):
    """A text file under the ledger's name is refused and left as it was."""
    path = tmp_path / "ledger.db"
    path.write_text("notes, not a database\n" * 100)
    with pytest.raises(LedgerError, match=r"ledger\.db: .*restore it from a backup"):
        SqliteLedger(path)
    assert path.read_text().startswith("notes")


def test_a_database_of_another_program(tmp_path):
    """Tables of someone else are neither touched nor added to."""
    path = tmp_path / "ledger.db"
    raw(path, "CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"another program.*bookmarks"):
        SqliteLedger(path)
    assert path.read_bytes() == before


def test_a_ledger_of_a_newer_version(path):
    """A migration that this version does not know means that it must not write."""
    raw(path, "INSERT INTO migrations VALUES ('0099_later')")
    with pytest.raises(LedgerError, match=r"newer skillforge.*0099_later"):
        SqliteLedger(path)


def test_a_truncated_ledger(path):
    """A file cut off in the middle is reported as damaged, not read as shorter."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(LedgerError, match="restore it from a backup"):
        reading(path)


def test_an_empty_file_becomes_a_ledger(tmp_path):
    """A file of no bytes is a ledger that has not begun."""
    (tmp_path / "ledger.db").touch()

    assert reading(tmp_path / "ledger.db") == []


def test_the_folder_is_made_and_migrations_are_recorded(tmp_path):
    """Opening makes the folders above and writes down what was applied."""
    path = tmp_path / "deep" / "er" / "ledger.db"
    assert reading(path) == []
    connection = sqlite3.connect(path)
    names = connection.execute("SELECT name FROM migrations").fetchall()
    mode = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()

    assert names == [(name,) for name, _ in MIGRATIONS]
    assert mode == ("wal",)


def test_a_folder_that_cannot_be(tmp_path):
    """A path below a regular file is an error that names it and says what to check."""
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match=r"ledger\.db: .*check that the folder exists"):
        SqliteLedger(tmp_path / "file" / "ledger.db")


def test_a_folder_in_the_place_of_the_file(tmp_path):
    """A folder called like the ledger is an error, not a crash."""
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(LedgerError, match="check that the folder exists"):
        SqliteLedger(tmp_path / "ledger.db")


def test_a_read_only_folder(tmp_path):
    """Where nothing may be written, opening says so."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(LedgerError, match="can be written"):
        SqliteLedger(folder / "ledger.db")


# --- SQLite: other processes --------------------------------------------------------------------

PRELUDE = """
import sys
from pathlib import Path
from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.digest import sha256
from skillforge.core.events import NewEvent
from skillforge.errors import BlobErased, LedgerError

path = Path(sys.argv[1])

def store(ledger, i, size=200):
    blob = f"{sys.argv[2:]} {i} ".encode() * size
    event = NewEvent(kind="k", data={"i": i, "who": sys.argv[2:], "blob": sha256(blob)})
    ledger.record([event], blobs=[blob])
"""


def child(path, code, *arguments):
    """Start a Python process that works on a ledger."""
    program = PRELUDE + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def verified(path) -> list[Event]:
    """Return the events of a ledger whose chain is intact and whose blobs are all there."""
    ledger = SqliteLedger(path)
    events = list(ledger.events())
    check_chain(events)
    for event in events:
        assert sha256(ledger.get_blob(event.data["blob"])) == event.data["blob"]
    ledger.close()
    return events


def test_two_processes_share_one_chain(tmp_path):
    """Processes that open a new ledger at once and append in turns leave one intact chain."""
    path = tmp_path / "ledger.db"
    code = """
    print("ready", flush=True)
    sys.stdin.readline()
    ledger = SqliteLedger(path, patience=60)
    for i in range(40):
        store(ledger, i, size=1)
    ledger.close()
    """
    children = [child(path, code, name) for name in ("a", "b")]
    for process in children:
        assert process.stdout.readline() == "ready\n"
    for process in children:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in children:
        _, errors = process.communicate(timeout=120)
        assert errors == ""
        assert process.returncode == 0

    events = verified(path)
    for name in ("a", "b"):
        assert [e.data["i"] for e in events if e.data["who"] == [name]] == list(range(40))


def test_a_locked_ledger_says_who_is_to_blame(path):
    """While another process writes, reading goes on, and writing gives up with advice."""
    holder = child(
        path,
        """
        import sqlite3
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        print("held", flush=True)
        sys.stdin.readline()
        connection.close()
        """,
    )
    assert holder.stdout.readline() == "held\n"
    ledger = SqliteLedger(path, patience=0.1)
    assert check_chain(ledger.events()) == 3
    with pytest.raises(LedgerError, match=r"locked; another process is writing.*try again"):
        ledger.append([new(i=4)])
    with pytest.raises(LedgerError, match="another process is writing"):
        ledger.put_blob(b"more")
    holder.communicate("done\n", timeout=10)

    ledger.append([new(i=4)])
    assert check_chain(ledger.events()) == 4
    ledger.close()


def test_no_space_left(tmp_path):
    """When the file cannot grow, the append fails whole, says so, and the ledger stays intact."""
    path = tmp_path / "ledger.db"
    process = child(
        path,
        """
        import json, os, resource
        ledger = SqliteLedger(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        done = 0
        try:
            for i in range(10_000):
                blob = os.urandom(3_000)
                event = NewEvent(kind="k", data={"blob": sha256(blob)})
                ledger.record([event], blobs=[blob])
                done += 1
        except LedgerError as error:
            print(json.dumps([done, str(error)]))
        """,
    )
    output, errors = process.communicate(timeout=30)
    assert errors == ""
    done, message = json.loads(output)

    assert done > 3
    assert "nothing was half written: free some disk space" in message
    assert len(verified(path)) == done
    ledger = SqliteLedger(path)
    ledger.append([new(i="room again")])
    assert check_chain(ledger.events()) == done + 1
    ledger.close()


def test_kill_nine_while_appending(tmp_path):
    """Killed at twenty random moments, the ledger keeps its chain and all that it acknowledged."""
    path = tmp_path / "ledger.db"
    code = """
    ledger = SqliteLedger(path)
    for i in range(100_000):
        store(ledger, i, size=1 + i % 50)
        print("stored", flush=True)
    """
    rng = random.Random(20)
    acknowledged = 0
    for _ in range(20):
        with child(path, code) as process:
            lines = [process.stdout.readline()]
            time.sleep(rng.uniform(0.0, 0.04))
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
            errors = process.stderr.read()
        assert process.returncode == -signal.SIGKILL, errors
        acknowledged += lines.count("stored\n")
        events = verified(path)
        # The one that was under way may have been stored without having been acknowledged.
        assert len(events) - acknowledged in (0, 1)
        acknowledged = len(events)

    assert acknowledged > 20


# --- Erasing, checkpoints ----------------------------------------------------------


def test_an_erased_payload_is_gone_and_the_chain_stands(ledger, reopen):
    """It cannot be read, the event that names it can, and why it went is an event too."""
    ledger.record([new("rollout.finished", key="k", output_blob=sha256(b"leak"))], blobs=[b"leak"])
    ledger.erase([sha256(b"leak")], reason="a password")

    again = reopen()
    with pytest.raises(BlobErased, match="erased"):
        again.get_blob(sha256(b"leak"))
    assert again.find_rollouts(["k"])
    assert check_chain(again.events()) == 2
    (event,) = again.events(kinds=("blob.erased",))
    assert event.data == {"blobs": [sha256(b"leak")], "reason": "a password"}
    assert list(again.damaged_blobs()) == []


def test_erasing_nothing_writes_nothing(ledger):
    """No event, and no page of the file."""
    ledger.put_blob(b"leak")
    ledger.erase([sha256(b"leak")], reason="a password")
    before = list(ledger.events())
    ledger.erase([], reason="a password")

    assert list(ledger.events()) == before


def test_erasing_something_unknown_erases_nothing(ledger):
    """One wrong hash, and all stays as it was."""
    known = ledger.put_blob(b"kept")
    with pytest.raises(LedgerError, match="nothing was erased"):
        ledger.erase([known, "0" * 64], reason="a slip")

    assert ledger.get_blob(known) == b"kept"
    assert list(ledger.events()) == []


def test_a_checkpoint_stands_at_its_event(ledger, reopen):
    """What was kept comes back with its event; the latest one counts."""
    assert ledger.load_checkpoint() is None
    first, second = ledger.append([new(i=1), new(i=2)])
    ledger.save_checkpoint(first, b"one")
    ledger.save_checkpoint(second, b"two")

    assert reopen().load_checkpoint() == (second, b"two")


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE checkpoint SET data = x'00'",
        "UPDATE checkpoint SET seq = 2",
        "UPDATE checkpoint SET seq = 99",
        "UPDATE events SET hash = previous WHERE seq = 3",
    ],
)
def test_a_checkpoint_that_does_not_match_is_ignored(path, tampering):
    """Changed bytes, another event or a changed event make it worth nothing."""
    ledger = SqliteLedger(path)
    ledger.save_checkpoint(list(ledger.events())[-1], b"state")
    ledger.close()
    raw(path, *DROP, tampering)
    ledger = SqliteLedger(path)

    assert ledger.load_checkpoint() is None
    ledger.close()


def test_events_about_some_candidates_or_versions(ledger):
    """An event is about its candidate, or else about its subject; run and kind narrow further."""
    ledger.append(
        [
            new("rollout.finished", run="r1", key="a", subject="v1"),
            new("rollout.finished", run="r1", key="b", subject="v2"),
            new("gate.decided", run="r1", candidate="c1", subject="v1"),
            new("rollout.failed", run="r2", key="c", subject="v1"),
            new("skill.imported", skill="v1"),
        ]
    )

    def seqs(*about, **filters):
        return [e.seq for e in ledger.events(about=about, **filters)]

    assert seqs("v1") == [1, 4]
    assert seqs("v1", "v2", "c1") == [1, 2, 3, 4]
    assert seqs("v1", run="r1") == [1]
    assert seqs("v1", "v2", kinds=("rollout.finished",), run="r1") == [1, 2]
    assert seqs() == seqs("nothing") == []


def test_a_ledger_of_the_first_version_is_brought_up_to_date(tmp_path):
    """Events, blobs and erased blobs of before are there, and more can be added."""
    path = tmp_path / "ledger.db"
    ledger = SqliteLedger(path)
    ledger.append([new("rollout.finished", key="k", subject="v", score=1.0)])
    frame = ledger._db.execute("SELECT data FROM blobs").fetchone()
    assert frame is None
    ledger.put_blob(b"kept")
    ledger.close()
    raw(
        path,
        "DELETE FROM migrations WHERE name > '0001_events_and_blobs'",
        "DROP INDEX events_by_about",
        "DROP TABLE samples",
        "DROP TABLE dictionaries",
        "DROP TABLE checkpoint",
        "ALTER TABLE blobs RENAME TO later",
        "CREATE TABLE blobs (hash TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID",
        "INSERT INTO blobs SELECT hash, data FROM later",
        f"INSERT INTO blobs VALUES ('{'0' * 64}', NULL)",
        "DROP TABLE later",
    )
    ledger = SqliteLedger(path)

    assert ledger.get_blob(sha256(b"kept")) == b"kept"
    with pytest.raises(BlobErased):
        ledger.get_blob("0" * 64)
    assert [e.seq for e in ledger.events(about=("v",))] == [1]
    ledger.close()
