"""Faults reported in public about gates, triggers and verifiers, and what happens here instead.

Each docstring names the report. Where the reported tool has no counterpart here, the test is of the
nearest behaviour, and says so.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.evolved import evolved_world
from support.world import PlantedWorker, make_world, skill, suite

from skillforge.adapters.suites import load_suite
from skillforge.adapters.workers import ChatWorker
from skillforge.core.gate import Basis, CohortMember, Decision, GateRules, decide, promote
from skillforge.core.intervals import bca_interval, cluster_se
from skillforge.core.paired_tests import sign_flip_test
from skillforge.core.rollout import Pair, Verdict
from skillforge.core.splits import check_splits
from skillforge.core.task import Split, Suite, Task, VerifierSpec, WorkerSpec
from skillforge.core.verify import DataOnlyVerifier, check_options, verify
from skillforge.errors import BudgetSpent, InfraError, StatisticsError, SuiteError
from skillforge.workflows import contrast
from skillforge.workflows.contrast import Context
from skillforge.workflows.spend import Caps
from skillforge.workflows.suite_check import check_suite

REPORTS = Path(__file__).resolve().parents[2] / "shared" / "cases" / "public-reports.jsonl"
RULES = GateRules()


def pairs(d):
    """Return binary pairs with these differences."""
    return [
        Pair(task=f"t{i}", family="f", base=float(x < 0), augmented=float(x > 0))
        for i, x in enumerate(d)
    ]


def judge(outcomes, basis=Basis.LIFT):
    """Run the gate as it is registered for a single candidate."""
    return decide(outcomes, RULES, basis, enough=1 / RULES.alpha)


def a_suite(*tasks):
    """Return a suite of some tasks."""
    return Suite(
        name="tiny",
        version="1",
        license="MIT",
        source="the tests",
        tasks=tasks,
        worker=WorkerSpec(),
        digest="d",
    )


def a_task(name, **fields):
    """Return a task that wants its own name as the answer."""
    values = {"family": f"f-{name}", "input": f"say {name}", "expected": name, "skill": "s"}
    values |= {"split": Split.CONFIRM, "verifier": VerifierSpec(kind="exact")}
    return Task(id=name, **(values | fields))


class Wavering:
    """A verifier that says the one thing and then the other."""

    def __init__(self):
        self.scores = itertools.cycle([0.0, 1.0])

    async def verify(self, task, attempt):
        """Score without a look at the answer."""
        del task, attempt
        return Verdict(score=next(self.scores), failure=None)


def checked(*tasks, verifier=None):
    """Check a suite of some tasks."""
    return asyncio.run(check_suite(a_suite(*tasks), verifier or DataOnlyVerifier()))


@pytest.mark.skipif(not REPORTS.is_file(), reason="the list of public reports is not here")
def test_every_report_is_named_by_a_test():
    """The `ref` of each row stands in the docstring of some test."""
    rows = [json.loads(line) for line in REPORTS.read_text(encoding="utf-8").splitlines()]
    refs = [row["ref"] for row in rows]
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    words = " ".join(" ".join(file.read_text(encoding="utf-8").split()) for file in files)

    assert len(refs) >= 61
    assert [ref for ref in refs if ref not in words] == []


# --- Gates --------------------------------------------------------------------------------------


def test_identical_arms_rarely_get_a_verdict_and_small_samples_never():
    """dotnet/skills#952: 27 % of A/A verdicts flipped, on n ≤ 3 and zero-width intervals.

    Here an A/A run passes with rate α at most, no three tasks prove anything, and differences
    without spread have no interval.
    """
    rng, runs = np.random.default_rng(70), 400
    passed = sum(
        judge(pairs(rng.choice([1, -1, 0], p=[0.15, 0.15, 0.7], size=60))).decision
        is Decision.PROBATION
        for _ in range(runs)
    )
    assert passed / runs <= 0.05 + 2 * (0.05 * 0.95 / runs) ** 0.5
    for d in itertools.product([1, 0, -1], repeat=3):
        for n in (0, 1, 2, 3):
            result = judge(pairs(d[:n]))
            assert result.decision is Decision.INSUFFICIENT_EVIDENCE
            assert n >= 2 or result.evidence.lift_interval is None
    with pytest.raises(StatisticsError, match="not certainty"):
        bca_interval([0.5] * 10, rng)
    with pytest.raises(StatisticsError, match="not certainty"):
        cluster_se([0.5] * 10, list(range(10)))


def test_three_better_holdout_items_are_no_win():
    """NousResearch/hermes-agent-self-evolution#135 / #136: `improvement > 0` on 3 items won.

    The sign-flip p-value of three wins is 1/8, and the gate asks for more tasks, naming how many.
    """
    result = judge(pairs([1, 1, 1]))

    assert sign_flip_test([1.0, 1.0, 1.0], rng=np.random.default_rng(0)) == 0.125
    assert result.decision is Decision.INSUFFICIENT_EVIDENCE
    assert "takes 7 straight wins; 3 pairs cannot" in result.reasons[0]


def test_the_set_that_decides_was_never_searched(tmp_path):
    """gepa-ai/gepa#308 / #133: one set served both the search and the final choice.

    The tasks on which a candidate was proposed, chosen and confirmed have none in common.
    """
    world, report = evolved_world(tmp_path)
    used = {"propose": set(), "screen": set(), "confirm": set()}
    for event in world.ledger.events(kinds=("rollout.finished",)):
        used[event.data["purpose"]].add(event.data["task"])

    assert report.candidates
    assert all(used.values())
    assert not any(a & b for a, b in itertools.combinations(used.values(), 2))


def test_splits_are_disjoint_and_arms_differ_in_the_skill_alone():
    """davidberenstein1957/dspydantic#23: validation equalled training, and demos were one-sided.

    A task in two splits is named; the two arms' prompts are equal but for the skill's body.
    """
    task = a_task("a")
    (problem,) = check_splits([task, a_task("a", input="other", split=Split.PROPOSE)])
    assert problem.startswith("task 'a' stands in 2 splits (propose, confirm)")

    package = skill("ask", "# Ask\n\nSAY IT.")
    worker = ChatWorker(model=None, spec=WorkerSpec())
    cells = [
        contrast.arm_cells(
            [task], arm=arm, package=shown, context=Context(skill="ask"), purpose="eval"
        )[0]
        for arm, shown in (("base", None), ("augmented", package))
    ]
    base, augmented = (worker.prompt(cell.task, cell.skills).messages for cell in cells)
    assert augmented[1] == base[1]
    assert augmented[0].content == f"{base[0].content}\n\n{package.body.strip()}"


def test_a_transcript_is_no_task_file(tmp_path):
    """microsoft/SkillOpt#62: headless and sub-agent transcripts were counted as user tasks.

    There is no importer of traces here. The nearest: a transcript in place of a task file is
    refused, each line by its number, so that no trace becomes a task unseen.
    """
    head = 'name = "t"\nversion = "1"\nlicense = "MIT"\nsource = "s"\n[verifier]\nkind = "exact"\n'
    (tmp_path / "suite.toml").write_text(head, encoding="utf-8")
    row = {"type": "user", "isSidechain": True, "entrypoint": "sdk-cli", "message": "do it"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(SuiteError, match=r"tasks\.jsonl:1: unknown field 'isSidechain'"):
        load_suite(tmp_path)


def test_idle_tasks_are_told_and_silence_fails(tmp_path):
    """sibson/redbeat#326: assertions failed in all runs of both arms, and silence passed.

    Shares of tasks that pass or fail in both arms are reported, a contrast of nothing else proves
    nothing, the empty answer scores 0, and the base arm is shown no byte of the skill.
    """
    result = judge(pairs([0] * 8))
    assert result.evidence.all_fail == 1.0
    assert "every task fails in both arms: the tasks cannot tell the arms apart" in result.reasons
    silent = judge(pairs([0] * 120), Basis.NON_INFERIORITY)
    assert silent.decision is Decision.INSUFFICIENT_EVIDENCE
    assert verify(VerifierSpec(kind="regex", options={"pattern": "^(?!.*error)."}), None, "") == 0

    world = make_world(tmp_path, [skill("ask", "# Ask\n\nBe brief.")])
    worker = PlantedWorker()
    cells = contrast.arm_cells(
        suite(["ask"]).tasks[:4],
        arm="base",
        package=None,
        context=Context(skill="ask"),
        purpose="eval",
    )
    asyncio.run(world.bench(worker).rollouts(cells))
    assert {shown for _, shown in worker.calls} == {worker.calls[0][1]}
    assert all(cell.skills == () for cell in cells)


def test_every_replicate_is_scored(tmp_path):
    """opendatahub-io/agent-eval-harness#114: `--repeat N` skipped the judges of repeats.

    There is no judge here yet. The nearest: each replicate is verified by itself, and a task short
    of one counts for nothing. That a verifier wavers between replicates is seen as well
    (`tests/unit/core/test_pairing.py`).
    """
    world = make_world(tmp_path, [skill("ask", "# Ask\n\nBe brief.")])
    cells = contrast.arm_cells(
        suite(["ask"]).tasks[:6],
        arm="base",
        package=None,
        context=Context(skill="ask"),
        purpose="eval",
        replicates=3,
    )
    rollouts = asyncio.run(world.bench(PlantedWorker(base=0.5)).rollouts(cells))

    assert len(rollouts) == 18
    assert {r.replicate for r in rollouts} == {0, 1, 2}
    assert all(r.score in (0.0, 1.0) for r in rollouts)


def test_a_run_in_which_everything_fails_is_an_error(tmp_path):
    """assafkip/kipi-system#238: an eval command of /usr/bin/false still got a rate of 0.38.

    When every attempt fails for infrastructure reasons, there is an error and no score.
    """
    world = make_world(tmp_path, [skill("ask", "# Ask\n\nBe brief.")])
    tasks = suite(["ask"]).tasks[:4]
    worker = PlantedWorker(broken=frozenset(task.id for task in tasks))
    cells = contrast.arm_cells(
        tasks, arm="base", package=None, context=Context(skill="ask"), purpose="eval"
    )
    with pytest.raises(InfraError, match="nothing was scored"):
        asyncio.run(world.bench(worker).rollouts(cells))
    assert not list(world.ledger.events(kinds=("rollout.finished",)))


# --- Triggers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_constant_signal_chooses_nothing(level):
    """anthropics/skills#1559 / #1721 / #1419 / #1169: every description got the same score.

    When all candidates tie on every task, the reason says that the tasks cannot tell, none proves
    a lift, and none is promoted.
    """
    same = [Pair(task=f"t{i}", family="f", base=level, augmented=level) for i in range(200)]
    results = [judge(same) for _ in range(5)]
    members = [
        CohortMember(candidate=str(i), decision=r.decision, e_value=r.evidence.e_value)
        for i, r in enumerate(results)
    ]

    assert all(r.decision is Decision.REJECTED_FUTILE for r in results)
    assert all("cannot tell the arms apart" in " ".join(r.reasons) for r in results)
    assert promote(members, RULES.fdr) == ()


def test_a_cap_ends_the_loop(tmp_path):
    """anthropics/skills#1412: an optimisation loop made 121 calls in 3 minutes, without a cap.

    A cap of five rollouts lets five through, whatever is asked for, and says that it is spent.
    """
    world = make_world(tmp_path, [skill("ask", "# Ask\n\nBe brief.")])
    worker = PlantedWorker()
    cells = contrast.arm_cells(
        suite(["ask"]).tasks[:121],
        arm="base",
        package=None,
        context=Context(skill="ask"),
        purpose="eval",
    )
    with pytest.raises(BudgetSpent):
        asyncio.run(world.bench(worker, caps=Caps(rollouts=5)).rollouts(cells))
    assert len(worker.calls) == 5


# --- Verifiers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "answer", "score"),
    [
        ("72", "The answer is 72, in total, of course.", 1.0),
        ("72", "Well, there are 72", 1.0),
        ("72", "There are 27, in total,", 0.0),
        ("1234", "It is 1,234, then.", 1.0),
    ],
)
def test_a_comma_is_no_number(gold, answer, score):
    """jundot/omlx#3484; stanford-crfm/helm#4337: a lone comma was taken for the answer."""
    assert verify(VerifierSpec(kind="number"), gold, answer) == score


