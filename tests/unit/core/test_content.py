"""What models wrap around an answer is taken off, and an answer that says nothing is refused."""

from __future__ import annotations

import pytest

from skillforge.core.content import clean_content, clean_description, unwrap
from skillforge.errors import EditError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  \n- a\r\n- b\n\n", "- a\n- b"),
        ("```markdown\n## A\n\nx\n```", "## A\n\nx"),
        ("~~~\nx\n~~~", "x"),
        ("---\nname: x\ndescription: y\n---\n\n## A", "## A"),
        ("```\n---\nname: x\n---\n## A\n```", "## A"),
        ("---\nname: x\n---\n```md\n## A\n```", "## A"),
        ("Here is the updated section:\n\n```md\n## A\n```", "## A"),
        ("Sure! Here is the skill:\n\n## A\n\nx", "## A\n\nx"),
        ("Certainly!\n\n## A", "## A"),
        ("Of course. I've rewritten it for you:\n```\nx\n```\n\nLet me know if it helps!", "x"),
        ("Here’s your edited text:\nx", "x"),
        ("```\na\n```\n\ntext\n\n```\nb\n```", "```\na\n```\n\ntext\n\n```\nb\n```"),
        ("Text in quotes stays.", "Text in quotes stays."),
        ("No changes to file names.", "No changes to file names."),
        ("Here is how: first a, then b.", "Here is how: first a, then b."),
        (
            "Here are the steps to revise a text:\n1. a",
            "Here are the steps to revise a text:\n1. a",
        ),
        ("Great care is needed:\nx", "Great care is needed:\nx"),
        ("Close with:\nLet me know.", "Close with:\nLet me know."),
        ("---\n\ntext", "---\n\ntext"),
    ],
)
def test_content_is_unwrapped(text: str, expected: str):
    """Fences around all, frontmatter and talk go, text stays (nowledge-co/community#419)."""
    assert clean_content(text) == expected
    assert clean_content(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\t ",
        "```\n\n```",
        "Sure!",
        "Sure! Here is …",
        "Sure! Here is the improved version.",
        "Here is the updated section:",
        "No changes needed.",
        "...",
        "[Insert rule here]",
        "TODO",
        "I'm sorry, but I cannot help.",
        "I hope this helps!",
        "---\nname: x\n---\n",
        "N/A",
        "null",
    ],
)
def test_empty_or_boilerplate_content_is_refused(text: str):
    """What says nothing never becomes a skill."""
    with pytest.raises(EditError, match="content of the edit is"):
        clean_content(text)


def test_half_a_character_is_refused():
    """A lone surrogate cannot be written to a file."""
    with pytest.raises(EditError, match="character 1"):
        clean_content("x\udc00")


def test_a_whole_answer_is_unwrapped_before_it_is_read():
    """JSON in a fence with talk around it is the JSON."""
    answer = 'Sure, here is the JSON:\n\n```json\n{"op": "NOOP"}\n```\n\nHope this helps!'
    assert unwrap(answer) == '{"op": "NOOP"}'
    assert unwrap('{"op": "NOOP"}') == '{"op": "NOOP"}'


def test_a_description_keeps_its_spaces_where_nothing_is_wrapped_around_it():
    """What was written is what will be read back."""
    assert clean_description(" a\r\nb ") == " a\r\nb "
    assert clean_description("```\na\n```") == "a"
    with pytest.raises(EditError, match="empty"):
        clean_description("  ")
