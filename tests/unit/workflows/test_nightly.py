"""A night over a small planted library."""

import asyncio

from support.world import DotIndex, LetterEmbedder, PlantedWorker, make_world, skill, suite

from skillforge.core.gate import GateRules
from skillforge.workflows.cohorts import OPEN, read_cohorts
from skillforge.workflows.evolve import Evolver, EvolveSettings
from skillforge.workflows.nightly import Nightly, NightlySettings, planned_night
from skillforge.workflows.replay import replay
from skillforge.workflows.retrieve import build_retriever
from skillforge.workflows.spend import Caps

GOOD = "# Alpha\n\nAnswer alpha questions.\n\n## More\n\nBe brief.\n"
FINE = "# Beta question number\n\nbeta question number.\n\n## Work\n\neffect: work +0.7\n"
STALE = (
    "# Beta question number\n\nbeta confirm question number, beta confirm question number.\n\n"
    "## Old\n\neffect: old -0.2\n"
)


def library():
    """Return a skill that examples help, a good one, and a stale one that shadows it."""
    return [
        skill("alpha", GOOD, "Answers alpha confirm question number tasks."),
        skill("beta", FINE, "Answers beta things."),
        skill("beta-old", STALE, "beta confirm question number"),
    ]


def nightly(world, worker, *, caps=None, run="night-1", max_tasks=60):
    """Return a night over the planted library."""
    tasks = suite(["alpha", "beta"])
    evolver = Evolver(
        bench=world.bench(worker, caps=caps, run=run),
        curator=world.curator,
        suite=tasks,
        rules=GateRules(max_tasks=max_tasks),
        settings=EvolveSettings(),
        cohort_size=3,
    )
    return Nightly(
        evolver=evolver,
        suite=tasks,
        settings=NightlySettings(library_audits=1),
        make_retriever=lambda packages: build_retriever(packages, LetterEmbedder(), DotIndex),
    )


def test_a_night_promotes_retires_and_can_be_replayed(tmp_path):
    """The helped skill is promoted, the stale one retired, and replay recomputes it all."""
    world = make_world(tmp_path, library())
    night = nightly(world, PlantedWorker(base=0.2, examples=0.75))
    report = asyncio.run(night.run(["alpha"])).to_json()

    assert [p["skill"] for p in report["promoted"]] == ["alpha"]
    assert [r["skill"] for r in report["retired"]] == ["beta-old"]
    assert report["retired"][0]["confirm"]["e_value"] >= 20
    assert world.curator.state.skill("alpha").evidence == "promoted"
    assert world.curator.state.served == ("alpha", "beta")
    assert not (tmp_path / "skills" / "beta-old").exists()
    assert "beta" in report["unmeasured"]
    found = replay(world.ledger)
    assert found.problems == ()
    assert found.chain_ok


def test_a_retired_skill_comes_back_byte_for_byte(tmp_path):
    """Restoring undoes a retirement, whole package and all."""
    world = make_world(tmp_path, library())
    before = world.library.versions()
    asyncio.run(nightly(world, PlantedWorker(base=0.2)).run([]))
    assert "beta-old" not in world.curator.state.served

    world.curator.restore("beta-old")
    assert world.library.versions() == before


def test_a_night_out_of_budget_still_closes_its_cohort(tmp_path):
    """What was started is counted, what stopped it is said, and no cap is passed."""
    world = make_world(tmp_path, library())
    worker = PlantedWorker(base=0.2, examples=0.3)
    report = asyncio.run(nightly(world, worker, caps=Caps(rollouts=140)).run(["alpha", "beta"]))

    assert "140 rollouts" in report.stopped_by
    assert len(worker.calls) == 140
    assert len(list(world.ledger.events(kinds=("cohort.closed",)))) == 1
    assert "beta" in report.unmeasured


def test_every_started_candidate_counts_in_its_cohort(tmp_path):
    """The cohort holds each registered candidate once, and none after it is closed."""
    world = make_world(tmp_path, library())
    asyncio.run(nightly(world, PlantedWorker(base=0.5)).run(["alpha"]))
    started = list(world.ledger.events(kinds=("gate.registered",)))
    (closed,) = world.ledger.events(kinds=("cohort.closed",))
    proposed = {e.data["candidate"] for e in world.ledger.events(kinds=("candidate.proposed",))}

    assert [m["candidate"] for m in closed.data["members"]] == [
        e.data["candidate"] for e in started if e.data["candidate"] in proposed
    ]
    assert read_cohorts(world.ledger).members(OPEN) == []


