"""Which skills are taken: each by itself, the first sound one of a name, nothing twice."""

import pytest
from support.world import skill

from skillforge.core.intake import make_offer, plan_intake

ASK, OTHER = skill("ask", "# One\n"), skill("ask", "# Two\n")
BAD = skill("ask", "# One\n", description="x" * 2000)


@pytest.mark.parametrize(
    ("packages", "served", "retired", "taken", "codes"),
    [
        ([ASK], None, None, [0], []),
        ([BAD, ASK, OTHER], None, None, [1], ["lint", "name-twice"]),
        ([ASK, ASK], None, None, [0], ["copy"]),
        ([ASK], ASK, None, [], ["same"]),
        ([ASK], OTHER, None, [], ["name-served"]),
        ([ASK, OTHER], OTHER, None, [], ["name-served", "same"]),
        ([ASK], None, ASK, [], ["retired"]),
        ([ASK], None, OTHER, [0], []),
        ([], ASK, None, [], []),
    ],
)
def test_each_skill_is_taken_or_has_a_reason(packages, served, retired, taken, codes):
    """What is served, retired or taken already decides, and a fault decides before them."""
    offers = [make_offer(package, f"s/{number}") for number, package in enumerate(packages)]
    versions = [{p.name: p.version} if p else {} for p in (served, retired)]
    plan = plan_intake(offers, *versions)
    assert [offer.path for offer in plan.taken] == [f"s/{number}" for number in taken]
    assert [skip.code for skip in plan.skipped] == codes
    assert all(skip.reason for skip in plan.skipped)


def test_problems_say_where_in_the_source_they_are():
    """The path of a finding starts at the source; a skill at its root has none to add."""
    assert {p.path for p in make_offer(BAD, "a/ask").problems} == {"a/ask/SKILL.md"}
    assert {p.path for p in make_offer(BAD, ".").problems} == {"SKILL.md"}
