"""The notebooks run from top to bottom in this environment, and are committed without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def read(path):
    """Return a notebook as it is committed."""
    return nbformat.read(path, as_version=4)


def test_there_are_notebooks():
    """A moved folder must not make this file pass by finding nothing."""
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_is_valid_and_stripped(path):
    """Outputs, counts and traces of a machine stay out, so that a diff shows what was edited."""
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]

    assert code
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert all(cell.metadata == {} for cell in notebook.cells)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_uses_the_public_api_only(path):
    """What a notebook shows is what a reader may rely on."""
    code = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")

    assert "import skillforge\n" in code
    assert "from skillforge" not in code
    assert "import skillforge." not in code


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_last_cell_asserts(path, tmp_path):
    """Every cell runs; the last one checks what the notebook claims."""
    notebook = read(path)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()

    last = notebook.cells[-1]
    assert last.cell_type == "code"
    assert "assert " in last.source
    assert all(
        output.output_type != "error"
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
