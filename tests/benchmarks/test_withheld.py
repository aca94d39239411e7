"""The benchmark of withheld instance spaces: the model is the same, and what either side reads is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands.command import python
from treetap.trees.params import BoostingParams

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "withheld.py"


@pytest.mark.second_tier
def test_the_benchmark_runs_as_a_script() -> None:
    """Two federations: equal AUC and cuts, and left sets tell as much where spaces are withheld."""
    given = ("--sets", "breast_cancer", "--modes", "sent", "withheld", "--trees", "2", "--depth", "2", "--seconds", "1")
    done = python(BENCHMARK, *given, "--json")
    assert done.status == 0, done.err
    sent, withheld = json.loads(done.out)["rows"]
    assert (sent["mode"], withheld["mode"], sent["records"]) == ("sent", "withheld", 456)
    assert (sent["auc"], sent["cuts"], sent["cl"]) == (withheld["auc"], withheld["cuts"], withheld["cl"])
    told = ("by_left_sets", "between", "by_column")
    assert [sent[key] for key in told] == [withheld[key] for key in told]
    assert max(sent["bytes"], withheld["bytes"]) < 1.2 * min(sent["bytes"], withheld["bytes"])


def test_left_sets_are_those_of_the_attack_on_opened_sums(benchmark: Any) -> None:
    """What they place alone is what the label holder's attack places by them where it opens all sums too; it grows."""
    sums, alone = benchmark("columns_from_sums"), benchmark("left_sets")
    case = sums.case_of("breast_cancer", 200)
    rows = alone.measured(case, [1, 4], 3)
    of_sums = sums.attacked(case, BoostingParams(n_estimators=4, max_depth=3), [1, 4])
    assert [row["placed"] for row in rows] == [row["left_sets"]["placed"] for row in of_sums]
    assert rows[0]["left_sets"] < rows[1]["left_sets"]
    assert 0 < rows[0]["explained"] < rows[1]["explained"] < 1
