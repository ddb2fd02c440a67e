"""The caps hold across crashes: the endpoint that serves the calls keeps the books."""

import json
import signal
from contextlib import closing

import pytest
from support import small_project
from support.loopback import LoopbackServer, ok, slow, status
from support.small_project import event_counts, events, write_project

from skillforge.adapters.ledger import SqliteLedger
from skillforge.workflows.account import Account

EVAL = ("eval", "shout", "--suite", "small", "--tasks", "40", "--json")
EVOLVE = ("evolve", "mumble", "--suite", "small", "--json")
USD = 1e-4
"""Price of a token."""


def cost(body):
    """Return the tokens that a request is charged: nearly the most that it can be."""
    prompt = sum(len(str(message["content"]).encode()) for message in body["messages"])
    return prompt, body.get("max_tokens") or body["max_completion_tokens"]


def dear(body):
    """Answer as ever, late enough for a kill to come in between, and charge all that may be."""
    said = json.loads(small_project.answer(body).body)["choices"][0]["message"]["content"]
    prompt, completion = cost(body)
    return slow(0.01, ok(said, prompt_tokens=prompt, completion_tokens=completion))


@pytest.fixture
def endpoint():
    """An endpoint that charges all that it may."""
    with LoopbackServer(dear) as server:
        yield server


def served(server):
    """Return USD, tokens and calls that an endpoint has served in all."""
    tokens = sum(sum(cost(body)) for body in server.requests)
    return {"usd": tokens * USD, "tokens": tokens, "rollouts": len(server.requests)}


def told(root):
    """Return what the ledger says that the project's last run has spent."""
    with closing(SqliteLedger(root / ".skillforge" / "ledger.db")) as ledger:
        *_, started = ledger.events(kinds=("run.started",))
        return Account(ledger=ledger, run=started.run).spent()


def priced_project(tmp_path, server, parallel):
    """Return a project whose model has a price."""
    return write_project(tmp_path / "project", server.url, price=1e6 * USD, parallel=parallel)


@pytest.mark.parametrize(
    ("command", "parallel", "what", "cap"),
    [
        (EVAL, 1, "tokens", 4_000),
        (EVAL, 16, "rollouts", 60),
        (EVOLVE, 1, "usd", 1.5),
        (EVOLVE, 16, "tokens", 30_000),
    ],
)
def test_no_cap_is_passed_however_often_it_is_killed(
    processes, endpoint, tmp_path, command, parallel, what, cap
):
    """Killed again and again until it ends by itself, it never has more served than the cap.

    The ledger says all along what was served at least, and what it may have been at most.
    """
    root = priced_project(tmp_path, endpoint, parallel)
    killed = 0
    while True:
        upto = len(endpoint.requests) + 2 + (8 + 2 * parallel) * killed
        running = processes.start(*command, f"--max-{what}", str(cap), cwd=root)
        done = running.kill_when(lambda upto=upto: len(endpoint.requests) >= upto)
        spent, truth = told(root), served(endpoint)
        assert truth["usd"] <= spent.usd * (1 + 1e-9)
        assert truth["tokens"] <= spent.tokens
        assert truth["rollouts"] <= spent.rollouts + proposals(endpoint)
        assert max(truth[what] - proposals(endpoint) * (what == "rollouts"), 0) <= cap
        assert getattr(spent, what) <= cap
        if done.code != -signal.SIGKILL:
            break
        killed += 1
    assert killed
    assert done.code in (0, 3, 4, 5), done.stderr
    assert "count as spent" in done.stderr
    assert event_counts(root)["run.started"] == 1


def proposals(server):
    """Return how many calls were those of the proposer, which are no rollouts."""
    return sum("You maintain" in str(body["messages"][0]) for body in server.requests)


