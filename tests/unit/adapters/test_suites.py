"""Suites on disk: every fault of both files is told at once, with its line.

Public reports covered: PrimeIntellect-ai/verifiers#1644 (U+2028 and U+0085 inside records),
huggingface/OpenEnv#1154 (a partial last record), sibson/redbeat#326 and heypinchy/pinchy#808
(a task without a usable reference).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillforge.adapters.suites import find_suite, list_suites, load_suite
from skillforge.core.task import Split, Suite, VerifierSpec, WorkerSpec
from skillforge.errors import SuiteError

HEAD = """name = "tiny"
version = "1"
license = "MIT"
source = "made by hand"

[worker]
kind = "chat"
max_tokens = 32
temperature = 0

[verifier]
kind = "exact"
strip = true
"""

FAMILIES = """
[splits]
by = "family"
[splits.families]
screen = ["f"]
confirm = ["g"]
"""


def row(id_: str = "a", **fields: Any) -> dict[str, Any]:
    """Build a task as it stands in the file; None takes a field out."""
    task = {"id": id_, "family": "f", "input": f"say {id_}", "expected": id_, "split": "confirm"}
    return {key: value for key, value in (task | fields).items() if value is not None}


def write(
    folder: Path, rows: list[dict[str, Any]] | bytes | None = None, head: str | bytes | None = HEAD
) -> Path:
    """Write a suite folder; a None file is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    if head is not None:
        (folder / "suite.toml").write_bytes(head if isinstance(head, bytes) else head.encode())
    if isinstance(rows, list):
        rows = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()
    if rows is not None:
        (folder / "tasks.jsonl").write_bytes(rows)
    return folder


def problems(
    tmp_path: Path, rows: list[dict[str, Any]] | bytes | None, head: str | bytes | None = HEAD
) -> str:
    """Return the message with which a suite is refused."""
    with pytest.raises(SuiteError) as caught:
        load_suite(write(tmp_path / "tiny", rows, head))
    return str(caught.value)


def test_a_suite_is_read(tmp_path: Path) -> None:
    """Head, worker, tasks and their own verifiers come out as the files say."""
    rows = [row("a", skill="s", tags=["x"]), row("b", verifier={"kind": "number"}, expected="2")]

    suite = load_suite(write(tmp_path / "tiny", rows))

    assert (suite.name, suite.version, suite.license) == ("tiny", "1", "MIT")
    assert suite.worker == WorkerSpec(kind="chat", max_tokens=32, temperature=0)
    assert suite.skills == ("s",)
    assert suite.tasks[0].tags == ("x",)
    assert suite.tasks[0].verifier == VerifierSpec(kind="exact", options={"strip": True})
    assert suite.tasks[1].verifier == VerifierSpec(kind="number")
    assert suite.split_by == "task"


def test_digest_covers_both_files(tmp_path: Path) -> None:
    """The digest changes with either file and with nothing else."""
    base = load_suite(write(tmp_path / "one" / "tiny", [row()]))
    same = load_suite(write(tmp_path / "two" / "other", [row()]))
    other_rows = load_suite(write(tmp_path / "three", [row(tags=["t"])]))
    other_head = load_suite(write(tmp_path / "four", [row()], HEAD + "# note\n"))

    assert base.digest == same.digest
    assert len({base.digest, other_rows.digest, other_head.digest}) == 3


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\x1c", "\x0b", "\x0c"])
def test_line_separators_inside_records(tmp_path: Path, char: str) -> None:
    """Characters that only look like line ends break no record."""
    raw = json.dumps(row(input=f"a{char}b"), ensure_ascii=False)
    raw = raw if ord(char) >= 0x20 else json.dumps(row(input=f"a{char}b"))

    suite = load_suite(write(tmp_path / "tiny", raw.encode() + b"\n"))

    assert suite.tasks[0].input == f"a{char}b"


