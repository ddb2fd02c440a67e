"""System messages: what templates see, and that nothing shown to them can run."""

import pytest
from support.world import skill

from skillforge.core.prompts import check_template, system_message
from skillforge.errors import SuiteError

LIVE = "{{ 7 * 7 }} {% raw %} {# gone #} {{ preamble.__class__.__mro__ }}"


@pytest.mark.parametrize("kind", ["chat", "agent"])
def test_shown_text_is_never_code(kind):
    """Template code in a skill or a preamble stands in the message as it was written."""
    shown = skill("live", LIVE, f'"{LIVE}"')

    message = system_message(kind, None, f"Be {LIVE}", [shown])

    assert message.count(LIVE) == 2
    assert "49" not in message


def test_a_skill_enters_the_chat_by_its_body_alone():
    """The default template joins preamble and bodies with blank lines."""
    message = system_message("chat", None, "Help.", [skill("a", "Do A."), skill("b", "Do B.")])

    assert message == "Help.\n\nDo A.\n\nDo B."


def test_a_suite_can_set_the_template():
    """A template of one's own has the preamble and each skill's name, description and body."""
    template = "{% for s in skills %}<{{ s.name }}|{{ s.description }}|{{ s.body }}>{% endfor %}"

    assert system_message("chat", template, "", [skill("a", "Do A.", "Does.")]) == "<a|Does.|Do A.>"


@pytest.mark.parametrize(
    ("kind", "template", "said"),
    [
        ("chat", "{{ preamble }}\n{% for s in skills %}", "line 2: Unexpected end of template"),
        ("chat", "\n\n{{ preambel }}", "line 3: 'preambel' is undefined"),
        ("chat", "{{ preamble }}\n{{ skills[0].name }}", "(with 0 skills shown)"),
        ("chat", "{% if skills|length > 2 %}\n{{ 1 // 0 }}{% endif %}", "line 2: integer division"),
        ("chat", "{{ preamble.__class__ }}", "access to attribute '__class__'"),
        ("chat", "{% for i in range(999999) %}{% endfor %}", "Range too big"),
        ("chat", "{{ skills.append(1) }}", "is unsafe"),
        ("chat", "{% include 'x' %}", "line 1: no loader"),
        ("agent", "{% for s in skills %}{{ s.body }}{% endfor %}", "has no attribute 'body'"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_refused(kind, template, said):
    """It is tried with no skill, one and several; the message has the line and what it may use."""
    with pytest.raises(SuiteError) as caught:
        check_template(kind, template)

    assert said in str(caught.value)
    assert "it may use `preamble` and `skills`" in str(caught.value)
