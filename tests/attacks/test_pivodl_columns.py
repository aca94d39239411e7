"""PIVODL: attacks on columns, and the report.

- Columns read by a party of PIVODL: planted nodes are read exactly, and of real jobs every claim is compared with the
  tables.
- The audit of a PIVODL job as a document, a page and in the terminal; other jobs' documents are as before.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.documents import in_terminal, made
from tests.attacks.pivodl import PARAMS, shared_world, trained, views
from tests.attacks.present import present
from tests.attacks.recorded import audit_file_of, changed, filled, rewritten, transcript
from tests.commands.command import refused, treetap
from tests.pivodl.worlds import binned
from tests.worlds import World, spread, world
from treetap.attacks.audit import audit
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.document import PIVODL_ATTACKS, Document, parse
from treetap.attacks.limits import exceeded
from treetap.attacks.pivodl import opened_sums
from treetap.attacks.pivodl.bin_domains import UNPLACED, BinDomains, PossibleScores
from treetap.attacks.pivodl.evidence import scored
from treetap.attacks.pivodl.opened_sums import NodeReader, Onlooker, SourceClaims, claims
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.page import html
from treetap.attacks.view.pivodl_view import PivodlView, ReceivedBins
from treetap.attacks.view.view import View, read_view
from treetap.errors import BadInput, Malformed
from treetap.lab.experiment.audited import scores
from treetap.trees.candidates import Shape
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import SharedLabelLoss
from treetap.trees.tree_bins import left_sums
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

pytestmark = [pytest.mark.filterwarnings("ignore:a 512-bit"), pytest.mark.xdist_group("pivodl-columns")]

LOSS = SharedLabelLoss(PivodlParams())
RECORDS, OWN, BINS = 90, 45, 20
KINDS: dict[str, dict[str, Any]] = {
    "numbers": {"objective": "reg:squarederror", "epsilon": 8.0},
    "three classes": {"objective": "multi:softprob", "classes": ("0", "1", "2"), "epsilon": 8.0},
    "as published": {"as_published": True},
    "no split": {"gamma": 1e6},
}


@dataclass
class Planted:
    """A node with `sums` that are known to be those of `codes` (N, d), in the order `order`."""

    codes: Any
    domains: BinDomains
    reader: NodeReader
    sums: Any
    order: Any


def _planted(codes: Any, scores: Any, seed: int) -> Planted:
    """All records in one node; the first `OWN` are the attacker's, and all have a known score."""
    rng = np.random.default_rng(seed)
    labels, rows = rng.integers(0, 2, RECORDS), np.arange(RECORDS)
    values = LOSS.gradients(scores[:, np.newaxis], labels)
    shapes = tuple(Shape(BINS, False) for _ in range(codes.shape[1]))
    domains = BinDomains(RECORDS, rows[:OWN], ReceivedBins(shapes, codes[:OWN]))
    order = rng.permutation(len(domains.candidates))
    sums = left_sums(codes, domains.candidates, values, [rows])[0][order]
    possible = PossibleScores(rows[OWN:], scores[OWN:])
    reader = NodeReader(sums, (values[:OWN], codes[:OWN]), rows[OWN:], possible, 1, domains, LOSS)
    return Planted(codes, domains, reader, sums, order)


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_order_is_read_exactly(seed: int) -> None:
    """At full precision every named sum is the right one, and most cells of small bins are placed, none wrongly."""
    rng = np.random.default_rng(seed)
    planted = _planted(rng.integers(0, BINS, (RECORDS, 3)), rng.normal(size=RECORDS), seed)
    planted.reader.link(rng)
    sums = planted.reader.sums
    original = planted.sums
    for candidate, place in planted.reader.links.items():
        assert sums[place].tolist() == original[list(planted.order).index(candidate)].tolist()
    assert len(planted.reader.links) > 0.7 * len(planted.order)
    assert planted.reader.read() > 0
    placed, others = planted.domains.placed()[OWN:], planted.codes[OWN:]
    claimed = placed != UNPLACED
    assert (placed[claimed] == others[claimed]).all()
    assert claimed.mean() > 0.35


def test_equal_scores_and_equal_columns_name_nothing() -> None:
    """Where all records have one score, sums are counts; of two equal columns each sum fits both."""
    rng = np.random.default_rng(7)
    codes = rng.integers(0, BINS, (RECORDS, 3))
    alike = _planted(codes, np.zeros(RECORDS), 7)
    alike.reader.link(rng)
    alike.reader.read()
    assert (alike.domains.placed()[OWN:] == UNPLACED).mean() > 0.95
    twice = _planted(codes[:, [0, 0]], rng.normal(size=RECORDS), 7)
    twice.reader.link(rng)
    assert not twice.reader.links


