"""The library is a fold: however the ledger is cut, replayed or extended, it adds up to the same.

`history` turns a list of numbers into a legal sequence of events, the way a library really lives:
imports and hand edits, runs with candidates, decisions, stagings, adoptions, roll-backs and so on.
"""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rollouts import rollout

from skillforge.core.checkpoint import read_state, write_state
from skillforge.core.events import GENESIS, NewEvent, check_chain, link
from skillforge.core.library import LibraryState, Status
from skillforge.core.library_fold import FOLDED, fold
from skillforge.core.paired_table import tabulate
from skillforge.core.rollout import Pair, Void, pair_up

SKILLS = ("dates", "units", "names")
LONG = st.integers(0, 2**32).map(
    lambda seed: np.random.default_rng(seed).integers(0, 2**32, size=150).tolist()
)
CHOICES = st.lists(st.integers(0, 2**32), max_size=60) | LONG
quick = settings(deadline=None, max_examples=80)


@dataclass
class Life:
    """Enough of a library's life to know which events may come next."""

    events: list = field(default_factory=list)
    current: dict = field(default_factory=dict)
    served: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    parents: dict = field(default_factory=dict)
    runs: list = field(default_factory=list)
    fresh: list = field(default_factory=list)
    """Candidates proposed: (id, skill, version)."""
    registered: list = field(default_factory=list)
    """Candidates registered: (id, skill, version, lineage, order)."""
    known: list = field(default_factory=list)
    """Candidates decided before: (id, skill, version, lineage, tasks that were bet on)."""
    proven: list = field(default_factory=list)
    """Candidates on probation: (id, skill, version)."""
    staged: dict = field(default_factory=dict)
    """What waits, newest last, by skill: [version, base, candidate, evidence]."""
    used: dict = field(default_factory=dict)
    """Confirm tasks that were bet on, by lineage."""
    count: int = 0

    def add(self, kind, run="", **data):
        """Append one event to the chain."""
        previous = self.events[-1].hash if self.events else GENESIS
        seq = len(self.events) + 1
        new = NewEvent(kind=kind, data=data, run=run)
        self.events.append(link(new, seq=seq, at=seq / 2, previous=previous))

    def number(self):
        """Return a number that was not used before."""
        self.count += 1
        return self.count

    def version(self, skill, pick):
        """Return bytes that are new, or, one time in four, bytes that were here before."""
        known = self.versions.setdefault(skill, [])
        if known and pick % 4 == 0:
            return known[pick // 4 % len(known)]
        known.append(f"{skill}-v{self.number()}")
        return known[-1]

    def serve(self, skill, version):
        """Note what is served now."""
        self.current[skill], self.served[skill] = version, True
        self.staged[skill] = [s for s in self.staged.get(skill, []) if s[0] != version]

    def unstage(self, skill, candidate):
        """Note that a candidate waits no longer."""
        self.staged[skill] = [s for s in self.staged.get(skill, []) if s[2] != candidate]


def imported(life, pick):
    """A new skill, a hand edit, or a folder put back by hand."""
    skill = SKILLS[pick % len(SKILLS)]
    version = life.version(skill, pick // 7)
    life.parents.setdefault(version, life.current.get(skill))
    life.add("skill.imported", skill=skill, version=version, blob=f"b-{version}", origin={})
    life.serve(skill, version)


def started(life, pick):
    """A run begins."""
    run = f"run-{life.number()}"
    life.runs.append(run)
    life.add("run.started", run=run, command="evolve", fingerprint=f"f{pick % 5}", request={})


def finished(life, pick):
    """A run ends."""
    if life.runs:
        run = life.runs.pop(pick % len(life.runs))
        life.add("run.finished", run=run, stopped_by="done", spend={})


def proposed(life, pick):
    """A candidate for a served skill; some are refused before they have a version."""
    served = sorted(name for name, on in life.served.items() if on)
    if not served or not life.runs:
        return
    skill = served[pick % len(served)]
    base = life.current[skill]
    version = "" if pick % 5 == 0 else life.version(skill, pick // 11)
    life.parents.setdefault(version, base)
    candidate = f"c{life.number()}"
    data = {"candidate": candidate, "skill": skill, "base": base, "version": version}
    life.add("candidate.proposed", run=life.runs[-1], blob=f"b-{version}", op="UPDATE", **data)
    life.fresh.append((candidate, skill, version))


def closed(life, pick):
    """A candidate ends before the gate."""
    if life.fresh:
        candidate, skill, version = life.fresh.pop(pick % len(life.fresh))
        data = {"candidate": candidate, "skill": skill, "version": version}
        life.add("candidate.closed", decision="screened_out", reasons=[], **data)


def registered(life, pick):
    """A candidate is registered with an order of tasks; siblings share a lineage and tasks."""
    ready = [entry for entry in life.fresh if entry[2] and entry[2] != life.current[entry[1]]]
    if ready:
        entry = ready[pick % len(ready)]
        life.fresh.remove(entry)
        candidate, skill, version = entry
        lineage = f"{skill}/{'ab'[pick // 3 % 2]}"
        order = [f"t{i}" for i in range(pick // 5 % 4, pick // 5 % 4 + 6)]
        data = {"candidate": candidate, "skill": skill, "version": version, "lineage": lineage}
        life.add("gate.registered", order=order, **data)
        life.registered.append((*entry, lineage, order))


def decided(life, pick):
    """The gate decides after some of the registered tasks."""
    if not life.registered:
        return
    candidate, skill, version, lineage, order = life.registered.pop(pick % len(life.registered))
    decisions = ("probation", "probation", "rejected_harm", "insufficient_evidence", "rolled_back")
    decision, used = decisions[pick % len(decisions)], pick // 5 % (len(order) + 1)
    life.used.setdefault(lineage, set()).update(order[:used])
    data = {"candidate": candidate, "skill": skill, "version": version, "lineage": lineage}
    life.add("gate.decided", decision=decision, unused=order[used:], **data)
    life.known.append((candidate, skill, version, lineage, order[:used]))
    if decision == "probation":
        life.proven.append((candidate, skill, version))
    elif decision in ("rejected_harm", "rolled_back"):
        life.unstage(skill, candidate)


def carried(life, pick):
    """A candidate goes on in a later run: what it bet on stands before new tasks."""
    ready = [k for k in life.known if k[0] not in {entry[0] for entry in life.registered}]
    if ready:
        candidate, skill, version, lineage, bet = ready[pick % len(ready)]
        order = [*bet, *(f"n{life.number()}" for _ in range(1 + pick % 3))]
        data = {"candidate": candidate, "skill": skill, "version": version, "lineage": lineage}
        life.add("gate.registered", order=order, carried=[["run-1", len(bet)]], **data)
        life.registered.append((candidate, skill, version, lineage, order))


def checked(life, pick):
    """A proven candidate is checked on some tasks of its neighbours, and may be rejected."""
    betting = {entry[0] for entry in life.registered}
    ready = [entry for entry in life.proven if entry[0] not in betting]
    if not ready:
        return
    candidate, skill, version = ready[pick % len(ready)]
    harmful, used, order = pick % 3 == 0, pick // 5 % 4, ["n1", "n2", "n3"]
    data = {"candidate": candidate, "skill": skill, "version": version}
    data["lineage"] = f"{skill}/neighbours"
    life.add("neighbours.registered", order=order, **data)
    decision = "rejected_harm" if harmful else "probation"
    life.add("neighbours.decided", decision=decision, unused=order[used:], **data)
    life.used.setdefault(data["lineage"], set()).update(order[:used])
    if harmful:
        life.proven.remove((candidate, skill, version))
        life.unstage(skill, candidate)


def staged(life, pick):
    """A proven candidate is put forward; one that waits already becomes the newest."""
    ready = [p for p in life.proven if life.current[p[1]] != p[2]]
    if ready:
        candidate, skill, version = ready[pick % len(ready)]
        data = {"skill": skill, "version": version, "base": life.current[skill]}
        life.add("version.staged", candidate=candidate, evidence="probation", **data)
        others = [s for s in life.staged.get(skill, []) if s[0] != version]
        life.staged[skill] = [*others, [version, life.current[skill], candidate, "probation"]]


def adopted(life, pick):
    """A staged version is served in the place of the one it was decided against."""
    ready = [
        (skill, entry)
        for skill, waiting in sorted(life.staged.items())
        for entry in waiting
        if life.served[skill] and life.current[skill] == entry[1]
    ]
    if ready:
        skill, (version, base, candidate, evidence) = ready[pick % len(ready)]
        data = {"skill": skill, "version": version, "parent": base, "evidence": evidence}
        life.add("version.adopted", candidate=candidate, **data)
        life.serve(skill, version)


def withdrawn(life, pick):
    """A staged version is taken back on evidence."""
    ready = [(skill, s[0]) for skill, waiting in sorted(life.staged.items()) for s in waiting]
    if ready:
        skill, version = ready[pick % len(ready)]
        life.add("version.withdrawn", skill=skill, version=version, reason="joint loss")
        life.staged[skill] = [s for s in life.staged[skill] if s[0] != version]


def rolled_back(life, pick):
    """A skill goes back to the parent of its current version."""
    ready = [s for s, on in sorted(life.served.items()) if on and life.parents[life.current[s]]]
    if ready:
        skill = ready[pick % len(ready)]
        parent = life.parents[life.current[skill]]
        life.add("version.rolled_back", skill=skill, version=parent, reason="harm")
        life.serve(skill, parent)


def cohort_closed(life, pick):
    """Some of the proven candidates are promoted."""
    chosen = [p for i, p in enumerate(life.proven) if pick >> i & 1]
    promoted = [dict(zip(("candidate", "skill", "version"), p, strict=True)) for p in chosen]
    life.add("cohort.closed", fdr=0.1, members=[], promoted=promoted)
    for entry in (entry for waiting in life.staged.values() for entry in waiting):
        if entry[2] in {candidate for candidate, _, _ in chosen}:
            entry[3] = "promoted"


def retired(life, pick):
    """A served skill is retired."""
    served = sorted(name for name, on in life.served.items() if on)
    if served:
        skill = served[pick % len(served)]
        life.add("skill.retired", skill=skill, version=life.current[skill], reason="harm")
        life.served[skill] = False


def restored(life, pick):
    """A retired skill is served again, one time in four in a version of its past."""
    gone = sorted(name for name, on in life.served.items() if not on)
    if gone:
        skill = gone[pick % len(gone)]
        known = life.versions[skill]
        version = known[pick // 12 % len(known)] if pick // 3 % 4 == 0 else life.current[skill]
        life.add("skill.restored", skill=skill, version=version)
        life.serve(skill, version)


def written(life, pick):
    """The user's folder has caught up."""
    if life.current:
        skill = sorted(life.current)[pick % len(life.current)]
        life.add("folder.written", skill=skill, version=life.current[skill])


def bystander(life, pick):
    """An event that the library does not depend on."""
    life.add("rollout.finished", key=f"k{pick}", score=pick % 2)


ACTIONS = (
    *(imported, started, finished, proposed, proposed, closed, registered, registered),
    *(
        decided,
        decided,
        carried,
        checked,
        staged,
        staged,
        adopted,
        adopted,
        rolled_back,
        cohort_closed,
        retired,
    ),
    *(restored, withdrawn, written, bystander),
)


def history(choices):
    """Return the life that some numbers stand for; it begins with three skills and a run."""
    life = Life()
    for pick in (0, 1, 2):
        imported(life, pick)
    started(life, 0)
    for choice in choices:
        ACTIONS[choice % len(ACTIONS)](life, choice // len(ACTIONS))
    return life


def test_every_kind_that_changes_the_state_occurs():
    """The histories drawn here reach every kind of event that is folded."""
    life, rng = Life(), random.Random(1)
    for _ in range(3_000):
        rng.choice(ACTIONS)(life, rng.randrange(65_537))

    assert {event.kind for event in life.events} - {"rollout.finished"} == set(FOLDED)
    assert check_chain(life.events) == len(life.events)


@quick
@given(CHOICES)
def test_folding_in_two_parts_is_folding_at_once(choices):
    """fold(a + b) == fold(b, fold(a)) at any cut, with the same digest."""
    events = history(choices).events
    whole = fold(events)
    for cut in range(0, len(events) + 1, 1 + len(events) // 40):
        parts = fold(events[cut:], fold(events[:cut]))
        assert parts == whole
        assert parts.digest == whole.digest


@quick
@given(CHOICES)
def test_any_state_comes_back_from_a_checkpoint(choices):
    """Whatever a library has come to, what waits to be adopted included, nothing is lost."""
    state = fold(history(choices).events)

    assert read_state(write_state(state)) == state


@quick
@given(CHOICES)
def test_folding_leaves_the_earlier_state_alone(choices):
    """A state that was handed out does not change when more events are folded in."""
    events = history(choices).events
    early = fold(events[: len(events) // 2])
    digest, runs = early.digest, dict(early.open_runs)
    fold(events[len(events) // 2 :], early)

    assert (early.digest, early.open_runs) == (digest, runs)
    assert LibraryState() == fold([])


@quick
@given(CHOICES)
def test_only_the_kinds_named_matter(choices):
    """Leaving out what is not in FOLDED changes neither state nor digest."""
    events = history(choices).events
    few = [event for event in events if event.kind in FOLDED]

    assert fold(few) == fold(events)
    assert fold(few).digest == fold(events).digest


@quick
@given(CHOICES)
def test_what_is_served_is_what_the_events_say(choices):
    """Served skills and their versions follow imports, adoptions, roll-backs and retirements."""
    life = history(choices)
    state = fold(life.events)

    assert state.served == tuple(sorted(name for name, on in life.served.items() if on))
    assert {name: skill.current for name, skill in state.skills.items()} == life.current
    for name, skill in state.skills.items():
        status = state.versions[name, skill.current].status
        if skill.served:
            assert status in (Status.PROMOTED, Status.PROBATION)
            assert (status is Status.PROBATION) == (skill.evidence == "probation")
        else:
            assert status is Status.RETIRED


@quick
@given(CHOICES)
def test_what_is_staged_waits_until_it_is_served(choices):
    """Staged versions keep base and evidence, newest last, until they are served by any way."""
    life = history(choices)
    state = fold(life.events)
    found = {
        skill: [[s.version, s.base, s.candidate, s.evidence] for s in waiting]
        for skill, waiting in state.staged.items()
    }

    assert found == {skill: waiting for skill, waiting in life.staged.items() if waiting}
    for skill, waiting in state.staged.items():
        assert all((skill, s.version) in state.versions for s in waiting)
        assert all(s.version != state.skills[skill].current for s in waiting)


@quick
@given(CHOICES)
def test_only_the_cohort_promotes(choices):
    """A version that a candidate made is promoted only if a cohort let it through."""
    life = history(choices)
    state = fold(life.events)
    promoted = {
        (member["skill"], member["version"])
        for event in life.events
        if event.kind == "cohort.closed"
        for member in event.data["promoted"]
    }
    for name, record in state.versions.items():
        if record.candidate and record.status is Status.PROMOTED:
            assert name in promoted


@quick
@given(CHOICES)
def test_no_line_of_versions_runs_in_a_circle(choices):
    """Going from parent to parent always ends at a version without one."""
    state = fold(history(choices).events)
    for name, version in state.versions:
        seen, at = set(), version
        while at:
            assert at not in seen
            seen.add(at)
            at = state.versions[name, at].parent


@quick
@given(CHOICES)
def test_a_task_that_was_bet_on_stays_spent(choices):
    """Whatever siblings left unused, no lineage gets back a task that one of them used."""
    life = history(choices)
    state = fold(life.events)
    for lineage, used in life.used.items():
        assert used <= state.spent_by(lineage)
    for _, _, _, lineage, order in life.registered:
        assert set(order) <= state.spent_by(lineage)


@quick
@given(CHOICES, st.integers(0, 100))
def test_retiring_and_restoring_gives_the_library_back(choices, pick):
    """After retire and restore, and the folder writes, state and digests are the old ones."""
    life = history(choices)
    served = [name for name, on in sorted(life.served.items()) if on]
    if not served:
        return
    skill = served[pick % len(served)]
    life.add("folder.written", skill=skill, version=life.current[skill])
    before = fold(life.events)
    life.add("skill.retired", skill=skill, version=life.current[skill], reason="test")
    assert skill not in fold(life.events).served
    life.add("skill.restored", skill=skill, version=life.current[skill])
    assert not fold(life.events).skills[skill].written
    life.add("folder.written", skill=skill, version=life.current[skill])
    after = fold(life.events)

    assert after == before
    assert after.digest == before.digest
    assert after.library_digest == before.library_digest


# --- Pairs --------------------------------------------------------------------------------------

SCORE = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
PAIRS = st.lists(st.tuples(SCORE, SCORE), min_size=1, max_size=30).map(
    lambda scores: [
        Pair(task=f"t{i}", family="f", base=base, augmented=augmented)
        for i, (base, augmented) in enumerate(scores)
    ]
)
RUN = st.one_of(st.none(), SCORE)
CELLS = st.integers(1, 3).flatmap(
    lambda n: st.tuples(*(st.one_of(st.none(), st.lists(RUN, min_size=n, max_size=n)),) * 2)
)
"""Scores of both arms on one task: None if it was not begun, a None among them for a failure."""


def arm_of(arm, cells):
    """Return the rollouts of one arm by task."""
    return {
        f"t{i}": [rollout(score=score, arm=arm, replicate=n) for n, score in enumerate(scores)]
        for i, scores in enumerate(cells)
        if scores is not None
    }


@quick
@given(PAIRS)
def test_swapping_the_arms_negates_the_lift(pairs):
    """Base and augmented exchanged: each difference changes its sign, gains and losses swap."""
    swapped = [
        Pair(task=p.task, family=p.family, base=p.augmented, augmented=p.base) for p in pairs
    ]
    table, mirror = tabulate(pairs), tabulate(swapped)

    assert [p.difference for p in swapped] == [-p.difference for p in pairs]
    assert (mirror.gains, mirror.regressions) == (table.regressions, table.gains)
    assert (mirror.residual, mirror.retained) == (table.residual, table.retained)


@quick
@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_change_the_table(pairs, random):
    """The four counts add up to the pairs, in any order."""
    shuffled = list(pairs)
    random.shuffle(shuffled)
    table = tabulate(pairs)

    assert tabulate(shuffled) == table
    assert table.gains + table.regressions + table.residual + table.retained == table.pairs


@quick
@given(st.lists(CELLS, max_size=8))
def test_pairs_are_read_along_the_completed_prefix(cells):
    """Joining stops at the first task that an arm has not begun, and voids where one failed."""
    tasks = [f"t{i}" for i in range(len(cells))]
    base = arm_of("base", [left for left, _ in cells])
    augmented = arm_of("augmented", [right for _, right in cells])
    joined = pair_up(tasks, base, augmented)
    complete = next((i for i, pair in enumerate(cells) if None in pair), len(cells))

    assert [outcome.task for outcome in joined] == tasks[:complete]
    for outcome, (left, right) in zip(joined, cells, strict=False):
        failed = [name for name, arm in (("base", left), ("augmented", right)) if None in arm]
        if failed:
            arm = failed[0] if len(failed) == 1 else "both"
            assert isinstance(outcome, Void)
            assert outcome.arm == arm
            if arm == "augmented":
                scored = sum(s for s in right if s is not None) / len(right)
                assert outcome.least == pytest.approx(min(scored - sum(left) / len(left), 0.0))
        else:
            assert outcome.base == sum(left) / len(left)
            assert outcome.augmented == sum(right) / len(right)
            assert -1 <= outcome.difference <= 1
