"""Suites for every kind of worker, from the command to the ledger."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import small_project
from support.loopback import Answer, LoopbackServer, ok, use
from support.processes import ProcessServer
from support.small_project import events, task_rows, write_project, write_suite

HEAD = """\
name = "{name}"
version = "1"
license = "CC0-1.0"
source = "made by a test"

[verifier]
kind = "exact"

[worker]
"""
AGENT = """kind = "agent"
max_tokens = 50
steps = 5
token_limit = 40000
tools = "shop:upper"
state = "shop:open_shop"
"""
SHOP = '''
def open_shop(task):
    """Begin with an empty log."""
    return []

def upper(state, word: str) -> str:
    """Write a word in capitals; may be used once."""
    state.append(word)
    return word.upper() if len(state) == 1 else "used twice"
'''
PYTHON = """kind = "python"
function = "work:perform"
usd_per_attempt = 0.25
tokens_per_attempt = 10
"""
WORK = '''
def perform(text, skills, seed):
    """Use capitals where a skill says so."""
    word = text.split()[-1]
    return word.upper() if any("capitals" in skill["body"] for skill in skills) else word
'''


def answer(body: dict) -> Answer:
    """Be an agent that reads a listed skill and uses a tool as it says; cut what a skill shows."""
    messages = body["messages"]
    system, word = messages[0]["content"], messages[1]["content"].rpartition(" ")[2]
    told = [m["content"] for m in messages if m["role"] == "tool"]
    if "tools" not in body:
        return ok(word, finish_reason="length" if "capitals" in system else "stop")
    if "- shout:" in system and not told:
        return use(("read_skill", {"name": "shout"}))
    if len(told) == 1 and "Use capitals" in told[0]:
        return use(("upper", {"word": word}))
    return ok(told[-1] if told else word)


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    """The model of all tests of this file."""
    with LoopbackServer(answer) as server:
        yield server


@pytest.fixture
def root(server, processes, tmp_path) -> Path:
    """A project with a suite for each kind of worker, its code trusted."""
    root = write_project(tmp_path / "project", server.url)
    for name, worker in (("agents", AGENT), ("functions", PYTHON), ("chats", "temperature = 0\n")):
        rows = task_rows(["shout"], {"confirm": 8})
        write_suite(root / "suites" / name, rows, HEAD.format(name=name) + worker)
    (root / "suites" / "agents" / "shop.py").write_text(SHOP, encoding="utf-8")
    (root / "suites" / "functions" / "work.py").write_text(WORK, encoding="utf-8")
    for name in ("agents", "functions"):
        trust(processes, root, name)
    return root


def trust(processes: ProcessServer, root: Path, suite: str) -> None:
    """Let the code of a suite run as it is now."""
    done = processes.run("suite", "trust", suite, cwd=root)
    assert done.code == 0, done.stderr


def test_an_agent_that_reads_a_skill_shows_its_lift(processes, server, root):
    """With the skill listed the agent reads it, uses the tool and passes; without it, it fails."""
    done = processes.run("eval", "shout", "--suite", "agents", "--json", cwd=root)

    assert done.code == 0, done.stderr
    found = done.json
    assert (found["pairs"], found["gains"], found["lift"]) == (8, 8, 1.0)
    rollouts = events(root, "rollout.finished")
    uses = {arm: [r["uses"] for r in rollouts if r["arm"] == arm] for arm in ("base", "augmented")}
    listed = {"skill": "shout", "what": "listed", "path": "", "step": 0}
    read = {"skill": "shout", "what": "read", "path": "SKILL.md", "step": 1}
    assert uses == {"base": [[]] * 8, "augmented": [[listed, read]] * 8}
    assert found["tokens"] == 8 * 10 + 8 * 30

    asked = len(server.requests)
    again = processes.run("eval", "shout", "--suite", "agents", "--json", cwd=root)
    assert again.code == 0, again.stderr
    assert again.json["lift"] == 1.0
    assert len(server.requests) == asked


def test_a_function_performs_a_suite_under_the_budget(processes, root):
    """A python worker's stated cost is reserved and booked like a model's."""
    short = processes.run("eval", "shout", "--suite", "functions", "--max-usd", "2", cwd=root)
    assert short.code == 5
    assert "budget of 2 usd" in short.stderr
    assert sum(r["cost_usd"] for r in events(root, "rollout.finished")) <= 2

    done = processes.run("eval", "shout", "--suite", "functions", "--json", cwd=root)

    assert done.code == 0, done.stderr
    assert (done.json["gains"], done.json["lift"]) == (8, 1.0)
    assert sum(r["cost_usd"] for r in events(root, "rollout.finished")) == 16 * 0.25
    bill = {"usd": 4.0, "tokens": 160, "calls": 16, "at_bound": 16}
    assert done.json["spend"]["roles"]["worker"] == bill


def test_a_function_that_tells_what_it_cost_is_billed_that(processes, root):
    """Also nothing; one that tells nothing is billed at its bound, and the report says so."""
    work = root / "suites" / "functions" / "work.py"
    untold = processes.run("eval", "shout", "--suite", "functions", cwd=root)
    work.write_text(
        "def perform(text, skills, seed):\n"
        '    return {"output": text.split()[-1], "cost_usd": 0, "completion_tokens": 0}\n'
    )
    trust(processes, root, "functions")
    command = ("eval", "shout", "--suite", "functions", "--max-usd", "0.25")
    done = processes.run(*command, "--json", cwd=root)

    assert "16 calls at their bound for nobody told what they cost" in untold.stdout
    assert done.code == 3, done.stderr
    assert (done.json["pairs"], done.json["spend"]["usd"]) == (8, 0.0)
    assert done.json["spend"]["roles"]["worker"]["at_bound"] == 0
    assert "at their bound" not in processes.run(*command, cwd=root).stdout


@pytest.mark.parametrize(
    ("worker", "says"),
    [
        ('kind = "command"\ncommand = ["python3", "{prompt}"]\n', "usd_per_attempt"),
        ('kind = "command"\ncommand = ["no-such"]\nusd_per_attempt = 0\n', "no program 'no-such'"),
        ('kind = "python"\nfunction = "work:perform"\n', "usd_per_attempt"),
        ('kind = "python"\nfunction = "work:other"\nusd_per_attempt = 0\n', "no function 'other'"),
        ('kind = "agent"\ntools = "work:other"\n', "no function 'other'"),
    ],
)
def test_a_check_says_of_the_worker_what_an_evaluation_would(processes, root, worker, says):
    """What keeps every run from beginning is a problem of the suite, in the same words."""
    suite = root / "suites" / "wrong"
    write_suite(suite, task_rows(["shout"], {"confirm": 8}), HEAD.format(name="wrong") + worker)
    (suite / "work.py").write_text(WORK, encoding="utf-8")
    trust(processes, root, "wrong")
    evaluated = processes.run("eval", "shout", "--suite", "wrong", cwd=root)
    checked = processes.run("suite", "check", "wrong", "--json", cwd=root)

    (problem,) = checked.json["problems"]
    assert (checked.code, problem["code"], problem["task"]) == (4, "worker", None)
    assert says in problem["message"]
    assert (evaluated.code, evaluated.stderr.splitlines()[-1]) == (
        1,
        f"error: {problem['message']}",
    )


def test_a_check_warns_of_a_worker_whose_tokens_no_cap_can_hold(processes, root):
    """What only a cap needs is no problem: the suite can run, and the setting is named."""
    suite = root / "suites" / "functions" / "suite.toml"
    sound = processes.run("suite", "check", "functions", cwd=root)
    suite.write_text(suite.read_text().replace("tokens_per_attempt = 10\n", ""))
    trust(processes, root, "functions")
    warned = processes.run("suite", "check", "functions", cwd=root)

    assert (sound.code, warned.code) == (0, 0)
    assert "tokens_per_attempt" not in sound.stdout
    (line,) = [line for line in warned.stdout.splitlines() if "--max-tokens" in line]
    assert line.startswith("warning: ")
    assert "add `tokens_per_attempt`" in line


def test_what_a_function_prints_is_no_result(processes, root):
    """Standard output holds one JSON object, whatever code of the suite prints there."""
    work = root / "suites" / "functions" / "work.py"
    work.write_text(
        'print("loaded")\ndef perform(text, skills, seed):\n    print("begun")\n    return text\n'
    )
    trust(processes, root, "functions")
    done = processes.run("eval", "shout", "--suite", "functions", "--json", cwd=root)

    assert done.code == 3, done.stderr
    assert done.json["pairs"] == 8
    assert "loaded" in done.stderr
    assert "begun" in done.stderr


@pytest.mark.parametrize(
    ("suite", "usd", "tokens"), [("agents", 0.0, 40_000), ("functions", 0.25, 10)]
)
def test_a_dry_run_bounds_every_kind_of_worker(processes, root, suite, usd, tokens):
    """What an attempt may cost at most is known before any is made."""
    done = processes.run(
        "eval", "shout", "--suite", suite, "--tasks", "8", "--dry-run", "--json", cwd=root
    )

    assert done.code == 0, done.stderr
    assert done.json["usd"][1] == 16 * usd
    assert done.json["tokens"][1] == 16 * tokens


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        (PYTHON.replace("usd_per_attempt = 0.25\n", ""), "add usd_per_attempt = USD to [worker]"),
        (PYTHON.replace("work:", "wrok:"), "module 'wrok' cannot be imported"),
        ('kind = "python"\nusd_per_attempt = 0\n', "needs function = 'module:function'"),
        ('kind = "agent"\ntools = ["work:perform", "work:perform"]\n', "two are called 'perform'"),
    ],
)
def test_a_worker_that_cannot_be_made_is_a_users_error(processes, root, worker, message):
    """Nothing runs, and the message says what to mend."""
    head = root / "suites" / "functions" / "suite.toml"
    head.write_text(HEAD.format(name="functions") + worker, encoding="utf-8")
    trust(processes, root, "functions")

    done = processes.run("eval", "shout", "--suite", "functions", cwd=root)

    assert done.code == 1
    assert message in done.stderr
    assert events(root, "rollout.finished") == []


def test_answers_cut_by_max_tokens_are_counted_by_arm(processes, root):
    """The share of answers that ended for reason ``length`` stands in the report (olmo-eval#399).

    A skill that makes answers longer can lose by the limit alone; a low score says nothing then.
    """
    run = ("eval", "shout", "--suite", "chats", "--tasks", "4")

    data = processes.run(*run, "--json", cwd=root).json
    text = processes.run(*run, cwd=root).stdout

    assert data["truncated"] == {"base": 0.0, "augmented": 1.0}
    assert "answers cut by max_tokens" in text
    assert "base 0%, augmented 100%" in text
    reasons = {r["arm"]: r["finish_reason"] for r in events(root, "rollout.finished")}
    assert reasons == {"base": "stop", "augmented": "length"}


LATE = """
import asyncio

async def perform(text, skills, seed):
    \"\"\"Pass at once without a skill, and never end with one.\"\"\"
    if skills:
        await asyncio.get_running_loop().create_future()
    return text.split()[-1].upper()
"""


def test_a_skill_that_makes_the_agent_late_is_told_apart_from_wrong_answers(processes, root):
    """Agent failures stand by arm and cause in the report, with the share of the outcomes."""
    suite, run = root / "suites" / "functions", ("eval", "shout", "--suite", "functions")
    worker = PYTHON.replace("0.25", "0") + "timeout = 0.2\n"
    (suite / "work.py").write_text(LATE, encoding="utf-8")
    (suite / "suite.toml").write_text(HEAD.format(name="functions") + worker, encoding="utf-8")
    trust(processes, root, "functions")

    data = processes.run(*run, "--json", cwd=root).json
    text = processes.run(*run, cwd=root).stdout

    assert data["agent_failures"] == {"base": {}, "augmented": {"timeout": 8}}
    assert data["regressions"] == 8
    assert "agent failures (score 0)" in text
    assert "base 0, augmented 8 (timeout 8)" in text
    assert "in the augmented arm: 8 of 8 regressions are that" in text
    causes = {r["failure"]["cause"] for r in events(root, "rollout.finished") if r["failure"]}
    assert causes == {"timeout"}


def test_what_a_candidate_fails_by_is_part_of_its_evidence(processes, tmp_path):
    """`evolve` shows agent failures of a candidate's fresh tasks, and the ledger keeps them."""

    def silent(body: dict) -> Answer:
        """Say nothing to a fresh task where the edit is shown."""
        system, user = (str(body["messages"][i]["content"]) for i in (0, -1))
        edited = "Assistant:" in system and "confirm" in user
        return ok("") if edited else small_project.answer(body)

    with LoopbackServer(silent) as server:
        root = write_project(tmp_path / "project", server.url)
        run = ("evolve", "shout", "--suite", "small")
        done = processes.run(*run, "--json", cwd=root)
    found = {c["proposer"]: c for c in done.json["candidates"] if c["confirm"]}
    confirm = found["examples"]["confirm"]

    assert set(confirm["agent_failures"]["augmented"]) == {"empty_answer"}
    assert confirm["agent_failures"]["base"] == {}
    assert found["examples"]["screen"]["agent_failures"] == {"base": {}, "augmented": {}}
    assert any("the agent fails more often" in reason for reason in found["examples"]["reasons"])
    kept = [e["confirm"]["agent_failures"] for e in events(root, "gate.decided")]
    assert confirm["agent_failures"] in kept
    assert processes.run("replay", cwd=root).code == 0


def test_replicates_at_temperature_zero_are_warned_of(processes, root):
    """Asking the same thing again at temperature 0 adds nothing, and says so once (dspy#8745)."""
    run = ("eval", "shout", "--suite", "chats", "--tasks", "2", "--json")
    head = root / "suites" / "chats" / "suite.toml"

    greedy = processes.run(*run, "--replicates", "3", cwd=root)
    single = processes.run(*run, cwd=root)
    head.write_text(head.read_text().replace("temperature = 0\n", ""), encoding="utf-8")
    unset = processes.run(*run, "--replicates", "3", cwd=root)

    warning = "warning: 3 replicates at temperature 0"
    assert greedy.stderr.count(warning) == 1
    assert "warning" not in single.stderr + unset.stderr
    assert len(events(root, "rollout.finished")) == 12 + 12  # nothing is shared between the two


def test_lists_show_the_kind_of_worker(processes, root):
    """`suite list` and `doctor` say which worker a suite asks for."""
    listed = processes.run("suite", "list", "--json", cwd=root).json["suites"]
    checks = processes.run("doctor", "--json", cwd=root).json["checks"]

    kinds = {entry["name"]: entry["worker"] for entry in listed}
    assert (kinds["agents"], kinds["functions"], kinds["small"]) == ("agent", "python", "chat")
    details = {check["name"]: check["detail"] for check in checks}
    assert details["suite agents"].startswith("agent worker, ")