def test_wrong_claims_are_counted() -> None:
    """Scores are counts over the records that the attacker does not label: planted faults, and no others."""
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 8, (50, 2))
    placed = truth.copy()
    placed[10:30] = UNPLACED
    placed[40:43, 0] = (truth[40:43, 0] + 1) % 8
    possible = [np.ones((50, 8), dtype=bool) for _ in range(2)]
    unplaced = np.full_like(placed, UNPLACED)
    claimed = SourceClaims(placed, unplaced, truth + 0.0, possible, opened=9, linked=4, contradictions=0)
    own, others = np.arange(10), np.arange(10, 50)
    figures = scored(claimed, own, others, truth)
    assert (figures.cells, figures.received, figures.placed, figures.wrong) == (80, 20, 40, 3)
    assert (figures.by_left_sets, figures.by_left_sets_wrong) == (0, 0)
    assert figures.rank_correlation == pytest.approx(1.0)
    assert present(figures.explained).reached == pytest.approx(1.0)
    without = scored(claimed, own, others, None)
    assert (without.placed, without.wrong, without.rank_correlation) == (40, None, None)


def test_the_attacker_holds_no_truth() -> None:
    """It has a view and own labels; bins of all records, its own table's and others' labels are refused by name."""
    assert [field.name for field in fields(Onlooker)] == ["view", "records", "labels"]
    codes = ReceivedBins((Shape(4, False),), np.zeros((6, 1), dtype=np.int64))
    ownership = {"a": np.arange(3), "b": np.arange(3, 6)}
    view = PivodlView("a", ["a", "b"], PivodlParams(), ownership, {}, 0, ())
    with pytest.raises(ValueError, match="the bins of b are of other records"):
        Onlooker(replace(view, columns={"b": codes}), 6)
    half = ReceivedBins(codes.shapes, codes.codes[:3])
    with pytest.raises(ValueError, match="labels of its own records alone"):
        Onlooker(replace(view, columns={"a": half}), 6)
    with pytest.raises(ValueError, match="labels of its own records alone"):
        Onlooker(replace(view, columns={"b": half}), 6, np.zeros(6, dtype=np.int64))
    assert set(claims(Onlooker(replace(view, columns={"b": half}), 6))) == {"b"}


def test_no_module_of_the_attack_reads_a_table() -> None:
    """What makes claims imports neither tables nor the scorer, and is given none."""
    folder = Path(opened_sums.__file__).parent
    for name in ("opened_sums", "bin_domains"):
        tree = ast.parse((folder / f"{name}.py").read_text())
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {module for module in imported if module.startswith(("treetap.tables", "treetap.trees.binning"))}
        assert not imported & {
            "treetap.attacks.pivodl.evidence",
            "treetap.attacks.view.own_table",
        }


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, Path], dict[str, View]]:
    """A job whose parties record what they open as split parties."""
    here = shared_world(300, parties=3, seed=5)
    params = replace(PARAMS, n_estimators=5, max_bin=16)
    states = trained(tmp_path_factory.mktemp("opened"), here, params, people={"record_sums": True})
    return here, states, views(states)


def _codes(here: World, view: PivodlView) -> dict[str, Any]:
    return {name: table.codes.astype(np.int64) for name, table in binned(here, view.params)}


def _onlooker(here: World, view: View) -> Onlooker:
    return Onlooker(present(view.pivodl), view.records, here.y[present(view.pivodl).own].astype(np.int64))


def test_a_view_has_the_bins_of_own_records_and_the_opened_sums(job: Any) -> None:
    """Bins are those of the sources' tables; every node's opened sums are left sums of its source, each once."""
    here, _, seen = job
    opened = 0
    for name, view in seen.items():
        shared = view.pivodl
        codes = _codes(here, shared)
        assert set(shared.columns) == set(codes) - {name}
        for source, bins in shared.columns.items():
            assert bins.codes.tolist() == codes[source][shared.own].tolist()
        first = shared.trees[0]
        values = LOSS.gradients(np.zeros((len(here.y), 1)), here.y)
        for tree in shared.trees:
            assert set(tree.sums) >= {ROOT}
            opened += len(tree.opened)
        for (node, source), sums in first.opened.items():
            rows, candidates = (
                first.view.nodes[node].records,
                BinDomains(len(here.y), shared.own, shared.columns[source]).candidates,
            )
            left = left_sums(codes[source], candidates, values, [rows])[0]
            assert {tuple(row) for row in sums.tolist()} <= {tuple(row) for row in left.tolist()}
        assert first.sums[ROOT].tolist() == values.sum(axis=0).tolist()
    # each source has one split party per node
    assert opened == sum(len(tree.open) * 3 for tree in next(iter(seen.values())).pivodl.trees)


