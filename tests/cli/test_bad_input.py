"""Bad input and bad days: one line that says what to do, an exit code, nothing half done."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock
from support import small_project
from support.loopback import LoopbackServer, ok, slow, status
from support.processes import Done
from support.small_project import (
    MODEL,
    event_counts,
    events,
    folder_bytes,
    task_rows,
    write_project,
)

EVAL = ("eval", "shout", "--suite", "small", "--tasks", "20", "--json")
EVOLVE = ("evolve", "mumble", "--suite", "small", "--json")
PARALLEL = 4
HARMLESS = {"skill.imported", "run.started", "evolve.started", "rollout.failed", "spend.booked"}
"""Events of a run in which nothing was measured."""


@pytest.fixture
def root(server, tmp_path) -> Path:
    """A fresh project, its library not taken in yet."""
    return write_project(tmp_path / "project", server.url)


def refused(done: Done, code: int, *words: str) -> None:
    """Assert that a command said in one line what is wrong, and nothing else.

    Lines of progress and notes may come first; a list of problems may follow, indented.
    """
    assert done.code == code, done.stderr
    assert done.stdout == ""
    lines = [x for x in done.stderr.splitlines() if not x.startswith(("note: ", "[", "  "))]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in done.stderr


def nothing_happened(processes, root: Path, before: dict[str, bytes]) -> None:
    """Assert that the library folder is as it was, and that the ledger holds together."""
    assert folder_bytes(root / "skills") == before
    replayed = processes.run("replay", "--json", cwd=root)
    assert replayed.code == 0, replayed.stderr
    assert set(event_counts(root)) <= HARMLESS


def once_each(root: Path) -> int:
    """Assert that no rollout stands twice in the ledger; return how many there are."""
    keys = Counter(data["key"] for data in events(root, "rollout.finished"))
    assert set(keys.values()) <= {1}
    return len(keys)


# --- models ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "local/nowhere.gguf"), ("nowhere.gguf",)),
        (("--model", "nowhere/model"), ("nowhere/model", "PROVIDER/MODEL")),
        (("--model", "openai/priceless"), ("openai/priceless", "price", "[prices.")),
    ],
)
@pytest.mark.parametrize("command", [EVAL, EVOLVE])
def test_a_model_that_cannot_be_used_is_named(server, processes, root, command, arguments, words):
    """A missing model file, an unknown provider or price ends the command before any request."""
    before, asked = folder_bytes(root / "skills"), len(server.requests)
    refused(processes.run(*command, *arguments, cwd=root), 1, *words)

    assert len(server.requests) == asked
    nothing_happened(processes, root, before)


def test_a_missing_key_names_the_variable(processes, root):
    """A provider without its key is an error that says which variable to set."""
    file = root / "skillforge.toml"
    lines = [x for x in file.read_text().splitlines() if not x.startswith("api_base")]
    file.write_text("\n".join(lines))
    done = processes.run(*EVAL, "--model", "anthropic/claude-sonnet-4-5", cwd=root)
    refused(done, 1, "ANTHROPIC_API_KEY", "environment")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (status(401, "Incorrect API key provided"), ("Incorrect API key", "check the API key")),
        (
            status(404, "The model `test` does not exist"),
            ("does not exist", "check the model name"),
        ),
    ],
)
def test_a_wrong_key_or_model_ends_the_run_at_once(processes, tmp_path, answer, words):
    """What the user can mend is exit code 1, asked for once per lane and never retried."""
    with LoopbackServer([answer]) as broken:
        root = write_project(tmp_path / "project", broken.url)
        before = folder_bytes(root / "skills")
        refused(processes.run(*EVAL, cwd=root), 1, MODEL, *words)
        assert len(broken.requests) <= PARALLEL
    nothing_happened(processes, root, before)


def test_an_endpoint_that_fails_is_no_zero_and_a_rerun_goes_on(processes, tmp_path):
    """Unreachable and always-500 endpoints are exit code 5; once mended, the run goes on."""
    with LoopbackServer([status(500, "the disk is on fire")]) as broken, socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken and not listening: every connection is refused
        closed = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        roots = {
            "the disk is on fire": write_project(tmp_path / "failing", broken.url),
            "onnection": write_project(tmp_path / "closed", closed),
        }
        before = folder_bytes(roots["onnection"] / "skills")
        command = ("eval", "shout", "--suite", "small", "--tasks", "2", "--json")
        running = {word: processes.start(*command, cwd=root) for word, root in roots.items()}
        for word, started in running.items():
            refused(started.wait(), 5, MODEL, word, "skillforge doctor", "again")
            nothing_happened(processes, roots[word], before)
            assert event_counts(roots[word])["rollout.failed"] == 4
        broken.script(small_project.answer)
        asked = len(broken.requests)
        mended = processes.run(*command, cwd=roots["the disk is on fire"])
        assert mended.json["pairs"] == 2
        assert set(mended.json["dropped"].values()) == {0}
        assert len(broken.requests) - asked == 4
    assert event_counts(roots["the disk is on fire"])["run.started"] == 1


# --- suites ---


def spoil_utf8(suite: Path) -> str:
    """Put a byte that is no UTF-8 into the tasks."""
    with (suite / "tasks.jsonl").open("ab") as stream:
        stream.write(b'{"id": "\xff"}\n')
    return "tasks.jsonl"


def spoil_json(suite: Path) -> str:
    """Cut a line of the tasks."""
    with (suite / "tasks.jsonl").open("a") as stream:
        stream.write('{"id": "cut\n')
    return f"tasks.jsonl:{len(task_rows()) + 1}"


def spoil_toml(suite: Path) -> str:
    """Cut the last table's head of the suite file."""
    with (suite / "suite.toml").open("a") as stream:
        stream.write("[splits\n")
    return "suite.toml:"