@pytest.mark.parametrize(("answer", "score"), [("#### -3", 1.0), ("it is -3.", 1.0), ("3", 0.0)])
def test_a_gold_answer_keeps_its_minus(answer, score):
    """google-deepmind/proeval#19: the gold answer `#### -3` lost its sign."""
    assert verify(VerifierSpec(kind="number"), "#### -3", answer) == score


def test_a_verifier_whose_verdict_flips_is_found():
    """EleutherAI/lm-evaluation-harness#4213; Mimino666/langdetect#120: an unseeded verifier.

    The suite check runs each verifier twice, and a gate that meets one withholds its verdict.
    """
    check = checked(a_task("a"), verifier=Wavering())
    assert {problem.code for problem in check.problems} == {"unstable"}

    wavering = [
        Pair(task=f"t{i}", family="f", base=0.0, augmented=1.0, wavering=True) for i in range(9)
    ]
    assert judge(wavering).decision is Decision.INSUFFICIENT_EVIDENCE


def test_a_verifier_gives_the_same_verdict_in_every_process():
    """google-research/google-research#3427: a letter was replaced at random, once per process."""
    code = (
        "from skillforge.core.task import VerifierSpec; from skillforge.core.verify import verify; "
        "kinds = ('exact', 'contains', 'number'); "
        "print([verify(VerifierSpec(kind=k), 'a # 3', t) for k in kinds for t in ('a # 3', 'b')])"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert shown == {"[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]\n"}


def test_a_wrong_gold_answer_is_named():
    """ShishirPatil/gorilla#1133 / #1169: gold answers said Italian where Korean was asked for.

    A gold answer that its own verifier refuses is a problem of that task; known bad rows are left
    out by the importers (`tests/unit/adapters/test_task_import.py`).
    """
    korean = VerifierSpec(kind="regex", options={"pattern": "(?i)korean"})
    tasks = [a_task(name, expected=name, verifier=korean) for name in ("Korean", "Italian")]
    check = checked(*tasks)

    assert [(p.task, p.code) for p in check.problems] == [("Italian", "reference")]


def test_everything_that_a_task_lists_is_scored(tmp_path):
    """sierra-research/tau2-bench#224 / #81 / #320: actions were listed but not in the reward.

    There are no tasks with actions here. The nearest: every key of a reference counts in the
    score, and a task or verifier that lists what nothing scores is refused.
    """
    gold = '{"refund": true, "seats": 2}'
    assert verify(VerifierSpec(kind="json"), gold, gold) == 1.0
    assert verify(VerifierSpec(kind="json"), gold, '{"refund": true}') == 0.0
    with pytest.raises(SuiteError, match="no option 'actions'"):
        check_options(VerifierSpec(kind="json", options={"actions": "cancel"}), gold)


def test_each_verifier_has_an_oracle_and_a_mirror():
    """heypinchy/pinchy#808: an oracle that must pass, and a mirror that must fail."""
    lax = VerifierSpec(kind="regex", options={"pattern": "."})
    check = checked(a_task("sound"), a_task("lax", verifier=lax))

    assert {(p.task, p.code) for p in check.problems} == {("lax", "wrong")}
    assert re.search("scored 1, expected 0; tighten", check.problems[0].message)
