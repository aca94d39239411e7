"""Attacks by few known labels: planted trees, the control, odd numbers of known labels, documents, page and limits."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from tests.attacks.documents import in_terminal, made
from tests.attacks.present import present
from tests.attacks.recorded import audit_file_of, train
from tests.attacks.worlds import Ints, planted, random_trees, views
from tests.attacks.worlds import evidence as evidence_of
from tests.commands.command import refused, treetap
from tests.worlds import World, world
from treetap.attacks.audit import audit
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.document import Document, parse
from treetap.attacks.files import LabelTable
from treetap.attacks.id2graph.schema import KnownLabelResult, KnownSettings
from treetap.attacks.known_labels.evidence import SignatureEvidence, of_others
from treetap.attacks.known_labels.names import macro_auc, precision_first
from treetap.attacks.known_labels.naming import known_neighbours, known_regression, regressed
from treetap.attacks.known_labels.rows import Members, Rows
from treetap.attacks.limits import exceeded
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.page import html
from treetap.errors import BadInput
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
WAYS = (known_neighbours, known_regression)


def _evidence(leaves: Sequence[list[Ints]], labels: Ints, columns: object = None, **given: int) -> SignatureEvidence:
    """What a party has that knows all leaves."""
    return evidence_of(views(leaves, len(labels)), labels, columns, **given)


def _found(evidence: SignatureEvidence) -> list[KnownLabelResult]:
    results = [way(evidence) for way in WAYS]
    assert evidence.reasons == {}
    return [result for result in results if result is not None]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("classes", [2, 4])
def test_leaves_that_part_the_labels_name_them(classes: int) -> None:
    """With a tenth of the records astray the AUC is near 1; columns are noise, and so is what was there before."""
    draw = np.random.default_rng(3)
    labels = draw.integers(0, classes, 900)
    evidence = _evidence(planted(1, labels, 12, 2, 0.1), labels, draw.normal(size=(900, 3)))
    for result in _found(evidence):
        assert result.nodes.auc.mean > 0.97
        assert result.nodes.precision.mean > 0.95
        assert present(result.both).auc.mean > 0.9
        assert abs(present(result.columns).auc.mean - 0.5) < 0.06
        assert abs(result.reassigned.auc.mean - 0.5) < 0.06
    said = present(evidence.described())
    assert (said.known, said.draws, said.records, said.left_out, said.first) == (40, 20, 860, 0, 100)
    counts = np.bincount(labels)
    assert counts[int(said.rarest.split()[1])] == counts.min()


def test_random_leaves_name_nothing() -> None:
    """AUC, precision and accuracy are those of a guess, whose figures stand beside them."""
    labels = (np.random.default_rng(4).random(1000) < 0.3).astype(np.int64)
    evidence = _evidence(random_trees(2, 1000, 10, 8), labels)
    said = present(evidence.described())
    for result in _found(evidence):
        assert abs(result.nodes.auc.mean - 0.5) < 0.05
        assert abs(result.nodes.precision.mean - said.chance) < 0.12
        assert result.nodes.accuracy.mean < said.majority + 0.02
        assert result.columns is result.both is result.reassigned_columns is None


@pytest.mark.second_tier
def test_what_own_columns_told_before_is_no_news_of_the_training() -> None:
    """Nodes that follow from an own column alone score the control as the labels; every class keeps its count."""
    draw = np.random.default_rng(5)
    column = draw.normal(size=2000)
    labels = (column + 0.5 * draw.normal(size=2000) > 0).astype(np.int64)
    leaves = [
        [np.flatnonzero(np.digitize(column, np.sort(draw.normal(size=5))) == k) for k in range(6)] for _ in range(15)
    ]
    evidence = _evidence(leaves, labels, np.stack([column, draw.normal(size=2000)], axis=1))
    assert np.array_equal(np.bincount(evidence.reassigned), np.bincount(labels))
    assert 0.1 < (evidence.reassigned != labels).mean() < 0.4
    for result in _found(evidence):
        assert result.nodes.auc.mean > 0.75
        assert abs(result.nodes.auc.mean - result.reassigned.auc.mean) < 0.03
        assert abs(present(result.columns).auc.mean - present(result.reassigned_columns).auc.mean) < 0.04
    # and leaves that follow from the labels beyond the column do not
    told = replace(evidence, trees=views(planted(1, labels, 12, 2, 0.5), 2000))
    for result in _found(told):
        assert result.nodes.auc.mean > result.reassigned.auc.mean + 0.1


def test_odd_numbers_of_known_labels() -> None:
    """More than there are, none to score, one class alone, a class without one, one label; and draws that repeat."""
    labels = np.arange(300) % 3
    leaves = planted(1, labels, 8, 2, 0.0)
    every = _evidence(leaves, labels, known=1000)
    assert [way(every) for way in WAYS] == [None, None]
    assert every.described() is None
    said = "all 300 labels at hand are known ones, and none is left to score by: lower known = 1000"
    assert every.reasons == {"known-neighbours": said, "known-regression": said}
    for known in (1, 2):
        few = _evidence(leaves, labels, known=known, neighbours=50)
        described = present(few.described())
        assert described.unseen >= 3 - known
        for result in _found(few):
            assert 0.5 <= result.nodes.auc.mean < 0.9
    one = _evidence(leaves, labels, known=30, draws=1)
    assert _found(one)[0].nodes.auc.deviation is None
    assert _found(one)[1].nodes == _found(_evidence(leaves, labels, known=30, draws=1))[1].nodes
    same = _evidence(leaves, np.zeros(300, dtype=np.int64))
    assert known_neighbours(same) is None
    assert same.reasons["known-neighbours"].startswith("labels of two classes or more are needed")
    rootless = _evidence([], labels)
    assert known_regression(rootless) is None
    assert rootless.reasons == {"known-regression": "the party knows no node but roots, and won no split"}


def test_a_party_that_labels_records_names_those_of_others() -> None:
    """It knows some of its own, and none of these is scored; one without labels knows some of all."""
    labels = np.arange(400) % 2
    own = np.arange(100, 220)
    evidence = _evidence(planted(1, labels, 8, 2, 0.2), labels)
    evidence = replace(evidence, known=of_others(evidence.known, own))
    for known, named in evidence.drawn:
        assert np.isin(evidence.places[known], own).all()
        assert np.array_equal(evidence.places[named], np.setdiff1d(np.arange(400), own))
    assert of_others(evidence.known, own[:0]) is evidence.known


def test_bounds_leave_records_out() -> None:
    """As many others take part as the settings say; what is left out is said, and scores are of the rest."""
    labels = np.arange(500) % 2
    evidence = _evidence(planted(1, labels, 8, 2, 0.2), labels, most_records=60, draws=5)
    said = present(evidence.described())
    assert said.records + said.left_out + said.known == 500
    assert 60 <= len(evidence.places) <= 60 + 5 * 40
    assert _found(evidence)[0].nodes.auc.mean > 0.9


def test_figures_by_hand() -> None:
    """Ties count half in the AUC, and with the mean over their orders in the precision."""
    chances = np.array([[0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [0.2, 0.8]])
    assert macro_auc(chances, np.array([0, 1, 0, 1]))[0] == pytest.approx(3.5 / 4)
    assert macro_auc(chances, np.zeros(4, dtype=np.int64))[0] == 0.5
    right = np.array([False, True, False, True])
    assert precision_first(chances[:, 1], right, 2) == pytest.approx((1 + 0.5) / 2)
    assert precision_first(chances[:, 1], right, 9) == 0.5
    with pytest.raises(BadInput, match="settings of attacks by known labels: known must be"):
        KnownSettings(known=0)


@pytest.mark.parametrize("classes", [2, 3])
def test_figures_are_those_of_scikit_learn(classes: int) -> None:
    """The AUC with ties, of records that share rows; and the regression on sets and columns side by side."""
    draw = np.random.default_rng(classes)
    row, truth = draw.integers(0, 30, 300), draw.integers(0, classes, 300)
    chances = draw.integers(0, 9, (30, classes)) / 9
    expected = [roc_auc_score(truth == number, chances[row, number]) for number in range(classes)]
    assert macro_auc(chances, truth, row)[0] == pytest.approx(np.mean(expected), abs=1e-12)

    inside, own = draw.integers(0, 2, (300, 3)), draw.random((300, 2)).round(1)
    every, known = np.hstack([inside * 0.5, own]), np.arange(40)
    rows = Rows.of(Members.of(list(map(np.flatnonzero, inside.T)), 0.5, 300), own)
    assert rows.of_records(np.arange(300)) == pytest.approx(every)
    found = next(regressed(rows.of_records(known), rows, [truth[known]]))[1].T[rows.alike]
    model = LogisticRegression(C=10, max_iter=1000, tol=1e-9).fit(every[known], truth[known])
    assert found == pytest.approx(model.predict_proba(every), abs=1e-6)


def _file(folder: Path, here: World, params: BoostingParams) -> AuditFile:
    """Train with three parties; what an auditor has of the two feature parties."""
    return audit_file_of(folder, here, train(folder / "federation", here, params), list(here.tables)[1:])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> AuditFile:
    """What an auditor has of a small job."""
    params = BoostingParams(n_estimators=3, max_depth=3, max_bin=8)
    return _file(tmp_path_factory.mktemp("known"), world(150, (2, 2, 2), seed=5), params)


@pytest.fixture(scope="module")
def document(file: AuditFile) -> Document:
    """The audit of it."""
    return audit(file, by_tree=False, progress=lambda *_: None)


@pytest.mark.second_tier
def test_the_document_and_both_reports_have_the_figures(document: Document) -> None:
    """Of every feature party, after a trip through JSON; figures, known labels and terms are in page and terminal."""
    assert parse(json.loads(json.dumps(document.plain()))) == document
    page, shown = html(document), in_terminal(document)
    section = page[page.index('id="known"') : page.index('id="bounds"')]
    for name, party in document.parties.items():
        known = present(party.known_labels)
        assert (present(known.drawn).known, present(known.drawn).records, known.reasons) == (40, 110, {})
        for result in map(present, (known.known_neighbours, known.known_regression)):
            for naming in (result.nodes, present(result.columns), result.reassigned):
                for figure in (naming.auc, naming.precision, naming.accuracy):
                    assert f"{figure.mean:.3f}" in section
                    assert f"{figure.mean:.3f}" in shown
        for order in (known.first_component, known.vote, known.heaviest_cut):
            for it in () if order is None else order.by.values():
                for value in (it.auc, it.precision):
                    assert f"{value:.3f}" in section
                    assert f"{value:.3f}" in shown
        assert f"<bdi>{name}</bdi>" in section
        verdict = next(it for it in document.verdicts if it.party == name and it.learned == "labels")
        assert verdict.before is not None
    assert "own columns, reassigned" in section
    assert "Few known labels; 40 in each of 20 draws" in shown
    assert "Few known labels" not in html(made())


@pytest.mark.second_tier
def test_the_usual_audit_needs_no_large_library(
    document: Document, file: AuditFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same verdicts where neither scikit-learn nor networkx can be imported."""
    for name in {"networkx", "sklearn", *sys.modules}:
        if name.partition(".")[0] in ("networkx", "sklearn"):
            monkeypatch.setitem(sys.modules, name, None)
    assert audit(file, by_tree=False, progress=lambda *_: None).verdicts == document.verdicts


