"""`treetap demo`: the parties of each protocol, and a report of noisy leaf weights where no party keeps gains."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.commands.command import refused, treetap
from tests.commands.experiment_documents import run
from tests.needs import needs_library_of
from treetap.commands import demo
from treetap.commands.experiment.joined_table import read_table, split


@pytest.mark.parametrize(
    ("protocol", "count", "with_labels"),
    [("boosting", 3, 1), pytest.param("splitnn", 3, 1, marks=pytest.mark.second_tier), ("pivodl", 4, 4)],
)
def test_the_parties(protocol: str, count: int, with_labels: int, tmp_path: Path) -> None:
    """All thirty columns are shared out; of PIVODL four hospitals label a quarter of the training rows each."""
    needs_library_of(protocol)
    names = demo.write_breast_cancer(tmp_path / "breast_cancer.parquet")
    experiment = demo.federation_of(tmp_path, names, 2048, protocol)
    assert len(experiment.party) == count
    assert sorted(chain(*(party.columns or [] for party in experiment.party))) == sorted(names)
    assert sum(party.labels or bool(party.label_share) for party in experiment.party) == with_labels
    drawn = split(experiment, read_table(experiment, tmp_path), 0)
    assert {name: len(rows) for name, rows in drawn.labels.items()} == (
        {} if protocol != "pivodl" else dict.fromkeys(("north", "south", "east", "west"), 114)
    )


def test_an_unknown_protocol() -> None:
    """The option names those that there are."""
    assert "--protocol forest: must be one of boosting, pivodl, splitnn" in refused(
        treetap("demo", "--protocol", "forest")
    )


@pytest.mark.parametrize("noisy", [True, False])
def test_a_report_without_gains(noisy: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Bars are of splits, the accountant's sentences are printed, and a noisy model is not called unequal."""
    row = {"auc": 0.9}
    result = run(
        metrics={"train": row, "test": row, "centralised, test": {"auc": 0.95}},
        privacy=["epsilon 8, as the accountant says."],
        importance=[{"party": "north", "feature": "age", "weight": 4, "gain": None, "cover": None}],
        arithmetic={"east": "ifma", "north": "gmpy2"},
    )
    demo.report(result, None, noisy=noisy)
    printed = " ".join(capsys.readouterr().out.split())  # lines end where the terminal does
    assert "epsilon 8, as the accountant says." in printed
    assert "█" * 24 in printed
    assert "arithmetic: east ifma, north gmpy2" in printed
    assert ("The centralised models have no noise" in printed) == noisy
    assert ("a defect" in printed) == (not noisy)
