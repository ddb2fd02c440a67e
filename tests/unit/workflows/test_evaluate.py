"""Evaluations in a planted world: two arms, and three that take the effect apart."""

import asyncio
import itertools
import json

import pytest
from support.world import PlantedWorker, make_world, skill, suite

from skillforge.core.arms import THREE_ARMS
from skillforge.core.gate import GateRules
from skillforge.core.shown import description_only
from skillforge.workflows.evaluate import evaluate

ASK = skill("ask", "# Ask\n\neffect: body +0.6", description="Asks.")


class ListedWorker(PlantedWorker):
    """Solves more tasks as soon as a skill is listed, with its body or without."""

    async def attempt(self, task, skills, *, seed):
        """Solve the task or not; the seed of a task is its number, so that arms are coupled."""
        self.base = 0.3 + 0.3 * bool(skills)
        number = int(task.id.rpartition("/")[2])
        return await super().attempt(task, skills, seed=number)


@pytest.fixture
def world(tmp_path):
    """A library with one skill, whose body adds 60 points."""
    return make_world(tmp_path, [ASK])


def run(world, worker=None, *, tasks=60, **how):
    """Evaluate the skill on fresh tasks."""
    worker = worker or PlantedWorker(base=0.2)
    work = evaluate(
        world.bench(worker),
        world.curator,
        suite(["ask"]),
        "ask",
        GateRules(),
        tasks=tasks,
        **how,
    )
    return asyncio.run(work)


def rollouts(world):
    """Return the stored rollouts."""
    return [event.data for event in world.ledger.events(kinds=("rollout.finished",))]


def test_two_arms_have_one_effect(world):
    """Net and tax follow from the outcomes, and every change is named with its traces."""
    found = run(world).to_json()

    assert found["arms"] == ["base", "augmented"]
    assert "contrasts" not in found
    assert found["net"] == found["gains"] - found["regressions"] > 0
    assert found["tax"] == found["regressions"] / found["gains"]
    assert (len(found["gained"]), len(found["regressed"])) == (found["gains"], found["regressions"])
    assert found["regressions"] > 0
    scores = {(r["task"], r["output_blob"]): r["score"] for r in rollouts(world)}
    for word, expected in (("gained", (0.0, 1.0)), ("regressed", (1.0, 0.0))):
        for changed in found[word]:
            traces = [changed["traces"][arm] for arm in ("base", "augmented")]
            assert tuple(scores[changed["task"], blob] for (blob,) in traces) == expected


def test_a_trace_opens(world):
    """The hashes that a report names hold what was answered."""
    found = run(world, tasks=20)
    changed = found.whole.gained[0]
    (blob,) = changed.traces["augmented"]

    answer = json.loads(world.ledger.get_blob(blob))["output"]
    assert answer == f"answer-{changed.task.rpartition('/')[2]}"


def test_without_a_gain_there_is_no_tax(tmp_path):
    """Regressions for each gain are undefined without gains: null, never 0."""
    world = make_world(tmp_path, [skill("ask", "effect: body -0.9")])
    found = run(world, PlantedWorker(base=0.9)).to_json()

    assert found["gains"] == 0
    assert found["regressions"] > 10
    assert found["tax"] is None
    assert found["net"] == -found["regressions"]


def test_three_arms_take_the_effect_apart(world):
    """What being listed does and what the body does add up to the whole, task by task."""
    found = run(world, ListedWorker(), tasks=100, arms=THREE_ARMS)
    listed, body, whole = found.effects

    assert [e.name for e in found.effects] == ["listed", "body", "whole"]
    assert listed.arms == ("none", "description")
    assert listed.result.evidence.lift == pytest.approx(0.3, abs=0.1)
    assert body.result.evidence.lift == pytest.approx(0.4, abs=0.1)
    assert whole.result.evidence.lift == pytest.approx(
        listed.result.evidence.lift + body.result.evidence.lift
    )
    assert found.result is whole.result
    assert found.to_json()["multiplicity"]["alpha_each"] == pytest.approx(0.05 / 3)
    assert [c["effect"] for c in found.to_json()["contrasts"]] == ["listed", "body", "whole"]


def test_each_rollout_is_run_once_in_a_mixed_order(world):
    """Three rollouts a task serve three contrasts; the arms alternate in a seeded order."""
    worker = PlantedWorker(base=0.2)
    run(world, worker, tasks=40, arms=THREE_ARMS)
    stored = rollouts(world)

    assert len(worker.calls) == len(stored) == 120
    order = [r["arm"] for r in stored]
    runs = 1 + sum(a != b for a, b in itertools.pairwise(order))
    assert runs > 60  # 80 on average where chance decides, 3 where arms come one after another


def test_arms_differ_in_what_is_shown_of_one_version(world):
    """The subject is the real version, whatever an arm shows of it."""
    worker = PlantedWorker()
    found = run(world, worker, tasks=10, arms=THREE_ARMS)
    subjects = {(r["arm"], r["subject"]) for r in rollouts(world)}

    assert subjects == {("none", ""), ("description", ASK.version), ("full", ASK.version)}
    assert found.version == ASK.version
    assert len({shown for _, shown in worker.calls}) == 3
    assert description_only(ASK).version != ASK.version


def test_what_two_arms_measured_serves_three(world):
    """Arms that show the same share their rollouts, also across evaluations."""
    run(world, tasks=30)
    worker = PlantedWorker(base=0.2)
    found = run(world, worker, tasks=30, arms=THREE_ARMS)

    assert len(worker.calls) == 30  # the description alone is new
    assert {r["arm"] for r in rollouts(world)[60:]} == {"description"}
    assert found.whole.table == run(world, tasks=30).whole.table


def test_the_effects_share_the_error_rate(tmp_path):
    """Seven straight wins prove a lift of two arms, and nine are needed where three are asked."""
    world = make_world(tmp_path, [skill("ask", "effect: body +1")])
    one = run(world, PlantedWorker(base=0.0), tasks=8)
    three = run(world, PlantedWorker(base=0.0), tasks=8, arms=THREE_ARMS)

    assert one.result.decision.value == "probation"
    assert three.result.decision.value == "insufficient_evidence"
    assert three.result.evidence.mde is None or three.result.evidence.mde > one.result.evidence.mde
    many = run(world, PlantedWorker(base=0.0), tasks=12, arms=THREE_ARMS)
    assert many.result.decision.value == "probation"


def test_a_void_in_one_arm_leaves_the_other_contrast(world):
    """An infrastructure failure takes the pairs that it stands in, and is counted there."""
    broken = "ask/confirm/3"

    class Breaks(PlantedWorker):
        async def attempt(self, task, skills, *, seed):
            full = any("effect" in skill.body for skill in skills)
            self.broken = frozenset({broken} if full else ())
            return await super().attempt(task, skills, seed=seed)

    effects = run(world, Breaks(), tasks=120, arms=THREE_ARMS).effects
    listed, body, whole = effects

    assert [e.to_json()["voided"] for e in effects] == [[], [broken], [broken]]
    assert (listed.table.pairs, body.table.pairs, whole.table.pairs) == (120, 119, 119)
    assert dict(whole.table.dropped) == {"base": 0, "augmented": 1}
