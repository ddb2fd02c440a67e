"""Which candidates a cohort counts, and when it is closed again."""

import pytest

from skillforge.adapters.ledger import SqliteLedger
from skillforge.core.events import NewEvent
from skillforge.core.gate import Decision, promote
from skillforge.workflows.cohorts import OPEN, read_cohorts


class Story:
    """A ledger that is told what became of candidates."""

    def __init__(self, root):
        """Begin with nothing."""
        self.ledger = SqliteLedger(root / "ledger.db")

    def add(self, kind, run, **data):
        """Append one event."""
        self.ledger.append([NewEvent(kind=kind, data=data, run=run)])

    def start(self, run, *names, proposed=True):
        """Bring candidates to the gate."""
        for name in names:
            about = {"candidate": name, "skill": "ask", "version": f"v-{name}"}
            if proposed:
                self.add("candidate.proposed", run, base="v0", blob="", **about)
            self.add("gate.registered", run, lineage="s/ask/p", order=["t1"], **about)

    def decide(self, run, name, decision, e_value, *, staged=False):
        """Let the gate decide on one."""
        about = {"candidate": name, "skill": "ask", "version": f"v-{name}"}
        confirm = {"e_charged": e_value}
        data = {"decision": decision, "confirm": confirm, "unused": [], "lineage": "s/ask/p"}
        self.add("gate.decided", run, **about, **data)
        if staged:
            self.add("version.staged", run, base="v0", evidence="probation", **about)

    def close(self, run, cohort, members, promoted=()):
        """Close a cohort as a night writes it down."""
        found = [{"candidate": c, "decision": d, "e_value": e} for c, d, e in members]
        chosen = [{"candidate": c, "skill": "ask", "version": f"v-{c}"} for c in promoted]
        self.add("cohort.closed", run, cohort=cohort, fdr=0.1, members=found, promoted=chosen)


@pytest.fixture
def story(tmp_path):
    """Return a story of one closed night: one promoted, one on probation, one undecided."""
    story = Story(tmp_path)
    story.start("n1", "good", "fair", "open")
    story.decide("n1", "good", "probation", 50.0, staged=True)
    story.decide("n1", "fair", "probation", 22.0, staged=True)
    story.decide("n1", "open", "insufficient_evidence", 3.0)
    members = [("good", "probation", 50.0), ("fair", "probation", 22.0)]
    members += [("open", "insufficient_evidence", 3.0)]
    story.close("n1", "n1", members, promoted=("good",))
    return story


def test_who_was_never_counted_is_of_the_open_cohort(story):
    """Candidates of nights and of single runs wait for the next night; audits are none."""
    story.start("evolve-2", "late")
    story.start("n1", "audit", proposed=False)
    cohorts = read_cohorts(story.ledger)

    assert [m.candidate for m in cohorts.members(OPEN)] == ["late"]
    assert (cohorts.size(OPEN), cohorts.size("n1")) == (1, 3)
    (late,) = cohorts.members(OPEN)
    assert (late.e_value, late.decision) == (1.0, Decision.INSUFFICIENT_EVIDENCE)


def test_a_cohort_moves_when_a_member_is_decided_anew(story):
    """It does in whatever run that was, a night or not, until it is closed again."""
    assert list(read_cohorts(story.ledger).moved) == []
    story.start("evolve-2", "open")
    assert list(read_cohorts(story.ledger).moved) == []
    story.decide("evolve-2", "open", "insufficient_evidence", 6.0)
    assert list(read_cohorts(story.ledger).moved) == ["n1"]
    assert read_cohorts(story.ledger).members("n1")[2].e_value == 6.0
    members = [("good", "promoted", 50.0), ("fair", "probation", 22.0)]
    story.close("n3", "n1", [*members, ("open", "insufficient_evidence", 6.0)])
    assert list(read_cohorts(story.ledger).moved) == []


def test_who_is_promoted_counts_on_at_the_e_it_had(story):
    """With one discovery made, the next one needs half as much: e-BH over the same three."""
    members = read_cohorts(story.ledger).members("n1")
    assert [m.decision for m in members][:2] == [Decision.PROMOTED, Decision.PROBATION]
    assert promote(members, 0.1) == ("fair",)


def test_what_was_promoted_and_taken_back_helps_none(story):
    """A discovery that is not kept enters as 0."""
    data = {"skill": "ask", "from": "v-good", "version": "v0", "reason": "joint loss"}
    story.add("version.rolled_back", "n2", **data)
    members = read_cohorts(story.ledger).members("n1")

    assert members[0].decision is Decision.INSUFFICIENT_EVIDENCE
    assert promote(members, 0.1) == ()


@pytest.mark.parametrize("gone", ["skill.retired", "version.rolled_back"])
def test_what_left_the_library_is_promoted_only_if_it_comes_back(story, gone):
    """A retired or replaced version is no discovery; served again, it and its cohort count."""
    about = {"skill": "ask", "from": "v-fair", "version": "v-fair", "reason": "", "evidence": {}}
    story.add(gone, "n2", **about | ({"version": "v0"} if gone != "skill.retired" else {}))
    assert promote(read_cohorts(story.ledger).members("n1"), 0.1) == ()
    back = "skill.restored" if gone == "skill.retired" else gone
    story.add(back, "n3", **about | {"from": "v0"})

    cohorts = read_cohorts(story.ledger)
    assert promote(cohorts.members("n1"), 0.1) == ("fair",)
    assert list(cohorts.moved) == ["n1"]


def check(story, name, decision, stopped_by=None):
    """Let the neighbours of a candidate decide."""
    about = {"candidate": name, "skill": "ask", "version": f"v-{name}", "lineage": "s/ask/p"}
    found = {"stopped_by": stopped_by}
    story.add("neighbours.decided", "n2", **about, decision=decision, unused=[], found=found)


def test_who_harms_its_neighbours_is_not_promoted(story):
    """Staged by an earlier night or not: what its neighbours reject is no discovery."""
    check(story, "fair", "rejected_harm")
    assert promote(read_cohorts(story.ledger).members("n1"), 0.1) == ()


@pytest.mark.parametrize("then", ["checked", "adopted"])
def test_who_waits_for_its_neighbours_is_not_promoted_before(story, then):
    """A check that was cut off leaves it open until it is made, or the user adopts all the same."""
    check(story, "fair", "probation", stopped_by="the budget is spent")
    assert promote(read_cohorts(story.ledger).members("n1"), 0.1) == ()
    if then == "checked":
        check(story, "fair", "probation")
    else:
        about = {"candidate": "fair", "skill": "ask", "version": "v-fair"}
        story.add("version.adopted", "", parent="v0", evidence="probation", **about)

    cohorts = read_cohorts(story.ledger)
    assert promote(cohorts.members("n1"), 0.1) == ("fair",)
    assert list(cohorts.moved) == ["n1"]