def spoil_id(suite: Path) -> str:
    """Give a task the id of another."""
    with (suite / "tasks.jsonl").open("a") as stream:
        stream.write(json.dumps(task_rows()[0]) + "\n")
    return f"tasks.jsonl:{len(task_rows()) + 1}"


def spoil_reference(suite: Path) -> str:
    """Take the reference answer from a task."""
    rows = task_rows()
    del rows[4]["expected"]
    (suite / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "tasks.jsonl:5"


def spoil_split(suite: Path) -> str:
    """Show the input of a propose task to the gate as well."""
    rows = task_rows()
    confirm = next(row for row in rows if row["split"] == "confirm")
    confirm["input"] = rows[0]["input"]
    (suite / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "skillforge suite check small"


def spoil_all(suite: Path) -> str:
    """Take both files away."""
    (suite / "tasks.jsonl").unlink()
    return "tasks.jsonl"


@pytest.mark.parametrize(
    "spoil",
    [spoil_utf8, spoil_json, spoil_toml, spoil_id, spoil_reference, spoil_split, spoil_all],
)
def test_a_spoilt_suite_is_an_error_with_file_and_line(server, processes, root, spoil):
    """What is wrong with a suite is said with its place, before any rollout."""
    place, before = spoil(root / "suites" / "small"), folder_bytes(root / "skills")
    asked = len(server.requests)
    for command in (EVAL, EVOLVE, ("nightly", "--suite", "small", "--json")):
        refused(processes.run(*command, cwd=root), 1, place)

    assert len(server.requests) == asked
    nothing_happened(processes, root, before)


def test_an_unknown_suite_suggests_near_names(processes, root):
    """A suite that is not there is an error that lists what comes near."""
    refused(processes.run("eval", "shout", "--suite", "smal", cwd=root), 1, "'smal'", "small")


# --- skills ---


@pytest.mark.parametrize("command", ["eval", "evolve", "audit units"])
def test_a_name_that_is_not_served_says_what_to_do(processes, root, command):
    """An unknown skill suggests near names, a retired one how to restore it."""
    call = (*command.split(), "--suite", "small")
    refused(processes.run(*call, "shuot", cwd=root), 1, "'shuot'", "did you mean shout")
    assert processes.run("retire", "shout", cwd=root).code == 0
    refused(processes.run(*call, "shout", cwd=root), 1, "retired", "skillforge restore shout")


@pytest.mark.parametrize(
    "call",
    [
        ("show", "shuot"),
        ("history", "shuot"),
        ("diff", "shuot", "0"),
        ("rollback", "shuot"),
        ("retire", "shuot"),
        ("restore", "shuot"),
    ],
)
def test_an_unknown_name_suggests_near_ones(processes, root, call):
    """A misspelt name gets a suggestion from every command that takes one."""
    refused(processes.run(*call, cwd=root), 1, "'shuot'", "did you mean shout")


def test_what_cannot_be_done_to_a_skill_says_why(processes, root):
    """No parent, no such version, already retired, nothing to restore: each says what to do."""
    run = processes.run
    refused(run("rollback", "shout", cwd=root), 1, "no parent", "skillforge history shout")
    refused(run("show", "shout", "--version", "zz", cwd=root), 1, "'zz'", "use one of")
    refused(run("restore", "shout", cwd=root), 1, "nothing to restore")
    assert run("retire", "shout", cwd=root).code == 0
    refused(run("retire", "shout", cwd=root), 1, "retired", "skillforge restore shout")


@pytest.mark.parametrize("call", [EVAL, EVOLVE, ("nightly", "--suite", "small")])
def test_an_empty_library_says_how_to_fill_it(server, processes, tmp_path, call):
    """Nothing to work on is an error that names the two ways to add skills."""
    root = write_project(tmp_path / "project", server.url, skills={})
    refused(processes.run(*call, cwd=root), 1, "empty", "skillforge import")


def test_a_skill_without_tasks_says_what_a_suite_needs(processes, root):
    """A skill that the suite has no tasks for cannot be measured on it."""
    refused(processes.run("eval", "idle", "--suite", "small", cwd=root), 1, "idle", "shout")
    refused(processes.run("evolve", "idle", "--suite", "small", cwd=root), 1, "idle", "`skill`")


def test_one_bad_skill_does_not_hide_the_others(processes, root):
    """An unreadable package is left out with a word about it; the rest is served."""
    (root / "skills" / "broken").mkdir()
    (root / "skills" / "broken" / "SKILL.md").write_bytes(b"---\nname: [\n---\n\xff")
    done = processes.run("list", "--json", cwd=root)

    assert done.code == 0
    assert {s["skill"] for s in done.json["skills"]} >= set(small_project.SKILLS)


# --- project file and ledger ---


def test_no_project_says_how_to_make_one(processes, tmp_path):
    """Outside a project, every command names `skillforge init` and --project."""
    for call in (("list",), EVAL, ("replay",), ("list", "--project", str(tmp_path))):
        refused(processes.run(*call, cwd=tmp_path), 1, "skillforge init", "--project")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gate]\nalhpa = 0.1\n", ("skillforge.toml:2", "gate.alhpa", "spelling")),
        ("[gate]\nalpha = 7\n", ("skillforge.toml:2", "gate.alpha", "less than 1", "7")),
        ("[gate\n", ("skillforge.toml", "line 1", "mend")),
        ("[gate]\nalpha = 0.1 # \xff\n", ("skillforge.toml", "utf-8", "mend")),
    ],
)
def test_a_bad_project_file_names_key_and_line(processes, root, text, words):
    """An unknown key, a wrong value, no TOML, no UTF-8: said with file and line."""
    (root / "skillforge.toml").write_bytes(text.encode("latin-1"))
    refused(processes.run(*EVAL, cwd=root), 1, *words)
    assert not (root / ".skillforge").exists()


