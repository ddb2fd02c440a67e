"""The known-truth benchmarks in small: every promise of the gate is kept, and they can fail.

Error rates are held to their level plus two Monte Carlo standard errors; floors leave three.
"""

import attacks
import composition
import cost
import numpy as np
import pytest
import replicates
import rules
import shadowing
import simulate
import stream
import type_one
from scipy.stats import binom

from skillforge.core.gate import Basis, decide
from skillforge.core.paired_tests import mcnemar_exact
from skillforge.core.rollout import Pair


@pytest.mark.parametrize("enough", [20.0, 400.0])
def test_the_vector_gate_is_the_gate(enough):
    """Decisions, evidence and pairs used are those of `decide`, edit by edit."""
    rng = np.random.default_rng(30)
    d = np.concatenate([simulate.binary(rng, e, 0.4, (12, 150)) for e in (-0.1, 0.0, 0.1, 0.3)])
    decisions, e_values, used = simulate.gate(d, enough=enough).after(150)
    for i, row in enumerate(d):
        pairs = [
            Pair(task=str(j), family="f", base=float(x < 0), augmented=float(x > 0))
            for j, x in enumerate(row)
        ]
        result = decide(pairs, simulate.RULES, Basis.LIFT, enough=enough)
        assert decisions[i] == result.decision
        assert e_values[i] == pytest.approx(result.evidence.e_value)
        assert used[i] == result.used


def test_the_rules_of_others_are_what_they_say():
    """Each accepts and refuses by its published rule, and McNemar is the core's own."""
    rows = {
        "tie": np.zeros(60),
        "one win late": np.r_[np.zeros(59), 1.0],
        "wins": np.r_[np.ones(12), np.zeros(48)],
        "early loss": np.r_[-1.0, np.ones(3), np.zeros(56)],
    }
    d = np.stack(list(rows.values()))
    found = {name: rule(d).tolist() for name, rule in rules.OTHERS.items()}

    assert found["not worse"] == [True, True, True, True]
    assert found["strictly better"] == [False, True, True, True]
    assert found["SkillOpt: strict, 40 tasks"] == [False, False, True, True]
    assert found["SkillAdaptor: 5 tasks"] == [False, False, True, False]
    assert found["cap-evolve: mean > 1 SE"] == [False, True, True, True]
    expected = [mcnemar_exact(int((x > 0).sum()), int((x < 0).sum())) for x in d]
    assert rules.p_values(d).tolist() == pytest.approx(expected)


def test_type_one_error_in_every_setting():
    """Ours errs with rate α at most: A/A and null, binary and graded, K = 1 and 8, families."""
    rows = type_one.measure(True, 31)
    ours = [row for row in rows if row["name"] in ("skillforge", "skillforge, over families")]

    assert len(ours) == 10
    assert all(row["holds"] for row in ours)
    greedy = [row for row in rows if row["name"] == "strictly better"]
    assert all(row["error"] > 0.3 for row in greedy)
    wrong = [row for row in rows if row["name"] == "skillforge, over tasks (wrong here)"]
    assert not any(row["holds"] for row in wrong)


def test_a_stream_of_nights():
    """False discoveries, harm, power and empty nights are what is promised, at 30 nights."""
    rows = stream.simulate_streams(2, 25, 32)
    ours = {row["discordance"]: row for row in rows if row["name"] == "skillforge"}

    for row in ours.values():
        assert row["fdr"] <= 0.10
        assert row["fdr_cohort"] <= 0.10
        assert row["harmful"] <= 0.01
        months = row["null_months"]
        assert row["null_nights"] <= 0.10 + 2 * simulate.standard_error(0.10, months)
    assert ours[0.2]["power"] >= 0.95
    assert ours[0.4]["power"] >= 0.75
    greedy = [row for row in rows if row["name"] == "strictly better"]
    assert all(row["fdr"] > 0.5 for row in greedy)


def test_the_fixed_size_is_the_smallest_with_its_power():
    """At discordance .3 exact McNemar finds +10 points with power .9 from 269 pairs on."""

    def power(n):
        needed, wins = [], 0
        for k in range(n + 1):
            while wins <= k and mcnemar_exact(wins, k - wins) > 0.05:
                wins += 1
            needed.append(wins)
        k = np.arange(n + 1)
        return binom.pmf(k, n, 0.3) @ binom.sf(np.array(needed) - 1, k, 2 / 3)

    assert cost.fixed_size(0.3) == 269
    assert power(269) >= 0.90 > power(268)