def test_the_same_night_again_changes_nothing(tmp_path):
    """A rerun of a run that was cut off after its last step repeats no rollout and no decision."""
    world = make_world(tmp_path, library())
    worker = PlantedWorker(base=0.2, examples=0.75)
    first = asyncio.run(nightly(world, worker).run(["alpha"])).to_json()
    calls, digest = len(worker.calls), world.curator.state.digest
    second = asyncio.run(nightly(world, worker).run(["alpha"])).to_json()

    assert len(worker.calls) == calls
    assert world.curator.state.digest == digest
    assert second["promoted"] == first["promoted"]
    assert second["skills"] == first["skills"]


def test_a_killed_night_shows_beside_a_skill_what_it_showed_before(tmp_path):
    """With two skills a task, what the night has adopted since changes nothing that it measured."""
    world, worker = make_world(tmp_path, library()), PlantedWorker(base=0.2, examples=0.75)

    def night():
        again = nightly(world, worker)
        served = {
            name: world.curator.state.skill(name).current for name in world.curator.state.served
        }
        order, then = planned_night(world.ledger, "night-1", ["alpha", "beta"], served)
        packages = {name: world.curator.package(name, version) for name, version in then.items()}
        again.evolver.settings = EvolveSettings(k=2)
        again.evolver.retriever = again.make_retriever(packages)
        return asyncio.run(again.run(order)).to_json()

    first, calls = night(), len(worker.calls)
    assert first["skills"][0]["adopted"]
    assert night()["skills"] == first["skills"]
    assert len(worker.calls) == calls


def test_a_night_killed_after_it_retired_what_it_evolved_goes_on(tmp_path):
    """The skill is gone by then; the same night again ends the same, and promotes nothing of it."""
    body = GOOD + "\n## Old way\n\neffect: old -0.3\n"
    world = make_world(tmp_path, [skill("alpha", body), skill("beta", FINE)])
    worker = PlantedWorker(base=0.45, examples=0.5)
    first = asyncio.run(nightly(world, worker, max_tasks=120).run(["alpha"])).to_json()
    calls, digest = len(worker.calls), world.curator.state.digest
    assert [r["skill"] for r in first["retired"]] == ["alpha"]
    assert first["promoted"] == []

    again = asyncio.run(nightly(world, worker, max_tasks=120).run(["alpha"])).to_json()
    assert again == first
    assert (len(worker.calls), world.curator.state.digest) == (calls, digest)


def test_what_is_proven_but_not_adopted_is_not_promoted(tmp_path):
    """Of two proven edits of one skill only the served one can be promoted; both count."""
    body = GOOD + "\n## Old way\n\neffect: old -0.3\n"
    world = make_world(tmp_path, [skill("alpha", body), skill("beta", FINE)])
    night = nightly(world, PlantedWorker(base=0.45, examples=0.5), max_tasks=120)
    night.settings = NightlySettings(library_audits=0)
    report = asyncio.run(night.run(["alpha"])).to_json()

    proven = [c for s in report["skills"] for c in s["candidates"] if c["decision"] == "probation"]
    assert len(proven) == 2
    (promoted,) = report["promoted"]
    assert promoted["version"] == report["skills"][0]["adopted"]
    (closed,) = world.ledger.events(kinds=("cohort.closed",))
    assert {c["id"] for c in proven} <= {m["candidate"] for m in closed.data["members"]}
    assert replay(world.ledger).problems == ()


def test_what_a_night_stages_gets_its_cohorts_verdict_and_stands_on_it_when_adopted(tmp_path):
    """A night that writes nothing promotes what is staged; adopting it later says so."""
    world = make_world(tmp_path, library())
    night = nightly(world, PlantedWorker(base=0.2, examples=0.75))
    night.evolver.settings = EvolveSettings(stage_only=True)
    before = world.library.read("alpha")
    report = asyncio.run(night.run(["alpha"])).to_json()

    assert world.library.read("alpha") == before
    (staged,) = world.curator.state.staged["alpha"]
    assert [p["version"] for p in report["promoted"]] == [staged.version]
    assert staged.evidence == "promoted"
    assert world.curator.adopt("alpha") == staged.version == world.library.read("alpha").version
    assert world.curator.state.skill("alpha").evidence == "promoted"
    assert world.curator.state.current("alpha").status.value == "promoted"
    assert replay(world.ledger).problems == ()
