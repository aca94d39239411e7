"""`benchmarks/crafted_gradients.py`: the reverse sum attack in a centralised training, and under `column_privacy`."""

from __future__ import annotations

from typing import Any

import pytest

from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.trees.params import BoostingParams

PARAMS = BoostingParams(n_estimators=4, max_depth=3, max_bin=16)
pytestmark = pytest.mark.second_tier


@pytest.fixture
def crafted(benchmark: Any) -> Any:
    """Its module."""
    return benchmark("crafted_gradients")


def test_marks_keep_the_model_and_tell_cells(crafted: Any) -> None:
    """Honest g and h tell none; four trees with marks tell 130 of 200 records, at no cost in AUC."""
    case = crafted.case_of("breast_cancer", 200)
    honest = crafted.row_of("honest", case, PARAMS, 0, marks=False)
    marked = crafted.row_of("marks", case, PARAMS, 0, marks=True)
    assert honest[-3:-1] == ["0 of 200", "0.0% (0.0%)"]
    assert marked[-3] == "130 of 200"
    assert marked[-2].endswith(" (65.0%)")
    assert abs(float(honest[-1]) - float(marked[-1])) < 0.02
    assert honest[2:5] == marked[2:5] == ["89", "2,047 ÷ 22", marked[4]]


def test_noise_hides_numbers_in_range_alone(crafted: Any) -> None:
    """Records whose numbers fill the slots above the noise are read; bits are fewer than without noise."""
    case = crafted.case_of("breast_cancer", 200)
    row = crafted.under_noise(case, PARAMS, ColumnPrivacy(4.0, 1e-6, PARAMS.n_estimators))
    in_range, marks, beyond, bits, without = row[3], row[4], row[5], row[7], row[8]
    assert float(in_range.rstrip("%")) < 30  # one of sixteen cells by chance
    assert beyond == "100.0%"
    assert int(marks) >= 3
    assert 3 < int(bits) < int(without) / 2
