"""Leaks: nothing of the confirm and sealed splits gets into a skill."""

from __future__ import annotations

import time

import pytest

from skillforge.core.leaks import LeakIndex, tokens
from skillforge.core.package import Package, PackageFile
from skillforge.core.task import Split, Task, VerifierSpec
from skillforge.errors import EditError

PARCEL = "The parcel for Mrs Jones was left with the neighbour at number nine"
RUBRIC = "Give full marks only when the reply names the carrier and apologises for the delay"
PATTERN = r"^(?P<answer>P[1-4])\s*$|^none of these$"


def task(text: str, expected: str | None, split: Split, **options: object) -> Task:
    """Return a task of that split."""
    return Task(
        id=f"{split}/{text[:9]}",
        family="f",
        input=text,
        expected=expected,
        skill="a",
        split=split,
        verifier=VerifierSpec(kind="regex", options=options),
    )


TASKS = [
    task(PARCEL, "neighbour", Split.CONFIRM, pattern=PATTERN, match="full", strip=True),
    task("good film", "positive", Split.SEALED),
    task("2 + 2", None, Split.CONFIRM),
    task("P1?", "P1", Split.CONFIRM),
    task("judge", "x", Split.CONFIRM, rubric={"points": [RUBRIC]}),
    task("第一个问题是什么时候开始的", "昨天", Split.SEALED),
    task("short", "One two three four five six seven eight nine", Split.CONFIRM),
    task("Read the note below and answer with one word only: tea", "drink", Split.PROPOSE),
    task("Read the note below and answer with one word only: ham", "food", Split.CONFIRM),
]
INDEX = LeakIndex(TASKS)


def skill(body: str) -> Package:
    """Return a skill of that body."""
    return Package(name="a", files={"SKILL.md": PackageFile(data=body.encode())})


EMPTY = skill("# A\n")


@pytest.mark.parametrize(
    "content",
    [
        "User: Good film\nAssistant: positive",
        'Say "positive" for "good  film".',
        "good-film is **positive**",
        "Example: the PARCEL for Mrs\nJones was left with the door open.",
        "**The** parcel, for _Mrs_ Jones: was left WITH",
        "The par\u200bcel for Mrs\u00a0Jones w\u00adas left w\u2060ith",
        "The parcel for Mrs Jo\u0301nes was left with",
        "\uff34\uff48\uff45 parcel for Mrs Jones was left with",
        "The_parcel_for_Mrs_Jones_was_left_with",
        "题：第一个问题是什么时候",
        "Answer: one two three four five six seven eight",
        "User: Read the note below and answer with one word only: ham\nAssistant: food",
    ],
)
def test_held_out_tasks_in_content_are_refused(content: str):
    """An input with its answer, or eight tokens in a row, is a leak however it is dressed."""
    with pytest.raises(EditError, match="held out for the decision; write the general rule"):
        INDEX.check(content, EMPTY)


@pytest.mark.parametrize(
    "content",
    [
        f"Match {PATTERN} exactly.",
        r"Match ^(?P<answer>p[1-4])\s*$ | ^None of these$",
        "The judge wants: marks only when the reply names the carrier and",
        RUBRIC.upper(),
    ],
)
def test_verifier_text_in_content_is_refused(content: str):
    """Neither pattern nor rubric gets into a skill (nowledge-co/community#419)."""
    with pytest.raises(EditError, match="held out"):
        INDEX.check(content, EMPTY)


@pytest.mark.parametrize(
    "content",
    [
        "Answer positive or negative.",
        "A good film is praised.",
        "What is 2 + 2? It is 4.",
        "",
        "The parcel for Mrs Jones was left there.",
        "good filmmaking: positive",
        "Labels: P1, P2, P3, P4.",
        "P1",
        "Match the full text and strip it.",
        "User: Read the note below and answer with one word only: tea\nAssistant: drink",
    ],
)
def test_labels_short_overlaps_and_the_propose_split_are_no_leak(content: str):
    """A rule may name the labels, use common words and quote what proposers are shown."""
    INDEX.check(content, EMPTY)


def test_what_the_skill_held_before_is_no_leak():
    """Only what an edit adds counts; another span is still refused."""
    INDEX.check(f"- {PARCEL}: neighbour", skill(f"# A\n\n> {PARCEL.upper()}! neighbour\n"))
    with pytest.raises(EditError, match="held out"):
        INDEX.check(f"- {PARCEL}", skill("# A\n\nThe parcel for Mrs Jones was left with\n"))


def test_tokens_are_words_and_numbers_without_dress():
    """Case, accents, punctuation, widths and invisible characters do not count."""
    dressed = "Ｃａｆé, “N\u200bo.9”_x \u00ad\ufe0f\u202e－ ﬁne"
    assert tokens(dressed) == ["cafe", "no", "9", "x", "fine"]
    assert tokens("你好 world") == ["你", "好", "world"]
    assert tokens("हिन्दी भाषा") == tokens("हिन्दी  भाषा.")
    assert len(tokens("हिन्दी भाषा")) == 2


def test_checking_against_seven_thousand_tasks_is_fast():
    """The index is built once in seconds, and a check takes a small part of one."""
    tasks = [
        task(" ".join(f"w{i}x{j}" for j in range(30)), str(i), Split.CONFIRM) for i in range(7000)
    ]
    start = time.process_time()
    index = LeakIndex(tasks)
    built = time.process_time() - start
    for _ in range(5):
        index.check("rule " * 2000, EMPTY)
    assert built < 10
    assert time.process_time() - start - built < 5
