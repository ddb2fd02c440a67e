"""The project file: what it may say, what overrides it, and how its problems are told."""

import pytest

from skillforge.adapters.project import (
    FILE,
    LOCAL_MODEL,
    Settings,
    find_project,
    load_project,
    write_project,
)
from skillforge.core.gate import GateRules
from skillforge.errors import ConfigError


def load(folder, text, environment=None):
    """Write a project file and read it."""
    data = text if isinstance(text, bytes) else text.encode()
    (folder / FILE).write_bytes(data)
    return load_project(folder, environment or {})


def problems(folder, text, environment=None):
    """Return the lines of the error that a project file brings."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text, environment)
    return str(caught.value).splitlines()


def test_an_empty_file_means_the_defaults(tmp_path):
    """Nothing has to be said; paths hang on the project's folder."""
    project = load(tmp_path, "")

    assert project.settings == Settings()
    assert project.settings.model.worker == LOCAL_MODEL
    assert (project.library, project.state) == (tmp_path / "skills", tmp_path / ".skillforge")


def test_the_defaults_of_the_gate_are_the_gates_own(tmp_path):
    """What the project file leaves out is what the gate would use by itself."""
    assert GateRules(**load(tmp_path, "").settings.gate.model_dump()) == GateRules()


def test_values_of_the_file(tmp_path):
    """Each section is read, underscores in numbers and comments included."""
    project = load(
        tmp_path,
        """
        [library]
        path = "our/skills"    # relative to this file
        [model]
        fallback = "openai/x"
        requests_per_minute = 60
        tokens_per_minute = 90_000
        [budget]
        usd = 5
        tokens = 2_000_000
        [gate]
        alpha = 0.01
        [nightly]
        skills = ["b", "a"]
        [prices."openai/x"]
        input_per_million = 0.15
        output_per_million = 0.6
        """,
    )

    assert project.library == tmp_path / "our" / "skills"
    assert (project.settings.budget.usd, project.settings.budget.tokens) == (5.0, 2_000_000)
    assert project.settings.model.fallback == "openai/x"
    assert project.settings.model.requests_per_minute == 60
    assert project.settings.model.tokens_per_minute == 90_000
    assert project.settings.gate.alpha == 0.01
    assert project.settings.nightly.skills == ("b", "a")
    assert project.settings.prices["openai/x"]["output_per_million"] == 0.6


@pytest.mark.parametrize(
    "text", [b"\xef\xbb\xbf[gate]\nalpha = 0.1\n", b"[gate]\r\nalpha = 0.1\r\n"]
)
def test_files_of_other_editors(tmp_path, text):
    """A byte order mark and Windows line endings are no problem."""
    assert load(tmp_path, text).settings.gate.alpha == 0.1


def test_an_unknown_key_is_named_with_its_line(tmp_path):
    """A key that was misspelt is not silently ignored."""
    (line,) = problems(tmp_path, "[gate]\nbeta = 0.1\nalhpa = 0.05\n")

    assert line.startswith(f"{tmp_path / FILE}:3: gate.alhpa: ")
    assert line.endswith("got 0.05; remove it, or check its spelling")


def test_an_unknown_section_is_named(tmp_path):
    """So is a section."""
    (line,) = problems(tmp_path, "[gates]\nalpha = 0.05\n")

    assert f"{FILE}:1: gates: " in line
    assert "check its spelling" in line


@pytest.mark.parametrize(
    ("text", "key", "found"),
    [
        ('[gate]\nalpha = "small"', "gate.alpha", "'small'"),
        ("[gate]\nalpha = 5", "gate.alpha", "5"),
        ("[gate]\nfdr = 0.0", "gate.fdr", "0.0"),
        ("[gate]\nmargin = nan", "gate.margin", "nan"),
        ("[gate]\nmax_tasks = 0", "gate.max_tasks", "0"),
        ("[budget]\nusd = -1", "budget.usd", "-1"),
        ("[budget]\nusd = inf", "budget.usd", "inf"),
        ("[budget]\nminutes = nan", "budget.minutes", "nan"),
        ("[budget]\ntokens = 1.5", "budget.tokens", "1.5"),
        ("[budget]\nrollouts = []", "budget.rollouts", "[]"),
        ("[model]\nparallel = 0", "model.parallel", "0"),
        ("[model]\nworker = 7", "model.worker", "7"),
        ("[retrieval]\nduplicate = 1.2", "retrieval.duplicate", "1.2"),
        ('[nightly]\nskills = "ask"', "nightly.skills", "'ask'"),
        ("[evolve]\nanchors = 1", "evolve.anchors", "1"),
        ('[prices]\n"openai/x" = 3', "prices.openai/x", "3"),
        ('model = "openai/x"', "model", "'openai/x'"),
    ],
)
def test_a_wrong_value_is_shown(tmp_path, text, key, found):
    """The message holds the key, what was found and what was expected."""
    (line,) = problems(tmp_path, text)

    assert f": {key}: " in line
    assert line.endswith(f"got {found}; mend it")


def test_all_problems_are_listed(tmp_path):
    """One wrong line does not hide the others."""
    text = "[gate]\nalpha = 2\nbeta = 'x'\n[budgets]\n[evolve]\nwave = 0\nwafe = 1\n"
    lines = problems(tmp_path, text)

    found = {line.removeprefix(f"{tmp_path / FILE}:").split(": ")[1] for line in lines}
    assert found == {"gate.alpha", "gate.beta", "budgets", "evolve.wave", "evolve.wafe"}


