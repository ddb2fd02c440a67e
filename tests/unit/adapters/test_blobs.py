"""The dictionaries of a ledger: when they are trained, what they save, and how they go."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from threading import Event as Signal
from threading import Thread

import pytest

from skillforge.adapters.blobs import FEWEST, LARGEST, Blobs
from skillforge.adapters.codec import Codec, train
from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.digest import sha256
from skillforge.core.events import NewEvent
from skillforge.errors import BlobErased, LedgerError

DICTIONARIES = "SELECT n FROM dictionaries ORDER BY sampled"


def payloads(count, suite=0):
    """Return payloads of a suite, about 400 bytes each: what they say over and over, and numbers.

    By themselves they compress to about half.
    """
    rng = random.Random(suite)
    words = ["".join(rng.choices("aeioubcdfgklmnprst", k=rng.randint(3, 9))) for _ in range(400)]
    said = [" ".join(rng.choices(words, k=12)) for _ in range(60)]
    return [
        json.dumps({"output": f"{suite} {at}", "messages": rng.choices(said, k=5)}).encode()
        for at in range(count)
    ]


def skills(count):
    """Return files of skills, which have nothing in common with payloads."""
    rng = random.Random("skills")
    words = ["".join(rng.choices("vwxyzjqh", k=rng.randint(2, 6))) for _ in range(300)]
    return [
        f"---\nname: s{at}\n---\n{' '.join(rng.choices(words, k=60))}".encode()
        for at in range(count)
    ]


def fill(path, blobs, batch=FEWEST):
    """Store blobs; what is trained after a batch is there for the next one."""
    for at in range(0, len(blobs), batch):
        with closing(SqliteLedger(path)) as ledger:
            ledger.record([], blobs=blobs[at : at + batch])


def ask(path, query, *values):
    """Return the first column of what a query finds in the file of a ledger."""
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute(query, values).fetchall()]


def size(path):
    """Return the bytes that blobs and dictionaries take."""
    return sum(
        ask(path, f"SELECT total(length(data)) FROM {table}")[0]
        for table in ("blobs", "dictionaries")
    )


def assert_readable(path, blobs):
    """Check that blobs are what they were."""
    with closing(SqliteLedger(path)) as ledger:
        assert [ledger.get_blob(sha256(blob)) for blob in blobs] == blobs
        assert ledger.damaged_blobs() == []


def bytes_of(path):
    """Return everything that stands in the files of a ledger."""
    names = [path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")]
    return b"".join(name.read_bytes() for name in names if name.exists())


def secrets(number):
    """Return a secret, and blobs that hold it so often that a dictionary of them does too."""
    secret = random.Random(f"secret {number}").randbytes(40).hex().encode()
    return secret, [b" ".join([secret] * 20) + b" %d" % at for at in range(4)]


class Held:
    """A training that has begun, and ends when it is let."""

    def __init__(self):
        self.begun, self.let = Signal(), Signal()

    def __call__(self, texts, known):
        """Train, once it is let."""
        self.begun.set()
        assert self.let.wait(600)
        return train(texts, known)


@pytest.fixture
def held():
    """Return a training that ends with the test at the latest."""
    training = Held()
    yield training
    training.let.set()


@pytest.fixture
def path(tmp_path):
    """Return where a ledger can be made."""
    return tmp_path / "ledger.db"


# --- What dictionaries save -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [[], skills(600), [*payloads(2000), *skills(600)], payloads(3000, suite=1)],
    ids=["nothing", "many skills", "rollouts, then skills", "another suite"],
)
def test_payloads_take_less_than_two_fifths_of_their_text(path, before):
    """Whatever was there before them, also skills by the hundred and payloads of another suite."""
    blobs = [blob for blob in payloads(6000) if blob not in set(before)][:3000]
    text = sum(map(len, blobs))
    assert sum(map(len, Codec([]).compress(blobs))) > 0.6 * text  # so that the test can fail
    fill(path, before)
    there = size(path) if before else 0
    fill(path, blobs)

    assert size(path) - there < 0.4 * text
    assert_readable(path, [*before, *blobs])


def test_one_dictionary_serves_as_long_as_no_other_is_better(path):
    """More of the same brings no second one; another suite does, and the first stays to read by."""
    blobs = [*payloads(3000), *payloads(2000, suite=1)]
    fill(path, blobs[:FEWEST])
    first = ask(path, DICTIONARIES)
    fill(path, blobs[FEWEST:3000])
    assert ask(path, DICTIONARIES) == first
    fill(path, blobs[3000:])

    assert len(first) == 1
    assert len(ask(path, DICTIONARIES)) == 2
    assert ask(path, DICTIONARIES)[:1] == first
    assert_readable(path, blobs)


def test_payloads_with_nothing_in_common_are_stored_without_a_dictionary(path):
    """Where none can be trained, or none saves a tenth, everything goes on without one."""
    blobs = [random.Random(at).randbytes(400) for at in range(2 * FEWEST)]
    fill(path, [*blobs, b"", os.urandom(150_000)])

    assert ask(path, DICTIONARIES) == []
    assert_readable(path, [*blobs, b""])


def test_a_ledger_from_before_samples_were_written_down(path):
    """Its dictionary is known to come from its first blobs: it reads, and goes with one of them."""
    blobs = payloads(FEWEST + 100)
    fill(path, blobs)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"""
            DELETE FROM migrations WHERE name = '0003_samples'; DROP TABLE samples;
            UPDATE dictionaries SET n = 1, sampled = {FEWEST};
        """)
    assert_readable(path, blobs)
    with closing(SqliteLedger(path)) as ledger:
        ledger.erase([sha256(blobs[-1])], reason="not sampled")
        assert ask(path, DICTIONARIES) == [1]
        ledger.erase([sha256(blobs[FEWEST - 1])], reason="sampled")

    assert 1 not in ask(path, DICTIONARIES)
    assert_readable(path, [*blobs[: FEWEST - 1], *blobs[FEWEST:-1]])


# --- What is erased -------------------------------------------------------------------------------


@pytest.mark.parametrize("leaked", [0, 1, 2])
def test_what_is_erased_is_in_no_dictionary(path, leaked):
    """The one that was trained on it goes, wherever it stands; the others and all else stay."""
    parts = [[*payloads(700, suite), *secrets(suite)[1]] for suite in range(3)]
    for part in parts:
        random.Random(0).shuffle(part)
        fill(path, part, batch=len(part))
    secret, blobs = secrets(leaked)
    before = ask(path, DICTIONARIES)
    with_it = ask(path, "SELECT n FROM dictionaries WHERE instr(data, ?)", secret[:20])
    assert len(before) == 3
    assert len(with_it) == 1  # so that the test can fail
    with closing(SqliteLedger(path)) as ledger:
        ledger.erase([*map(sha256, blobs)], reason="a key")
        assert secret[:20] not in bytes_of(path)

    assert secret[:20] not in bytes_of(path)
    assert set(before) - set(ask(path, DICTIONARIES)) == {*with_it}
    assert_readable(path, [blob for part in parts for blob in part if blob not in blobs])


def test_erasing_what_no_dictionary_was_trained_on_leaves_them(path):
    """What each was trained on is known one by one."""
    blobs = payloads(4000)
    fill(path, blobs, batch=2000)
    before = ask(path, DICTIONARIES)
    (spared,) = ask(
        path, "SELECT hash FROM blobs WHERE id NOT IN (SELECT blob FROM samples) LIMIT 1"
    )
    with closing(SqliteLedger(path)) as ledger:
        ledger.erase([spared], reason="a name")

    assert ask(path, DICTIONARIES) == before != []


def test_what_a_reader_kept_from_being_rewritten_is_so_when_asked_again(path):
    """Asked again with nothing left to erase, it is the pages of before that go; then no more."""
    leak = random.Random(0).randbytes(9000)
    with closing(SqliteLedger(path, patience=0)) as ledger, closing(sqlite3.connect(path)) as db:
        ledger.put_blob(leak)
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM blobs").fetchone()
        with pytest.raises(LedgerError, match="still reads the pages of before"):
            ledger.erase([sha256(leak)], reason="a key")
        assert leak[-500:] in bytes_of(path)
        db.rollback()
        ledger.erase([], reason="a key")
        assert leak[-500:] not in bytes_of(path)
        log = path.with_name(f"{path.name}-wal")
        done = path.read_bytes(), log.read_bytes()
        ledger.erase([], reason="a key")

        assert (path.read_bytes(), log.read_bytes()) == done
        assert len(list(ledger.events())) == 1


def test_what_another_process_erases_while_the_file_is_rewritten_goes_as_well(path):
    """The end of the one's rewriting is not taken for the end of the other's."""
    rng = random.Random(0)
    leaks = [rng.randbytes(9000) for _ in range(2)]
    digests = [*map(sha256, leaks)]
    committed, marked = Signal(), Signal()
    said: dict[str, str] = {}
    with closing(SqliteLedger(path)) as one, closing(SqliteLedger(path)) as other:
        one.record([], blobs=leaks)
        second = Thread(target=lambda: other.erase(digests[1:], reason="another key"))

        def in_the_one(statement):
            if "wal_checkpoint" in said.get("one", "") and not committed.is_set():
                second.start()
                committed.wait(30)
            said["one"] = statement

        def in_the_other(statement):
            if said.get("other") == "COMMIT" and not committed.is_set():
                committed.set()
                marked.wait(30)
            said["other"] = statement

        other._db.set_trace_callback(in_the_other)
        one._db.set_trace_callback(in_the_one)
        one.erase(digests[:1], reason="a key")
        marked.set()
        second.join()

        assert committed.is_set()
        assert not [leak for leak in leaks if leak[-500:] in bytes_of(path)]


def test_a_rewriting_that_an_earlier_version_was_cut_off_in_is_made_up_for(path):
    """It left nothing in the file but the event."""
    leak = random.Random(0).randbytes(9000)
    with closing(SqliteLedger(path)) as ledger:
        ledger.put_blob(leak)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA secure_delete = 0")
            db.execute("UPDATE blobs SET data = NULL")
        ledger.append([NewEvent(kind="blob.erased", data={"blobs": [sha256(leak)], "reason": "-"})])
        assert leak[-500:] in bytes_of(path)
        ledger.erase([], reason="a key")

        assert leak[-500:] not in bytes_of(path)


def test_what_was_compressed_by_a_dictionary_that_goes_stays_small(path):
    """Another one is trained at once on what is left of them, though none came without one."""
    blobs = payloads(3000)
    fill(path, blobs)
    with closing(SqliteLedger(path)) as ledger:
        for _ in range(2):
            before, known = size(path) / len(blobs), ask(path, DICTIONARIES)
            sampled = {*ask(path, "SELECT hash FROM blobs, samples ON id = blob")}
            ledger.erase([*sampled], reason="names")
            blobs = [blob for blob in blobs if sha256(blob) not in sampled]
            assert len(known) == len({*ask(path, DICTIONARIES)} - {*known}) == 1
            assert size(path) / len(blobs) < 1.1 * before

    assert_readable(path, blobs)


def test_a_damaged_blob_is_in_nobodys_way(path):
    """It is neither trained on nor compressed anew, and still said to be damaged."""
    blobs = payloads(FEWEST)
    fill(path, blobs[:-1], batch=100)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE blobs SET data = x'00' WHERE id = 2")
    fill(path, blobs[-1:])
    assert len(ask(path, DICTIONARIES)) == 1
    fill(path, payloads(FEWEST + 100)[FEWEST:])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE blobs SET data = x'00' WHERE id = ?", (FEWEST + 2,))
    with closing(SqliteLedger(path)) as ledger:
        ledger.erase([sha256(blobs[5])], reason="a name")
        assert len(ledger.damaged_blobs()) == 2
        assert ledger.get_blob(sha256(blobs[7])) == blobs[7]


def test_large_blobs_are_in_no_sample(path):
    """Of a ledger with large ones a dictionary is trained on the others, and all can be read."""
    draw = random.Random("large")
    large = [draw.randbytes(LARGEST) for _ in range(40)]
    blobs = payloads(FEWEST)
    fill(path, [*large, *blobs], batch=FEWEST + len(large))
    query = "SELECT length(data) FROM samples JOIN blobs ON blob = id"
    sampled = ask(path, query)

    assert len(sampled) > FEWEST // 2
    assert max(sampled) < LARGEST
    assert_readable(path, [*large, *blobs])


# --- While one is trained -------------------------------------------------------------------------


def test_nobody_waits_for_a_training(path, held):
    """Meanwhile all store and read, in this process and others; closing the ledger ends it."""
    blobs = payloads(3 * FEWEST)
    ledger = SqliteLedger(path, train=held)
    ledger.record([], blobs=blobs[:FEWEST])
    assert held.begun.wait(600)
    with closing(SqliteLedger(path, patience=0.0)) as other:
        other.put_blob(blobs[FEWEST])
        ledger.record([], blobs=blobs[FEWEST + 1 :])
        assert other.get_blob(sha256(blobs[-1])) == blobs[-1]
    assert ask(path, DICTIONARIES) == []
    held.let.set()
    ledger.close()

    assert len(ask(path, DICTIONARIES)) == 1
    assert_readable(path, blobs)


@pytest.mark.parametrize("whose", ["the same process", "another process"])
def test_what_is_erased_while_it_is_trained_on(path, held, whose):
    """The dictionary that comes of it is not kept; the next one knows nothing of it."""
    secret, leaked = secrets(0)
    blobs = payloads(2 * FEWEST)
    ledger = SqliteLedger(path, train=held)
    ledger.record([], blobs=[*leaked, *blobs[:FEWEST]])
    assert held.begun.wait(600)
    eraser = ledger if whose == "the same process" else SqliteLedger(path)
    eraser.erase([*map(sha256, leaked)], reason="a key")
    held.let.set()
    ledger.close()
    eraser.close()
    assert ask(path, DICTIONARIES) == []
    fill(path, blobs[FEWEST:])

    assert len(ask(path, DICTIONARIES)) == 1
    assert secret[:20] not in bytes_of(path)
    with closing(SqliteLedger(path)) as again, pytest.raises(BlobErased):
        again.get_blob(sha256(leaked[0]))
    assert_readable(path, blobs)


def test_two_that_train_at_once_leave_one_dictionary(path, held):
    """The second to end sees that there is one already."""
    blobs = payloads(FEWEST + 1)
    second = Held()
    ledgers = SqliteLedger(path, train=held), SqliteLedger(path, train=second)
    for ledger, training, some in zip(
        ledgers, (held, second), (blobs[:FEWEST], blobs[FEWEST:]), strict=True
    ):
        ledger.record([], blobs=some)
        assert training.begun.wait(600)
    for ledger, training in zip(ledgers, (held, second), strict=True):
        training.let.set()
        ledger.close()

    assert len(ask(path, DICTIONARIES)) == 1
    assert_readable(path, blobs)


def test_a_training_that_cannot_be_stored_disturbs_nothing(path, held):
    """Where another process writes for too long, there is no dictionary yet, and no error."""
    blobs = payloads(3 * FEWEST)
    ledger = SqliteLedger(path, train=held, patience=0.0)
    ledger.record([], blobs=blobs[:FEWEST])
    assert held.begun.wait(600)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        held.let.set()
        ledger.close()
    assert ask(path, DICTIONARIES) == []
    fill(path, blobs[FEWEST:])

    assert len(ask(path, DICTIONARIES)) == 1
    assert_readable(path, blobs)


def test_killed_while_training(path):
    """All that was stored is there; only the dictionary is not, and comes with the next blobs."""
    blobs = payloads(2 * FEWEST)
    program = """
    import json, sys
    from pathlib import Path
    from skillforge.adapters.ledger import SqliteLedger

    def hold(texts, known):
        print("training", flush=True)
        sys.stdin.read()

    ledger = SqliteLedger(Path(sys.argv[1]), train=hold)
    ledger.record([], blobs=[blob.encode() for blob in json.loads(sys.stdin.readline())])
    ledger.close()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as process:
        print(json.dumps([b.decode() for b in blobs[:FEWEST]]), file=process.stdin, flush=True)
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGKILL)
    assert ask(path, DICTIONARIES) == []
    assert_readable(path, blobs[:FEWEST])
    fill(path, blobs[FEWEST:])

    assert len(ask(path, DICTIONARIES)) == 1
    assert_readable(path, blobs)


