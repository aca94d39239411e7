"""The opened sums in a label holder's transcript: what its view has of them equals what the parties summed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.present import present
from tests.attacks.recorded import Change, Records, changed, filled, repeated, rewritten, transcript, without
from tests.boosting.categories import categorical_world
from tests.simulator import Federation, Message, run
from tests.worlds import PARTIES, World, assert_oracles_model, spec, world
from treetap.attacks.view.opened_sums import OpenedSums, OpenedTree
from treetap.attacks.view.view import View, read_label_holder, read_view
from treetap.errors import BadInput, Malformed
from treetap.party.defences.settings import Defences
from treetap.party.growth import label_holder, offered_candidates
from treetap.party.growth.feature_party import OwnTree
from treetap.party.policy import merged
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.tree_bins import left_sums
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import transcript_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

HOLDER, B, C = PARTIES
BOOSTING = BoostingParams(n_estimators=3, max_depth=3, max_bin=6, min_child_weight=0.5)
FOREST = ForestParams(n_estimators=3, max_depth=3, max_bin=5)
pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")


@dataclass
class Summed:
    """What the parties of a training had in memory: trees of feature parties by name, and of the label holder."""

    of_features: dict[tuple[str, int], OwnTree] = field(default_factory=dict)
    of_holder: list[GrowingTree] = field(default_factory=list)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> Summed:
    """Keeps the trees of the trainings in this process."""
    kept = Summed()

    begun = OwnTree.__init__

    def keep(tree: OwnTree, index: int, columns: Any, summed: Any, expected: Any) -> None:
        begun(tree, index, columns, summed, expected)
        kept.of_features[columns.table.party, index] = tree

    class KeptByHolder(GrowingTree):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            kept.of_holder.append(self)

    monkeypatch.setattr(OwnTree, "__init__", keep)
    monkeypatch.setattr(label_holder, "GrowingTree", KeptByHolder)
    return kept


def trained(
    folder: Path, here: World, params: TreeParams, hook: Callable[[Federation], None] | None = None, **more: Any
) -> dict[str, Path]:
    """The parties' states after a training with recorded sums; `hook` may set the federation's, and kill.

    `more`: of the federation; `job`: of the job, which else has a short key.
    """
    policies = {HOLDER: {"people": {"record_sums": True}}}
    job = spec(params, len(here.blocks), **{"key_bits": 512, "obfuscation": "standard", **more.pop("job", {})})
    for party, lines in more.pop("policies", {}).items():
        policies[party] = merged(policies.get(party, {}), lines)

    async def main() -> dict[str, Path]:
        federation = Federation(folder, here.tables, **{"record": "received", "policies": policies} | more)
        if hook is not None:
            hook(federation)
        status = await federation.train(job)
        if status.state == "interrupted":
            for party in here.tables:
                if not federation.alive(party):
                    federation.start(party)
            status = await federation.resume()
        assert (status.state, status.error) == ("finished", "")
        return federation.states

    return run(main())


def opened_by(states: Mapping[str, Path]) -> OpenedSums:
    """The label holder's view."""
    return present(read_label_holder(transcript(dict(states), HOLDER)).opened)


def expected(tree: OwnTree, node: int, values: Any) -> Any:
    """The sums of a feature party's candidates at a node, in its order."""
    columns, rows = tree.columns, tree.rows_of(node)
    codes = columns.bins.codes(node, rows)
    sums = left_sums(codes, columns.bins.candidates, values[rows], [np.arange(len(rows))])[0]
    return sums[columns.order(node)]


def assert_as_summed(opened: OpenedTree, kept: Summed, holder: GrowingTree) -> None:
    """Values, records of nodes, sums and won splits are those that the parties had."""
    assert np.array_equal(opened.values, holder.values)
    assert opened.nodes.keys() == holder.rows.keys()
    assert all(np.array_equal(np.sort(holder.rows[node]), opened.nodes[node]) for node in opened.nodes)
    parties = {name for name, index in kept.of_features if index == opened.index}
    assert opened.sums.keys() == parties
    for name in parties:
        own = kept.of_features[name, opened.index]
        assert 1 in opened.sums[name]
        for node, sums in opened.sums[name].items():
            assert np.array_equal(sums, expected(own, node, opened.values)), (name, node)
        assert opened.categories.get(name, ()) == tuple(own.columns.group_sizes)
        won = {split.node: split for split in opened.won if split.party == name}
        assert {split.node for split in own.splits} == won.keys()
        assert all(np.array_equal(np.sort(own.rows[2 * node]), won[node].left) for node in won)
        assert any(split.places for split in won.values()) or not won or opened.categories