def test_crlf_bom_and_blank_lines(tmp_path: Path) -> None:
    """Files from other systems are read as they are."""
    rows = (
        b"\xef\xbb\xbf" + json.dumps(row()).encode() + b"\r\n\r\n" + json.dumps(row("b")).encode()
    )

    suite = load_suite(write(tmp_path / "tiny", rows, b"\xef\xbb\xbf" + HEAD.encode()))

    assert [task.id for task in suite.tasks] == ["a", "b"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "tasks.jsonl: no such file"),
        (b"", "tasks.jsonl: is empty"),
        (b"\n \n", "tasks.jsonl: is empty"),
        ([row(), row()], "tasks.jsonl:2: id 'a' is taken by line 1"),
        ([row(inptu="x")], "tasks.jsonl:1: unknown field 'inptu'; did you mean 'input'?"),
        ([row(zzz=1)], "unknown field 'zzz'; known are id, family, input"),
        ([row(input=None)], "tasks.jsonl:1: field 'input' is missing"),
        ([row(input=3)], "field 'input' is 3: input should be a valid string"),
        ([row(input=" ")], "field 'input' is ' ': expected a text that is not blank"),
        ([row(expected=3)], "field 'expected' is 3: expected a text, or an object"),
        ([row(expected=None)], "task 'a': verifier 'exact' needs a reference answer"),
        ([row(split=None)], "tasks.jsonl:1: task 'a' has no split"),
        ([row(split="train")], "field 'split' is 'train': input should be 'propose', 'screen'"),
        ([row(tags="x")], "field 'tags' is 'x'"),
        ([row(verifier={"kind": "judge"})], "'judge' is not available yet"),
        ([row(verifier={"strip": True})], "field 'verifier.kind' is missing"),
        ([row(verifier={"kind": "exact", "sttrip": True})], "no option 'sttrip'"),
        (b'{"id": "a", \n', "tasks.jsonl:1: is no valid JSON"),
        (b"[1]\n", "tasks.jsonl:1: holds a list, expected a JSON object"),
        (b"5\n", "tasks.jsonl:1: holds a int"),
        (b'{"id": "a", "id": "b"}', "the key 'id' stands twice"),
        (b'{"id": NaN}', "NaN is no JSON number"),
        (b"[" * 100_000, "tasks.jsonl:1: is nested too deeply"),
        (b'{"id": "\\ud800"}', "lone surrogates"),
        (b"{}\n{} \xff\n", "tasks.jsonl:2: byte 0xff at offset 6 is not UTF-8"),
        (b"\xef\xbb\xbf{}\xff\n", "tasks.jsonl:1: byte 0xff at offset 5 is not UTF-8"),
    ],
)
def test_wrong_tasks(
    tmp_path: Path, rows: list[dict[str, Any]] | bytes | None, message: str
) -> None:
    """A fault of a task is told with file, line, what was found and what was expected."""
    assert message in problems(tmp_path, rows)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (None, "suite.toml: no such file"),
        ("", "field 'name' is missing"),
        (HEAD + "[", "suite.toml:14: is no valid TOML"),
        (HEAD.encode() + b"# \xff", "byte 0xff at offset"),
        (HEAD.replace('"tiny"', '"../tiny"'), "suite.toml:1: field 'name' is '../tiny'"),
        (HEAD.replace("32", "0"), "suite.toml:8: field 'worker.max_tokens' is 0"),
        (HEAD.replace("32", "true"), "suite.toml:8: field 'worker.max_tokens' is True"),
        (HEAD.replace("32", '"32"'), "field 'worker.max_tokens' is '32'"),
        (HEAD.replace("temperature", "temprature"), "did you mean 'temperature'?"),
        (HEAD.replace("temperature = 0", "temperature = nan"), "field 'worker.temperature'"),
        (HEAD.replace('"chat"', '"robot"'), "suite.toml:7: field 'worker.kind' is 'robot'"),
        (HEAD.replace("strip = true", "strip = 1"), "'strip' of verifier 'exact' is 1"),
        (HEAD.split("[verifier]")[0], "task 'a' has no verifier"),
        (HEAD + "[splits]\nscreen = 0.5\n", "suite.toml: the fractions of the splits are screen"),
        (HEAD + "[splits]\nconfirm = 1\n", "tasks name a `split`, but [splits] assigns it"),
        (HEAD + FAMILIES + "x = []\n", "suite.toml:20: field 'splits.families.x"),
        (HEAD + "[prices]\nm = -1\n", "field 'prices.m' is -1: expected a number ≥ 0"),
    ],
)
def test_wrong_heads(tmp_path: Path, head: str | bytes | None, message: str) -> None:
    """A fault of the head is told with file and, as far as can be, line."""
    assert message in problems(tmp_path, [row()], head)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    """Faults of both files come in one error: the first twenty, and how many more there are."""
    rows = [row(str(i), colour="red") for i in range(30)]

    message = problems(tmp_path, rows, HEAD.replace("32", "0"))

    assert "suite 'tiny' has 31 problems" in message
    assert "suite.toml:8" in message
    assert "tasks.jsonl:19:" in message
    assert "tasks.jsonl:20:" not in message
    assert message.endswith("… and 11 more")


