"""The library's state: what each event makes of it, and how names are resolved."""

import pytest
from support.world import make_world, skill

from skillforge.core.events import GENESIS, NewEvent, link
from skillforge.core.library import LibraryState, Status, require_served, suggest
from skillforge.core.library_fold import FOLDED, fold
from skillforge.errors import SkillError


def state_of(*events):
    """Fold (kind, data) pairs; data may name its run."""
    linked, previous = [], GENESIS
    for seq, (kind, data) in enumerate(events, start=1):
        rest = {k: v for k, v in data.items() if k != "run"}
        new = NewEvent(kind=kind, data=rest, run=data.get("run", ""))
        linked.append(link(new, seq=seq, at=0.0, previous=previous))
        previous = linked[-1].hash
    return fold(linked)


def imported(version, name="ask"):
    """A package taken in from the folder."""
    return "skill.imported", {"skill": name, "version": version, "blob": f"b-{version}"}


def proposed(candidate, version, base="v1"):
    """A candidate that edits the base."""
    data = {"candidate": candidate, "skill": "ask", "base": base, "version": version}
    return "candidate.proposed", data | {"blob": f"b-{version}"}


def registered(candidate, version, order, lineage="ask/lines"):
    """A candidate with its order of tasks."""
    data = {"candidate": candidate, "skill": "ask", "version": version, "lineage": lineage}
    return "gate.registered", data | {"order": list(order)}


def decided(candidate, version, decision, unused=(), lineage="ask/lines"):
    """What the gate said."""
    data = {"candidate": candidate, "skill": "ask", "version": version, "lineage": lineage}
    return "gate.decided", data | {"decision": decision, "unused": list(unused)}


def adopted(candidate, version):
    """A candidate that is served from now on."""
    data = {"candidate": candidate, "skill": "ask", "version": version, "evidence": "probation"}
    return "version.adopted", data


def rolled_back(version):
    """An earlier version that is served again."""
    return "version.rolled_back", {"skill": "ask", "version": version}


def promoted(candidate, version):
    """A cohort that lets one candidate through."""
    member = {"candidate": candidate, "skill": "ask", "version": version}
    return "cohort.closed", {"promoted": [member]}


RETIRED, RESTORED = (("skill.retired", {"skill": "ask"}), ("skill.restored", {"skill": "ask"}))
WRITTEN = ("folder.written", {"skill": "ask"})


def test_an_imported_skill_is_promoted_and_unmeasured():
    """What the user brings is served at once, without evidence, and its folder is current."""
    state = state_of(imported("v1"))
    record = state.skills["ask"]

    assert state.served == ("ask",)
    assert (record.current, record.evidence, record.written) == ("v1", "unmeasured", True)
    assert state.versions["ask", "v1"].status is Status.PROMOTED
    assert state.versions["ask", "v1"].parent == ""


def test_a_hand_edit_supersedes_what_was_served():
    """A second import is a version of its own whose parent is the one before."""
    state = state_of(imported("v1"), imported("v2"))

    assert state.versions["ask", "v1"].status is Status.SUPERSEDED
    assert state.versions["ask", "v2"].parent == "v1"


def test_the_same_bytes_again_change_nothing():
    """Importing what is served already leaves evidence and probation alone."""
    before = [imported("v1"), proposed("c", "v2"), decided("c", "v2", "probation")]
    before.append(adopted("c", "v2"))

    assert state_of(*before, imported("v2")) == state_of(*before)


def test_a_hand_edit_back_to_an_old_version_makes_no_circle():
    """The old version keeps its parent, so that a roll-back cannot run round and round."""
    state = state_of(imported("v1"), imported("v2"), imported("v1"))

    assert state.skills["ask"].current == "v1"
    assert state.versions["ask", "v1"].parent == ""
    assert state.versions["ask", "v1"].status is Status.PROMOTED


def test_a_retired_folder_put_back_by_hand_is_no_parent_of_itself():
    """The user may undo a retirement by hand; the version's line stays as it was."""
    state = state_of(imported("v1"), RETIRED, imported("v1"))

    assert state.served == ("ask",)
    assert state.versions["ask", "v1"].parent == ""


