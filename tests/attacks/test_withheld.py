"""Audits where instance spaces are withheld: what a feature party still knows, and what its label holder learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.attacks.documents import in_terminal
from tests.attacks.present import present
from tests.attacks.recorded import known, laid_out, rewritten, transcript
from tests.attacks.sums.test_opened_sums import ON_LATTICE, trained
from tests.worlds import PARTIES, world
from treetap.attacks import audit_file
from treetap.attacks.audit import audit
from treetap.attacks.document import Document, parse
from treetap.attacks.report.page import html
from treetap.attacks.sums.schema import NOT_RECORDED
from treetap.attacks.view.known_trees import Ints, OwnSplit, TreeView, WholeCut, expected_views, known_nodes
from treetap.attacks.view.view import read_label_holder, read_view
from treetap.errors import Malformed
from treetap.lab.local_federation import to_toml
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train, train_forest
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.v2.transcript_pb2 import OwnSplit as RecordedSplit
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

HOLDER, B, C = PARTIES
HERE = world(90, (1, 3, 2), missing=0.1, seed=4)
PARAMS = BoostingParams(
    n_estimators=3, max_depth=3, max_bin=6, min_child_weight=0.1, subsample=0.8, instance_spaces="withheld"
)


def rows(*records: int) -> Ints:
    return np.array(records, dtype=np.int64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """After a training whose label holder records sums: the parties' states and tables."""
    place = tmp_path_factory.mktemp("withheld")
    laid_out(place, trained(place / "federation", HERE, PARAMS, record="both", job=ON_LATTICE), HERE.tables)
    return place


def central_views(party: str) -> tuple[TreeView, ...]:
    """The views that the model of the joined table foretells."""
    names = {name: HERE.tables[name][0] for name, _ in HERE.parties}
    tables = [(name, bin_table(block, names[name], PARAMS.max_bin)) for name, block in HERE.parties]
    return expected_views(train(tables, HERE.y, PARAMS, HERE.classes), HERE.parties, party, names[party])


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", [B, C])
def test_a_feature_party_knows_the_nodes_all_of_whose_ancestors_it_owns(party: str, folder: Path) -> None:
    """And of every own split the side of all records: as foretold, node for node; no message names a record."""
    view = read_view(folder / party, party=party)
    assert (view.withheld, view.faults) == (True, ())
    assert "INSTANCE_SPACE" not in {row["class"] for row in view.received}
    oracle = HERE.oracle(PARAMS)
    for tree, foretold, grown in zip(view.trees, central_views(party), oracle, strict=True):
        assert known(tree) == known(foretold)
        own = {cut.node for cut in tree.cuts}
        members = HERE.members(grown)
        above = {u: {u >> up for up in range(1, u.bit_length())} for u in members}
        assert known(tree) == {
            u: (records.tolist(), "root" if u == 1 else "own") for u, records in members.items() if above[u] <= own
        }
        for cut, other in zip(tree.cuts, foretold.cuts, strict=True):
            assert (cut.node, cut.left.tolist(), cut.split) == (other.node, other.left.tolist(), other.split)
        assert np.array_equal(tree.drawn, PARAMS.drawn(tree.index, 90))  # type: ignore[arg-type] # by the job's seed
        assert own <= tree.nodes.keys() | set(tree.hidden())
    assert (len(view.trees[0].nodes) > 1) == (party == C)  # one that owns a root, and one that owns none


