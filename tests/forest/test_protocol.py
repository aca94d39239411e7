"""Forests by either scheme.

- The strongest test, of forests: trained apart, the model is what a naive trainer finds on the joined table.
- Forests on a lattice: every feature finds the model of a naive trainer on the joined table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.defences import test_changed_defences, test_label_dp, test_released_sets, test_repair
from tests.forest.test_disturbed import FEATURE, HERE, JOBS, LABEL_HOLDER, ON_LATTICE, OTHER
from tests.growth import test_cell_merging, test_eval_table
from tests.lattice_ways import carry_out, instances, take_way
from tests.oracle import OracleModel, OracleTree, oracle_predict
from tests.prediction import test_evaluate, test_grafted
from tests.simulator import Federation, failed, finished
from tests.tampered import with_fields
from tests.worlds import World, assert_oracles_model, assert_oracles_scores, manifest, spec, world
from treetap.errors import TreetapError
from treetap.lattice.histogram_ways import Way
from treetap.party.growth import lattice_values
from treetap.protocols.job_spec import taking_part
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.protocols.prediction import predict_request
from treetap.trees.metrics import evaluate
from treetap.trees.params import ForestParams
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import exchange_pb2, forest_pb2

SMALL = ForestParams(n_estimators=2, max_depth=3, max_bin=6)
#: Worlds with the parameters that are tried on them, beside the shapes of every forest.
CASES: dict[str, tuple[Callable[[], World], ForestParams]] = {
    "records drawn often, in two blocks": (
        partial(world, 4_200, (1, 1, 1)),
        replace(SMALL, n_estimators=1, max_depth=2, bootstrap=True, subsample=1.0, max_bin=3),
    ),
    "second halves that are drawn anew": (
        partial(world, 90, (1, 2, 2), missing=0.1),
        replace(SMALL, n_estimators=1, max_depth=6, max_bin=4, subsample=1.0, colsample_bytree=1.0),
    ),
    "many classes, many bins": (
        partial(world, 300, (0, 1, 1), missing=0.1, objective="multi:softprob", classes=20),
        replace(SMALL, n_estimators=1, max_depth=2, max_bin=255),
    ),
    "as many bins of a node as there may be": (
        partial(world, 400, (0, 1, 1), missing=0.1),
        replace(SMALL, n_estimators=1, max_depth=2, max_bin=255, binning="per-node", colsample_bytree=1.0),
    ),
}


@dataclass(frozen=True)
class Shape:
    """A world's shape and the parameters that are tried on it."""

    world: dict[str, Any]
    params: dict[str, Any] = field(default_factory=dict)


TARGETS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two classes": ({}, {"criterion": "gini"}),
    "seven classes": ({"objective": "multi:softprob", "classes": 7}, {"criterion": "gini"}),
    "numbers": ({"objective": "reg:squarederror"}, {"criterion": "squared_error"}),
}

SHAPES = {
    "three parties": Shape({"dims": (2, 2, 1), "missing": 0.15}, {"max_bin": 8}),
    "label holder without columns": Shape({"dims": (0, 2, 2), "missing": 0.1}, {"max_bin": 6, "min_samples_leaf": 3}),
    "few records and columns": Shape(
        {"dims": (3, 3, 2), "missing": 0.1}, {"subsample": 0.4, "colsample_bytree": 0.4, "seed": 7}
    ),
    "few values, hence ties": Shape({"dims": (2, 2, 2), "levels": 1, "missing": 0.1}, {"max_bin": 32}),
    "a value that means missing": Shape(
        {"dims": (2, 2), "missing": 0.3, "sentinel": -999.0}, {"missing": -999.0, "max_bin": 5}
    ),
    "parties that sit trees out": Shape(
        {"dims": (1, 2, 2), "missing": 0.1},
        {"n_estimators": 4, "party_dropout": {"feature-b": 0.5, "feature-c": 0.6}},
    ),
    "drawn with replacement": Shape({"dims": (2, 0, 2), "n": 50}, {"bootstrap": True, "subsample": 1.0}),
}
#: One of every shape with one of every target, and all others.
WORLDS: list[tuple[str, Any, str]] = [
    ("seven classes", "drawn with replacement", "global"),
    ("numbers", "parties that sit trees out", "global"),
    ("two classes", "three parties", "per-node"),
    *((name, made, "global") for name, made in CASES.items()),
    *product(TARGETS, SHAPES, ("global", "per-node")),
]


