"""Frames of the ledger, against the reports and the gate that wrote it."""

import polars as pl
import pytest
from support.evolved import evolved_world
from support.world import PlantedWorker, make_world, skill

from skillforge import analytics
from skillforge.core.events import NewEvent
from skillforge.core.gate import Basis, GateRules, Registration, decide
from skillforge.core.records import ROLLOUTS, registered_outcomes
from skillforge.errors import SkillError


@pytest.fixture(scope="module")
def evolved(tmp_path_factory):
    """Return a world whose skill was evolved, and the report of it."""
    return evolved_world(tmp_path_factory.mktemp("world"))


def test_every_rollout_is_one_row(evolved):
    """The frame holds what the ledger's events hold, in their order."""
    world, _ = evolved
    frame = analytics.rollouts_frame(world.ledger)
    events = list(world.ledger.events(kinds=ROLLOUTS))

    assert frame["seq"].to_list() == [event.seq for event in events]
    assert frame["score"].to_list() == [event.data["score"] for event in events]
    assert frame["prompt_tokens"].sum() == sum(event.data["prompt_tokens"] for event in events)
    assert set(frame["purpose"]) == {"propose", "screen", "confirm"}
    assert frame["failure"].null_count() == frame.height


def test_rollouts_of_one_run_can_be_asked_for(evolved):
    """A run's name selects its rollouts, an unknown one selects none."""
    world, _ = evolved
    (run,) = analytics.spend_frame(world.ledger)["run"]

    assert analytics.rollouts_frame(world.ledger, run=run).height > 0
    assert analytics.rollouts_frame(world.ledger, run="none").height == 0


def test_failures_say_whose_fault_they_are(tmp_path):
    """An infrastructure failure has no score and names its kind, place and message."""
    broken = PlantedWorker(base=0.2, examples=0.5, broken=frozenset({"ask/propose/3"}))
    world, _ = evolved_world(tmp_path, worker=broken)
    failed = analytics.rollouts_frame(world.ledger).filter(pl.col("failure").is_not_null())

    assert failed["score"].to_list() == [None] * failed.height
    assert failed.select("task", "failure", "failure_where", "failure_message").unique().rows() == [
        ("ask/propose/3", "infra", "model", "no route")
    ]


def test_decisions_are_those_of_the_report(evolved):
    """One row per candidate, with the numbers that the report prints."""
    world, report = evolved
    rows = analytics.decisions_frame(world.ledger).rows(named=True)
    candidates = [candidate.to_json() for candidate in report.candidates]

    assert [row["candidate"] for row in rows] == [c["id"] for c in candidates]
    for row, candidate in zip(rows, candidates, strict=True):
        (edit,) = candidate["edits"]
        assert (row["op"], row["unit"], row["summary"]) == tuple(edit.values())
        assert row["screen_reward"] == candidate["rollback_reward"]
        assert row["decision"] == candidate["decision"]
        confirm = candidate["confirm"] or dict.fromkeys(("pairs", "gains", "e_value", "e_harm"))
        for name in ("pairs", "gains", "e_value", "e_harm"):
            assert row[name] == confirm[name]
        if candidate["confirm"]:
            assert [row["lift_low"], row["lift_high"]] == candidate["confirm"]["lift_interval"]
            assert row["dropped"] == 0


def test_a_screened_out_candidate_keeps_its_reward(tmp_path):
    """A candidate that the screen ends has its reward and its reasons, and no confirm numbers."""
    world, _ = evolved_world(tmp_path, max_confirm=1)
    frame = analytics.decisions_frame(world.ledger)
    out = frame.filter(pl.col("decision") == "screened_out")

    assert out.height > 0
    assert out["screen_reward"].null_count() == 0
    assert out["pairs"].null_count() == out["e_value"].null_count() == out.height
    assert all(out["reasons"].list.len() == 1)


def test_a_promotion_replaces_probation(tmp_path):
    """The cohort's verdict is the last word on a candidate."""
    world, report = evolved_world(tmp_path)
    winner = next(c for c in report.candidates if c.package.version == report.adopted)
    promoted = [{"candidate": winner.id, "skill": "ask", "version": report.adopted}]
    data = {"fdr": 0.1, "members": [], "promoted": promoted}
    world.ledger.append([NewEvent(kind="cohort.closed", data=data, run="night")])
    frame = analytics.decisions_frame(world.ledger)

    assert frame.filter(pl.col("candidate") == winner.id)["decision"].item() == "promoted"


def test_an_audit_of_a_skill_is_a_candidate_without_an_edit(tmp_path):
    """What was registered without having been proposed names its lineage as its proposer."""
    world = make_world(tmp_path, [skill("ask", "Ask.")])
    audit = Registration(
        candidate="c1",
        skill="ask",
        base="with:1",
        version="without:1",
        basis=Basis.LIFT,
        rules=GateRules(),
        order=("a", "b"),
        enough=20.0,
        lineage="ask/library-audit",
    )
    world.ledger.append([NewEvent(kind="gate.registered", data=audit.to_json(), run="night")])
    (row,) = analytics.decisions_frame(world.ledger).rows(named=True)

    assert (row["proposer"], row["op"], row["decision"]) == ("library-audit", None, None)
    assert analytics.pairs_frame(world.ledger, "c1").height == 0


