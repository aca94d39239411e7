"""The command that makes the project's frontiers: what it asks for, and what it keeps of the results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import measured_frontiers
from tests.attacks.frontiers import frontier, point
from treetap.privacy.frontiers import Measured

pytestmark = pytest.mark.second_tier


@pytest.mark.parametrize("protocol", ["boosting", "forest"])
def test_every_point_is_asked_for(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All defences of a table in one frontier, then the settings of the job one by one, each a point of its own."""
    asked = []

    def measure(file: measured_frontiers.ExperimentFile, kept: Path) -> measured_frontiers.FrontierDocument:
        asked.append((kept.name, len(file.plans) * len(file.data.seeds)))
        return frontier(protocol=protocol)

    monkeypatch.setattr(measured_frontiers, "measure", measure)
    found = measured_frontiers.points("obesity", Path("t.parquet"), protocol, 7, Path("kept"))
    settings = measured_frontiers.SETTINGS[protocol]
    names = [f"obesity-{protocol}", *(f"obesity-{protocol}-setting-{k}" for k in range(len(settings)))]
    assert asked == list(zip(names, [3 * (1 + 1 + 5 + 4), *[3] * len(settings)], strict=True))
    assert [(it.defence, it.settings) for it in found.points] == [("none", {}), *(("job", it) for it in settings)]


def test_figures_are_kept_to_four_decimals() -> None:
    """Without those by party, of which there is one."""
    given = point("id_lmid", {"xi": 0.5}, 0.123456, 0.654321)
    kept = measured_frontiers._reduced(given.model_copy(update={"parties": {"lab": given.v_measure}}))
    assert kept.auc == Measured(mean=0.1235, sd=0.01)
    assert kept.v_measure["id2graph-quotient"] == Measured(mean=0.6543, sd=0.01)
    assert kept.parties == {}