def case(target: str, shape: str, **changes: Any) -> tuple[World, ForestParams]:
    of_world, of_params = TARGETS[target]
    base = ForestParams(n_estimators=2, max_depth=3, max_bin=8)
    return world(**of_world, **SHAPES[shape].world), replace(base, **of_params, **SHAPES[shape].params, **changes)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("target", "shape", "binning", "scheme"),
    [
        (target, shape, binning, PAILLIER)
        for target in TARGETS
        for shape in SHAPES
        for binning in ("global", "per-node")
    ],
)
async def test_the_federation_finds_and_uses_the_oracles_forest(
    target: str, shape: str, binning: str, scheme: str, tmp_path: Path
) -> None:
    """Trees and scores are the oracle's, also of new records with NaN where training had none, and encrypted."""
    here, params = case(target, shape, binning=binning)
    oracle = here.oracle(params)
    assert oracle.ties or "hence ties" not in shape or target != "seven classes"

    federation = Federation(tmp_path, here.tables)
    finished(await federation.train(spec(params, len(here.blocks), scheme=scheme)))
    assert_oracles_model(federation.states, oracle)
    assert any(len(tree.nodes) > 1 for tree in oracle)
    for table, protocol, parties, first in (
        ("train", "interactive", here.parties, 0),
        ("", "interactive", here.newcomers, len(here.y)),
        ("", "eini", here.newcomers, len(here.y)),
    ):
        asked = predict_request(model="job", table=table, block=17, protocol=protocol)
        predicted = finished(await federation.predict(asked))
        assert_oracles_scores(predicted.predictions, oracle, parties, first)


def _alone(tree: OracleTree, whole: OracleModel) -> OracleModel:
    """A forest of one of its trees."""
    found = OracleModel(whole.base_margin, 1)
    found.averaged = True
    found.append(tree)
    return found


async def test_measures_are_those_of_the_mean_of_the_trees(tmp_path: Path) -> None:
    """After the last tree the label holder publishes the measures of what the forest predicts for its own records.

    Those out of bag are of the mean over the trees that have not drawn a record, in a resumed job too.
    """
    here, params = case("seven classes", "three parties")
    oracle = here.oracle(params)

    each = np.array([oracle_predict(_alone(tree, oracle), here.parties) for tree in oracle])
    left_out = np.array([params.drawn(t, len(here.y)) == 0 for t in range(len(oracle))])
    known = left_out.any(axis=0)
    assert 2 < known.sum() < len(here.y)
    means = np.nansum(np.where(left_out[:, :, None], each, 0), axis=0)[known] / left_out.sum(axis=0)[known, None]

    federation = Federation(tmp_path, here.tables)
    federation.kill_at("label-holder", lambda message: message.word == "publish" and not message.served, back=True)
    await federation.train(spec(params, len(here.blocks)))
    trained = await federation.resume()
    found = {metric.name: metric.value for metric in trained.metrics}
    assert manifest(federation.state("label-holder"))["training_metrics"] == pytest.approx(found)
    expected = evaluate("gini", np.array(oracle_predict(oracle, here.parties)), here.y)
    out_of_bag = evaluate("gini", means, here.y[known])
    assert found == pytest.approx(
        {f"train_{name}": value for name, value in expected.items()}
        | {f"oob_{name}": value for name, value in out_of_bag.items()}
    )