def test_the_life_of_an_edit():
    """Candidate → proven → served on probation → promoted, with its parent superseded."""
    events = [imported("v1"), proposed("c", "v2")]
    assert state_of(*events).versions["ask", "v2"].status is Status.CANDIDATE
    events.append(decided("c", "v2", "probation"))
    assert state_of(*events).versions["ask", "v2"].status is Status.CANDIDATE
    assert state_of(*events).skills["ask"].current == "v1"
    events.append(adopted("c", "v2"))
    on_probation = state_of(*events)
    assert on_probation.versions["ask", "v2"].status is Status.PROBATION
    assert on_probation.skills["ask"].evidence == "probation"
    assert not on_probation.skills["ask"].written
    assert on_probation.versions["ask", "v1"].status is Status.SUPERSEDED
    events.append(promoted("c", "v2"))
    done = state_of(*events, WRITTEN)

    assert done.versions["ask", "v2"].status is Status.PROMOTED
    assert done.skills["ask"].evidence == done.decisions["c"]["decision"] == "promoted"
    assert done.skills["ask"].written


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        ("insufficient_evidence", Status.CANDIDATE),
        ("rejected_harm", Status.REJECTED),
        ("rejected_futile", Status.REJECTED),
        ("rolled_back", Status.ROLLED_BACK),
    ],
)
def test_what_a_decision_makes_of_a_candidate(decision, status):
    """Each verdict has its status, and the last decision is kept."""
    state = state_of(imported("v1"), proposed("c", "v2"), decided("c", "v2", decision))

    assert state.versions["ask", "v2"].status is status
    assert state.decisions["c"]["decision"] == decision


def test_a_candidate_of_the_current_bytes_does_not_touch_what_stands():
    """An edit that comes out as the served version is closed without harm to it."""
    data = {"candidate": "c", "skill": "ask", "version": "v1", "decision": "refused"}
    state = state_of(imported("v1"), proposed("c", "v1"), ("candidate.closed", data))

    assert state.versions["ask", "v1"].status is Status.PROMOTED
    assert state.decisions["c"]["decision"] == "refused"


def test_a_refused_candidate_without_version_leaves_a_decision_only():
    """What never became a package has no version record."""
    data = {"candidate": "c", "skill": "ask", "version": "", "decision": "refused"}
    state = state_of(imported("v1"), proposed("c", ""), ("candidate.closed", data))

    assert set(state.versions) == {("ask", "v1")}


TWICE = (
    imported("v1"),
    proposed("c", "v2"),
    decided("c", "v2", "probation"),
    adopted("c", "v2"),
    proposed("d", "v3", base="v2"),
    decided("d", "v3", "probation"),
    adopted("d", "v3"),
)


def test_rolling_back_to_a_version_on_probation_does_not_promote_it():
    """The parent stands where it stood: promotion is for the cohort to give."""
    state = state_of(*TWICE, rolled_back("v2"))

    assert state.versions["ask", "v3"].status is Status.ROLLED_BACK
    assert state.versions["ask", "v2"].status is Status.PROBATION
    assert state.skills["ask"].evidence == "probation"


def test_rolling_back_to_a_promoted_version():
    """A parent that was promoted, or imported, is promoted again."""
    state = state_of(*TWICE, promoted("c", "v2"), rolled_back("v2"))
    assert state.versions["ask", "v2"].status is Status.PROMOTED
    assert state.skills["ask"].evidence == "rolled_back"

    state = state_of(*TWICE, rolled_back("v1"))
    assert state.versions["ask", "v1"].status is Status.PROMOTED


@pytest.mark.parametrize("events", [(imported("v1"),), TWICE, (*TWICE, promoted("d", "v3"))])
def test_retire_and_restore(events):
    """A retired skill is not served; restoring gives back the very same standing."""
    before, gone = state_of(*events), state_of(*events, RETIRED)
    back = state_of(*events, RETIRED, WRITTEN, RESTORED)
    current = before.skills["ask"].current

    assert gone.served == ()
    assert gone.versions["ask", current].status is Status.RETIRED
    assert back.versions == before.versions
    assert back.skills["ask"].evidence == before.skills["ask"].evidence
    assert back.library_digest == before.library_digest != gone.library_digest


def test_retiring_twice_is_retiring_once():
    """A repeated retirement changes nothing."""
    assert state_of(imported("v1"), RETIRED, RETIRED) == state_of(imported("v1"), RETIRED)


def test_a_promotion_reaches_only_what_is_on_probation():
    """A candidate rolled back before its cohort closed is not served through the back door."""
    state = state_of(*TWICE, rolled_back("v1"), promoted("d", "v3"))

    assert state.versions["ask", "v3"].status is Status.ROLLED_BACK
    assert state.skills["ask"].current == "v1"


def test_tasks_are_reserved_until_a_decision_and_spent_after_it():
    """All registered tasks count until it is known which were used."""
    events = [imported("v1"), proposed("c", "v2"), registered("c", "v2", "abcd")]
    assert state_of(*events).spent_by("ask/lines") == set("abcd")
    events.append(decided("c", "v2", "rejected_harm", unused="cd"))

    assert state_of(*events).spent_by("ask/lines") == set("ab")
    assert state_of(*events).spent_by("other") == frozenset()


