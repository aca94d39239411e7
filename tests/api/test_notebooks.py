"""The notebooks of examples/notebooks run from top to bottom: their assertions hold, and their outputs are as kept."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from examples.notebooks.execute import is_passing
from tests import forks

pytestmark = pytest.mark.second_tier

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def _forked() -> nbformat.NotebookNode:
    """A cell after which the kernel forks the processes of its federations."""
    forked = f"import sys; sys.path.append({str(ROOT)!r})\nfrom tests import forks\n"
    return nbformat.v4.new_code_cell(f"{forked}forks.use_server({forks.start_server()!r})")


def test_there_are_three() -> None:
    """Each is a tutorial with all that it prints and draws, from the first cell to the last, without a fault."""
    assert NOTEBOOKS == ["audit-and-defence", "first-federation", "serving"]
    for name in NOTEBOOKS:
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
        assert notebook.cells[0].cell_type == "markdown"
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
        assert any(cell.outputs for cell in code)
        assert all(output.output_type != "error" for cell in code for output in cell.outputs)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "first-federation" else pytest.mark.campaign) for name in NOTEBOOKS],
)
def test_a_notebook_runs(name: str) -> None:
    """In a kernel of its own, whose event loop runs while its cells train, and with the outputs that are kept.

    Of cells with the tag `varies` the outputs are of the same kinds. The first's federation is as a person's.
    """
    if name == "serving":
        pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")
    before, kept = sorted(FOLDER.iterdir()), nbformat.read(FOLDER / f"{name}.ipynb", 4)
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    if name != "first-federation":
        notebook.cells.insert(0, _forked())
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for cell, stored in zip(notebook.cells[len(notebook.cells) - len(kept.cells) :], kept.cells, strict=True):
        if cell.cell_type == "code":
            varies = "varies" in cell.metadata.get("tags", ())
            assert _shown(cell, varies=varies) == _shown(stored, varies=varies), cell.source
    assert sorted(FOLDER.iterdir()) == before


def _shown(cell: nbformat.NotebookNode, *, varies: bool) -> list[str]:
    """What a cell has written or drawn: texts, or their kinds, and that there is a picture.

    A kernel that is busy sends a text in several parts: they are one.
    """
    shown = []
    outputs = [output for output in cell.outputs if not is_passing(output)]
    for stream, parts in groupby(outputs, lambda output: output.get("name", "")):
        if stream:
            shown.append(stream if varies else f"{stream}: {''.join(part.text for part in parts)}")
            continue
        shown += [_of_display(part, varies=varies) for part in parts]
    return shown


def _of_display(output: nbformat.NotebookNode, *, varies: bool) -> str:
    if varies or "image/png" in output.data:
        return ", ".join(sorted(output.data))
    return str(output.data["text/plain"])


def test_progress_is_one_line_that_is_replaced(tmp_path: Path) -> None:
    """While a model trains a cell shows one bar; at the end it is empty, and `verbose=False` shows none."""
    shown = []
    cells = [
        "import treetap\nfrom sklearn.datasets import load_iris\nX, y = load_iris(return_X_y=True)\n"
        "y = y == 1\ngiven = {'n_estimators': 4, 'max_depth': 2, 'key_bits': 1024, 'workers': 1}",
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
    assert any('<progress value="0.' in each and "trained" in each for each in shown)
    assert 2 <= len(shown) < 200
    assert [each["data"]["text/html"] for each in notebook.cells[2].outputs] == [""]
    assert notebook.cells[3].outputs == []