ON_LATTICE = {"scheme": "lattice", "key_bits": 0, "obfuscation": ""}
CASES: dict[str, tuple[World, TreeParams, dict[str, Any]]] = {
    "sampled, missing, sat out": (
        world(60, (1, 3, 2), missing=0.15, seed=2),
        replace(BOOSTING, subsample=0.7, colsample_bytree=0.6, party_dropout={B: 0.5}),
        {},
    ),
    "on a lattice, sampled, missing": (
        world(60, (1, 3, 2), missing=0.15, seed=2),
        replace(BOOSTING, subsample=0.7, party_dropout={B: 0.5}),
        {"job": ON_LATTICE},
    ),
    "a forest with bins per node": (
        world(60, (1, 2, 2), missing=0.1, seed=3),
        replace(FOREST, binning="per-node", bootstrap=True),
        {},
    ),
    "categories and withdrawn nodes": (
        categorical_world(70, missing=0.1, seed=1),
        replace(BOOSTING, max_cat_to_onehot=2),
        {
            "encode": "categorical",
            "defences": {HOLDER: Defences.model_validate({"id_lmid": {"xi": 0.25}})},
            "policies": {party: {"columns": {"category_partitions": True}} for party in PARTIES},
        },
    ),
    "several outputs, first tree alone": (
        world(60, (1, 2, 2), objective="multi:softprob", classes=3, seed=4),
        replace(BOOSTING, objective="multi:softprob", multi_strategy="multi_output_tree"),
        {"defences": {HOLDER: Defences.model_validate({"reduced_leakage": {"trees": 1}})}},
    ),
    "by lossguide, with constraints": (
        world(70, (2, 2, 2), missing=0.2, seed=6),
        replace(BOOSTING, grow_policy="lossguide", max_leaves=6, max_depth=5),
        {"constraints": {B: {"b0": -1}, C: {"c0": 1, "c1": -1}}},
    ),
    "merged bins": (
        world(90, (1, 3, 2), missing=0.15, seed=8),
        replace(BOOSTING, max_bin=12, subsample=0.9),
        {"defences": {party: Defences.model_validate({"min_cell_records": 3}) for party in (B, C)}},
    ),
    "a forest of all records counted": (
        world(60, (1, 2, 2), seed=7),
        replace(FOREST, bootstrap=True),
        {"defences": {HOLDER: Defences.model_validate({"id_lmid": {"xi": 0.4}})}},
    ),
    "the same on a lattice": (
        world(60, (1, 2, 2), seed=7),
        replace(FOREST, bootstrap=True),
        {"defences": {HOLDER: Defences.model_validate({"id_lmid": {"xi": 0.4}})}, "job": ON_LATTICE},
    ),
}


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize("case", CASES)
def test_the_view_has_what_the_parties_summed(case: str, tmp_path: Path, summed: Summed) -> None:
    """Every built node of every tree, whatever the job."""
    here, params, more = CASES[case]
    opened = opened_by(trained(tmp_path, here, params, **more))
    assert (opened.parties, opened.records, opened.params.to_dict()) == ((B, C), len(here.y), params.to_dict())
    shared = {tree: grown for tree, grown in enumerate(summed.of_holder) if grown.withdrawn != [1]}
    assert [tree.index for tree in opened.trees] == [
        tree for tree in shared if (B, tree) in summed.of_features or (C, tree) in summed.of_features
    ]
    assert sum(len(tree.won) for tree in opened.trees) > 0
    for tree in opened.trees:
        assert_as_summed(tree, summed, shared[tree.index])


