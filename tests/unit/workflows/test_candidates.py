"""From a proposal to a candidate: what is refused before it costs a rollout, and why."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from support.scripted import ScriptedModel
from support.world import PlantedWorker, make_world, skill, suite

from skillforge.core.anchors import units_digest
from skillforge.core.digest import sha256
from skillforge.core.edits import Edit
from skillforge.core.events import NewEvent
from skillforge.core.gate import Decision, GateRules
from skillforge.core.leaks import LeakIndex
from skillforge.core.package import Package, pack, unpack
from skillforge.core.units import find_unit
from skillforge.workflows.candidates import Candidate, make_candidate
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.nightly import Nightly, NightlySettings
from skillforge.workflows.propose import (
    Brief,
    Proposal,
    UnitUtility,
    no_change,
    propose_prune,
)
from skillforge.workflows.replay import replay
from skillforge.workflows.vouch import undo_is_proven

BODY = "# Ask\n\nAnswer.\n\n## Notes\n\nSee references/x.md.\n\n## Tips\n\nStay warm.\n"
BASE = skill("ask", BODY).replace_file("references/x.md", b"Words.\n")
TASKS = suite(["ask"]).tasks
LEAKS = LeakIndex(TASKS)


def anchored(package: Package, edit: Edit) -> Edit:
    """Return the edit with the digest of what it names."""
    digest = units_digest(package, [find_unit(package, unit_id) for unit_id in edit.named])
    return replace(edit, expected_digest=digest)


def candidate(edit: Edit, base: Package = BASE) -> Candidate:
    """Make a candidate of an edit."""
    proposal = Proposal(proposer="test", edit=edit)
    return make_candidate("run", base, proposal, {t.id: t for t in TASKS}, LEAKS)


def test_a_good_edit_goes_on_with_its_count_of_round_trips():
    """The candidate differs from the base (NousResearch/hermes-agent-self-evolution#87).

    It was undone in 22 of 22 states.
    """
    made = candidate(Edit(op="CREATE", content="## More\n\nBe brief."))
    assert made.open
    assert made.package is not None
    assert made.package.files["SKILL.md"] != BASE.files["SKILL.md"]
    assert made.to_json()["undo"] == {"states": 22, "passed": 22, "lower": 0.8513}


def test_no_change_is_a_candidate_with_a_decision():
    """A proposal to leave the skill alone is legal and costs nothing."""
    made = make_candidate("run", BASE, no_change("llm", "it is fine"), {}, LEAKS)
    assert (made.decision, made.reasons) == (Decision.NO_CHANGE, ("it is fine",))
    assert made.package is None
    assert made.to_json()["edits"] == [{"op": "NOOP", "unit": None, "summary": "it is fine"}]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit(op="PRUNE", unit="section:tips"), "has no `expected_digest`"),
        (Edit(op="UPDATE", target="description", content="x"), "has no `expected_digest`"),
        (Edit(op="PRUNE", unit="section:tips", expected_digest="0" * 64), "stale"),
        (anchored(BASE, Edit(op="PRUNE", unit="section:notes")), "points to references/x.md"),
        (anchored(BASE, Edit(op="PRUNE", unit="file:references/x.md")), "still points to it"),
        (Edit(op="CREATE", content="See [it](references/none.md)."), "leads to no file"),
        (Edit(op="CREATE", content="User: ask confirm question number 7\nA: answer-7"), "held out"),
        (Edit(op="CREATE", content="```\nopen"), "does not close it"),
        (
            Edit(
                op="UPDATE",
                target="description",
                content="Does a thing for a test.",
                expected_digest=sha256(b"Does a thing for a test."),
            ),
            "propose NOOP",
        ),
    ],
)
def test_what_cannot_stand_is_refused_with_what_to_do(edit: Edit, message: str):
    """Unanchored, stale, orphaning, leaking, damaging and empty edits never cost a rollout."""
    made = candidate(edit)
    assert made.decision is Decision.REFUSED
    assert message in made.reasons[0]
    assert made.package is None


def test_an_edit_that_is_not_undone_in_every_state_is_refused_with_the_count():
    """It rewrites nothing but line ends, so that in most states there is nothing to take back."""
    base = BASE.replace_file(
        "SKILL.md", BASE.files["SKILL.md"].data.replace(b"warm.\n", b"warm.\r")
    )
    base = base.replace_file("SKILL.md", base.files["SKILL.md"].data + b"Then\r\nrest.\n")
    edit = Edit(op="UPDATE", unit="section:tips", content="## Tips\n\nStay warm.\nThen\nrest.")
    made = candidate(anchored(base, edit), base)
    assert made.decision is Decision.REFUSED
    assert made.undo is not None
    assert 0 < made.undo.passed < made.undo.states == 22
    assert f"undone to the byte in {made.undo.passed} of 22 states" in made.reasons[0]
    assert made.to_json()["undo"]["lower"] < 0.85


def test_a_held_out_span_that_the_skill_held_before_is_no_leak():
    """The base package showed it already."""
    shown = "ask confirm question number 7\n\nanswer-7"
    base = skill("ask", f"# Ask\n\n{shown}\n\n## Tips\n\nStay warm.\n")
    assert candidate(Edit(op="CREATE", content=f"Again: {shown}"), base).open


def test_the_pruner_takes_along_what_nothing_else_points_to():
    """Leaving a section out leaves no orphan, and the audit still names the section."""
    unit = find_unit(BASE, "section:notes")
    row = UnitUtility(unit=unit, utility=-0.5, interval=None, pairs=4)
    (proposal,) = propose_prune(Brief(package=BASE, attempts=(), audit=(row,)))
    assert proposal.edit.named == ("section:notes", "file:references/x.md")
    made = candidate(proposal.edit)
    assert made.open
    assert set(made.package.files) == {"SKILL.md"}
    assert proposal.edit.subject == "section:notes, file:references/x.md"


def night(world, worker, run="night-1"):
    """Return a night over one skill."""
    tasks = suite(["ask"])
    evolver = Evolver(
        bench=world.bench(worker, run=run),
        curator=world.curator,
        suite=tasks,
        rules=GateRules(max_tasks=60),
        settings=EvolveSettings(),
        cohort_size=3,
    )
    return Nightly(
        evolver=evolver,
        suite=tasks,
        settings=NightlySettings(library_audits=0),
        make_retriever=lambda packages: None,
    )


def test_no_change_goes_all_the_way_through_evolve(tmp_path):
    """It is recorded and reported as a candidate, and costs no rollout of its own."""
    world = make_world(tmp_path, [PLAIN])
    answer = json.dumps({"cause": "fine", "op": "NOOP", "unit": "", "content": ""})
    evolver = night(world, PlantedWorker(base=0.1)).evolver
    evolver.proposer = ScriptedModel([answer])
    report = asyncio.run(evolver.evolve("ask")).to_json()

    (idle,) = [c for c in report["candidates"] if c["proposer"] == "llm"]
    assert (idle["decision"], idle["reasons"]) == ("no_change", ["fine"])
    assert (idle["version"], idle["screen"], idle["confirm"], idle["undo"]) == (
        None,
        {},
        None,
        None,
    )
    closed = [
        event.data
        for event in world.ledger.events(kinds=("candidate.closed",))
        if event.data["candidate"] == idle["id"]
    ]
    assert [data["decision"] for data in closed] == ["no_change"]
    assert replay(world.ledger).problems == ()


PLAIN = skill("ask", BODY.replace("See references/x.md.", "Calm."))


@pytest.fixture(scope="module")
def adopted(tmp_path_factory):
    """A world in which one edit was measured and adopted, its cohort still open."""
    world = make_world(tmp_path_factory.mktemp("adopted"), [PLAIN])
    worker = PlantedWorker(base=0.1, examples=0.8)
    report = asyncio.run(night(world, worker).evolver.evolve("ask"))
    return world, report


def test_the_count_of_round_trips_is_recorded_and_can_be_checked_again(adopted):
    """The event of the candidate holds it, and what is archived bears it out."""
    world, report = adopted
    (good,) = [c for c in report.candidates if c.decision is Decision.PROBATION]
    (event,) = [
        event
        for event in world.ledger.events(kinds=("candidate.proposed",))
        if event.data["candidate"] == good.id
    ]
    assert event.data["undo"] == {"states": 22, "passed": 22, "lower": 0.8513}
    assert undo_is_proven(world.curator, good.id)
    assert not undo_is_proven(world.curator, "unknown")


@pytest.mark.parametrize(
    ("damage", "promoted"),
    [
        ({}, 1),
        ({"candidate.proposed": {"undo": None}}, 0),
        ({"candidate.proposed": {"undo": {"states": 21, "passed": 21}}}, 0),
        ({"candidate.proposed": {"undo": {"states": 30, "passed": 29}}}, 0),
        ({"proposals.made": {"blob": sha256(b"[]")}}, 0),
        ({"proposals.made": {"blob": sha256(b"erased")}}, 0),
    ],
)
def test_a_promotion_without_a_proven_way_back_is_refused(tmp_path, adopted, damage, promoted):
    """Too few states, or an archive that does not hold the edit any more, keep it on probation."""
    first, report = adopted
    second = make_world(tmp_path, [PLAIN])
    second.ledger.put_blob(b"[]")
    events = list(first.ledger.events(run="night-1"))
    for event in events:
        for key in ("blob", "output_blob"):
            if event.data.get(key):
                second.ledger.put_blob(first.ledger.get_blob(event.data[key]))
        if event.kind == "candidate.proposed" and event.data["blob"]:
            package = unpack(first.ledger.get_blob(event.data["blob"]), first.ledger.get_blob)
            second.ledger.record([], blobs=pack(package))
    changed = [{**event.data, **damage.get(event.kind, {})} for event in events]
    second.ledger.append(
        [
            NewEvent(kind=event.kind, data=data, run=event.run)
            for event, data in zip(events, changed, strict=True)
        ]
    )
    night_report = asyncio.run(night(second, PlantedWorker()).run([]))

    assert report.adopted == second.curator.state.skill("ask").current
    assert len(night_report.promoted) == promoted
    (closed,) = second.ledger.events(kinds=("cohort.closed",))
    (member,) = [m for m in closed.data["members"] if m["e_value"] >= 20]
    assert member["decision"] == ("probation" if promoted else "refused")
    assert second.curator.state.skill("ask").evidence == ("promoted" if promoted else "probation")
    assert replay(second.ledger).problems == ()