def test_one_bad_row_hides_no_other(tmp_path: Path) -> None:
    """A partial last record and a bad first one are both told."""
    message = problems(tmp_path, b"nonsense\n" + json.dumps(row()).encode() + b'\n{"id": "z"')

    assert "tasks.jsonl:1:" in message
    assert "tasks.jsonl:3:" in message
    assert "tasks.jsonl:2:" not in message


def load(tmp_path: Path, splits: str, rows: list[dict[str, Any]]) -> Suite:
    """Load a suite that assigns its splits in its head."""
    return load_suite(write(tmp_path / "tiny", rows, HEAD + splits))


def test_splits_by_listed_families(tmp_path: Path) -> None:
    """Families listed under a split put their tasks there."""
    rows = [row("a", split=None), row("b", split=None, family="g")]

    suite = load(tmp_path, FAMILIES, rows)

    assert [task.split for task in suite.tasks] == [Split.SCREEN, Split.CONFIRM]
    assert suite.split_by == "family"


def test_unlisted_family_is_told_with_its_line(tmp_path: Path) -> None:
    """A task whose family is listed nowhere is a problem of that task."""
    rows = [row("a", split=None), row("b", split=None, family="h")]

    message = problems(tmp_path, rows, HEAD + FAMILIES)

    assert "tasks.jsonl:2: family 'h' has no split" in message
    assert "suite.toml: family 'g' of confirm has no task" in message


@pytest.mark.parametrize(("families", "by"), [(8, "family"), (2, "task")])
def test_splits_by_fractions(tmp_path: Path, families: int, by: str) -> None:
    """Fractions deal the tasks out, families as wholes where there are eight."""
    rows = [row(str(i), split=None, family=f"f{i % families}") for i in range(40)]

    suite = load(tmp_path, "[splits]\nscreen = 0.5\nconfirm = 0.5\n", rows)

    assert len(suite.select(split=Split.CONFIRM)) == 20
    assert suite.split_by == by


def test_expected_may_be_an_object(tmp_path: Path) -> None:
    """A JSON reference can be written as the object that it is."""
    rows = [row(expected={"b": 1, "a": "é"}, verifier={"kind": "json"})]

    assert load_suite(write(tmp_path / "tiny", rows)).tasks[0].expected == '{"a": "é", "b": 1}'


def test_prices_are_kept(tmp_path: Path) -> None:
    """Prices of models are handed on as they stand."""
    head = HEAD + '[prices."acme/x"]\ninput = 1.5\noutput = 2\n'

    suite = load_suite(write(tmp_path / "tiny", [row()], head))

    assert suite.prices == {"acme/x": {"input": 1.5, "output": 2.0}}


def test_list_shows_bad_suites_too(tmp_path: Path) -> None:
    """A suite whose head cannot be read is listed with its problem and hides no other."""
    write(tmp_path / "b-good", [row()])
    write(tmp_path / "a-bad", [row()], "name = ")
    (tmp_path / "no-suite").mkdir()

    bad, good = list_suites([tmp_path, tmp_path / "absent"])

    assert (bad.name, good.name) == ("a-bad", "tiny")
    assert "no valid TOML" in bad.problem
    assert (good.version, good.problem) == ("1", "")