def test_feature_parties_see_the_same_on_a_lattice(tmp_path: Path, states: dict[str, Path]) -> None:
    """What attacks on labels read of a job, whatever it sums: records of nodes, splits and leaves of every tree."""
    on_lattice = trained(tmp_path, HERE, BOOSTING, job=ON_LATTICE)
    for party in (B, C):
        with_key, without = (read_view(transcript(folders, party), party=party) for folders in (states, on_lattice))
        assert len(with_key.trees) == BOOSTING.n_estimators
        for one, other in zip(with_key.trees, without.trees, strict=True):
            assert repr(vars(one)) == repr(vars(other))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("job", [{}, ON_LATTICE], ids=["with a key", "on a lattice"])
def test_a_resumed_job_has_each_tree_once(job: dict[str, Any], tmp_path: Path, summed: Summed) -> None:
    """Killed in the middle of the second tree: the last complete growth of each tree counts."""
    here = world(60, (1, 2, 2), seed=7)

    def watched(federation: Federation) -> None:
        relayed = 0

        def kill_everybody(message: Message) -> None:
            nonlocal relayed
            relayed += message.word == "relay_children" and not message.served
            if relayed == 5:
                federation.hook = None
                for party in PARTIES:
                    federation.kill(party)

        federation.hook = kill_everybody

    states = trained(tmp_path, here, BOOSTING, watched, job=job)
    assert_oracles_model(states, here.oracle(BOOSTING))
    view = read_label_holder(transcript(states, HOLDER))
    assert [(tree.index, tree.attempt) for tree in view.trees] == [(0, 1), (1, 2), (2, 2)]
    assert view.faults == ()
    grown = [summed.of_holder[0], *summed.of_holder[2:]]  # of the second tree the second growth
    for tree, holder in zip(present(view.opened).trees, grown, strict=True):
        assert_as_summed(tree, summed, holder)


HERE = world(60, (1, 2, 2), seed=5)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The parties' states after one training, whose entries are in parts of 20 numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offered_candidates, "NUMBERS_PER_RECORD", 20)
        yield trained(tmp_path_factory.mktemp("recorded"), HERE, BOOSTING)


def places(path: Path, *, own: bool) -> list[tuple[Any, ...]]:
    """The records of a transcript in order; `own`: with the party's own entries on trees."""
    return [
        (record.kind, record.peer, record.step, record.round, record.stage)
        for record in TranscriptReader(path)
        if own or record.kind != TranscriptRecord.OWN or record.step == "own_alignment"
    ]


def test_nothing_is_written_without_the_switch(tmp_path: Path, states: dict[str, Path]) -> None:
    """A label holder's transcript has its former records, and of its own acts the alignment alone."""
    off = trained(tmp_path, HERE, BOOSTING, policies={HOLDER: {"people": {"record_sums": False}}})
    path = transcript(off, HOLDER)
    assert sorted(places(path, own=True)) == sorted(places(transcript(states, HOLDER), own=False))
    assert {record.step for record in TranscriptReader(path) if record.kind == TranscriptRecord.OWN} == {
        "own_alignment"
    }
    opened, recorded = opened_by(off), opened_by(states)
    assert (opened.trees, opened.recorded, recorded.recorded) == ((), False, True)
    # left sets are messages; the records of nodes below the label holder's own splits are its entries
    assert [(it.tree, it.node, it.party) for it in opened.left_sets] == [
        (it.tree, it.node, it.party) for it in recorded.left_sets
    ]
    for bare, known in zip(opened.left_sets, recorded.left_sets, strict=True):
        assert np.array_equal(bare.left, known.left)
        assert bare.space is None or np.array_equal(bare.space, present(known.space))
    assert len({it.space is None for it in opened.left_sets}) == 2


def test_the_entries_count_by_class(states: dict[str, Path]) -> None:
    """Sums are CANDIDATE_SUM; every part is bounded, and all bytes are declared."""
    classes: dict[str, set[str]] = {}
    for record in TranscriptReader(transcript(states, HOLDER)):
        if record.kind == TranscriptRecord.OWN:
            classes.setdefault(record.step, set()).update(record.bytes_by_class)
            assert sum(record.bytes_by_class.values()) == len(record.message) < 1000
    assert classes["own_sums"] == {"CANDIDATE_SUM", "TOPOLOGY", "CONTROL"}
    assert classes["own_values"] == {"AGGREGATE", "CONTROL"}
    assert classes["own_won"] == {"TOPOLOGY"}
    assert "INSTANCE_SPACE" in classes["own_split"]


