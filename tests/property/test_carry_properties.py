"""Evidence that is carried: two nights are one night cut in two, whatever else the ledger holds."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.rollouts import rollout

from skillforge.core.events import GENESIS, NewEvent, link
from skillforge.core.gate import Basis, Decision, GateRules, Registration, decide
from skillforge.core.records import registered_outcomes, write_rollout
from skillforge.core.rollout import Rollout

RULES = GateRules()
SCORE = st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.0, None])
PAIRS = st.lists(st.tuples(SCORE, SCORE), min_size=2, max_size=60)


def attempt(task: int, subject: str, score: float | None) -> Rollout:
    """Return a confirm rollout of one arm."""
    return rollout(
        f"t{task}",
        score,
        key=f"{task}{subject}",
        family=f"f{task // 3}",
        arm="base" if subject == "v0" else "augmented",
        subject=subject,
    )


def reader(runs):
    """Return what reads the events of some runs, as a ledger does."""
    kept = {
        run: [
            link(
                NewEvent(kind="rollout.finished", data=write_rollout(found), run=run),
                seq=seq,
                at=0.0,
                previous=GENESIS,
            )
            for seq, found in enumerate(rollouts, start=1)
        ]
        for run, rollouts in runs.items()
    }

    def events(*, run, kinds, about):
        return [e for e in kept[run] if e.kind in kinds and e.data["subject"] in about]

    return events


def both(pairs, start):
    """Return the rollouts of both arms on some tasks, numbered from a start."""
    return [
        attempt(n, subject, score)
        for n, scores in enumerate(pairs, start=start)
        for subject, score in zip(("v0", "v1"), scores, strict=True)
    ]


def registered(tasks: int, basis: Basis, blocks=()) -> Registration:
    """Return the registration of one night on so many tasks."""
    return Registration(
        candidate="c",
        skill="ask",
        base="v0",
        version="v1",
        basis=basis,
        rules=RULES,
        order=tuple(f"t{n}" for n in range(tasks)),
        enough=400.0,
        lineage="planted/ask/author",
        blocks=blocks,
    )


def judged(events, run, registration):
    """Return what the gate says of a registration."""
    outcomes = registered_outcomes(events, run, registration)
    return decide(
        outcomes,
        registration.rules,
        registration.basis,
        enough=registration.enough,
        blocks=registration.blocks,
    )


@settings(deadline=None, max_examples=150)
@given(PAIRS, st.sampled_from(Basis), st.data())
def test_two_nights_give_the_evidence_and_decision_of_one(pairs, basis, data):
    """Cut anywhere before a verdict, all that is decided is the same to the last bit."""
    cut = data.draw(st.integers(1, len(pairs) - 1))
    whole = judged(reader({"one": both(pairs, 0)}), "one", registered(len(pairs), basis))
    early = judged(reader({"one": both(pairs[:cut], 0)}), "one", registered(cut, basis))
    assume(not early.final)
    # Other candidates of the second night bet on old tasks with the same base.
    strangers = [attempt(n, "v0", 1.0) for n in range(cut)]
    nights = {"n1": both(pairs[:cut], 0), "n2": [*strangers, *both(pairs[cut:], cut)]}
    second = registered(len(pairs), basis)
    second = replace(second, carried=registered(cut, basis).bets_until("n1", early.used))

    assert early.used == cut
    assert judged(reader(nights), "n2", second) == whole


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(SCORE, SCORE), min_size=6, max_size=45), st.data())
def test_families_cut_between_nights_bet_as_in_one(pairs, data):
    """Whole families of the first night and those of the second are one course."""
    pairs = pairs[: len(pairs) // 3 * 3]
    sizes = (3,) * (len(pairs) // 3)
    cut = 3 * data.draw(st.integers(1, max(1, len(sizes) - 1)))
    assume(cut < len(pairs))
    whole = judged(reader({"n": both(pairs, 0)}), "n", registered(len(pairs), Basis.LIFT, sizes))
    first = registered(len(pairs), Basis.LIFT, sizes)
    early = judged(reader({"n": both(pairs[: cut + 1], 0)}), "n", first)
    assume(not early.final)
    second = replace(
        first,
        blocks=first.blocks_until(early.used) + sizes[: len(sizes) - cut // 3],
        carried=first.bets_until("n1", early.used),
    )
    nights = {"n1": both(pairs[: cut + 1], 0), "n2": both(pairs[cut:], cut)}

    assert early.used == cut
    assert judged(reader(nights), "n2", second) == whole


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_registration_that_carries_reads_each_task_from_its_own_night(bets):
    """The legs are the order, cut where the nights end; reading it back loses nothing."""
    registration = registered(0, Basis.LIFT)
    for night, new in enumerate(bets):
        used = len(registration.order)
        carried = registration.bets_until(f"n{night - 1}", used) if night else ()
        order = tuple(f"t{n}" for n in range(used + new))
        registration = replace(registration, order=order, carried=carried)
    legs = list(registration.legs("last"))

    assert [len(order) for _, order in legs] == bets
    assert [run for run, _ in legs] == [*(f"n{i}" for i in range(len(bets) - 1)), "last"]
    assert tuple(task for _, order in legs for task in order) == registration.order
    assert registration.looks == len(bets)
    assert Registration.from_json(registration.to_json()) == registration


@settings(deadline=None, max_examples=60)
@given(PAIRS)
def test_served_on_probation_nothing_but_harm_or_enough_ends_it(pairs):
    """Futility ends nothing there, and harm must reach what rolls a served version back."""
    registration = registered(len(pairs), Basis.LIFT)
    outcomes = registered_outcomes(reader({"n": both(pairs, 0)}), "n", registration)
    found = decide(outcomes, RULES, Basis.LIFT, enough=400.0, on_probation=True)

    if found.final:
        harmed = found.decision is Decision.ROLLED_BACK
        assert harmed == (found.evidence.e_harm >= 1 / RULES.harm_retire)
        assert harmed or found.evidence.e_charged >= 400
    else:
        assert found.decision is Decision.PROBATION or found.withheld
