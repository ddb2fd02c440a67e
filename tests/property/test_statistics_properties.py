"""What must hold of the statistics for any data."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillforge.core.eprocess import (
    EProcess,
    e_process,
    harm_bet,
    lift_bet,
    non_inferiority_bet,
)
from skillforge.core.futility import FutilityProcess, futility_process
from skillforge.core.intervals import (
    agresti_min_interval,
    betting_interval,
    cluster_se,
    tango_interval,
)
from skillforge.core.multiplicity import e_bh, e_to_p, p_to_e, p_to_e_mixture
from skillforge.core.paired_tests import mcnemar_exact, sign_flip_test
from skillforge.core.power import mde, pairs_needed
from skillforge.errors import StatisticsError

quick = settings(deadline=None, max_examples=60)

graded = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=40)
binary = st.lists(st.sampled_from([1.0, -1.0, 0.0]), min_size=1, max_size=40)
differences = st.one_of(graded, binary)
counts = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(2, 60)).map(
    lambda c: (c[0], c[1], c[0] + c[1] + c[2])
)
margins = st.floats(0.01, 0.5)


def end(bets) -> float:
    """Return the last value of the e-process of an array of bets."""
    return float(e_process(bets)[-1])


@quick
@given(differences)
def test_swapping_arms_mirrors_the_bets(d):
    """The harm process of the data is the lift process of the data with arms swapped."""
    array = np.array(d)

    assert end(harm_bet(array)) == end(lift_bet(-array))


@quick
@given(differences)
def test_swapping_arms_mirrors_the_betting_interval(d):
    """The interval of swapped arms is the mirrored one."""
    low, high = betting_interval(d)
    mirrored = betting_interval([-x for x in d])

    assert mirrored == pytest.approx((-high, -low), abs=1e-5)


@quick
@given(counts)
def test_swapping_arms_mirrors_counts(count):
    """Binary intervals and tests mirror when gains and regressions are swapped."""
    won, lost, n = count
    for interval in (agresti_min_interval, tango_interval):
        low, high = interval(won, lost, n)
        assert interval(lost, won, n) == pytest.approx((-high, -low))
        assert -1.0 <= low <= (won - lost) / n <= high <= 1.0 or interval is agresti_min_interval
    assert mcnemar_exact(won, lost, "less") == mcnemar_exact(lost, won, "greater")


@quick
@given(differences, st.randoms(use_true_random=False), margins)
def test_order_does_not_matter_at_the_end(d, random, margin):
    """Permuting pairs leaves the last e-value of every mixture of fixed stakes."""
    shuffled = list(d)
    random.shuffle(shuffled)
    first, second = np.array(d), np.array(shuffled)

    assert end(lift_bet(first)) == pytest.approx(end(lift_bet(second)), rel=1e-9)
    assert end(harm_bet(first)) == pytest.approx(end(harm_bet(second)), rel=1e-9)
    removal = end(non_inferiority_bet(first, margin))
    assert removal == pytest.approx(end(non_inferiority_bet(second, margin)), rel=1e-9)


@quick
@given(differences, st.integers(0, 5))
def test_a_tie_never_helps(d, ties):
    """Ties anywhere add no evidence of lift or harm, and never push an interval above 0."""
    padded = d + [0.0] * ties

    assert end(lift_bet(np.array(padded))) == end(lift_bet(np.array(d)))
    assert end(harm_bet(np.array(padded))) == end(harm_bet(np.array(d)))
    if betting_interval(d)[0] <= 0.0:
        assert betting_interval(padded)[0] <= 0.0


@quick
@given(counts)
def test_a_tie_never_helps_counts(count):
    """One more tie brings the ends of the score interval no further above 0."""
    won, lost, n = count

    assert (tango_interval(won, lost, n + 1)[0] > 0) <= (tango_interval(won, lost, n)[0] > 0)


@quick
@given(differences, st.data(), margins)
def test_a_better_score_never_lowers_the_evidence(d, data, margin):
    """Raising one difference never lowers lift evidence nor raises harm evidence."""
    place = data.draw(st.integers(0, len(d) - 1))
    better = list(d)
    better[place] = data.draw(st.floats(d[place], 1.0))
    old, new = np.array(d), np.array(better)
    slack = 1 + 1e-12

    assert end(lift_bet(new)) * slack >= end(lift_bet(old))
    assert end(non_inferiority_bet(new, margin)) * slack >= end(non_inferiority_bet(old, margin))
    assert end(harm_bet(new)) <= end(harm_bet(old)) * slack


@quick
@given(differences)
def test_steps_and_vector_agree(d):
    """The incremental process and the vector form give the same values."""
    process = EProcess.start()
    for x, expected in zip(d, e_process(d).tolist(), strict=True):
        process = process.bet(x)
        assert process.value == pytest.approx(expected, rel=1e-9)


@quick
@given(st.lists(st.floats(-1.0, 2.0), min_size=1, max_size=30), st.integers(0, 30))
def test_any_prefix_can_be_continued(bets, cut):
    """Folding a prefix and then the rest ends where folding everything ends."""
    whole = EProcess.start()
    for x in bets:
        whole = whole.bet(x)
    part = EProcess.start()
    for x in bets[:cut]:
        part = part.bet(x)
    restored = EProcess(lambdas=part.lambdas, log_wealths=part.log_wealths)
    for x in bets[cut:]:
        restored = restored.bet(x)

    assert restored == whole


@quick
@given(st.floats(0.0, 0.5), st.floats(0.0, 1.0), st.integers(1, 5))
def test_expectation_at_most_one_by_enumeration(share, tilt, n):
    """Over all outcomes the expected lift e-value is at most 1 whenever regressions are as likely.

    The next pair may depend on the past: after a gain it is a tie with certainty.
    """
    p_gain, p_loss = share * tilt, share
    shares = {1.0: p_gain, -1.0: p_loss, 0.0: 1.0 - p_gain - p_loss}
    total = 0.0
    for path in itertools.product(shares, repeat=n):
        weight = 1.0
        for i, x in enumerate(path):
            stuck = i > 0 and path[i - 1] == 1.0
            weight *= (x == 0.0) if stuck else shares[x]
        if weight > 0.0:
            total += weight * end(lift_bet(np.array(path)))

    assert total <= 1.0 + 1e-9


def at_lift(centre, gain, n):
    """Return all paths of n binary pairs with the given mean difference, and their weights."""
    up, down = gain + max(centre, 0.0), gain + max(-centre, 0.0)
    shares = {1.0: up, -1.0: down, 0.0: max(1.0 - up - down, 0.0)}
    paths = np.array(list(itertools.product(shares, repeat=n)))
    return paths, np.array([math.prod(shares[x] for x in path) for path in paths.tolist()])


@quick
@given(st.floats(0.02, 0.4), st.floats(0.0, 0.3), st.integers(1, 5))
def test_margins_by_enumeration(margin, gain, n):
    """At a lift of exactly −margin the expected e-value of non-inferiority is exactly 1."""
    paths, weights = at_lift(-margin, gain, n)
    expected = float(weights @ e_process(non_inferiority_bet(paths, margin))[:, -1])

    assert expected == pytest.approx(1.0, abs=1e-9)


@quick
@given(st.floats(0.02, 0.4), st.floats(0.0, 0.3), st.floats(0.0, 0.3), st.integers(1, 5))
def test_futility_by_enumeration(effect, gain, more, n):
    """At a lift of min_effect the expected e-value of futility is exactly 1, above it at most 1."""
    paths, weights = at_lift(effect, gain, n)
    assert float(weights @ futility_process(paths, effect)[:, -1]) == pytest.approx(1.0, abs=1e-9)

    paths, weights = at_lift(effect + more, 0.0, n)
    assert float(weights @ futility_process(paths, effect)[:, -1]) <= 1.0 + 1e-9


@quick
@given(differences, st.lists(st.floats(-1.0, 1.0), max_size=3), margins)
def test_no_futility_stake_looks_ahead(d, later, effect):
    """The value after a task is the same whatever comes later, so that each stake is predictable.

    One more task then multiplies wealth by 1 + λ (m − x) with λ fixed before x is seen: the factor
    is linear in x, so its mean at E[x] = m is 1 exactly, and it is never negative.
    """
    running = futility_process(d + later, effect)[: len(d)]
    assert running.tolist() == pytest.approx(futility_process(d, effect).tolist(), rel=1e-12)

    process = FutilityProcess(min_effect=effect)
    for x in d:
        process = process.bet(x)
    assert process.value == pytest.approx(running[-1], rel=1e-9)
    factors = [
        math.exp(process.bet(x).log_wealth - process.log_wealth) for x in (-1.0, effect, 1.0)
    ]
    assert min(factors) > 0.0
    assert factors[1] == pytest.approx(1.0, abs=1e-12)
    line = np.interp(effect, [-1.0, 1.0], [factors[0], factors[2]])
    assert line == pytest.approx(1.0, abs=1e-9)


@quick
@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 5.0, 9.9, 10.0, 20.0, 40.0, 400.0]), max_size=9),
    st.sampled_from([0.05, 0.1, 0.5]),
    st.integers(0, 4),
)
def test_e_bh_against_brute_force(e_values, fdr, extra):
    """The discoveries are the largest set whose members all reach m / (fdr × its size)."""
    m = len(e_values) + extra
    best: tuple[int, ...] = ()
    for size in range(1, len(e_values) + 1):
        for subset in itertools.combinations(range(len(e_values)), size):
            if all(e_values[i] * size >= m / fdr for i in subset) and size > len(best):
                best = subset

    assert e_bh(e_values, fdr, m) == best


@quick
@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=20), st.data())
def test_e_bh_is_monotone(e_values, data):
    """Raising one e-value never loses a discovery, and a larger family never gains one."""
    place = data.draw(st.integers(0, len(e_values) - 1))
    raised = list(e_values)
    raised[place] = raised[place] * 2 + 1

    assert set(e_bh(e_values, 0.1)) <= set(e_bh(raised, 0.1))
    assert set(e_bh(e_values, 0.1, m=len(e_values) + 3)) <= set(e_bh(e_values, 0.1))


@quick
@given(st.floats(1e-300, 1.0), st.floats(1e-300, 1.0))
def test_calibrators_fall_and_do_not_gain(p, q):
    """Calibrators fall in p, and turning back never makes a p-value smaller."""
    low, high = sorted((p, q))
    for calibrate in (p_to_e, p_to_e_mixture):
        assert calibrate(low) >= calibrate(high) * (1 - 1e-9)
        assert e_to_p(calibrate(p)) >= p * (1 - 1e-9)


@quick
@given(differences)
def test_betting_interval_shrinks_with_data(d):
    """While the running limits do not cross, more pairs never widen the interval."""
    half = betting_interval(d[: max(1, len(d) // 2)])
    whole = betting_interval(d)

    assert whole[0] >= half[0] - 1e-5
    assert whole[1] <= half[1] + 1e-5


@quick
@given(differences)
def test_betting_interval_widens_with_confidence(d):
    """A smaller error probability gives a wider interval."""
    strict, loose = betting_interval(d, 0.01), betting_interval(d, 0.2)

    assert -1.0 <= strict[0] <= strict[1] <= 1.0
    assert strict[1] - strict[0] >= loose[1] - loose[0] - 1e-5


@quick
@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=9), st.integers(1, 4))
def test_sign_flip_p_values(d, clusters):
    """P is never 0, mirrors with the arms, and permuting tasks with their labels leaves it."""
    labels = [i % clusters for i in range(len(d))]
    rng = np.random.default_rng(0)
    p = sign_flip_test(d, rng=rng, clusters=labels)

    assert 0.0 < p <= 1.0
    assert sign_flip_test(
        [-x for x in d], rng=rng, clusters=labels, alternative="less"
    ) == pytest.approx(p)
    assert sign_flip_test(d[::-1], rng=rng, clusters=labels[::-1]) == pytest.approx(p)


@quick
@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=30), st.integers(2, 6))
def test_cluster_se_is_positive_or_refused(d, clusters):
    """The standard error is above 0, or undefined and an error; swapping arms leaves it."""
    labels = [i % clusters for i in range(len(d))]
    try:
        error = cluster_se(d, labels)
    except StatisticsError:
        return

    assert error > 0.0
    assert cluster_se([-x for x in d], labels) == pytest.approx(error)


@quick
@given(st.integers(5, 5_000), st.floats(0.01, 1.0))
def test_mde_and_pairs_are_inverse(n, discordance):
    """The detectable effect of n pairs needs n pairs."""
    effect = mde(n, discordance)

    assert 0.0 < effect <= 1.0
    assert pairs_needed(effect, max(effect, discordance)) in (n, n + 1)