def test_without_a_cap_a_crash_is_in_the_report(processes, endpoint, tmp_path):
    """What may have been in flight has a role of its own in the bill, and is said in one line.

    The run goes on to its end, and a cap that it is given only then counts it as well.
    """
    root = priced_project(tmp_path, endpoint, 4)
    running = processes.start(*EVAL, cwd=root)
    running.kill_when(lambda: len(endpoint.requests) >= 6)
    before = served(endpoint)
    refused = processes.run(*EVAL, "--max-usd", str(before["usd"]), cwd=root)
    assert refused.code == 5
    assert served(endpoint) == before
    done = processes.run(*EVAL, cwd=root)

    assert done.code in (0, 3), done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert "tokens that are in no bill, count as spent" in warning
    spend, truth = done.json["spend"], served(endpoint)
    unsettled = spend["roles"]["unsettled"]
    assert (unsettled["calls"], unsettled["at_bound"]) == (0, 0)
    assert unsettled["usd"] == pytest.approx(unsettled["tokens"] * USD)
    for name in ("usd", "tokens"):
        assert spend[name] == pytest.approx(sum(bill[name] for bill in spend["roles"].values()))
        assert spend[name] >= truth[name] * (1 - 1e-9)
    assert spend["rollouts"] == 80 + spend["unsettled"] >= truth["rollouts"]


def ends(processes, endpoint, root):
    """Start the command again and again; each start ends in order, and the run stays open."""
    asked = len(endpoint.requests)
    command = processes.start(*EVAL, cwd=root)
    assert command.kill_when(lambda: len(endpoint.requests) > asked, signal.SIGINT).code == 130
    command = processes.start(*EVAL, cwd=root)
    asked = len(endpoint.requests)
    assert command.kill_when(lambda: len(endpoint.requests) > asked, signal.SIGTERM).code == 130
    made = event_counts(root)["rollout.finished"]
    assert processes.run(*EVAL, "--max-rollouts", str(made + 3), cwd=root).code == 5
    endpoint.script([status(400, "out of order")])
    assert processes.run(*EVAL, cwd=root).code == 5
    endpoint.script(dear)


def test_an_end_in_order_leaves_nothing_unsettled(processes, endpoint, tmp_path):
    """After Ctrl-C, SIGTERM, a spent budget and a dead endpoint, what was spent is known exactly.

    A cap of just what is missing is then enough.
    """
    root = priced_project(tmp_path, endpoint, 2)
    ends(processes, endpoint, root)
    spent, counts = told(root), event_counts(root)
    assert spent.unsettled == 0
    assert set(spent.roles) == {"worker"}
    assert counts["spend.booked"] == 4
    assert all("settled" in data for data in events(root, "spend.booked"))
    cap = spent.rollouts + 80 - counts["rollout.finished"]
    done = processes.run(*EVAL, "--max-rollouts", str(cap), cwd=root)

    assert done.code in (0, 3), done.stderr
    assert "warning" not in done.stderr
    assert done.json["spend"]["rollouts"] == cap


def test_free_calls_without_a_cap_claim_nothing(processes, server, tmp_path):
    """Neither an event nor a key of one is written for them; a cap of tokens has claims."""
    root = write_project(tmp_path / "project", server.url)
    assert processes.run(*EVAL[:-2], "10", cwd=root).code in (0, 3)
    assert not any({"claimed", "settled"} & data.keys() for data in events(root))
    assert processes.run(*EVAL[:-2], "20", "--max-tokens", "100000", cwd=root).code in (0, 3)
    assert event_counts(root)["spend.claimed"] > 0


def test_attempts_that_a_full_disk_lost_count_against_the_cap(processes, endpoint, tmp_path):
    """They were made and paid for: the next start may make as many as are left, and says so."""
    root = priced_project(tmp_path, endpoint, 4)
    assert processes.run("list", cwd=root).code == 0
    full = processes.run(*EVAL, "--max-rollouts", "60", cwd=root, file_limit=150_000)
    assert full.code == 1
    assert "free some disk space" in full.stderr
    spent = told(root)
    assert len(endpoint.requests) <= spent.rollouts
    assert spent.unsettled > 0
    done = processes.run(*EVAL, "--max-rollouts", "60", cwd=root)

    assert done.code == 5
    assert "count as spent" in done.stderr
    assert len(endpoint.requests) <= 60
