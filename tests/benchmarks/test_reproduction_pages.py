"""Reproductions as a person starts them: pages are what results give, claims and fits are right, trainings run."""

from __future__ import annotations

import json
import math
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.commands import command
from tests.commands.command import Outcome

pytestmark = pytest.mark.second_tier

REPRODUCTIONS = Path(__file__).parents[2] / "benchmarks" / "reproductions"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs treetap[neural]")
needs_tables = pytest.mark.skipif("TREETAP_DATA" not in os.environ, reason="needs TREETAP_DATA, the public tables")


def python(name: str, code: str, *words: str | Path, tables: bool = False) -> Outcome:
    """Run code, or a file where it is empty, with the modules of a reproduction; `tables`: with TREETAP_DATA."""
    paths = (REPRODUCTIONS / name, REPRODUCTIONS)
    return command.python(*(["-c", code] if code else []), *words, paths=paths, tables=tables)


@pytest.mark.parametrize(
    ("name", "module", "filled", "new"),
    [
        ("id2graph_defences", "defences_page", "with_tables", '"auc": 0.9'),
        ("pivodl", "page", "PAGE.with_tables", '"accuracy": 0.9'),
        ("sensfl", "sensfl_page", "PAGE.with_tables", '"accuracy": 0.0'),
        ("splitnn", "network_page", "PAGE.with_tables", '"accuracy": 0.9'),
    ],
)
def test_a_page_has_the_tables_of_its_results(name: str, module: str, filled: str, new: str, tmp_path: Path) -> None:
    """Filled again from the results the page stays as it is, and changes where a result is another one."""
    results, changed = REPRODUCTIONS / name / "results.jsonl", tmp_path / "changed.jsonl"
    old = '"accuracy": 0.8' if name == "splitnn" else new[:-1]
    changed.write_text(results.read_text().replace(old, new))
    code = f"""
import sys
from pathlib import Path
from {module} import {filled.partition(".")[0]}
from resumable import Results
page = Path(sys.argv[1]).read_text()
print(*({filled}(page, Results(Path(each))) == page for each in sys.argv[2:]))
"""
    done = python(name, code, REPRODUCTIONS / name / "README.md", results, changed)
    assert (done.status, done.out.split()) == (0, ["True", "False"]), done.err


def test_verdicts_of_planted_points() -> None:
    """Dominance needs both measures and allows ties; a repair must be better at every ε up to 1, and only there."""
    code = """
from claims import better_at_small, dominated
from frontiers import Figure, Frontier, Point

def point(defence, value, auc, v):
    return Point(defence, value, None, Figure(auc, None), Figure(0, None), {"id2graph": Figure(v, None)})

mutual = [point("id_lmid", 1, 0.8, 0.3), point("id_lmid", 2, 0.9, 0.5)]
noisy = [point("label_dp", 0.5, 0.8, 0.3), point("label_dp", 1, 0.85, 0.4), point("label_dp", 2, 0.9, 0.6)]
print(dominated(mutual, noisy, "id2graph"), dominated(noisy, mutual, "id2graph"))
for grafted in ((0.81, 0.86, 0.7), (0.81, 0.85, 0.95)):
    repaired = [point("grafting", each.value, auc, 0) for each, auc in zip(noisy, grafted)]
    print(better_at_small(Frontier("", "", True, (1,), (*noisy, *repaired), {}), "grafting", "label_dp"))
"""
    done = python("id2graph_defences", code)
    assert done.out.split() == ["2", "1", "True", "False"], done.err


def test_fits_find_planted_growth() -> None:
    """A line and a power law through points that lie on them."""
    code = """
from points import Point, growth, linear
lines = [Point(x, 2 + 3 * x, 0, 0, 1) for x in (3, 5, 9)]
shifted = [Point(x, 4 * (x - 1) ** 0.5, 0, 0, 1) for x in (3, 5, 9)]
powers = [Point(x, 4 * x**1.5, 0, 0, 1) for x in (3, 5, 9)]
print(*(round(each, 9) for each in linear(lines)), round(growth(powers), 9), round(growth(shifted, 1), 9))
"""
    done = python("pivodl", code)
    assert done.out.split() == ["2.0", "3.0", "1.0", "1.5", "0.5"], done.err


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
    done = python("splitnn", code, tmp_path / "results.jsonl")
    assert done.out.strip() == "+10.0 (100 %)|+5.0 (50 %)|−2.0 (0 %)|–", done.err