@pytest.mark.parametrize("first", ["c", "d"])
def test_siblings_do_not_give_back_each_others_tasks(first):
    """What one candidate left unused stays spent if another of its lineage used it."""
    unused = {"c": "bcd", "d": "d"}
    order = [first, "d" if first == "c" else "c"]
    events = [imported("v1"), registered("c", "v2", "abcd"), registered("d", "v3", "abcd")]
    events += [decided(name, f"v-{name}", "rejected_harm", unused[name]) for name in order]

    assert state_of(*events).spent_by("ask/lines") == set("abc")


def test_runs_are_open_between_start_and_end():
    """An interrupted run is found by its fingerprint; a finished one is not."""
    start = ("run.started", {"run": "r1", "fingerprint": "f"})
    assert state_of(start).open_runs == {"r1": "f"}
    assert state_of(start, ("run.finished", {"run": "r1"})).open_runs == {}


def test_unknown_kinds_are_passed_over():
    """Events of later versions and of other parts do not disturb the fold."""
    assert state_of(imported("v1"), ("audit.done", {"x": 1})) == state_of(imported("v1"))
    assert "audit.done" not in FOLDED


def test_digests_tell_states_apart():
    """Another version, status or decision is another digest; the served set has its own."""
    one, two = state_of(imported("v1")), state_of(imported("v1"), imported("v2"))

    assert len({LibraryState().digest, one.digest, two.digest}) == 3
    assert one.library_digest != two.library_digest
    assert state_of(imported("v1"), proposed("c", "v2")).library_digest == one.library_digest


# --- Names and versions -------------------------------------------------------------------------


def test_near_names_are_suggested():
    """A typing error is met with the names that come near; anything else with the way to see."""
    known = ["iso-dates", "unit-prices", "iso-weeks"]

    assert suggest("iso-date", known) == "did you mean iso-dates or iso-weeks?"
    assert suggest("zzz", known) == suggest("iso-dates", []) == "`skillforge list` shows the names"


def test_an_unknown_skill_is_an_error_with_a_hint():
    """Asking the state for a skill that is not there names it and what comes near."""
    state = state_of(imported("v1", name="iso-dates"))

    assert state.skill("iso-dates").current == "v1"
    with pytest.raises(SkillError, match=r"no skill named 'iso-date'.*did you mean iso-dates\?"):
        state.skill("iso-date")


@pytest.fixture
def curator(tmp_path):
    """Return the curator of a library with one skill in two versions."""
    world = make_world(tmp_path, [skill("ask", "# Ask\n\nFirst.")])
    world.library.write(skill("ask", "# Ask\n\nSecond."))
    world.curator.sync()
    yield world.curator
    world.ledger.close()


def test_a_version_is_found_by_its_prefix(curator):
    """A full version or an unambiguous start of it names the package."""
    first, second = (version for _, version in curator.state.versions)

    assert curator.resolve("ask", first) == curator.resolve("ask", first[:10]) == first
    assert b"First" in curator.package("ask", first[:10]).files["SKILL.md"].data
    assert curator.package("ask").version == second


def test_an_unknown_version_lists_those_there_are(curator):
    """A prefix that nothing starts with is an error that offers the versions."""
    versions = [version[:10] for _, version in curator.state.versions]
    with pytest.raises(SkillError, match="ask: no version starting with 'zzz'") as caught:
        curator.resolve("ask", "zzz")
    assert all(version in str(caught.value) for version in versions)


def test_an_ambiguous_prefix_lists_what_it_could_mean(curator):
    """A prefix of several versions is an error, not a guess."""
    with pytest.raises(SkillError, match="several versions starting with ''"):
        curator.resolve("ask", "")


def test_versions_of_an_unknown_skill(curator):
    """The skill is what is reported, not the version."""
    with pytest.raises(SkillError, match=r"no skill named 'aks'.*did you mean ask"):
        curator.resolve("aks", "")


def test_what_is_not_served_says_how_to_serve_it(curator):
    """Empty library, unknown name and retired skill each have their own advice."""
    with pytest.raises(SkillError, match=r"library is empty.*skillforge import"):
        require_served(LibraryState(), "ask")
    with pytest.raises(SkillError, match="no skill named 'b'"):
        require_served(curator.state, "b")
    curator.retire("ask", evidence={}, reason="test")
    with pytest.raises(SkillError, match="ask is retired; `skillforge restore ask`"):
        require_served(curator.state, "ask")