def test_the_label_holder_learns_left_sets_of_nodes(folder: Path) -> None:
    """Its nodes are the tree's, undrawn records too, and its left sets are within them: as where spaces are sent."""
    view = read_label_holder(folder / HOLDER)
    grown = HERE.oracle(PARAMS)
    for tree, other in zip(view.trees, grown, strict=True):
        assert {u: it.records.tolist() for u, it in tree.nodes.items()} == {
            u: it.tolist() for u, it in HERE.members(other).items()
        }
    foretold = {(party, tree.index, cut.node) for party in (B, C) for tree in central_views(party) for cut in tree.cuts}
    assert {(it.party, it.tree, it.node) for it in present(view.opened).left_sets} == foretold
    members = [HERE.members(tree) for tree in grown]
    for answer in present(view.opened).left_sets:
        assert answer.left.tolist() == members[answer.tree][2 * answer.node].tolist()
        assert present(answer.space).tolist() == members[answer.tree][answer.node].tolist()
    received = {(row["class"], row["step"]) for row in view.received}
    assert ("INSTANCE_SPACE", "children") in received  # as left bits, which without the seeds say nothing


def audited(folder: Path, holder: str = HOLDER) -> Document:
    """The audit of all parties."""
    names = {HOLDER: holder} if holder != HOLDER else {B: B, C: C, HOLDER: HOLDER}
    parties = [{"name": n, "transcript": place, "table": f"{n}.parquet"} for n, place in names.items()]
    victims = [{"name": name, "truth": f"{name}.parquet"} for name in (B, C)]
    label = {"path": f"{HOLDER}.parquet", "column": "y"}
    attacks = ["cl", "uni", "uni+cl", "id2graph", "own-cuts"]
    content = {"party": parties, "victim": victims, "label": label, "attacks": attacks}
    content |= {"known_labels": {"draws": 1}, "settings": {"runs": 1, "starts": 1}}
    (folder / "audit.toml").write_text(to_toml(content))
    return audit(audit_file.read(folder), by_tree=False, progress=lambda *_: None)


@pytest.mark.second_tier
def test_an_audit_says_what_is_left(folder: Path, tmp_path: Path) -> None:
    """Attacks by leaves run where a root is owned and have nothing to use elsewhere; own splits serve both parties."""
    document = audited(folder)
    no_root, roots = document.parties[B], document.parties[C]
    assert no_root.attacks.keys() == roots.attacks.keys() == {"cl", "uni", "uni+cl", "id2graph", "own-cuts"}
    assert no_root.attacks["uni"].v_measure == 0.0
    assert present(no_root.reasons).keys() == {"uni", "uni+cl", "id2graph"}
    assert "owns no root" in present(no_root.reasons)["uni"]
    assert roots.reasons is None
    assert no_root.known_labels is not None
    assert no_root.known_labels.known_regression is not None  # by the sides of own splits
    assert no_root.known_labels.vote is not None
    assert {"splits", "nodes"} <= present(no_root.known_labels.first_component).by.keys()
    assert no_root.signature.signatures > 1
    assert any(node.feature and not node.known for tree in no_root.trees for node in tree.nodes)
    read = document.columns_read
    assert any(it.cuts for figures in read.values() for it in figures.cuts)
    said = in_terminal(document)
    assert f"{B}: UNI has nothing to use: the party knows no node but roots with instance spaces withheld" in said
    assert all(f"Columns of {party}, by left sets alone" in said for party in (B, C))
    page = html(parse(document.plain()))
    assert "UNI has nothing to use: the party knows no node" in page
    assert "cells between two of them" in page

    def unrecorded(records: list[TranscriptRecord]) -> Iterator[TranscriptRecord]:
        for record in records:
            if record.kind != TranscriptRecord.OWN or record.step in ("own_alignment", "own_left_sets"):
                yield record

    rewritten(folder / HOLDER / "transcripts" / "job", folder / "bare", unrecorded)
    bare = audited(folder, "bare").columns_read
    assert {present(figures.reasons)["sums"] for figures in bare.values()} == {NOT_RECORDED}
    assert {figures.together for figures in bare.values()} == {None}
    # nodes below splits of its own are not known without these
    learned, known_then = (sum(it.cuts for each in of.values() for it in each.cuts) for of in (read, bare))
    assert 0 < known_then < learned


