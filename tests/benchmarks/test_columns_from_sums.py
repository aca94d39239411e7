"""The attack on columns by candidate sums: what it reads is right, more trees tell more, coarser sums tell less."""

from __future__ import annotations

import importlib
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands.command import python

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("columns_from_sums")


def test_a_set_is_decoded_where_it_is_the_only_one(columns: Any) -> None:
    """Sums of one to three records name them; sums that two sets share, or of none, name nobody."""
    values = np.random.default_rng(0).integers(-(2**40), 2**40, size=(9, 3))
    values[:, 2] = 1
    values[8] = values[7]
    decoder = columns.Decoder(np.arange(9), values)
    for count in (1, 2, 3):
        for chosen in combinations(range(8), count):
            records = decoder.records(values[list(chosen)].sum(axis=0))
            assert (None if records is None else records.tolist()) == (None if 7 in chosen else list(chosen))
    assert decoder.records(np.array([1, 1, 1])) is None


def test_cells_are_read_from_sums(columns: Any) -> None:
    """Of a small training: claims with links given are right, and grow with the trees; four binary places hide most."""
    case = columns.case_of("breast_cancer", 150)
    params = columns.BoostingParams(n_estimators=10, max_depth=4, max_bin=16)
    exact = columns.attack(case, params, linked=True, bits=columns.FRACTION_BITS, seconds=60.0)
    coarse = columns.attack(case, params, linked=False, bits=4, seconds=60.0)
    first, *_, last = exact["steps"]
    assert (first["trees"], last["trees"]) == (1, 10)
    assert first["given"] < last["given"]
    assert last["given_wrong"] == 0.0
    assert 0.1 < last["linked"] <= last["given"]
    assert exact["wrong"] < 0.2 * exact["claims"]
    assert coarse["claims"] == 0
    assert coarse["steps"][-1]["given"] < 0.7 * last["given"]


def test_it_runs_as_a_script() -> None:
    """The figures as JSON, of the bundled table alone."""
    done = python(BENCHMARKS / "columns_from_sums.py", "--records", "120", "--trees", "2", "--bins", "8", "--json")
    assert done.status == 0, done.err
    (row,) = json.loads(done.out)["rows"]
    assert (row["set"], row["records"], row["columns"], row["steps"][-1]["trees"]) == ("breast_cancer", 120, 10, 2)
