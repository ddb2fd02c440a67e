"""What paying commands estimate, spend, write down and carry on, and what a fallback does."""

import pytest
from support import small_project
from support.loopback import LoopbackServer, cut, status
from support.small_project import MODEL, event_counts, events, write_project

from skillforge.adapters.project import ModelSection, Project, Settings
from skillforge.cli.session import make_model
from skillforge.core.chat import ChatRequest, Message

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


def test_a_fallback_runs_the_whole_job_anew(processes, tmp_path):
    """When the worker's model goes down half-way, no pair and no contrast mixes two models.

    The interrupted run stays open and goes on with its own model once that answers again.
    """
    with (
        LoopbackServer(small_project.answer) as first,
        LoopbackServer(small_project.answer) as spare,
    ):
        price = f'"{SPARE}" = {{ input_per_million = 0, output_per_million = 0 }}\n'
        root = write_project(tmp_path / "project", first.url, extra=price)
        settings = root / "skillforge.toml"
        fallback = f'fallback = "{SPARE}"\nfallback_api_base = "{spare.url}"\n[gate]'
        settings.write_text(settings.read_text().replace("[gate]", fallback))
        first.script(breaking_down(after=3))
        command = ("eval", "shout", "--suite", "small", "--tasks", "8", "--json")
        done = processes.run(*command, cwd=root)
        assert done.code == 3, done.stderr
        first.script(small_project.answer)
        mended = processes.run(*command, cwd=root)

    assert f"starting anew with the fallback {SPARE}" in done.stderr
    assert (done.json["spend"]["model"], done.json["pairs"]) == (SPARE, 8)
    assert len(spare.requests) == 16
    assert {body["model"] for body in spare.requests} == {"spare"}
    assert "going on with" in mended.stderr
    assert (mended.json["spend"]["model"], mended.json["pairs"]) == (MODEL, 8)
    started = events(root, "run.started")
    assert len({e["request"]["worker"] for e in started}) == len(started) == 2
    assert event_counts(root)["run.finished"] == 2


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