def test_the_cost_of_a_decision():
    """Less than half of a fixed test at error rates no worse, and not below the floor."""
    rows = {(row["simulator"], row["name"]): row for row in cost.planted(400, 33)}
    for (simulator, name), row in rows.items():
        if name == "skillforge":
            floor = rows[simulator, "SPRT, all known (floor)"]
            assert row["ratio"] <= 0.48
            assert floor["ratio"] < row["ratio"] < 1.3 * floor["ratio"]
            assert simulate.holds(row["error"], 0.05, row["edits"])
            assert row["power"] >= 0.88 - 3 * row["power_se"]


def test_earlier_base_rollouts_stay_valid_and_save_pairs():
    """Against all base rollouts of a task the mean is unchanged, errors hold, and pairs fall."""
    rng = np.random.default_rng(34)
    for effect in (0.0, 0.10):
        d = cost.known_tasks(rng, effect, (400, 400), 2)
        assert np.abs(d).max() <= 1.0
        assert d.mean() == pytest.approx(effect, abs=0.005)

    rows = {row["name"]: row for row in cost.heterogeneous(400, 34, (0, 2))}
    for row in rows.values():
        assert simulate.holds(row["error"], 0.05, row["edits"])
    assert (
        rows["skillforge, 2 earlier base rollouts"]["ratio"] <= 0.35 < rows["skillforge"]["ratio"]
    )


@pytest.mark.parametrize("attack", attacks.ATTACKS, ids=lambda attack: attack.name.split(":")[0])
def test_attacks_fail_behind_the_core(attack):
    """What works when left open fails, or is refused, through the core's own functions."""
    rng = np.random.default_rng(35)
    runs = 15 if "10" in attack.name else 30  # those make ten decisions a run
    left_open = np.mean([bool(attack.open(rng)) for _ in range(runs)])
    guarded = np.mean([bool(attack.guarded(rng)) for _ in range(runs)])

    assert left_open > guarded
    assert simulate.holds(guarded, attack.level, runs)


def test_harmful_interactions_are_named():
    """A planted pair of edits is rolled back by name; without one nothing is, with rate .05."""
    ours = {row["setting"]: row for row in composition.simulate_nights(30, 36, ["skillforge"])}

    assert all(row["holds"] for row in ours.values())
    assert ours["one pair"]["caught"] >= 0.8
    assert ours["one pair"]["exact"] >= 0.8
    assert ours["two pairs"]["exact"] >= 0.8
    assert ours["nothing planted"]["exact"] == 0


def test_harm_to_neighbours_is_seen_and_neutral_edits_are_left_in_peace():
    """The average of five holds .20 where five tests at .20 flag half; −30 points are seen."""
    rows = {(row["setting"], row["name"]): row for row in shadowing.simulate_edits(400, 37)}
    for (setting, name), row in rows.items():
        print(f"{setting:32}{name:22}{row['flagged']:.3f}")
    for setting in (s for s in shadowing.SETTINGS if s.startswith("nobody")):
        assert rows[setting, "skillforge: average"]["holds"]
        assert rows[setting, "five tests at .20"]["flagged"] > 0.35
    assert rows["one loses 30 points", "skillforge: average"]["flagged"] > 0.85
    assert rows["all lose 30 points", "skillforge: average"]["flagged"] > 0.99


def test_real_replicates_against_themselves():
    """Split real trials promote with rate α at most, with mean E of 1 and uniform p-values."""
    rows = replicates.measure(True, 37)
    if not rows:
        pytest.skip("the shared corpus is not here")
    ours = [row for row in rows if row["name"] == "skillforge"]
    assert len(ours) == 2
    for row in ours:
        assert row["holds"]
        assert row["mean_e"] <= 1 + 3 * row["mean_e_se"]
        assert row["ks_p"] > 0.001
        assert row["sign_flip"] <= 0.05 + 2 * simulate.standard_error(0.05, row["splits"])


def test_exact_sign_flips_are_those_of_the_core():
    """Without randomised ties the exact law gives the p-value of `sign_flip_test`."""
    rng = np.random.default_rng(38)
    for _ in range(20):
        d = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], 12)
        assert replicates.p_value(d, 1.0) == pytest.approx(
            replicates.sign_flip_test(d, rng=rng), abs=1e-9
        )