def test_a_missing_file_says_how_to_make_one(tmp_path):
    """Without a project file there is a command to run and a flag to use."""
    with pytest.raises(ConfigError, match=r"no skillforge\.toml in .*skillforge init.*--project"):
        load_project(tmp_path, {})


def test_what_is_no_toml_names_file_and_line(tmp_path):
    """A syntax error is reported where it stands."""
    (line,) = problems(tmp_path, "[gate]\nalpha = \n")

    assert line.startswith(f"{tmp_path / FILE}: ")
    assert "line 2" in line


def test_what_is_no_utf8_names_the_file(tmp_path):
    """A file in another encoding is an error, not a guess."""
    (line,) = problems(tmp_path, '[library]\npath = "f\xe4higkeiten"\n'.encode("latin-1"))

    assert str(tmp_path / FILE) in line
    assert "utf-8" in line


def test_a_folder_in_the_place_of_the_file(tmp_path):
    """A folder of that name is an error, not a crash."""
    (tmp_path / FILE).mkdir()
    with pytest.raises(ConfigError, match="mend the file"):
        load_project(tmp_path, {})


# --- The environment ----------------------------------------------------------------------------


def test_variables_override_the_file(tmp_path):
    """Section and key in capitals; a section that the file does not have is no obstacle."""
    environment = {
        "SKILLFORGE_MODEL_WORKER": "openai/y",
        "SKILLFORGE_GATE_ALPHA": "0.01",
        "SKILLFORGE_GATE_MIN_EFFECT": "0.2",
        "SKILLFORGE_NIGHTLY_SKILLS": '["a", "b"]',
        "SKILLFORGE_MODEL_DETERMINISTIC": "true",
        "SKILLFORGE_HOME": "/nowhere",
        "OTHER": "x",
    }
    settings = load(tmp_path, '[model]\nworker = "openai/x"\n', environment).settings

    assert (settings.model.worker, settings.model.deterministic) == ("openai/y", True)
    assert (settings.gate.alpha, settings.gate.min_effect) == (0.01, 0.2)
    assert settings.nightly.skills == ("a", "b")


def test_text_that_looks_like_a_number_stays_text(tmp_path):
    """A folder may be called 2024 and a suite true."""
    environment = {"SKILLFORGE_LIBRARY_PATH": "2024", "SKILLFORGE_SUITES_DEFAULT": "true"}
    settings = load(tmp_path, "", environment).settings

    assert (settings.library.path, settings.suites.default) == ("2024", "true")


def test_null_takes_a_value_away(tmp_path):
    """A cap or a model of the file can be switched off for one command."""
    environment = {"SKILLFORGE_BUDGET_USD": "null", "SKILLFORGE_MODEL_PROPOSER": "null"}
    text = '[budget]\nusd = 1.0\n[model]\nproposer = "openai/x"\n'
    settings = load(tmp_path, text, environment).settings

    assert settings.budget.usd is settings.model.proposer is None


def test_a_wrong_variable_is_blamed_itself(tmp_path):
    """The message names the variable, not a line of the file that is right."""
    lines = problems(tmp_path, "[gate]\nalpha = 0.05\n", {"SKILLFORGE_GATE_ALPHA": "five"})

    assert len(lines) == 1
    assert lines[0].startswith("variable SKILLFORGE_GATE_ALPHA: ")
    assert "got 'five'" in lines[0]


def test_a_variable_does_not_trip_over_a_broken_section(tmp_path):
    """Where the file has a value in the place of a section, that is what is reported."""
    (line,) = problems(tmp_path, 'model = "x"\n', {"SKILLFORGE_MODEL_WORKER": "openai/y"})

    assert f"{FILE}:1: model: " in line


# --- Finding and writing ------------------------------------------------------------------------


def test_the_nearest_project_upwards_is_found(tmp_path):
    """From a folder deep inside, the innermost project counts."""
    inner, deep = tmp_path / "a", tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    assert find_project(deep) is None
    (tmp_path / FILE).touch()
    assert find_project(deep) == tmp_path
    (inner / FILE).touch()
    assert find_project(deep) == find_project(inner) == inner


@pytest.mark.parametrize("library", ["skills", 'odd "name"\\with', "fähigkeiten 🧪"])
def test_what_init_writes_can_be_read(tmp_path, library):
    """The template with its comments is a valid project file, whatever the names."""
    path = write_project(tmp_path / "new", library=library, model="local/smollm2")
    project = load_project(tmp_path / "new", {})

    assert path == tmp_path / "new" / FILE
    assert project.settings.library.path == library
    assert project.settings.model.worker == project.settings.model.proposer == "local/smollm2"
    assert GateRules(**project.settings.gate.model_dump()) == GateRules()


def test_init_overwrites_nothing(tmp_path):
    """An existing project file is left as it is."""
    (tmp_path / FILE).write_text("# mine\n")
    with pytest.raises(ConfigError, match="exists already"):
        write_project(tmp_path, library="skills", model="m")

    assert (tmp_path / FILE).read_text() == "# mine\n"


def test_init_where_nothing_can_be_written(tmp_path):
    """A folder that cannot be made is an error with advice."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can be written"):
        write_project(tmp_path / "file" / "sub", library="skills", model="m")