@pytest.mark.second_tier
def test_claims_of_a_real_job(job: Any) -> None:
    """Left sets claim nothing wrong; of what sums add at most a few cells are; own records are as they were sent."""
    here, _, seen = job
    placed = wrong = linked = 0
    for view in seen.values():
        codes, shared = _codes(here, view.pivodl), view.pivodl
        others = np.setdiff1d(np.arange(len(here.y)), shared.own)
        for source, claimed in claims(_onlooker(here, view)).items():
            assert claimed.placed[shared.own].tolist() == codes[source][shared.own].tolist()
            figures = scored(claimed, shared.own, others, codes[source])
            assert figures.by_left_sets_wrong == 0
            assert figures.cells == len(others) * 2
            assert figures.opened == sum(
                len(it) for t in shared.trees for (_, of), it in t.opened.items() if of == source
            )
            placed, wrong, linked = placed + figures.placed, wrong + (figures.wrong or 0), linked + figures.linked
            assert figures.rank_correlation is not None
    assert linked > 0
    assert wrong <= 0.2 * placed


def test_without_recorded_sums_left_sets_are_all(job: Any, tmp_path: Path) -> None:
    """The policy's switch decides: a transcript without these entries has no opened sums, and no claim by them."""
    here, states, _ = job
    name = list(states)[1]

    def without(records: list[TranscriptRecord]) -> Iterator[TranscriptRecord]:
        return (record for record in records if record.step != "own_sums")

    view = read_view(rewritten(transcript(states, name), tmp_path / name, without), party=name)
    assert not any(tree.opened for tree in present(view.pivodl).trees)
    for claimed in claims(_onlooker(here, view)).values():
        assert (claimed.opened, claimed.linked) == (0, 0)
        assert claimed.placed.tolist() == claimed.by_left_sets.tolist()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda entry: entry.nodes.append(2), "are not of one node"),
        (lambda entry: setattr(entry, "candidates", entry.candidates + 1), "numbers are recorded, where there are"),
        (filled(first=1), "parts of its numbers are missing"),
    ],
)
def test_changed_entries_are_refused(job: Any, tmp_path: Path, change: Any, fault: str) -> None:
    """By name; a chain of records that was made anew does not help them."""
    _, states, _ = job
    name = next(iter(states))

    with pytest.raises(Malformed, match=fault):
        read_view(rewritten(transcript(states, name), tmp_path / name, changed("own_sums", change)), party=name)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> AuditFile:
    """What an auditor has of a small job with noise: transcripts and tables of all four parties."""
    here = shared_world(200)
    return _file(tmp_path_factory.mktemp("audited"), here, replace(PARAMS, n_estimators=2, epsilon=8.0))


def _file(folder: Path, here: World, params: PivodlParams) -> AuditFile:
    """Train; what an auditor has of all parties."""
    return audit_file_of(folder, here, trained(folder / "federation", here, params), here.tables)


@pytest.fixture(scope="module")
def document(file: AuditFile) -> Document:
    """The audit of it."""
    return audit(file, by_tree=False, progress=lambda *_: None)


@pytest.mark.second_tier
def test_the_document_has_the_attacks_under_each_party(document: Document) -> None:
    """All four parties are audited, the first one too; the document survives JSON."""
    plain = document.plain()
    assert plain["protocol"] == "pivodl"
    assert plain["label_holder"] == ", ".join(plain["parties"])
    assert len(plain["parties"]) == 4
    for party in plain["parties"].values():
        assert set(PIVODL_ATTACKS) <= set(party)
        assert party["label_guess"]["records"] <= party["label_guess"]["others"]
    accuracies = [party["label_guess"]["accuracy"] for party in plain["parties"].values()]
    assert any(accuracy is not None for accuracy in accuracies)
    assert parse(json.loads(json.dumps(plain))) == document


@pytest.mark.second_tier
def test_an_experiment_has_them_by_party(document: Document) -> None:
    """Under `audit.<party>`, beside the attacks of every audit."""
    plain = document.plain()
    for name, found in scores(plain).items():
        assert found["label_guess"]["accuracy"] == plain["parties"][name]["label_guess"]["accuracy"]
        assert set(found) == {"uni", "cl", *rows(Needs.KNOWN_LABELS), *PIVODL_ATTACKS}