def test_a_bad_variable_is_named(processes, root):
    """A value that an environment variable brings in is not blamed on the file."""
    done = processes.run("list", cwd=root, env={"SKILLFORGE_GATE_ALPHA": "much"})
    refused(done, 1, "SKILLFORGE_GATE_ALPHA", "'much'")


def test_a_finite_pool_needs_a_deterministic_worker(processes, root):
    """Betting without replacement is refused before a rollout, with the settings it needs."""
    done = processes.run(*EVAL, cwd=root, env={"SKILLFORGE_GATE_FINITE_POOL": "true"})
    refused(done, 1, "finite_pool", "not declared deterministic", "temperature = 0")


def test_a_library_folder_that_is_gone_is_named(processes, root):
    """A project whose library is missing says which folder, and touches nothing."""
    (root / "skills").rename(root / "elsewhere")
    refused(processes.run("list", cwd=root), 1, str(root / "skills"))


def test_a_project_in_use_refuses_writers_and_serves_readers(server, processes, root):
    """While another command holds the project, writing ones end and reading ones work."""
    assert processes.run("list", cwd=root).code == 0
    asked, soon = len(server.requests), {"SKILLFORGE_LIBRARY_LOCK_SECONDS": "0"}
    with FileLock(root / ".skillforge" / "lock"):
        for call in (EVAL, ("retire", "shout"), ("import", str(root / "skills"))):
            done = processes.run(*call, cwd=root, env=soon)
            refused(done, 1, "another skillforge command", "wait")
        for call in (("list",), ("replay",), ("show", "shout"), ("log",)):
            assert processes.run(*call, cwd=root).code == 0
    assert len(server.requests) == asked
    assert processes.run("retire", "shout", cwd=root).code == 0