# --- Beside other processes -----------------------------------------------------------------------


def test_dictionaries_that_others_train_and_drop(path):
    """One that stays open reads and writes by those that are there, not by those it once knew."""
    blobs = payloads(2 * FEWEST)
    open_all_along = SqliteLedger(path)
    for at in (0, 1, 2):
        fill(path, blobs[at * 300 : (at + 1) * 300])
        open_all_along.put_blob(b"%d by its dictionary " % at * 9)
        for dictionary in ask(path, DICTIONARIES):
            query = "SELECT hash FROM blobs, samples ON id = blob WHERE dictionary = ? LIMIT 1"
            with closing(SqliteLedger(path)) as other:
                other.erase(ask(path, query, dictionary), reason="a name")
            assert dictionary not in ask(path, DICTIONARIES)
        open_all_along.put_blob(b"%d by the next dictionary " % at * 9)
        assert open_all_along.damaged_blobs() == []
    open_all_along.close()

    assert ask(path, DICTIONARIES)
    assert_readable(path, [b"%d by the next dictionary " % at * 9 for at in range(3)])


def test_a_check_goes_on_while_blobs_are_compressed_anew(path):
    """What another process erases, or takes from its dictionary, is not called damaged."""
    blobs = payloads(FEWEST + 100)
    fill(path, blobs)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE blobs SET data = x'00' WHERE id = {FEWEST + 1}")
        db.commit()
        db.isolation_level = None
        faults = Blobs(db, "ledger.db").damaged()
        assert f"under {sha256(blobs[FEWEST])[:12]}" in next(faults)
        with closing(SqliteLedger(path)) as ledger:
            gone = [blobs[0], blobs[-1]]
            ledger.erase([*map(sha256, gone)], reason="a name")
        assert list(faults) == []
