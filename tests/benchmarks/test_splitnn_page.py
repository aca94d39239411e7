"""The reproduction of Party-wise Dropout and DIMIP: its tables are what results give, and its commands run."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.benchmarks.page_commands import REPRODUCTIONS, page_is_of_its_results, python

pytestmark = pytest.mark.second_tier

SPLITNN = REPRODUCTIONS / "splitnn"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs treetap[neural]")
needs_tables = pytest.mark.skipif("TREETAP_DATA" not in os.environ, reason="needs TREETAP_DATA, the public tables")


def test_the_page_has_the_tables_of_its_results(tmp_path: Path) -> None:
    """Filled again from the results the page stays as it is, and changes where a result is another one."""
    page_is_of_its_results(SPLITNN, "network_page", tmp_path / "r.jsonl", '"accuracy": 0.8', '"accuracy": 0.9')


def test_the_gain_that_is_kept(tmp_path: Path) -> None:
    """Of planted accuracies: .85 of .80 alone and .90 without a defence is half; below alone nothing is left."""
    rows = [({}, 0.9), ({"way": "alone"}, 0.8), ({"dimip": 0.3}, 0.85), ({"dimip": 1.0}, 0.78)]
    lines = [json.dumps({"trial": {"set": "fashion", "seed": 0, **cell}, "accuracy": value}) for cell, value in rows]
    (tmp_path / "results.jsonl").write_text("\n".join([*lines, ""]))
    code = """
import sys
from pathlib import Path
from network_cells import Cell
from network_figures import Figures, gain
from resumable import Results
figures = Figures(Results(Path(sys.argv[1])))
print(*(gain(figures.kept(Cell("fashion", 0, dimip=each))) for each in (0.0, 0.3, 1.0, 0.1)), sep="|")
"""
    done = python(SPLITNN, code, tmp_path / "results.jsonl")
    assert done.out.strip() == "+10.0 (100 %)|+5.0 (50 %)|−2.0 (0 %)|–", done.err


@needs_torch
@needs_tables
def test_trainings_and_attacks_of_a_few_records(tmp_path: Path) -> None:
    """Each way of training gives its figures; an attack on what was kept finds what it found after the training."""
    code = """
import json
import sys
from pathlib import Path
import network_attacks
from network_cells import ALONE, MULTI_HEAD, Cell, Scale
from network_work import Work
from resumable import Results
network_attacks.DRAWS = 1
folder, scale, cell = Path(sys.argv[1]), Scale(most=128, epochs=2), Cell("obesity", 0, dimip=0.3, dropout=0.1)
results = Results(folder / "results.jsonl")
for way in (ALONE, MULTI_HEAD):
    Work(scale, results, None).train(Cell("obesity", 0, way=way))
Work(scale, results, folder / "kept").attack(cell)
again = Results(folder / "again.jsonl")
Work(scale, again, folder / "kept").attack(cell)
asked = {**cell.key(), **scale.key(), "asked": "attacks"}
both = [{name: value for name, value in each.get(asked).items() if "seconds" not in name} for each in (results, again)]
print(json.dumps([both[0] == both[1], len(again.path.read_text().splitlines()), both[0]]))
"""
    done = python(SPLITNN, code, tmp_path, tables=True)
    assert done.status == 0, done.err
    same, lines, found = json.loads(done.out)
    assert (same, lines) == (True, 1)
    assert {"completion_mlp", "completion_linear_all", "clusters", "gradient_labels"} <= found.keys()
    trained = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert ["accuracy_after" in each for each in trained] == [False, True, True, False]


@needs_torch
def test_without_the_tables_the_command_says_so(tmp_path: Path) -> None:
    """Exit status 2, and no results."""
    done = python(
        SPLITNN, "", SPLITNN / "networks.py", "figure-5", "--json", tmp_path / "results.jsonl", "--out", tmp_path
    )
    assert done.status == 2
    assert "TREETAP_DATA is not set" in done.err
    assert not (tmp_path / "results.jsonl").exists()