@pytest.mark.second_tier
def test_a_limit_on_the_auc(document: Document) -> None:
    """Every party above it is named with its AUC by nodes, or by nodes and columns if that is larger."""
    lines = exceeded(document, {"known-regression": 0.0})
    for line, (name, party) in zip(lines, document.parties.items(), strict=True):
        result = present(present(party.known_labels).known_regression)
        most = max(result.nodes.auc.mean, present(result.both).auc.mean)
        assert line == f"{name}: known-regression with 40 labels reaches an AUC of {most:.3f}, above 0"
    assert exceeded(document, {"known-neighbours": 1.0}) == []
    for line, (name, party) in zip(exceeded(document, {"first-component": 0.0}), document.parties.items(), strict=True):
        told = [
            it.auc
            for kind, it in present(present(party.known_labels).first_component).by.items()
            if "columns" not in kind
        ]
        assert line == f"{name}: first-component reaches an AUC of {max(told):.3f}, above 0"
    with pytest.raises(BadInput, match="known-neighbours: the attack was run on no party"):
        exceeded(made(), {"known-neighbours": 0.5})


def test_known_ones_of_the_file_and_settings(file: AuditFile, tmp_path: Path) -> None:
    """Only labels of the table [known] are known; a wrong setting is named."""
    table = pq.read_table(present(file.label).path)
    pq.write_table(table.slice(0, 20), tmp_path / "known.parquet")
    known = LabelTable(path=tmp_path / "known.parquet", column="y")
    asked = file.model_copy(update={"known": known, "known_labels": {"first": 7}})
    for party in audit(asked, by_tree=False, progress=lambda *_: None).parties.values():
        said = present(present(party.known_labels).drawn)
        assert (said.known, said.draws, said.records, said.first) == (20, 1, 130, 7)
    with pytest.raises(ValueError, match="settings of attacks by known labels: unknown: knwn"):
        AuditFile.model_validate({**file.model_dump(exclude_none=True), "known_labels": {"knwn": 3}})