def test_an_own_split_that_forgets_records_is_refused(folder: Path, tmp_path: Path) -> None:
    """With instance spaces withheld each record has a side."""

    def shorter(records: list[TranscriptRecord]) -> Iterator[TranscriptRecord]:
        for record in records:
            if record.step == "own_split":
                split = RecordedSplit.FromString(record.message)
                split.left.pop() if len(split.left) > 1 else split.left[0].CopyFrom(split.right[0])
                record.message = split.SerializeToString()
            yield record

    rewritten(folder / C / "transcripts" / "job", tmp_path / "job", shorter)
    with pytest.raises(Malformed, match="does not send each of the 90 records to one side"):
        read_view(tmp_path / "job", party=C)


def test_padded_trees_are_read(tmp_path: Path) -> None:
    """Answers for no node are no splits; the label holder's view is whole."""
    params = replace(PARAMS, n_estimators=1, pad_trees=True, min_child_weight=3.0, max_depth=4)
    states = trained(tmp_path, HERE, params, job=ON_LATTICE)
    opened = present(read_label_holder(transcript(states, HOLDER)).opened)
    assert len(opened.trees[0].sums[B]) < 15  # the tree is not full, and its messages are
    assert {split.node for split in opened.trees[0].won} == {it.node for it in opened.left_sets} != set()
    assert read_view(transcript(states, C), party=C).trees[0].won


def test_a_forest_is_read_alike(tmp_path: Path) -> None:
    """Nodes and sides as the forest of the joined table foretells them."""
    params = ForestParams(n_estimators=2, max_depth=3, max_bin=5, instance_spaces="withheld")
    states = trained(tmp_path, HERE, params, job=ON_LATTICE)
    model = train_forest(HERE.parties, HERE.y, params, HERE.classes)
    won = 0
    for party in (B, C):
        foretold = expected_views(model, HERE.parties, party, HERE.tables[party][0])
        for tree, other in zip(read_view(transcript(states, party), party=party).trees, foretold, strict=True):
            assert known(tree) == known(other)
            assert [(cut.node, cut.left.tolist(), cut.split) for cut in tree.cuts] == [
                (cut.node, cut.left.tolist(), cut.split) for cut in other.cuts
            ]
            won += len(tree.cuts)
    assert won


def split(node: int) -> OwnSplit:
    return OwnSplit(node, node, 0, "age", 3, 41.5, False)


def test_cuts_of_all_records_by_hand() -> None:
    """Children of known nodes follow; below a foreign split only records that own splits above send elsewhere do."""
    cuts = (
        WholeCut(1, rows(0, 1, 2, 3), split(1)),
        WholeCut(2, rows(0, 4), split(2)),
        WholeCut(10, rows(1, 5), split(10)),
        WholeCut(13, rows(4, 5, 0), split(13)),
    )
    nodes = known_nodes(np.arange(8), {}, [], cuts=reversed(cuts))
    tree = TreeView(0, 1, True, 8, nodes, None, cuts)
    assert known(tree) == {
        1: (list(range(8)), "root"),
        2: ([0, 1, 2, 3], "own"),
        3: ([4, 5, 6, 7], "own"),
        4: ([0], "own"),
        5: ([1, 2, 3], "own"),
    }
    assert [node.split for node in nodes.values()] == [split(1), split(2), None, None, None]
    by_node = {cut.node: (cut.left.tolist(), cut.right.tolist()) for cut in tree.own_cuts()}
    # node 10 is left of 5, a split of others: records 1, 2 and 3 may be in it. 13 is below 6, and 6 left of 3
    assert by_node == {
        1: ([0, 1, 2, 3], [4, 5, 6, 7]),
        2: ([0], [1, 2, 3]),
        10: ([1], [2, 3]),
        13: ([4, 5], [6, 7]),
    }
    assert tree.hidden() == [6, 7, 10, 11, 12, 13, 20, 21, 26, 27]
    assert (tree.won, tree.received_only().won) == (True, False)