@pytest.mark.second_tier(but=1)
@pytest.mark.campaign(but=42)  # all shapes and binnings with one target, and one of every target
@pytest.mark.parametrize(("target", "shape", "binning", "way"), [(*each, way) for each in WORLDS for way in Way])
async def test_the_federation_finds_the_oracles_forest(
    target: str, shape: Any, binning: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes and numbers, samples and draws with replacement, missing values, ties, parties that sit trees out."""
    here, params = (shape[0](), shape[1]) if isinstance(shape, tuple) else case(target, shape, binning=binning)
    oracle, chosen, sent = here.oracle(params), take_way(monkeypatch, way), set[tuple[int, int]]()
    once, decide = list[bool](), lattice_values.once_an_attempt

    def decided(*sizes: Any) -> bool:
        once.append(decide(*sizes))
        return once[-1]

    monkeypatch.setattr(lattice_values, "once_an_attempt", decided)

    def seen(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        assert name_of(parcel) != "encrypted_labels"
        if name_of(parcel) == "encrypted_words":
            sent.add((parcel.round, parcel.stage))
        return parcel

    federation = Federation(tmp_path, here.tables)
    federation.tamper = seen
    finished(await federation.train(spec(params, len(here.blocks), scheme=LATTICE)))
    assert_oracles_model(federation.states, oracle)
    assert any(len(tree.nodes) > 1 for tree in oracle)
    await federation.close()
    if Way.QUERIES in chosen:
        assert sent >= {(0, 0), (0, 1)} or params.party_dropout
    elif once[-1]:
        assert sent == {(0, 0)}
        assert not params.bootstrap
    else:
        assert {tree for tree, _ in sent} == set(range(params.n_estimators)) or params.party_dropout


#: Tests of features, of which forests train on a lattice here.
FEATURES: tuple[Callable[..., Any], ...] = (
    test_changed_defences.test_what_a_tree_withheld_stays_hidden,
    test_cell_merging.test_the_federation_finds_the_joined_tables_trees,
    test_eval_table.test_the_model_is_that_of_the_training_and_the_metrics_those_of_the_eval_table,
    test_evaluate.test_the_label_holder_compares_predictions_with_its_labels,
    test_grafted.test_every_way_gives_a_record_the_value_of_its_subtree,
    test_label_dp.test_the_model_is_that_of_the_noisy_labels,
    test_released_sets.test_the_account_is_what_an_audit_of_the_transcripts_finds,
    test_released_sets.test_a_policy_stops_a_job_and_tells_no_figure,
    test_repair.test_a_federation_repairs_as_the_joined_table_does,
    test_released_sets.test_the_federation_finds_the_oracles_trees_and_shows_no_more,
)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("feature", "given"), list(instances(FEATURES, of_forests=True)))
@pytest.mark.parametrize("way", Way)
def test_features(
    way: Way, feature: Callable[..., Any], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models, metrics, accounts and what is shown are those that the feature has under the other schemes."""
    assert carry_out(feature, given, way, tmp_path, monkeypatch)


async def test_second_halves_serve_all_trees_where_a_policy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With replacement, and over trees that the party sits out: they come once, with the first tree of a party."""
    params = replace(
        SMALL, n_estimators=4, colsample_bytree=1.0, bootstrap=True, party_dropout={FEATURE: 0.4, OTHER: 0.6}
    )
    here, halves = world(60, (1, 2, 2), missing=0.1), set[tuple[str, int]]()
    take_way(monkeypatch, Way.QUERIES)

    def seen(sender: str, _: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if parcel.growth.candidate_sums.second_halves:
            halves.add((sender, parcel.round))
        return parcel

    federation = Federation(tmp_path, here.tables, policies={FEATURE: {"keys": {"second_halves": "job"}}})
    federation.tamper = seen
    job = spec(params, scheme=LATTICE)
    finished(await federation.train(job))
    assert_oracles_model(federation.states, here.oracle(params))
    there = {party: [t for t in range(4) if party in taking_part(job, t)] for party in (FEATURE, OTHER)}
    assert halves == {(FEATURE, there[FEATURE][0]), *((OTHER, t) for t in there[OTHER])}
    assert min(map(len, there.values())) > 1


# ---- messages


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_fields(label_slots=1), "2 slots, 1 of all records, are not counts of classes"),
        (with_fields(label_slots=2), "2 slots, 2 of all records, are not counts of classes"),
        (with_fields(slot_widths=[5, 6]), "it comes with slots of 5, 6 bits, the job implies 2 x 6"),
    ],
)
async def test_layouts_that_a_forest_does_not_have(change: Callable[[Any], None], says: str, tmp_path: Path) -> None:
    """The feature party refuses them before a word is encrypted."""

    def tamper(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if to == FEATURE and name_of(parcel) == "public_key":
            change(parcel.setup.public_key)
        return parcel

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = tamper
    failed(await federation.train(ON_LATTICE), f"Malformed: the key of {LABEL_HOLDER} cannot be used: {says}")
    assert not any(message.word == "encrypted_words" for message in federation.log)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_fields(first=1), "label-holder sent words out of place in tree 0"),
        (with_fields(node=2), "label-holder sent words out of place in tree 0"),
        (with_fields(count=15), "words of 15 records from 0 on are not those that are due"),
        (with_fields(ciphertexts=b""), "words of 4112 records from 0 on are not those that are due"),
    ],
)
async def test_shared_words_that_cannot_be(change: Callable[[Any], None], says: str, tmp_path: Path) -> None:
    """Those that serve all trees are checked before the first tree; then the job is resumed."""
    job, oracle = JOBS["by sets"]

    def tamper(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if (to, name_of(parcel)) == (FEATURE, "encrypted_words"):
            change(parcel.growth.encrypted_words)
        return parcel

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = tamper
    failed(await federation.train(job), "Malformed: ", says)
    assert not any(message.word in ("begin_tree", "candidate_sums") for message in federation.log)
    federation.tamper = None
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, oracle)


async def test_first_halves_under_second_halves_of_another_node_are_no_sums(tmp_path: Path) -> None:
    """Each node has its own: the root's first halves in the place of a child's open to noise."""
    job, _ = JOBS["by sets"]
    kept: list[bytes] = []

    def swapped(sender: str, _: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        content = parcel.growth.candidate_sums
        if (sender, parcel.round) == (FEATURE, 0) and content.ciphertexts:
            kept.append(content.ciphertexts)
            content.ciphertexts = kept[0]
        return parcel

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = swapped
    failed(await federation.train(job), f"Malformed: {FEATURE} has offered what is no sum over its columns")


async def test_labels_under_a_key_do_not_come_to_a_job_on_a_lattice(tmp_path: Path) -> None:
    """A feature party files no content that its job does not have."""
    refused: list[Any] = []

    federation = Federation(tmp_path, HERE.tables)

    async def further(parcel: exchange_pb2.PeerMessage) -> None:
        filled(parcel, "encrypted_labels", forest_pb2.EncryptedLabels(count=16, ciphertexts=bytes(16 * 256)))
        with pytest.raises(TreetapError) as failure:
            await federation.node(FEATURE).deliver(LABEL_HOLDER, parcel)
        refused.append(str(failure.value))

    tasks: list[asyncio.Task[None]] = []

    def seen(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if to == FEATURE and name_of(parcel) == "public_key":
            tasks.append(asyncio.ensure_future(further(type(parcel).FromString(parcel.SerializeToString()))))
        return parcel

    federation.tamper = seen
    finished(await federation.train(ON_LATTICE))
    await asyncio.gather(*tasks)
    await federation.close()
    assert len(refused) == 1
    assert "encrypted_labels" in refused[0]