def test_find_by_name(tmp_path: Path) -> None:
    """A suite is found by the name in its head, in the first root that has it."""
    first = write(tmp_path / "one" / "x", [row()])
    write(tmp_path / "two" / "y", [row()])

    assert first == find_suite("tiny", [tmp_path / "one", tmp_path / "two"])


def test_find_suggests_a_near_name(tmp_path: Path) -> None:
    """An unknown name gets the names there are, and the nearest."""
    write(tmp_path / "x", [row()])

    with pytest.raises(SuiteError, match=r"no suite 'tinny'.*did you mean 'tiny'.*there are: tiny"):
        find_suite("tinny", [tmp_path])


def test_find_refuses_two_of_one_name(tmp_path: Path) -> None:
    """Two suites of one name in one root are told with their folders."""
    write(tmp_path / "x", [row()])
    write(tmp_path / "y", [row()])

    with pytest.raises(SuiteError, match="several suites are called 'tiny'"):
        find_suite("tiny", [tmp_path])


WORKER_HEAD = HEAD.partition("[worker]")[0]
VERIFIER = '[verifier]\nkind = "exact"\n'


def test_a_worker_is_read_with_the_settings_of_its_kind(tmp_path: Path) -> None:
    """One tool or a list, templates, limits and references come out as the file says."""
    head = WORKER_HEAD + (
        '[worker]\nkind = "agent"\nmax_tokens = 500\nsteps = 6\ntoken_limit = 9000\n'
        'tools = "shop:find"\nstate = "shop:open"\ntemplate = "{{ preamble }}"\n'
    )

    worker = load_suite(write(tmp_path / "tiny", [row()], head + VERIFIER)).worker

    assert worker == WorkerSpec(
        kind="agent",
        max_tokens=500,
        steps=6,
        token_limit=9000,
        tools=("shop:find",),
        state="shop:open",
        template="{{ preamble }}",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "steps = 3",
            ":7: field 'worker.steps' is 3: a setting of agent workers, but kind is 'chat'",
        ),
        ('kind = "python"\nfunction = "work"', ":8: field 'worker.function' is 'work': "),
        ('kind = "agent"\ntools = ["a:b", "c d:e"]', ":8: field 'worker.tools.1' is 'c d:e': "),
        (
            'kind = "command"\ncommand = ["x"]\noutage = "("',
            ":9: field 'worker.outage' is '(': the pattern '(' is ",
        ),
        (
            'kind = "command"\ncommand = ["x"]\noutage = "(a+)+$"',
            ":9: field 'worker.outage' is '(a+)+$': the pattern '(a+)+$' repeats a group",
        ),
        (
            'kind = "command"\ncommand = ["x"]\noutage = ".*"',
            ":9: field 'worker.outage' is '.*': it fits any text; give words",
        ),
        ('kind = "agent"\nsteps = 0', ":8: field 'worker.steps' is 0: "),
        ('template = "{{ nobody }}"', ":7: field 'worker.template' is '{{ nobody }}': template, l"),
        ("template = '''\na\n{% if %}'''", ":7: field 'worker.template' is 'a\\n{% if %}': "),
    ],
)
def test_a_wrong_worker_is_refused_at_its_line(tmp_path: Path, line: str, message: str) -> None:
    """Settings of other kinds, bad references and templates are found when the suite is read."""
    found = problems(tmp_path, [row()], f"{WORKER_HEAD}[worker]\n{line}\n{VERIFIER}")

    assert f"suite.toml{message}" in found


def test_a_template_error_has_its_own_line_too(tmp_path: Path) -> None:
    """Within a template of several lines, the message says which of them is wrong."""
    text = "{{ preamble }}\n{{ oops }}"
    found = problems(tmp_path, [row()], f"{WORKER_HEAD}[worker]\ntemplate = {json.dumps(text)}\n")

    assert "template, line 2: 'oops' is undefined" in found
