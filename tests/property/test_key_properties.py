"""The key of a rollout covers whatever can change its result."""

from dataclasses import fields, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from skillforge.adapters.models import LitellmModel
from skillforge.adapters.workers import ChatWorker
from skillforge.core.chat import ChatRequest
from skillforge.core.rollout import condition_digest, rollout_key
from skillforge.core.task import Split, Task, VerifierSpec, WorkerSpec

unhurried = settings(deadline=None)
TEXT = st.text(max_size=6)
SPECS = st.builds(
    WorkerSpec,
    kind=st.sampled_from(["chat", "agent"]),
    max_tokens=st.integers(1, 9),
    temperature=st.none() | st.sampled_from([0.0, 0.5, 1.0]),
    stop=st.lists(TEXT, max_size=2).map(tuple),
    preamble=TEXT,
    timeout=st.sampled_from([1.0, 2.0]),
    template=st.none() | st.sampled_from(["{{ preamble }}", "{{ preamble }}!"]),
    steps=st.integers(1, 3),
    tools=st.lists(st.sampled_from(["m:a", "m:b"]), max_size=1).map(tuple),
    command=st.lists(TEXT, max_size=2).map(tuple),
    network=st.booleans(),
)
VERIFIERS = st.builds(
    VerifierSpec,
    kind=st.sampled_from(["exact", "json"]),
    options=st.dictionaries(st.sampled_from(["strip", "schema"]), st.booleans() | TEXT),
    code=st.sampled_from(["", "1", "2"]),
)
TASKS = st.builds(
    Task,
    id=TEXT,
    family=TEXT,
    input=TEXT,
    expected=st.none() | TEXT,
    skill=st.none() | TEXT,
    split=st.sampled_from(Split),
    verifier=VERIFIERS,
    files=st.dictionaries(st.sampled_from(["a.txt", "b.txt"]), st.binary(max_size=2), max_size=2),
)
MODELS = st.builds(
    LitellmModel,
    st.sampled_from(["openai/a", "openai/b"]),
    api_base=st.none() | st.sampled_from(["http://x/v1", "http://y/v1"]),
    identity=st.sampled_from(["", "weights-1"]),
)
WORKERS = st.builds(ChatWorker, model=MODELS, spec=SPECS)
REST = st.fixed_dictionaries(
    {
        "shown": st.lists(TEXT, max_size=2),
        "replicate": st.integers(0, 3),
        "scope": TEXT,
        "seed": st.integers(0, 3),
    }
)
NEUTRAL = {"family", "skill", "split", "tags"}
"""Fields of a task that say where it belongs and change neither prompt nor score."""


def key(worker, task, rest):
    """Return the key of one cell."""
    condition = condition_digest(
        worker=worker.fingerprint, shown=rest["shown"], scope=rest["scope"], seed=rest["seed"]
    )
    return rollout_key(condition, task.digest, rest["replicate"])


@unhurried
@given(WORKERS, WORKERS, TASKS, TASKS, REST, REST)
def test_keys_are_equal_only_where_nothing_differs(worker, other, task, task2, rest, rest2):
    """Equal keys mean equal models, settings, templates, tasks, verifiers, skills and seeds.

    A key without temperature, token limit, schema, provider settings or the verifier's version
    served old answers: openclaw/lobster#130, matt-house-e/accrue#39,
    EvolvingLMMs-Lab/lmms-eval#1217 / #1118.
    """
    same = (
        worker.model.fingerprint == other.model.fingerprint
        and worker.spec == other.spec
        and all(
            getattr(task, f.name) == getattr(task2, f.name)
            for f in fields(Task)
            if f.name not in NEUTRAL
        )
        and rest == rest2
    )
    assert (key(worker, task, rest) == key(other, task2, rest2)) is same


@unhurried
@given(WORKERS, SPECS, TASKS, TASKS, REST, st.data())
def test_a_change_of_any_one_field_changes_the_key(worker, spec, task, other, rest, data):
    """Whichever field of the worker's settings or of the task differs, the key does too."""
    name = data.draw(st.sampled_from([f.name for f in fields(WorkerSpec)]))
    changed = replace(worker, spec=replace(worker.spec, **{name: getattr(spec, name)}))
    assert (key(worker, task, rest) == key(changed, task, rest)) is (changed == worker)

    name = data.draw(st.sampled_from([f.name for f in fields(Task) if f.name not in NEUTRAL]))
    altered = replace(task, **{name: getattr(other, name)})
    same = getattr(altered, name) == getattr(task, name)
    assert (key(worker, task, rest) == key(worker, altered, rest)) is same


@unhurried
@given(MODELS, MODELS)
def test_a_model_is_its_name_endpoint_and_weights(model, other):
    """Two models share a fingerprint only where all three are the same."""
    parts = [(m.name, m._api_base, m._identity) for m in (model, other)]
    assert (model.fingerprint == other.fingerprint) is (parts[0] == parts[1])


def test_every_field_of_a_request_comes_from_what_the_key_covers():
    """A field added to the request must be covered too; this list is then to be thought over."""
    from_spec = {"max_tokens", "temperature", "stop", "timeout", "tools"}
    from_task_and_skills = {"messages", "affinity"}
    from_seed, proposers_only = {"seed"}, {"json_schema"}

    covered = from_spec | from_task_and_skills | from_seed | proposers_only
    assert {f.name for f in fields(ChatRequest)} == covered
