"""`benchmarks/crafted_gradients.py`: the reverse sum attack in a centralised training, and under `column_privacy`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.trees.params import BoostingParams

PARAMS = BoostingParams(n_estimators=4, max_depth=3, max_bin=16)
pytestmark = pytest.mark.second_tier


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its module."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    return importlib.import_module("crafted_gradients")


def test_marks_keep_the_model_and_tell_cells(benchmark: Any) -> None:
    """Honest g and h tell none; four trees with marks tell 130 of 200 records, at no cost in AUC."""
    case = benchmark.case_of("breast_cancer", 200)
    honest = benchmark.row_of("honest", case, PARAMS, 0, marks=False)
    marked = benchmark.row_of("marks", case, PARAMS, 0, marks=True)
    assert honest[-3:-1] == ["0 of 200", "0.0% (0.0%)"]
    assert marked[-3] == "130 of 200"
    assert marked[-2].endswith(" (65.0%)")
    assert abs(float(honest[-1]) - float(marked[-1])) < 0.02
    assert honest[2:5] == marked[2:5] == ["89", "2,047 ÷ 22", marked[4]]


def test_noise_hides_numbers_in_range_alone(benchmark: Any) -> None:
    """Records whose numbers fill the slots above the noise are read; bits are fewer than without noise."""
    case = benchmark.case_of("breast_cancer", 200)
    row = benchmark.under_noise(case, PARAMS, ColumnPrivacy(4.0, 1e-6, PARAMS.n_estimators))
    in_range, marks, beyond, bits, without = row[3], row[4], row[5], row[7], row[8]
    assert float(in_range.rstrip("%")) < 30  # one of sixteen cells by chance
    assert beyond == "100.0%"
    assert int(marks) >= 3
    assert 3 < int(bits) < int(without) / 2
