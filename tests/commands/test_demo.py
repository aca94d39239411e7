"""`treetap demo`: the parties of each protocol, forty lines of conclusions, and the rest on request."""

from __future__ import annotations

import io
import json
from itertools import chain
from pathlib import Path

import pytest

from tests.attacks.sums_documents import both_directions, figures
from tests.commands.command import refused, screen, treetap
from tests.commands.experiment_documents import run
from tests.needs import needs_library_of
from treetap.lab import demo
from treetap.lab.experiment.audited import DOCUMENT, scores
from treetap.lab.experiment.command import print_report
from treetap.lab.experiment.joined_table import read_table, split
from treetap.trees.params import BoostingParams
from treetap.trees.pivodl_params import PivodlParams


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
    for keys in ({}, {"key_bits": 3072}, {"scheme": "lattice"}):
        experiment = demo.federation_of(tmp_path, names, "boosting", keys)
        demo.introduce(experiment, read_table(experiment, tmp_path))
        said.append(" ".join(capsys.readouterr().out.split()))
    kinds = ("Paillier of 2048 bits", "Paillier of 3072 bits", "sums on a lattice")
    for text, words in zip(said, kinds, strict=True):
        assert f"SecureBoost: 10 trees of depth 3, {words}; 569 records of breast cancer" in text
        assert "label-holder has the labels and 10 columns; feature-b and feature-c have 10 columns each." in text


def test_an_unknown_protocol() -> None:
    """The option names those that there are."""
    assert "--protocol forest: must be one of boosting, pivodl, splitnn" in refused(
        treetap("demo", "--protocol", "forest")
    )


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal of 80 columns gets."""
    return screen(monkeypatch, "out", 80)


@pytest.mark.parametrize("noisy", [True, False])
def test_what_federating_gains(noisy: bool, narrow: io.StringIO) -> None:
    """First; a model that is not the joined table's is a defect, unless its leaf weights have noise."""
    row = {"auc": 0.9}
    gain = {"measure": "auc", "together": 0.9, "alone": {"bank": 0.8}, "low": 0.05, "high": 0.15}
    result = run(metrics={"train": row, "test": row, "centralised, test": {"auc": 0.95}}, gain=gain)
    demo.conclude(result, PivodlParams(epsilon=8.0) if noisy else BoostingParams())
    printed = " ".join(narrow.getvalue().split())
    assert printed.startswith("Federating pays here: chance does not explain the gain. together 0.900 AUC bank alone")
    assert ("Leaf weights have noise" in printed) == noisy
    assert ("not equal: a defect, please report it" in printed) == (not noisy)


def test_where_the_page_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is asked for, else in the working folder that is kept, else below runs/; with JSON on request alone."""
    monkeypatch.chdir(tmp_path)
    assert demo.page_of("boosting", None, None, as_json=True) is None
    assert demo.page_of("boosting", tmp_path, None) is None
    assert list(tmp_path.iterdir()) == []
    assert demo.page_of("pivodl", None, None) == Path("runs", "demo-pivodl.html")
    assert demo.page_of("boosting", tmp_path, Path("a", "b.html"), as_json=True) == Path("a", "b.html")
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "a"}


def test_what_to_try_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The story of the clone; a wheel, which has no examples, goes on with the reader's own table."""
    monkeypatch.chdir(Path(__file__).parents[2])
    assert demo.following() == "treetap experiment examples/loans/exp.toml"
    monkeypatch.setattr(demo, "STORY", tmp_path / "exp.toml")
    assert demo.following() == "treetap new party --table YOUR.csv"


@pytest.mark.campaign(but=1)
@pytest.mark.second_tier
@pytest.mark.parametrize("protocol", demo.JOBS)
def test_a_whole_demo_is_short(
    protocol: str, narrow: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most forty lines at 80 columns, of four parties 48, the last two the page and the command that comes next."""
    needs_library_of(protocol)
    monkeypatch.chdir(tmp_path)
    demo.run(protocol, key_bits=1024)
    *said, report, following = lines = narrow.getvalue().rstrip("\n").splitlines()
    assert len(lines) <= (48 if protocol == "pivodl" else 40)
    assert report == f"report: runs/demo-{protocol}.html"
    assert following.startswith("next: treetap experiment ")
    assert '<div class="verdict ' in (tmp_path / "runs" / f"demo-{protocol}.html").read_text(encoding="utf-8")
    assert said[0].startswith(demo.ALGORITHMS[protocol])
    assert any(line.startswith("  together") for line in said)
    assert "not measured" not in narrow.getvalue()
    assert ("private refuses this job: " in narrow.getvalue()) == (protocol != "boosting")
    if protocol != "pivodl":
        assert "By its test metrics the model and the joined table's are equal." in said


def test_details_of_both_directions(narrow: io.StringIO) -> None:
    """The demo's audit says what feature parties read of labels, and what the label holder reads of columns."""
    row = {"auc": 0.9}
    result = run(metrics={"train": row, "test": row, "centralised, test": row})
    demo.detail(result, both_directions(figures("lab-north"), trees=2).plain())
    printed = " ".join(narrow.getvalue().split())
    assert "Attacks on the labels" in printed
    assert "Columns, as clinic could read them" in printed


def test_the_terminal_report_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An experiment's, with details: the audit as its own command prints it, by the document beside the page."""
    document = both_directions(figures("lab-north"), trees=2).plain()
    audit = scores(document)
    assert "picture" not in audit["clinic"]["columns_read"]["lab-north"]
    (tmp_path / DOCUMENT).write_text(json.dumps(document))
    model = {"clinic": tmp_path / "clinic" / "state" / "models" / "experiment"}
    print_report([run(audit=audit, audit_report="audit.html", model=model)], details=True)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Attacks on the labels: all scores" in printed
    assert "Columns, as clinic could read them" in printed


def test_details_without_gains(capsys: pytest.CaptureFixture[str]) -> None:
    """Shares are of splits, and the accountant's sentences are printed."""
    row = {"auc": 0.9}
    result = run(
        metrics={"train": row, "test": row, "centralised, test": {"auc": 0.95}},
        privacy=["epsilon 8, as the accountant says."],
        importance=[{"party": "north", "feature": "age", "weight": 4, "gain": None, "cover": None}],
        arithmetic={"east": "ifma", "north": "gmpy2"},
    )
    demo.detail(result, None)
    printed = " ".join(capsys.readouterr().out.split())  # lines end where the terminal does
    assert "epsilon 8, as the accountant says." in printed
    assert "age (north) 100.0 %, 4 splits" in printed
    assert "arithmetic: east ifma, north gmpy2" in printed
