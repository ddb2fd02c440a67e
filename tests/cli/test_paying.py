"""What paying commands estimate, spend, write down and carry on, and what a fallback does."""

from contextlib import closing

import pytest
from support import small_project
from support.loopback import LoopbackServer, cut, status
from support.small_project import MODEL, event_counts, events, write_project

from skillforge.adapters.ledger import SqliteLedger
from skillforge.adapters.project import ModelSection, Project, Settings
from skillforge.cli.session import make_model
from skillforge.core.chat import ChatRequest, Message
from skillforge.core.library_fold import FOLDED, fold
from skillforge.workflows.replay import replay

EVAL = ("eval", "shout", "--suite", "small", "--tasks", "4")
REQUEST = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=1_000_000)
SPARE = "openai/spare"


def test_the_report_holds_what_was_expected_beside_what_was_spent(server, processes, tmp_path):
    """The truth lies within the estimate; the text says both in one line."""
    root = write_project(tmp_path / "project", server.url, price=100.0)
    dry = processes.run(*EVAL, "--dry-run", "--json", cwd=root).json
    done = processes.run(*EVAL, "--json", cwd=root)
    assert done.code == 3, done.stderr

    estimate, spend = done.json["estimate"], done.json["spend"]
    assert {name: dry[name] for name in estimate} == estimate
    assert set(estimate) == {"rollouts", "tokens", "usd"}
    for name, (low, high) in estimate.items():
        assert low <= spend[name] <= high
    assert spend["rollouts"] == 8
    assert spend["usd"] > 0
    text = processes.run(*EVAL, cwd=root).stdout
    assert "0 rollouts (8 reused)" in text
    assert "; estimated 8 rollouts, " in text


def test_the_bill_is_split_by_role_and_kept_with_the_run(server, processes, tmp_path):
    """The proposer's calls are in the spend, under their own name."""
    root = write_project(tmp_path / "project", server.url, price=100.0)
    done = processes.run("evolve", "mumble", "--suite", "small", "--json", cwd=root)
    spend = done.json["spend"]
    worker, proposer = spend["roles"]["worker"], spend["roles"]["proposer"]

    assert spend["model"] == MODEL
    assert proposer["calls"] == 1
    assert worker["calls"] == spend["rollouts"]
    assert worker["tokens"] + proposer["tokens"] == spend["tokens"]
    assert worker["usd"] + proposer["usd"] == pytest.approx(spend["usd"])
    assert events(root, "run.finished")[-1]["spend"] == spend
    told = [e["bill"] for e in events(root) if "bill" in e]
    for name in ("usd", "tokens", "calls"):
        for role in ("worker", "proposer"):
            kept = sum(bill[role][name] for bill in told if role in bill)
            assert kept == pytest.approx(spend["roles"][role][name])


