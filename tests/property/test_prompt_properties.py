"""Properties of the arms: the base arm's request holds nothing of the candidate."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.world import DotIndex, LetterEmbedder

from skillforge.adapters.agent_worker import AgentWorker
from skillforge.adapters.models import LitellmModel
from skillforge.adapters.workers import ChatWorker
from skillforge.core.package import Package, PackageFile
from skillforge.core.prompts import AGENT_TEMPLATE
from skillforge.core.shown import body_text, description_only
from skillforge.core.task import Split, Task, VerifierSpec, WorkerSpec
from skillforge.workflows.contrast import arm_cells, freeze_context
from skillforge.workflows.retrieve import build_retriever

MODEL = LitellmModel("openai/none", prices={"input_per_million": 0, "output_per_million": 0})
WORKERS = (
    ChatWorker(model=MODEL, spec=WorkerSpec()),
    AgentWorker(model=MODEL, spec=WorkerSpec(kind="agent")),
)
WORD = re.compile(r"\w+")
PIECES = st.sampled_from(
    [
        "# Rule",
        "- use capitals",
        "{{ preamble }}",
        "{% raw %}",
        "---",
        "name: x",
        "\ufeff",
        "é 数",
        "",
    ]
)
LINES = st.lists(
    PIECES | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=8
)
RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def skills(draw: st.DrawFn, name: str) -> Package:
    """Draw a skill with an odd body, odd line ends and maybe no frontmatter that can be read."""
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    description = draw(st.sampled_from(["Does it", "'a: b'", "{{ skills }}", ">\n  two\n  lines"]))
    head = draw(
        st.sampled_from([f"---\nname: {name}\ndescription: {description}\n---\n", "", "---\n"])
    )
    text = head + "\n".join(draw(LINES))
    return Package(
        name=name, files={"SKILL.md": PackageFile(data=text.replace("\n", end).encode())}
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Package, dict[str, Package], Task]:
    """Draw a candidate, the library around it, and a task."""
    others = {name: draw(skills(name)) for name in ("north", "south", "west")}
    text = draw(st.sampled_from(["use capitals", "{{ skills[0] }}", "a question"]))
    task = Task(
        id="t",
        family="f",
        input=text,
        expected=None,
        skill="east",
        split=Split.CONFIRM,
        verifier=VerifierSpec(kind="contains"),
    )
    return draw(skills("east")), others, task


def requests(worker, library, candidate, task):
    """Return what the two arms of a contrast would send, its context retrieved from a library."""
    retriever = build_retriever(library, LetterEmbedder(), DotIndex)
    context = freeze_context(retriever, "east", [task], k=3)
    found = []
    for arm, package in (("base", None), ("augmented", candidate)):
        [cell] = arm_cells([task], arm=arm, package=package, context=context, purpose="eval")
        found.append(worker.prompt(cell.task, cell.skills))
    return found


@given(worlds())
@RELAXED
def test_the_base_request_is_the_one_without_a_candidate(world):
    """The base arm sends what it would send had the candidate never been in the library."""
    candidate, others, task = world
    for worker in WORKERS:
        base, augmented = requests(worker, {**others, "east": candidate}, candidate, task)
        never, _ = requests(worker, others, candidate, task)

        assert base == never
        assert augmented.messages[1:] == base.messages[1:]
        assert augmented.tools == base.tools


@given(worlds())
@RELAXED
def test_no_word_of_the_candidate_reaches_the_base_arm(world):
    """What stands in the candidate and nowhere else does not stand in the base arm's request."""
    candidate, others, task = world
    known = [AGENT_TEMPLATE, WorkerSpec().preamble, task.input, *others]
    known += [f.data.decode() for p in others.values() for f in p.files.values()]
    words = set(WORD.findall(candidate.files["SKILL.md"].data.decode())) | {"east"}
    own = {word for word in words if not any(word in text for text in known)}
    assume(own)
    for worker in WORKERS:
        base, _ = requests(worker, {**others, "east": candidate}, candidate, task)
        sent = "".join(message.content for message in base.messages)

        assert not any(word in sent for word in own)


@given(skills("east"))
@RELAXED
def test_what_is_shown_of_a_skill_has_no_frontmatter(package):
    """No text that is shown begins with a fence, and the description arm has no text at all."""
    assert not re.match(r"---[ \t]*(\n|$)", body_text(package))
    if package.document.frontmatter:
        assert body_text(description_only(package)) == ""
        assert description_only(package).description == package.description


@given(skills("east"))
@RELAXED
def test_a_body_stands_in_the_chat_as_it_is(package):
    """Nothing in a body is taken for template code, markup or anything but text."""
    task = Task(
        id="t",
        family="f",
        input="x",
        expected=None,
        skill=None,
        split=Split.CONFIRM,
        verifier=VerifierSpec(kind="contains"),
    )

    system = WORKERS[0].prompt(task, [package]).messages[0].content

    assert system.startswith(WorkerSpec().preamble + "\n\n")
    assert body_text(package) in system