def test_a_ledger_that_is_being_written_is_waited_for_then_named(server, processes, root):
    """A write lock that stays ends the command with one line; nothing was asked of the model."""
    assert processes.run("list", cwd=root).code == 0
    asked = len(server.requests)
    with closing(sqlite3.connect(root / ".skillforge" / "ledger.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        refused(processes.run(*EVAL, cwd=root), 1, "ledger.db", "another process", "try again")
        assert processes.run("list", cwd=root).code == 0
    assert len(server.requests) == asked
    assert processes.run(*EVAL, cwd=root).json["pairs"] == 20


@pytest.mark.parametrize("how", ["overwritten", "cut", "foreign"])
def test_a_damaged_ledger_says_restore_it(processes, root, how):
    """A file that is no ledger, a cut one, or another program's is never written to."""
    assert processes.run("list", cwd=root).code == 0
    path = root / ".skillforge" / "ledger.db"
    whole = path.read_bytes()
    path.write_bytes({"overwritten": b"no database " * 400, "cut": whole[:5000]}.get(how, b""))
    if how == "foreign":
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE recipes (name TEXT)")
            db.commit()
    spoilt, before = path.read_bytes(), folder_bytes(root / "skills")
    foreign = ("another program", "move it away")
    words = foreign if how == "foreign" else ("backup", "skillforge log salvage")
    for call in (("list",), EVAL, ("replay",)):
        refused(processes.run(*call, cwd=root), 1, "ledger.db", *words)

    assert path.read_bytes() == spoilt
    assert folder_bytes(root / "skills") == before


def test_a_changed_event_breaks_the_chain(processes, root):
    """An event changed from outside is found by replay, by its number."""
    assert processes.run(*EVAL, cwd=root).json["pairs"] == 20
    with closing(sqlite3.connect(root / ".skillforge" / "ledger.db")) as db:
        db.execute("DROP TRIGGER events_keep")
        db.execute("UPDATE events SET data = replace(data, '\"score\":0', '\"score\":1')")
        db.commit()
    done = processes.run("replay", "--json", cwd=root)

    assert done.code == 4
    assert done.json["chain_ok"] is False
    assert "event" in done.json["problems"][0]


def test_a_full_disk_loses_nothing_that_was_measured(server, processes, root):
    """When the ledger cannot grow, the command says so; with space again, it goes on."""
    assert processes.run("list", cwd=root).code == 0
    asked, before = len(server.requests), folder_bytes(root / "skills")
    limit = (root / ".skillforge" / "ledger.db").stat().st_size + 60_000
    done = processes.run(*EVOLVE, cwd=root, file_limit=limit)
    refused(done, 1, "ledger.db", "free some disk space", "again")
    kept = once_each(root)
    assert kept
    assert folder_bytes(root / "skills") == before
    assert processes.run("replay", cwd=root).code == 0

    done = processes.run(*EVOLVE, cwd=root)
    assert done.code == 0, done.stderr
    assert len(server.requests) - asked <= once_each(root) + PARALLEL + 1
    assert event_counts(root)["run.started"] == 1


# --- interrupts and budgets ---


def test_an_interrupt_keeps_what_has_finished(processes, tmp_path):
    """Ctrl-C during rollouts is exit code 130 and one line; the same command then goes on."""
    with LoopbackServer(lambda body: slow(0.02, small_project.answer(body))) as server:
        root = write_project(tmp_path / "project", server.url)
        command = processes.start(*EVOLVE, cwd=root)
        ended = command.kill_when(
            lambda: event_counts(root)["rollout.finished"] >= 20, signal.SIGINT
        )
        assert ended.code == 130
        assert ended.stdout == ""
        assert ended.stderr.splitlines()[-1].startswith("interrupted: ")
        assert "Traceback" not in ended.stderr
        assert once_each(root) >= 20
        assert processes.run("replay", cwd=root).code == 0

        assert processes.run(*EVOLVE, cwd=root).code == 0
        assert len(server.requests) <= once_each(root) + PARALLEL + 1
    assert event_counts(root)["run.started"] == event_counts(root)["run.finished"] == 1


def test_an_interrupt_from_the_console_reaches_the_program(tmp_path):
    """`python -m skillforge` as a program of its own ends with 130 on SIGINT, without a trace."""
    with LoopbackServer(lambda body: slow(0.05, small_project.answer(body))) as server:
        root = write_project(tmp_path / "project", server.url)
        with subprocess.Popen(
            [sys.executable, "-m", "skillforge", *EVAL],
            cwd=root,
            env=os.environ | {"OPENAI_API_KEY": "test"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            while event_counts(root)["rollout.finished"] < 4 and program.poll() is None:
                time.sleep(0.01)
            program.send_signal(signal.SIGINT)
            out, err = program.communicate()
    assert program.returncode == 130
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [EVAL, EVOLVE])
@pytest.mark.parametrize(
    "cap", [("--max-rollouts", "0"), ("--max-tokens", "0"), ("--max-minutes", "0")]
)
def test_a_budget_of_nothing_buys_nothing(server, processes, root, command, cap):
    """With a cap of zero no request is made, and the exit code is 5."""
    asked, before = len(server.requests), folder_bytes(root / "skills")
    refused(processes.run(*command, *cap, cwd=root), 5, "budget of 0", cap[0], "again")

    assert len(server.requests) == asked
    assert folder_bytes(root / "skills") == before
    assert processes.run("replay", cwd=root).code == 0


def test_the_cap_of_rollouts_is_met_and_a_rerun_goes_on(server, processes, root):
    """A cap of ten makes ten rollouts; without it the same command makes only the others."""
    asked = len(server.requests)
    done = processes.run(*EVAL, "--max-rollouts", "10", cwd=root)
    refused(done, 5, "budget of 10 rollouts", "--max-rollouts")
    assert once_each(root) == len(server.requests) - asked == 10

    assert processes.run(*EVAL, cwd=root).json["pairs"] == 20
    assert once_each(root) == len(server.requests) - asked == 40
    assert event_counts(root)["run.started"] == event_counts(root)["run.finished"] == 1


@pytest.mark.parametrize(("command", "tokens"), [(EVAL, 1200), (EVOLVE, 3600)])
@pytest.mark.parametrize("cap", ["--max-tokens", "--max-usd"])
def test_caps_hold_under_concurrency(processes, tmp_path, command, tokens, cap):
    """With four attempts in flight, the sum of what was spent never passes the cap."""
    most = tokens if cap == "--max-tokens" else tokens * 10 / 1e6
    spent = {"--max-tokens": 0.0, "--max-usd": 0.0}

    def dear(body):
        """Use as many completion tokens as were allowed, and note what it costs."""
        answered = json.loads(small_project.answer(body).body)
        words = answered["choices"][0]["message"]["content"]
        usage = (answered["usage"]["prompt_tokens"], body["max_tokens"])
        spent["--max-tokens"] += sum(usage)
        spent["--max-usd"] += sum(usage) * 10 / 1e6
        return slow(0.01, ok(words, prompt_tokens=usage[0], completion_tokens=usage[1]))

    with LoopbackServer(dear) as server:
        root = write_project(tmp_path / "project", server.url, price=10.0)
        done = processes.run(*command, cap, str(most), cwd=root)
    assert done.code in (3, 4, 5), done.stderr
    assert 0 < spent[cap] <= most
    assert f"is spent ({cap})" in done.stderr + done.stdout
    assert "run the same command again" in done.stderr + done.stdout


def test_a_dry_run_spends_nothing(server, processes, root):
    """--dry-run prints ranges, asks nothing of the model, starts no run and leaves no file."""
    asked, before = len(server.requests), folder_bytes(root)
    for command in (EVAL, EVOLVE, ("nightly", "--suite", "small", "--json")):
        done = processes.run(*command, "--dry-run", cwd=root)
        assert done.code == 0, done.stderr
        assert done.json["dry_run"] is True
    assert len(server.requests) == asked
    assert folder_bytes(root) == before


def test_a_dry_run_counts_replicates(processes, root):
    """With three rollouts of each task and arm, the gate's bets take three times as many."""
    one, two, three = (
        processes.run(
            *EVOLVE, "--dry-run", cwd=root, env={"SKILLFORGE_GATE_REPLICATES": count}
        ).json["rollouts"]
        for count in "123"
    )
    assert one[0] == two[0] == three[0]
    assert three[1] - two[1] == two[1] - one[1] > one[1] / 2


def test_a_dry_demo_spends_nothing(server, processes, tmp_path):
    """--dry-run of the demo prints ranges, with the price it found, and leaves no folder."""
    asked = len(server.requests)
    model = ("--model", "openai/gpt-4o-mini", "--api-base", server.url)
    done = processes.run("demo", "--dry-run", "--json", *model, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.json["dry_run"] is True
    assert 0 < done.json["usd"][0] < done.json["usd"][1]
    assert len(server.requests) == asked
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "which"),
    [
        (("eval", "shout"), "40 confirm tasks for shout"),
        (("audit", "units", "shout"), "6 screen tasks for shout"),
        (("calibrate",), "36 tasks in its propose and screen splits"),
    ],
)
def test_fewer_tasks_than_were_asked_for_are_told(processes, root, command, which):
    """What a suite has is used, and a line and a field say that it is less."""
    call = (*command, "--suite", "small", "--dry-run", "--json")
    many = processes.run(*call, "--tasks", "100000", cwd=root)
    few = processes.run(*call, "--tasks", "3", cwd=root)

    said = f"100000 tasks asked for, but suite small has {which}: all of them are used"
    assert said in many.stderr
    assert many.json["tasks"] == {"asked": 100000, "used": int(which.split()[0])}
    assert "asked for" not in few.stderr
    assert few.json["tasks"] == {"asked": 3, "used": 3}


def test_what_is_erased_already_is_not_erased_again(processes, root):
    """It is named and nothing is written; of several hashes the rest are erased."""
    assert processes.run(*EVAL, cwd=root).code in (0, 3)
    first, second = [data["output_blob"] for data in events(root, "rollout.finished")][:2]
    erase = ("log", "erase", "--reason", "a key")
    assert processes.run(*erase, first, cwd=root).stdout == "erased 1 payloads: a key\n"
    file = root / ".skillforge" / "ledger.db"
    before = file.read_bytes()
    again = processes.run(*erase, first, cwd=root)
    assert again.code == 0
    assert again.stdout.startswith(f"{first} is erased already: ")
    assert file.read_bytes() == before
    both = processes.run(*erase, first, second, "--json", cwd=root).json
    assert (both["erased"], both["erased_before"]) == ([second], [first])
    assert [data["blobs"] for data in events(root, "blob.erased")] == [[first], [second]]


# --- usage and consoles ---


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("eval",),
        ("list", "--nonsense"),
        ("eval", "shout", "--max-rollouts", "-1"),
        ("eval", "shout", "--max-usd", "much"),
        ("eval", "shout", "--max-usd", "nan"),
        ("log", "--after", str(2**63)),
        ("validate",),
        ("suite", "nonsense"),
        ("log", "show", "82efce60"),
    ],
)
def test_wrong_usage_is_exit_code_2(processes, root, arguments):
    """A command line that cannot be understood is exit code 2, with the usage on stderr."""
    done = processes.run(*arguments, cwd=root)
    assert done.code == 2
    assert done.stdout == ""
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "console",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "cp1252", "C"],
)
def test_narrow_consoles_get_everything(server, tmp_path, console):
    """Where the console lacks a character, text is shown with a replacement and JSON is escaped."""
    text = "Sage »größer als« λ → 日本語 🦊."
    skills = {"gross": (text, f"## Regel\n\n{text}\n")}
    root = write_project(tmp_path / "Projekt-ü", server.url, skills=skills)

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
        return subprocess.run(
            [sys.executable, "-m", "skillforge", *arguments],
            cwd=root,
            env=environment | console,
            capture_output=True,
            check=False,
        )

    shown = run("show", "gross")
    assert shown.returncode == 0, shown.stderr
    assert b"Sage" in shown.stdout
    as_json = run("show", "gross", "--json")
    encoding = console.get("PYTHONIOENCODING", "ascii")
    assert json.loads(as_json.stdout.decode(encoding))["description"] == text
    unknown = run("show", "größe🦊")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith(b"error: no skill named")
    assert b"Traceback" not in unknown.stderr
