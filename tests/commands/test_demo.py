"""`treetap demo`: the parties of each protocol, and a report of noisy leaf weights where no party keeps gains."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.attacks.sums_documents import both_directions, figures
from tests.commands.command import refused, treetap
from tests.commands.experiment_documents import run
from tests.needs import needs_library_of
from treetap.commands import demo
from treetap.commands.audit.local_job import scores
from treetap.commands.experiment.joined_table import read_table, split
from treetap.commands.experiment.party_tables import write_tables
from treetap.commands.experiment.printed import print_report


@pytest.mark.parametrize(
    ("protocol", "count", "with_labels"),
    [("boosting", 3, 1), pytest.param("splitnn", 3, 1, marks=pytest.mark.second_tier), ("pivodl", 4, 4)],
)
def test_the_parties(protocol: str, count: int, with_labels: int, tmp_path: Path) -> None:
    """All thirty columns are shared out; of PIVODL four hospitals label a quarter of the training rows each."""
    needs_library_of(protocol)
    names = demo.write_breast_cancer(tmp_path / "breast_cancer.parquet")
    experiment = demo.federation_of(tmp_path, names, protocol, {})
    assert len(experiment.party) == count
    assert sorted(chain(*(party.columns or [] for party in experiment.party))) == sorted(names)
    assert sum(party.labels or bool(party.label_share) for party in experiment.party) == with_labels
    drawn = split(experiment, read_table(experiment, tmp_path), 0)
    assert {name: len(rows) for name, rows in drawn.labels.items()} == (
        {} if protocol != "pivodl" else dict.fromkeys(("north", "south", "east", "west"), 114)
    )


def test_the_scheme_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the length of the key, where it has keys."""
    names = demo.write_breast_cancer(tmp_path / "breast_cancer.parquet")
    said = []
    for keys in ({}, {"scheme": "okamoto-uchiyama", "key_bits": 3072}, {"scheme": "lattice"}):
        experiment = demo.federation_of(tmp_path, names, "boosting", keys)
        demo.introduce(experiment, read_table(experiment, tmp_path))
        said.append(" ".join(capsys.readouterr().out.split()))
    kinds = ("Paillier 2048 bits", "Okamoto-Uchiyama 3072 bits", "sums on a lattice")
    for text, words in zip(said, kinds, strict=True):
        assert f"10 trees of depth 3, {words}, mutual TLS" in text
    drawn = split(experiment, read_table(experiment, tmp_path), 0)
    settings = write_tables(experiment, read_table(experiment, tmp_path), drawn, tmp_path)
    # where the job has no key, a prediction by entries has one
    assert {tuple(own["policy"]["schemes"]) for own in settings.values()} == {("lattice", "paillier")}


def test_an_unknown_protocol() -> None:
    """The option names those that there are."""
    assert "--protocol forest: must be one of boosting, pivodl, splitnn" in refused(
        treetap("demo", "--protocol", "forest")
    )


def test_a_report_of_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    """The demo's audit says what feature parties read of labels, and what the label holder reads of columns."""
    row = {"auc": 0.9}
    result = run(metrics={"train": row, "test": row, "centralised, test": row})
    demo.report(result, both_directions(figures("lab-north"), trees=2).plain(), noisy=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert "lab-north can sort the records into groups that agree with the label for" in printed
    assert "clinic placed 84.2 % of lab-north's cells (900 records × 8 columns) in their bins" in printed


def test_the_terminal_report_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """An experiment's, with details: the attacks on labels in a table, those on columns in no row of it."""
    document = both_directions(figures("lab-north"), trees=2)
    audit = scores(document.plain())
    assert "picture" not in audit["clinic"]["columns_read"]["lab-north"]
    print_report([run(audit=audit, audit_report="audit.html")], details=True)
    printed = " ".join(capsys.readouterr().out.split())
    assert "lab-north id2graph" in printed
    assert "columns_read" not in printed


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