@pytest.mark.second_tier
def test_a_limit_on_the_guess(document: Document) -> None:
    """Each party above it is named with the stronger way; documents of other protocols have no guess."""
    aucs = {}
    for name, party in document.parties.items():
        assert party.label_guess is not None
        ways = [party.label_guess, party.label_guess.after_inversion]
        raw = [*party.label_guess.auc_by_tree, *(each.auc for each in ways if each is not None)]
        found = [max(auc, 1 - auc) for auc in raw if auc is not None]
        aucs |= {name: max(found)} if found else {}
    lines = exceeded(document, {"label_guess": 0.5})
    assert [line.split(":")[0] for line in lines] == [name for name, auc in aucs.items() if auc > 0.5]
    assert all(f"{aucs[line.split(':')[0]]:.3f}" in line for line in lines)
    assert exceeded(document, {"label_guess": 1.0}) == []
    with pytest.raises(BadInput, match="not of pivodl"):
        exceeded(made(), {"label_guess": 0.5})


def test_documents_of_other_protocols_have_no_such_key() -> None:
    """And the page has no such section."""
    other = made()
    for party in other.plain()["parties"].values():
        assert not set(PIVODL_ATTACKS) & set(party)
    assert "Labels of other parties" not in html(other)


@pytest.mark.second_tier
def test_page_and_terminal_show_the_figures(document: Document) -> None:
    """Every figure of a guess and of what is disclosed is in both, and each way to guess has its dot."""
    page, said = html(document), in_terminal(document)
    section = page[page.index('id="shared"') : page.index('id="bounds"')]
    for name, party in document.parties.items():
        assert name in section
        guess, counts = present(party.label_guess), present(party.disclosed)
        shown = [guess, guess.without_noise, guess.after_inversion, guess.own_labels_and_spaces]
        aucs = [each.auc for each in shown if each is not None and each.auc is not None]
        figures = [f"{auc:.3f}" if auc >= 0.5 else f"{1 - auc:.3f} (inverted)" for auc in aucs]
        for figure in [*figures, f"{counts.bins:,}", f"{counts.continuing_ids:,}"]:
            assert figure in section
            assert figure in said
    assert section.count("<circle") >= sum(
        party.label_guess is not None and party.label_guess.auc is not None for party in document.parties.values()
    )


@pytest.mark.second_tier
def test_the_command_runs_one_attack(file: AuditFile, document: Document, sound: Path) -> None:
    """`treetap attack` prints one party's figures, those of the document; of another protocol's job it says so."""
    one = file.party[1]
    scored = ("--labels", present(file.label).path, "--label", "y", "--columns", present(one.table))
    used = [word for column in one.columns or [] for word in ("--use", column)]
    found = treetap("attack", "gain_inversion", one.transcript, "--json", *scored, *used)
    assert found.status == 0, found.err
    report, expected = json.loads(found.out), document.plain()["parties"][one.name]["gain_inversion"]
    assert report["party"] == one.name
    assert {key: report[key] for key in expected} == expected
    shown = treetap("attack", "label_guess", one.transcript, *scored, *used)
    assert shown.status == 0, shown.err
    assert "as source accuracy" in shown.out
    assert "is one of boosting" in refused(treetap("attack", "disclosed", sound, "--party", "feature-b"))
    assert "leave it out" in refused(
        treetap("attack", "disclosed", one.transcript, "--out", present(one.table).with_suffix(".out"))
    )


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("kind", KINDS)
def test_jobs_of_every_kind_are_audited(kind: str, tmp_path: Path) -> None:
    """What does not apply to a job is null or none, and the page is made."""
    changes: dict[str, Any] = KINDS[kind]
    params = replace(PARAMS, n_estimators=2, max_depth=2, max_bin=4, **changes)
    classes = 3 if kind == "three classes" else 2
    here = world(90, (2, 2, 2), objective=params.objective, classes=classes, seed=3)
    here = spread(here, np.random.default_rng(1).integers(0, 3, 90))
    document = audit(_file(tmp_path, here, params), by_tree=False, progress=lambda *_: None)
    assert html(document)
    for name, party in document.parties.items():
        guess, inversion, counts = present(party.label_guess), present(party.gain_inversion), present(party.disclosed)
        assert inversion.possible == (kind in ("as published", "no split"))
        assert (guess.auc is not None) == (guess.records > 0 and inversion.possible)
        own = len(here.ownership.get(name, []))
        assert counts.bins == (0 if params.as_published else 4 * own)
        assert (counts.listed > 0) == (params.as_published)