@pytest.mark.parametrize(
    "words", [("pivodl", "run.py", "secure"), pytest.param(("splitnn", "networks.py", "figure-5"), marks=needs_torch)]
)
def test_without_the_tables_the_command_says_so(words: tuple[str, str, str], tmp_path: Path) -> None:
    """Exit status 2, and no results."""
    name, file, asked = words
    results = tmp_path / "results.jsonl"
    done = python(name, "", REPRODUCTIONS / name / file, asked, "--json", results, "--out", tmp_path)
    assert done.status == 2
    assert "TREETAP_DATA is not set" in done.err
    assert not results.exists()


@needs_torch
@needs_tables
def test_trainings_and_attacks_of_split_networks(tmp_path: Path) -> None:
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
    done = python("splitnn", code, tmp_path, tables=True)
    assert done.status == 0, done.err
    same, lines, found = json.loads(done.out)
    assert (same, lines) == (True, 1)
    assert {"completion_mlp", "completion_linear_all", "clusters", "gradient_labels"} <= found.keys()
    trained = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert ["accuracy_after" in each for each in trained] == [False, True, True, False]


@needs_torch
def test_trainings_attacks_and_projections_of_a_few_records(tmp_path: Path) -> None:
    """A planted table: both sources are attacked on both scales, once; a Jacobian of rank 1 gives the factor √(2/π)."""
    code = """
import json
import os
import sys
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import treetap.attacks.features.attributes
from divided_sets import Split
from resumable import Results
from keyed_cells import KeyedScale
from sensfl_cells import Cell
from sensfl_projections import biases
from sensfl_sets import FEATURE, HOLDER
from sensfl_settings import params_of
from sensfl_work import Work
from treetap.neural.architectures import InputShape
from treetap.neural.inputs import Inputs

folder, draw = Path(sys.argv[1]), np.random.default_rng(0)
numbers, words = draw.normal(size=(3, 800)), np.array(["no", "yes"])
table = {"a": numbers[0], "loan": words[draw.integers(0, 2, 800)], "job": words[draw.integers(0, 2, 800)]}
table |= {"b": numbers[1], "c": numbers[1], "d": numbers[2], "y": words[(numbers[1] > 0).astype(int)]}
pq.write_table(pa.table(table), folder / "bank_marketing.parquet")
os.environ["TREETAP_DATA"] = str(folder)
treetap.attacks.features.attributes._PASSED = 2000
cell, results = Cell("bank", 0, width=20, sensitivity=0.01, norm="batch"), Results(folder / "results.jsonl")
for _ in range(2):
    Work(KeyedScale(epochs=2), results).attack(cell)

one = Inputs(numbers[:1].T.astype(np.float32), [], [], InputShape(1))
split = Split({}, {"train": {HOLDER: one, FEATURE: one}}, {"train": np.arange(800) % 2}, 2, {})
factors = []
for width in (1, 200):
    cell_of_one = Cell("bank", 0, width=width)
    factors.append(biases(cell_of_one, params_of(cell_of_one), split)["factor"])
print(json.dumps([results.get({**cell.key(), "epochs": 2}), factors]))
"""
    done = python("sensfl", code, tmp_path)
    assert done.status == 0, done.err
    found, factors = json.loads(done.out)
    assert 0 <= found["accuracy"] <= 1
    for source, victims in (("training", 320), ("prediction", 80)):
        assert [each["name"] for each in found[source]["attributes"]] == ["loan", "job"]
        for each in found[source]["attributes"]:
            assert (each["records"], each["classes"]) == (victims, 2)
            assert min(each[scale]["accuracy"] for scale in ("raw", "standardised", "floor")) > 0.3
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 1
    assert factors[0] == pytest.approx(1.0, abs=1e-5)
    assert factors[1] == pytest.approx((2 / math.pi) ** 0.5, abs=0.05)
