"""The notebooks of examples/notebooks run from top to bottom; their own assertions hold, and they leave no flood."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests import forks

pytestmark = pytest.mark.second_tier

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
#: Outputs that a cell may have: two of progress, one of its own, one that a library adds when it is imported.
MOST_OUTPUTS = 5


def _forked() -> nbformat.NotebookNode:
    """A cell after which the kernel forks the processes of its federations."""
    forked = f"import sys; sys.path.append({str(ROOT)!r})\nfrom tests import forks\n"
    return nbformat.v4.new_code_cell(f"{forked}forks.fork_federations({forks.start_server()!r})")


def test_there_are_three() -> None:
    """Each is a tutorial; no output is kept in the repository, so that none is out of date."""
    assert NOTEBOOKS == ["audit-and-defence", "first-federation", "serving"]
    for name in NOTEBOOKS:
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
        assert notebook.cells[0].cell_type == "markdown"
        assert all(cell.outputs == [] and cell.execution_count is None for cell in notebook.cells if "outputs" in cell)


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    """In a kernel of its own, whose event loop runs while its cells train. The first's federation is as a person's."""
    if name == "serving":
        pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    if name != "first-federation":
        notebook.cells.insert(0, _forked())
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        assert len(outputs) <= MOST_OUTPUTS, cell.source
        assert all("<progress" not in str(each.get("data", "")) for each in outputs), cell.source
        assert all(each.get("name") != "stderr" for each in outputs), outputs
    assert list(tmp_path.iterdir()) == []


def test_progress_is_one_line_that_is_replaced(tmp_path: Path) -> None:
    """While a model trains a cell shows one bar; at the end it is empty, and `verbose=False` shows none."""
    shown = []
    cells = [
        "import treetap\nfrom sklearn.datasets import load_iris\nX, y = load_iris(return_X_y=True)\n"
        "y = y == 1\ngiven = {'n_estimators': 8, 'max_depth': 2, 'key_bits': 1024, 'workers': 1}",
        "treetap.FederatedClassifier(**given).fit(X, y);",
        "treetap.FederatedClassifier(**given, verbose=False).fit(X, y);",
    ]
    notebook = nbformat.v4.new_notebook(cells=[_forked(), *(nbformat.v4.new_code_cell(source) for source in cells)])

    class Client(NotebookClient):
        def process_message(self, message, cell, number):  # type: ignore[no-untyped-def]
            if message["msg_type"] == "update_display_data":
                shown.append(message["content"]["data"]["text/html"])
            return super().process_message(message, cell, number)

    Client(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert any('<progress value="0.' in each and "tree" in each for each in shown)
    assert 2 <= len(shown) < 200
    assert [each["data"]["text/html"] for each in notebook.cells[2].outputs] == [""]
    assert notebook.cells[3].outputs == []
