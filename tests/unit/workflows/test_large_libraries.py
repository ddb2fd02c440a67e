"""What a task gets of a large library: whole entries, told apart, by content and not by name."""

from __future__ import annotations

import pytest
from support.scripted import ScriptedModel
from support.world import DotIndex, LetterEmbedder, skill, suite

from skillforge.adapters.agent_worker import AgentWorker
from skillforge.core.task import WorkerSpec
from skillforge.workflows.audit import exposures
from skillforge.workflows.retrieve import build_retriever, index_text

TASK = suite(["ask"]).tasks[0]


def retriever(*packages):
    """Index some skills by their words."""
    return build_retriever({p.name: p for p in packages}, LetterEmbedder(), DotIndex)


def catalogue(packages):
    """Return the lines of the catalogue that an agent sees of these skills."""
    worker = AgentWorker(model=ScriptedModel(["done"]), spec=WorkerSpec(kind="agent"))
    system = worker.prompt(TASK, packages).messages[0].content
    return [line for line in system.splitlines() if line.startswith("- ")]


def test_no_description_is_dropped_from_a_catalogue():
    """anthropics/claude-code#60560 / #68135: 175 (81) descriptions dropped, least used first.

    Here a catalogue has no budget of its own: it lists each skill that a task is given, whole and
    in the order of retrieval, which depends on nothing but library and task. How many a task is
    given is `[retrieval] k`, and `search` says how many it left out.
    """
    packages = [
        skill(f"skill-{i:03}", "Do it.", f"Handles topic{i} of the day. " + "word " * 150)
        for i in range(256)
    ]
    lines = catalogue(packages)

    assert lines == [f"- {p.name}: {p.description.strip()}" for p in packages]
    found = [[hit.skill for hit in retriever(*p).search("topic7 of the day", 256)] for p in (
        packages, packages[::-1],
    )]  # fmt: skip
    assert len(found[0]) == 256
    assert found[0] == found[1]


def test_descriptions_that_agree_at_first_stay_apart():
    """redhat-et/ripwire#49: 18 skills cut to 350 characters become indistinguishable.

    Descriptions are not cut here, neither in the catalogue nor in what is indexed: skills that
    agree in their first 350 characters are told apart by the rest, and found by it.
    """
    same = "Use this skill for work on the service when something is asked about it. " * 5
    places = [f"place{i}" for i in range(18)]
    packages = [skill(f"s-{i:02}", "Do it.", f"{same}Only in {p}.") for i, p in enumerate(places)]
    found = retriever(*packages)

    assert len({p.description[:350] for p in packages}) == 1
    assert len({line.partition(": ")[2] for line in catalogue(packages)}) == 18
    assert all(package.description in index_text(package) for package in packages)
    for package, place in zip(packages, places, strict=True):
        assert package.name in {hit.skill for hit in found.search(f"only in {place}", 3)}


def test_what_cannot_be_told_apart_is_named():
    """redhat-et/ripwire#49: skills of one description are near-duplicates, and reported as such."""
    twins = [skill(f"s-{i}", "Do it.", "Handles the same thing in the same words.") for i in "ab"]
    other = skill("c", "Bake bread slowly.", "Sourdough from a wheat starter.")

    assert {(a, b) for a, b, _ in retriever(*twins, other).duplicates(0.85)} == {("s-a", "s-b")}


def test_a_skill_that_its_words_load_into_other_tasks_is_a_suspect():
    """NousResearch/hermes-agent#48780: 'test/gate/verify' words load TDD skill in unrelated task.

    Every task is replayed through retrieval: a skill that comes up in the tasks of others heads the
    list of those whose effect there is audited, however its words got it there.
    """
    tasks = suite(["garden"], confirm=12)
    garden = skill("garden", "Grow things.", "garden confirm question number")
    loud = "test gate verify confirm question number garden question"
    greedy = skill("tdd", "Write the test first.", loud)
    quiet = skill("idle", "Sort laundry.", "whites and colours")
    first, *_ = exposures(tasks, retriever(garden, greedy, quiet), k=2)

    assert (first.skill, first.foreign, first.foreign_share) == ("tdd", 12, 1.0)


@pytest.mark.parametrize(("name", "expected"), [("other-name", True), ("tidy", False)])
def test_near_duplicates_are_found_by_content(name, expected):
    """NousResearch/hermes-agent#67582: 22 unused near-duplicates among 152 (same-name guard only).

    A copy under another name is a near-duplicate; a namesake's cousin with other content is not.
    """
    body = "Rename the columns, drop empty rows, sort by date."
    text = "Cleans tables of orders before they are counted."
    copy = skill(name, body if expected else "Greet the visitor, offer tea.", (
        text if expected else "Receives guests at the front desk."
    ))  # fmt: skip
    original = skill("tidy-tables", body, text)
    filler = [skill(f"f-{i}", f"Body {i} about w{i}.", f"Topic t{i} x{i} y{i}.") for i in range(20)]
    found = {frozenset(pair[:2]) for pair in retriever(original, copy, *filler).duplicates(0.85)}

    assert (frozenset({"tidy-tables", name}) in found) is expected
