"""Growth of a training: the page's table is what results give, exponents are right, generated tables fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.commands.command import python
from tools.renderers.growth import curve

pytestmark = pytest.mark.second_tier

ROOT = Path(__file__).resolve().parents[2]
RENDERED = "import sys; from tools.renderers.growth import main; sys.exit(main())"


def test_the_page_has_the_table_of_its_results(tmp_path: Path) -> None:
    """The committed results give the committed table; with others it is called stale."""
    results = ROOT / "benchmarks" / "growth.jsonl"
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    lines[0]["bytes"] *= 3
    changed = tmp_path / "growth.jsonl"
    changed.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path, status in ((results, 0), (changed, 1)):
        checked = python("-c", RENDERED, "--check", "--results", path, paths=[ROOT])
        assert checked.status == status, checked.err


def test_exponents_of_planted_figures(benchmark: Any) -> None:
    """A power of records is found whatever else varies, and the last step where a constant hides the growth."""
    growth = benchmark("growth")
    results = [
        {"trial": trial, "cpu_s": trial["records"] ** 1.5, "bytes": 1e7 + trial["columns"] ** 2}
        for trial in growth.trials(list(growth.VARIED))
    ]
    found = curve(results, "records", "cpu_s")
    assert found.x == list(growth.VARIED["records"])
    assert found.exponent == pytest.approx(1.5)
    hidden = curve(results, "columns", "bytes")
    assert 0 < hidden.exponent < hidden.last < 0.1


def test_trials_vary_one_thing_and_come_once(benchmark: Any) -> None:
    """The base setting belongs to several rows and is measured once."""
    growth = benchmark("growth")
    trials = growth.trials(list(growth.VARIED))
    assert len({tuple(trial.items()) for trial in trials}) == len(trials)
    assert all(sum(trial[name] != growth.BASE[name] for name in trial) <= 1 for trial in trials)
    assert trials.count(dict(growth.BASE)) == 1


def test_parties_tables_hold_the_same_records(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each party has its columns of all records, in another order; a longer table begins with a shorter one."""
    tables = benchmark("generated_tables")
    monkeypatch.setattr(tables, "PART", 40)
    made = {}
    for records in (80, 100):
        plan = tables.Plan(records, columns=10, parties=3, seed=7)
        made[records] = {
            name: pq.read_table(path) for name, path in tables.write(plan, tmp_path / str(records)).items()
        }
    long = made[100]
    assert [table.num_columns for table in long.values()] == [1 + 4 + 1, 1 + 3, 1 + 3]
    orders = [table.column(tables.ID).to_numpy() for table in long.values()]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert any((order != orders[0]).any() for order in orders[1:])
    for name, table in made[80].items():
        few, many = table.sort_by(tables.ID), long[name].sort_by(tables.ID).slice(0, 80)
        for one, other in zip(few.columns, many.columns, strict=True):
            np.testing.assert_array_equal(one.to_numpy(), other.to_numpy())  # NaN is NaN
    assert set(long["label-holder"].column(tables.LABEL).to_pylist()) == {0, 1}