def test_a_feature_party_has_none(states: dict[str, Path]) -> None:
    """Its transcript is refused where a label holder's is asked for."""
    with pytest.raises(BadInput, match=r"is the transcript of feature-b.*by that of the label holder, label-holder"):
        read_label_holder(transcript(states, B))


def _other_bytes(name: str) -> Callable[[Any], None]:
    """Every number of a part plus 1."""

    def change(message: Any) -> None:
        numbers = np.frombuffer(getattr(message, name), dtype="<i8") + 1
        setattr(message, name, numbers.tobytes())

    return change


TAMPERED: dict[str, tuple[Change, str]] = {
    "values that are missing": (without("own_values", 1), "parts of its numbers are missing"),
    "the last part of the values": (without("own_values", -1), "numbers are recorded, where there are 60 · 3"),
    "values twice": (repeated("own_values"), "parts of its numbers are missing, came twice or were cut"),
    "values that are cut": (changed("own_values", lambda part: setattr(part, "values", part.values[:-1])), "were cut"),
    "values of more records": (
        changed("own_values", filled(records=61)),
        "parts of the values are of different shapes",
    ),
    "other values": (changed("own_values", _other_bytes("values")), "do not have the sums by which it was won"),
    "sums of another party": (
        changed("own_sums", filled(party="feature-d")),
        "parts of its numbers are missing",
    ),
    "parts of two nodes": (
        changed("own_sums", lambda part: part.nodes.__setitem__(0, 5)),
        "parts of the sums of feature-b are of different shapes",
    ),
    "sums of another node": (
        lambda records: [_of_node_3(record) for record in records],
        "the nodes of the sums of feature-b that it recorded are not those of the messages",
    ),
    "sums that are missing": (without("own_sums"), "parts of its numbers are missing"),
    "fewer candidates": (
        changed("own_sums", filled(candidates=1)),
        "parts of the sums of feature-b are of different shapes",
    ),
    "won splits that are missing": (without("own_won"), "won splits .* are not those of the messages"),
    "won splits of another node": (
        changed("own_won", lambda won: setattr(won.splits[0], "node", 9)),
        "won splits of feature-.* are not those of the messages",
    ),
    "a candidate that is none": (
        changed("own_won", lambda won: won.splits[0].candidates.__setitem__(slice(None), [999])),
        "by a candidate that it has not",
    ),
    "another step's entry": (
        changed("own_won", step="own_sums"),
        "its message is a treetap.wire.v2.WonSplits for own_won, which is no own_sums",
    ),
}


def _of_node_3(record: TranscriptRecord) -> TranscriptRecord:
    if record.step == "own_sums" and not record.stage:
        entry = transcript_pb2.OwnSums.FromString(record.message)
        entry.nodes[:] = [3]
        record.message = entry.SerializeToString()
    return record


@pytest.mark.parametrize("case", TAMPERED)
def test_entries_that_do_not_fit_are_refused(case: str, tmp_path: Path, states: dict[str, Path]) -> None:
    """In a transcript whose chain is sound, by what contradicts the messages or the tree."""
    change, said = TAMPERED[case]
    with pytest.raises(Malformed, match=said):
        read_label_holder(rewritten(transcript(states, HOLDER), tmp_path / "changed", change))


def test_trees_before_the_switch_are_named(tmp_path: Path, states: dict[str, Path]) -> None:
    """A policy changed between two attempts: the trees without sums are left out, and the view says so."""
    steps = ("own_values", "own_sums", "own_won")

    def later(records: Records) -> Records:
        return [record for record in records if record.round or record.step not in steps]

    view: View = read_label_holder(rewritten(transcript(states, HOLDER), tmp_path / "later", later))
    assert [tree.index for tree in present(view.opened).trees] == [1, 2]
    assert "sums of trees 0 were opened and not recorded: record_sums was off" in view.faults[-1]