def test_running_evidence_is_the_gates(evolved):
    """After each task, the e-values are those of a gate that saw the pairs up to there."""
    world, _ = evolved
    for event in world.ledger.events(kinds=("gate.registered",)):
        registration = Registration.from_json(dict(event.data))
        outcomes = registered_outcomes(world.ledger.events, event.run, registration)
        frame = analytics.pairs_frame(world.ledger, registration.candidate)
        for n, row in enumerate(frame.iter_rows(named=True), start=1):
            result = decide(
                outcomes[:n], registration.rules, registration.basis, enough=registration.enough
            )
            assert row["position"] == result.used == n
            assert row["task"] == registration.order[n - 1]
            assert row["e_value"] == result.evidence.e_value
            assert row["e_harm"] == result.evidence.e_harm
            assert row["e_futility"] == result.evidence.e_futility


def test_running_evidence_ends_where_the_decision_stands(evolved):
    """The last row has the decision's e-value, and the outcomes add up to its counts."""
    world, _ = evolved
    measured = analytics.decisions_frame(world.ledger).filter(pl.col("pairs") > 0)
    assert measured.height > 0
    for row in measured.iter_rows(named=True):
        frame = analytics.pairs_frame(world.ledger, row["candidate"])
        counts = dict(frame["outcome"].value_counts().rows())
        assert frame["e_value"][-1] == row["e_value"]
        assert frame.height == row["pairs"]
        assert frame["difference"].mean() == pytest.approx(row["lift"])
        assert counts.get("gain", 0) == row["gains"]
        assert counts.get("regression", 0) == row["regressions"]
        assert frame["proven_at"].unique().to_list() == [20.0]
        assert frame["harm_at"].unique().to_list() == [5.0]


def test_a_void_pair_moves_no_evidence(tmp_path):
    """A pair lost to infrastructure has a row without scores, and the e-values stay."""
    lost = frozenset(f"ask/confirm/{i}" for i in range(0, 120, 5))
    world, _ = evolved_world(tmp_path, worker=PlantedWorker(base=0.2, examples=0.5, broken=lost))
    candidate = analytics.decisions_frame(world.ledger).filter(pl.col("pairs") > 0)["candidate"][0]
    rows = analytics.pairs_frame(world.ledger, candidate).rows(named=True)
    voids = [i for i, row in enumerate(rows) if row["outcome"] == "void"]

    assert voids
    for i in voids:
        assert rows[i]["task"] in lost
        assert rows[i]["base"] is rows[i]["augmented"] is rows[i]["difference"] is None
        assert rows[i]["e_value"] == (rows[i - 1]["e_value"] if i else 1.0)


def test_an_unknown_candidate_is_an_error(evolved, tmp_path):
    """The error names near candidates, or says that there are none."""
    world, report = evolved
    known = report.candidates[0].id
    with pytest.raises(SkillError, match=f"did you mean {known}"):
        analytics.pairs_frame(world.ledger, known[:-1] + "-")
    empty = make_world(tmp_path, [])
    with pytest.raises(SkillError, match="nothing has been proposed yet"):
        analytics.pairs_frame(empty.ledger, "none")


def test_spend_is_that_of_the_run(evolved):
    """One row per run, with what its last event says it spent."""
    world, _ = evolved
    (row,) = analytics.spend_frame(world.ledger).rows(named=True)
    (finished,) = world.ledger.events(kinds=("run.finished",))

    assert (row["command"], row["stopped_by"]) == ("evolve", "done")
    sums = {k: v for k, v in finished.data["spend"].items() if k != "roles"}
    for name, value in sums.items():
        assert row[name] == value
    assert row["rollouts"] == analytics.rollouts_frame(world.ledger).height


def test_an_open_run_has_no_amounts_yet(tmp_path):
    """A run that has not ended is listed, and its amounts are unknown rather than zero."""
    world = make_world(tmp_path, [])
    data = {"command": "eval", "fingerprint": "f", "request": {}, "library_digest": ""}
    world.ledger.append([NewEvent(kind="run.started", data=data, run="eval-1")])
    (row,) = analytics.spend_frame(world.ledger).rows(named=True)

    assert (row["run"], row["command"]) == ("eval-1", "eval")
    assert row["stopped_by"] is row["usd"] is row["rollouts"] is None


def test_history_tells_the_life_of_a_skill(evolved):
    """Import, proposals, decisions and adoption are told in order, with times in UTC."""
    world, report = evolved
    frame = analytics.history_frame(world.ledger, "ask")

    assert frame["event"][0] == "skill.imported"
    assert frame["event"][-1] == "version.adopted"
    assert frame["version"][-1] == report.adopted
    assert frame["seq"].is_sorted()
    assert frame.schema["at"] == pl.Datetime("us", "UTC")
    assert analytics.history_frame(world.ledger, "nobody").height == 0


def test_retired_skills_are_listed_on_request(tmp_path):
    """The frame of skills holds the served ones, or every one."""
    world = make_world(tmp_path, [skill("ask", "Ask."), skill("old", "Old.")])
    world.curator.retire("old", evidence={}, reason="test")

    assert analytics.skills_frame(world.curator.state)["skill"].to_list() == ["ask"]
    every = analytics.skills_frame(world.curator.state, every=True)
    assert every.select("skill", "status", "served").rows() == [
        ("ask", "promoted", True),
        ("old", "retired", False),
    ]


def test_empty_ledgers_give_empty_frames_of_the_same_columns(evolved, tmp_path):
    """Columns and types do not depend on whether there is anything to show."""
    full, _ = evolved
    empty = make_world(tmp_path, [])
    for frame_of in (
        analytics.rollouts_frame,
        analytics.decisions_frame,
        analytics.spend_frame,
        lambda ledger: analytics.history_frame(ledger, "ask"),
    ):
        assert frame_of(empty.ledger).height == 0
        assert frame_of(empty.ledger).schema == frame_of(full.ledger).schema
    skills = analytics.skills_frame(empty.curator.state)
    assert skills.schema == analytics.skills_frame(full.curator.state).schema