def test_what_was_lost_is_carried_into_the_next_call(processes, tmp_path):
    """A run that spent its cap on cut replies has spent it, also when it is gone on with."""
    with LoopbackServer([cut()]) as broken:
        root = write_project(tmp_path / "project", broken.url)
        dry = processes.run(*EVAL, "--dry-run", "--json", cwd=root).json
        capped = (*EVAL, "--max-tokens", str(dry["tokens"][1] // 8 * 2))
        first = processes.run(*capped, cwd=root)
        asked = len(broken.requests)
        broken.script(small_project.answer)
        again = processes.run(*capped, cwd=root)

        assert (first.code, again.code) == (5, 5)
        assert asked >= 2
        assert len(broken.requests) == asked
        assert "going on with" in again.stderr
        assert processes.run(*EVAL, cwd=root).code == 3
    assert sum(e["bill"]["worker"]["tokens"] for e in events(root, "spend.booked")) > 0


def breaking_down(after):
    """Return a script that answers a few times and refuses from then on."""
    good = iter(range(after))

    def script(body):
        broken = next(good, None) is None
        return status(400, "out of order") if broken else small_project.answer(body)

    return script


@pytest.fixture
def standby(tmp_path):
    """A project whose model breaks down after three answers, that model, and its fallback."""
    with (
        LoopbackServer(breaking_down(after=3)) as first,
        LoopbackServer(small_project.answer) as spare,
    ):
        price = f'"{SPARE}" = {{ input_per_million = 100, output_per_million = 100 }}\n'
        # One call at a time, so that six in a row fail as soon as three are answered.
        root = write_project(tmp_path / "project", first.url, price=100.0, extra=price, parallel=1)
        settings = root / "skillforge.toml"
        fallback = f'fallback = "{SPARE}"\nfallback_api_base = "{spare.url}"\n[gate]'
        settings.write_text(settings.read_text().replace("[gate]", fallback))
        yield root, first, spare


EIGHT = ("eval", "shout", "--suite", "small", "--tasks", "8", "--json")


def test_a_fallback_runs_the_whole_job_anew(processes, standby):
    """When the worker's model goes down half-way, no pair and no contrast mixes two models.

    The interrupted run stays open and goes on with its own model once that answers again.
    """
    root, first, spare = standby
    done = processes.run(*EIGHT, cwd=root)
    assert done.code == 3, done.stderr
    first.script(small_project.answer)
    mended = processes.run(*EIGHT, cwd=root)

    assert f"starting anew with the fallback {SPARE}" in done.stderr
    assert (done.json["spend"]["model"], done.json["pairs"]) == (SPARE, 8)
    assert len(spare.requests) == 16
    assert {body["model"] for body in spare.requests} == {"spare"}
    assert "going on with" in mended.stderr
    assert (mended.json["spend"]["model"], mended.json["pairs"]) == (MODEL, 8)
    started = events(root, "run.started")
    assert len({e["request"]["worker"] for e in started}) == len(started) == 2
    assert event_counts(root)["run.finished"] == 2


def test_the_report_of_a_fallback_holds_what_both_models_cost(processes, standby):
    """The sum is that of all bills in the ledger; each run of which has its own in there."""
    root, _, _ = standby
    spend = processes.run(*EIGHT, cwd=root).json["spend"]
    own = events(root, "run.finished")[-1]["spend"]
    bills = [e["bill"]["worker"] for e in events(root) if e.get("bill")]

    assert (spend["model"], spend["first"]["model"]) == (SPARE, MODEL)
    for name in ("usd", "tokens", "rollouts"):
        assert spend["first"][name] > 0
        assert spend[name] == pytest.approx(own[name] + spend["first"][name])
    for name in ("usd", "tokens", "calls"):
        assert spend["roles"]["worker"][name] == pytest.approx(sum(bill[name] for bill in bills))
    counts = event_counts(root)
    assert spend["rollouts"] == counts["rollout.finished"] + counts["rollout.failed"]
    assert own["rollouts"] == 16


def test_the_caps_are_for_both_models_together(processes, standby):
    """The fallback gets what the first has left, says so, and stops where both have spent all."""
    root, _, spare = standby
    done = processes.run(*EIGHT, "--max-rollouts", "20", "--max-usd", "5", cwd=root)
    counts, left = event_counts(root), len(spare.requests)

    assert done.code == 5
    assert counts["rollout.finished"] == 3 + left
    assert counts["rollout.finished"] + counts["rollout.failed"] == 20
    assert f" usd, {left} rollouts left of the budget" in done.stderr
    assert f"the budget of {left} rollouts is spent (--max-rollouts)" in done.stderr


def test_an_eval_that_the_budget_stops_is_gone_on_with(server, processes, tmp_path):
    """Its run stays open and says so; under a larger cap it makes the rollouts that are missing."""
    root = write_project(tmp_path / "project", server.url)
    stopped = processes.run(*EVAL, "--max-rollouts", "3", cwd=root)
    again = processes.run(*EVAL, "--max-rollouts", "3", cwd=root)
    done = processes.run(*EVAL, "--max-rollouts", "8", "--json", cwd=root)

    assert (stopped.code, again.code, done.code) == (5, 5, 3)
    for refused in (stopped, again):
        assert "budget of 3 rollouts is spent (--max-rollouts); what was measured is kept" in (
            refused.stderr
        )
        assert "run the same command again with a larger cap to go on" in refused.stderr
    assert (done.json["spend"]["rollouts"], done.json["spend"]["cached"]) == (8, 3)
    assert event_counts(root)["run.started"] == event_counts(root)["run.finished"] == 1


@pytest.mark.parametrize("command", [("calibrate",), ("audit", "units", "mumble")])
def test_other_measurements_are_gone_on_with_too(server, processes, tmp_path, command):
    """What measures stays open; what it had measured is not measured again."""
    root = write_project(tmp_path / "project", server.url)
    full = (*command, "--suite", "small", "--tasks", "6")
    stopped = processes.run(*full, "--max-rollouts", "5", cwd=root)
    done = processes.run(*full, "--json", cwd=root)
    keys = [e["key"] for e in events(root, "rollout.finished")]

    assert (stopped.code, done.code) == (5, 0)
    assert "to go on with it" in stopped.stderr
    assert len(keys) == len(set(keys)) == done.json["spend"]["rollouts"]
    assert event_counts(root)["run.started"] == 1


def test_an_evolve_that_the_budget_stops_ends_and_the_next_has_a_budget_of_its_own(
    server, processes, tmp_path
):
    """As it says, the same command starts another run, and reuses diagnosis and screening."""
    root = write_project(tmp_path / "project", server.url)
    command = ("evolve", "mumble", "--suite", "small", "--json", "--max-rollouts")
    stopped = processes.run(*command, "70", cwd=root)  # to the gate, and not to its verdict
    before = event_counts(root)
    screening = [e for e in events(root, "rollout.finished") if e["purpose"] != "confirm"]
    again = processes.run(*command, "70", cwd=root)

    said = stopped.json["stopped_by"]
    assert said.startswith("the budget of 70 rollouts is spent (--max-rollouts); ")
    assert "run the same command again to start another one with a budget of its own" in said
    assert stopped.json["adopted"] is None
    assert before["run.finished"] == 1
    assert event_counts(root)["run.started"] == 2
    repeated = [e for e in events(root, "rollout.finished") if e["purpose"] != "confirm"]
    assert repeated == screening
    assert again.json["spend"]["cached"] >= len(screening)


CHANGES = {
    "evolve": ("anchors = 6", "anchors = 5"),
    "library_audits": ("library_audits = 1", "library_audits = 0"),
    "proposer": ("[gate]", 'proposer = "openai/spare"\n[gate]'),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_changed_setting_starts_another_run(server, processes, tmp_path, changed):
    """An interrupted run goes on as it was begun, or not at all; what has changed is named.

    What it had registered is decided on what was bet by then: nothing waits for it.
    """
    old, new = CHANGES[changed]
    nightly = changed == "library_audits"
    price = f'"{SPARE}" = {{ input_per_million = 0, output_per_million = 0 }}\n'
    root = write_project(tmp_path / "project", server.url, extra=price)
    command = ("nightly",) if nightly else ("evolve", "mumble")
    command = (*command, "--suite", "small", "--json")
    killed = processes.start(*command, cwd=root).kill_when(
        lambda: event_counts(root)["gate.registered"] > 0
    )
    assert killed.code < 0
    settings = root / "skillforge.toml"
    settings.write_text(settings.read_text().replace(old, new, 1))
    again = processes.start(*command, cwd=root)
    ended = again.kill_when(lambda: "this is a run of its own" in again.stderr)

    assert f"ends with what it has decided, for it was begun with another {changed}" in ended.stderr
    assert "going on with" not in ended.stderr
    assert event_counts(root)["run.started"] == 2
    with closing(SqliteLedger(root / ".skillforge" / "ledger.db")) as ledger:
        run = next(iter(ledger.events(kinds=("run.started",)))).run
        registered, decided, finished = (
            list(ledger.events(run=run, kinds=(kind,)))
            for kind in ("gate.registered", "gate.decided", "run.finished")
        )
        state = fold(ledger.events(kinds=FOLDED))
        assert replay(ledger).problems == ()
    assert {e.data["candidate"] for e in registered} == {e.data["candidate"] for e in decided}
    assert len(finished) == 1
    assert run not in state.open_runs
    assert not state.reserved.keys() & {e.data["candidate"] for e in registered}


@pytest.mark.parametrize(
    ("project", "suite", "usd"),
    [(None, None, 0.6), (None, 3.0, 3.0), (2.0, 3.0, 2.0), (0.0, 3.0, 0.0)],
    ids=["litellm", "suite", "project", "free"],
)
def test_whose_price_counts(tmp_path, project, suite, usd):
    """The project's prices win over the suite's, which win over litellm's list."""
    name = "openai/gpt-4o-mini"

    def table(price):
        both = {"input_per_million": 0.0, "output_per_million": price}
        return {} if price is None else {name: both}

    settings = Settings(model=ModelSection(worker=name), prices=table(project))
    model = make_model(Project(root=tmp_path, settings=settings), None, None, table(suite))

    assert model.cost_bound(REQUEST) == pytest.approx(usd, rel=1e-3)
