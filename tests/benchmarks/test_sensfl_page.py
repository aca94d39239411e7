"""The reproduction of SensFL: its tables are what results give, and its commands run."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.benchmarks.page_commands import REPRODUCTIONS, page_is_of_its_results, python

pytestmark = pytest.mark.second_tier

SENSFL = REPRODUCTIONS / "sensfl"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs treetap[neural]")


def test_the_page_has_the_tables_of_its_results(tmp_path: Path) -> None:
    """Filled again from the results the page stays as it is, and changes where a result is another one."""
    page_is_of_its_results(SENSFL, "sensfl_page", tmp_path / "r.jsonl", '"accuracy": 0.', '"accuracy": 0.0')


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
    done = python(SENSFL, code, tmp_path)
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
