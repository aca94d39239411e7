"""Run the notebooks and keep their outputs: `python examples/notebooks/execute.py [NAME]…`, with the extra `dev`.

Tests run them again and compare what is printed, but for cells with the tag `varies`, which print times and places.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def execute(path: Path) -> None:
    """Run a notebook in its folder and write it with its outputs, without what differs from run to run."""
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of every cell
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not is_passing(output)]
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, path)


def is_passing(output: nbformat.NotebookNode) -> bool:
    """True for a line of progress, empty once its job has ended."""
    return bool(output.get("data", {}).get("text/html") == "")


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        execute(FOLDER / f"{name}.ipynb")
        print(f"{name}: done")