@pytest.mark.second_tier
def test_the_command_runs_one_attack(file: AuditFile, document: Document) -> None:
    """`treetap attack` prints the figures of the document; without labels it says what is needed."""
    one = file.party[0]
    words = ("attack", "known-regression", one.transcript, "--party", one.name)
    given = ("--columns", present(one.table), *(word for column in one.columns or [] for word in ("--use", column)))
    scored = ("--labels", present(file.label).path, "--label", "y")
    found = treetap(*words, *given, *scored, "--json")
    assert found.status == 0, found.err
    known, report = document.plain()["parties"][one.name]["known_labels"], json.loads(found.out)
    assert report["drawn"] == known["drawn"]
    assert report["both"] == known["known-regression"]["both"]
    shown = treetap(*words, *given, *scored, "--set", "known=7").out
    assert "drawn known" in shown
    assert "nodes auc" in shown
    assert " ± " in shown
    assert "give [label] or [known], --labels or --known-labels" in refused(treetap(*words))


def test_a_regression_is_refused_with_the_reason(tmp_path: Path) -> None:
    """In the document, on the page and in the terminal."""
    here = world(60, (2, 2, 2), objective="reg:squarederror", seed=5)
    params = BoostingParams(objective="reg:squarederror", n_estimators=1, max_depth=2, max_bin=6)
    document = audit(_file(tmp_path, here, params), by_tree=False, progress=lambda *_: None)
    why = "the label is a number, and these attacks name classes"
    for party in document.parties.values():
        assert present(party.known_labels).drawn is None
        assert present(party.known_labels).reasons == dict.fromkeys(rows(Needs.KNOWN_LABELS), why)
    assert why in html(document)
    assert f"known-regression is left out: {why}." in in_terminal(document)
