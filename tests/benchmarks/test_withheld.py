"""The benchmark of withheld instance spaces: the model is the same, and what either side reads is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.command import python

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "withheld.py"


@pytest.mark.second_tier
def test_the_benchmark_runs_as_a_script() -> None:
    """Two federations: equal AUC and cuts, whole columns between cuts only where spaces are withheld."""
    given = ("--sets", "breast_cancer", "--modes", "sent", "withheld", "--trees", "2", "--depth", "2", "--seconds", "1")
    done = python(BENCHMARK, *given, "--json")
    assert done.status == 0, done.err
    sent, withheld = json.loads(done.out)["rows"]
    assert (sent["mode"], withheld["mode"], sent["records"]) == ("sent", "withheld", 456)
    assert (sent["auc"], sent["cuts"], sent["cl"]) == (withheld["auc"], withheld["cuts"], withheld["cl"])
    assert {withheld["by_column"][column] for column, cuts in withheld["cuts"].items() if cuts} == {1.0}
    assert sent["between"] <= withheld["between"]
    assert max(sent["bytes"], withheld["bytes"]) < 1.2 * min(sent["bytes"], withheld["bytes"])
