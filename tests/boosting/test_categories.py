"""Splits of categories in a federation: the naive trainer's model of the joined table, node for node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.boosting.categories import categorical_world
from tests.growth.evaluated import with_eval_table
from tests.needs import needs_library_of
from tests.oracle import oracle_predict, oracle_train
from tests.simulator import COORDINATOR, Faults, Federation, Message, finished
from tests.worlds import (
    PARTIES,
    World,
    assert_oracles_model,
    assert_oracles_scores,
    joined_model,
    lattice_tolerance,
    spec,
)
from treetap.attacks.sections import tree_rows
from treetap.attacks.view.known_trees import expected_views
from treetap.attacks.view.view import read_view
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_history, read_model
from treetap.party.defences.settings import Defences
from treetap.party.growth.messages import partition_messages
from treetap.protocols.prediction import predict_request
from treetap.trees.binning import bin_table
from treetap.trees.candidates import Partition
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.v2 import exchange_pb2, growth_pb2

ALLOWED = {party: {"columns": {"category_partitions": True}} for party in PARTIES}
BASE = {"n_estimators": 2, "max_depth": 3, "max_bin": 8}


def federation(tmp_path: Path, here: World, policies: dict[str, Any] | None = None) -> Federation:
    """The parties of a world, their columns of text encoded as categories."""
    return Federation(tmp_path, here.tables, policies=policies, encode="categorical")


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no cell missing": ({}, {}),
    "cells missing": ({"missing": 0.15}, {"min_child_weight": 2.0}),
    "few records": ({"n": 24, "missing": 0.3}, {"min_child_weight": 0.0}),
    "small sets": ({"missing": 0.1}, {"max_cat_threshold": 3, "max_cat_to_onehot": 2, "subsample": 0.8}),
    "a tree per class": (
        {"objective": "multi:softprob", "classes": 3, "missing": 0.1},
        {"objective": "multi:softprob", "n_estimators": 1},
    ),
    "by lossguide": ({"missing": 0.1}, {"grow_policy": "lossguide", "max_leaves": 5, "max_depth": 4}),
    "sampled": ({"missing": 0.1}, {"subsample": 0.9}),
    "numbers": ({"objective": "reg:squarederror", "n": 60}, {"objective": "reg:squarederror", "reg_alpha": 0.1}),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_model_is_the_oracles(shape: str, tmp_path: Path) -> None:
    """Partitions of every party's categories, one against the rest, and cuts; predictions with categories not seen."""
    shaped, more = SHAPES[shape]
    here, params = categorical_world(**shaped), BoostingParams(**{**BASE, **more})
    oracle = here.oracle(params)

    parties = federation(tmp_path, here, ALLOWED)
    finished(await parties.train(spec(params)))
    assert_oracles_model(parties.states, oracle)
    for protocol in ("interactive", "eini"):
        request = predict_request(protocol, job=f"by-{protocol}", model="job", table="predict")
        found = finished(await parties.predict(request))
        assert_oracles_scores(found.predictions, oracle, here.newcomers, len(here.y))
    await parties.close()
    trees = joined_model(parties.states)
    cuts = [node[3] for tree in trees for node in tree.values() if node[0] == "split"]
    assert any(isinstance(each, tuple) and len(each) > 1 for each in cuts)


async def _trained(parties: Federation, params: BoostingParams, **changes: Any) -> str:
    """The error of a job; empty if it finished."""
    status = await parties.train(spec(params, **changes))
    await parties.close()
    return "" if status.state == "finished" else status.error


OWN_ALONE: dict[str, Any] = {"columns": {"label-holder": (9, 6), "feature-b": (0, 0)}}


@pytest.mark.parametrize(
    ("shaped", "more", "feature_parties"),
    [({"missing": 0.1}, {"max_cat_to_onehot": 8}, PARTIES[1:]), (OWN_ALONE, {}, ["feature-b"])],
    ids=["one against the rest", "partitions of the label holder's own"],
)
async def test_without_the_switch_no_message_has_a_partition(
    shaped: dict[str, Any], more: dict[str, Any], feature_parties: list[str], tmp_path: Path
) -> None:
    """With a max_cat_to_onehot above all of a feature party's categories, and of the label holder's own columns."""
    here, params = categorical_world(**shaped), BoostingParams(**BASE, **more)

    parties = federation(tmp_path, here)
    assert await _trained(parties, params, feature_parties=feature_parties) == ""
    assert_oracles_model(parties.states, here.oracle(params))
    assert not any(message.word == "chosen_partitions" for message in parties.log)


@pytest.mark.second_tier
async def test_a_party_that_sits_out_and_records_withheld(tmp_path: Path) -> None:
    """Sums of categories come and go with their party; ID-LMID forbids partitions as it does other candidates."""
    here = categorical_world(missing=0.1)
    dropped = BoostingParams(**BASE | {"n_estimators": 3}, party_dropout={"feature-b": 0.6}, seed=3)
    plain = BoostingParams(**BASE)
    limit = {"label-holder": Defences.model_validate({"id_lmid": {"xi": 0.3}, "reduced_leakage": {"trees": 1}})}

    parties = Federation(tmp_path / "a", here.tables, policies=ALLOWED, encode="categorical")
    assert await _trained(parties, dropped) == ""
    assert_oracles_model(parties.states, here.oracle(dropped))
    parties = Federation(tmp_path / "b", here.tables, policies=ALLOWED, encode="categorical", defences=limit)
    assert await _trained(parties, plain) == ""
    oracle = oracle_train(here.parties, list(here.y), plain, 2, 0.3, 1, categories=here.categories)
    assert_oracles_model(parties.states, oracle)


@pytest.mark.parametrize(
    ("params", "constraints", "faults"),
    [
        (ForestParams(n_estimators=1), {}, ["column 'r0' is encoded as 'categorical', which boosting with"]),
        (
            BoostingParams(objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1),
            {},
            ['multi_strategy = \'one_output_per_tree\' alone can split: use encode = "ordinal" or "one-hot"'],
        ),
        (
            BoostingParams(**BASE, objective="multi:softprob"),
            {"feature-b": {"b0": 1}},
            ["monotone_constraints names column 'b0', whose categories have no order", 'encode = "ordinal"'],
        ),
    ],
    ids=["a forest", "trees of several outputs", "a constraint"],
)
async def test_what_categories_do_not_go_with_is_refused_before_anything_is_sent(
    params: Any, constraints: dict[str, Any], faults: list[str], tmp_path: Path
) -> None:
    """The column and the cure are named; texts have no order unless the file says so."""
    here = categorical_world(objective="multi:softprob", classes=3)

    parties = Federation(tmp_path, here.tables, policies=ALLOWED, encode="categorical", constraints=constraints)
    error = await _trained(parties, params)
    assert [fault for fault in faults if fault not in error] == []
    # The messages of parties to each other.
    assert not [each for each in parties.log if COORDINATOR not in (each.sender, each.to)]


async def test_a_bad_network_and_a_killed_owner_change_nothing(tmp_path: Path) -> None:
    """Messages with partitions are lost, doubled and late, and their receiver dies with one unread: the same model."""
    here, params = categorical_world(missing=0.1), BoostingParams(**BASE)

    faults = Faults(drop=0.05, lose_reply=0.05, double=0.1, delay_s=0.5, late_s=3.0, seed=5)
    parties = Federation(tmp_path, here.tables, policies=ALLOWED, encode="categorical", faults=faults)
    killed = False

    def hook(message: Message) -> None:
        nonlocal killed
        if message.word == "chosen_partitions" and message.served and not killed:
            killed = True
            parties.restart(message.to)

    parties.hook = hook
    status = await parties.train(spec(params))
    if status.state == "interrupted":
        status = await parties.resume()
    assert (status.state, killed) == ("finished", True), status.error
    assert_oracles_model(parties.states, here.oracle(params))


@pytest.mark.second_tier
async def test_other_predictions_follow_sets_of_categories(tmp_path: Path) -> None:
    """Fed-EINI on lattices gives the oracle's scores, and attributions add up to them, of categories not seen too."""
    needs_library_of("eini-lattice")
    here, params = categorical_world(missing=0.1), BoostingParams(**BASE)
    oracle = here.oracle(params)
    policies = {party: {**switch, "emits": {"EXPLANATION": [PARTIES[0]]}} for party, switch in ALLOWED.items()}

    parties = federation(tmp_path, here, policies)
    assert (await parties.train(spec(params, obfuscation="standard"))).state == "finished"
    found = finished(
        await parties.predict(predict_request("eini-lattice", job="lattice", model="job", table="predict"))
    )
    assert_oracles_scores(found.predictions, oracle, here.newcomers, len(here.y), lattice_tolerance(oracle))
    found = finished(
        await parties.predict(predict_request("eini", job="shapley", model="job", table="predict", attributions=True))
    )
    table = pq.read_table(found.attributions)
    parts = np.sum(
        [table.column(name).to_numpy() for name in table.column_names if name not in ("id", "score")], axis=0
    )
    expected = np.array(oracle_predict(oracle, here.newcomers))[:, 0]
    np.testing.assert_allclose(parts, expected, atol=1e-6)


@pytest.mark.second_tier
async def test_views_and_explanations_have_sets_of_categories(tmp_path: Path) -> None:
    """A transcript's own splits, the view from it, the expected view, decision paths and the stored model."""
    here, params = categorical_world(missing=0.1), BoostingParams(**BASE)

    parties = Federation(tmp_path, here.tables, policies=ALLOWED, encode="categorical", record="received")
    assert (await parties.train(spec(params, obfuscation="standard"))).state == "finished"
    request = predict_request("eini", job="explained", model="job", table="predict", explain=True)
    explained = finished(await parties.predict(request))
    await parties.close()
    paths = pq.read_table(explained.explanations).to_pylist()
    texts = {text for row in paths for path in row["paths"] for text in path["conditions"]}
    assert any(re.fullmatch(r"r0 not in \{kind \d\d(, kind \d\d)*\}( or missing)?", text) for text in texts), texts
    owner = PARTIES[1]
    view = read_view(parties.state(owner) / "transcripts" / "job", party=owner)
    tables = [
        (name, bin_table(block, columns, 8, categories=_counts(here, name)))
        for (name, block), (columns, _) in zip(here.parties, here.tables.values(), strict=True)
    ]
    model = train(tables, here.y, params)
    expected = expected_views(model, here.parties, owner, here.tables[owner][0])
    for ours, theirs in zip(expected, view.trees, strict=True):
        assert {u: node.split for u, node in ours.nodes.items()} == {u: n.split for u, n in theirs.nodes.items()}
    rows = [node for tree in tree_rows(view, None) for node in tree["nodes"] if "categories" in node]
    assert rows
    assert all(node["threshold"] is None for node in rows)
    own, lines = read_model(parties.state(owner) / "models" / "job")
    splits = [OwnSplit.from_dict(split) for line in lines for split in line["splits"] if "categories" in split]
    assert [len(node["categories"]) for node in rows] == [len(split.categories or ()) for split in splits]
    assert all(split.condition(own, left=False).startswith(f"{split.feature_name(own)} in {{kind ") for split in splits)


def _counts(here: World, party: str) -> dict[str, int]:
    return {here.tables[party][0][j]: count for (owner, j), count in here.categories.items() if owner == party}


async def test_records_of_an_eval_table_have_other_categories(tmp_path: Path) -> None:
    """Those that training has not seen go left, and so do missing cells where training had none; no sum has them."""
    evaluating = with_eval_table(categorical_world(fresh=40))
    here, params = evaluating.here, BoostingParams(**BASE, max_cat_threshold=3)
    oracle = here.oracle(params)

    parties = federation(tmp_path, here, ALLOWED)
    finished(await parties.train(spec(params, eval_table="eval")))
    assert_oracles_model(parties.states, oracle)
    for number, found in enumerate(read_history(parties.state(PARTIES[0]) / "models" / "job"), start=1):
        expected = evaluating.metrics(oracle, params, number)
        assert {name: found[name] for name in expected} == pytest.approx(expected)


def _tampering(change: Any, kind: str) -> Any:
    def tamper(sender: str, receiver: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if parcel.growth.WhichOneof("body") == kind:
            change(getattr(parcel.growth, kind))
        return parcel

    return tamper


def _too_many(body: growth_pb2.CandidateSums) -> None:
    if body.partitioned:
        body.partitioned[0] += 1000


def _all_right(body: growth_pb2.ChosenPartitions) -> None:
    for each in body.partitions:
        each.right = b"\xff" * len(each.right)


def _foreign_column(body: growth_pb2.ChosenPartitions) -> None:
    for each in body.partitions:
        each.column = 7


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("kind", "change", "fault"),
    [
        ("candidate_sums", _too_many, "says that sums over 10.. categories are among .* of tree 0"),
        ("chosen_partitions", _all_right, "does not divide the categories of its column"),
        ("chosen_partitions", _foreign_column, "a partition of column 7 of . that were offered"),
    ],
)
async def test_untrue_partitions_are_found(kind: str, change: Any, fault: str, tmp_path: Path) -> None:
    """Sums that are not there, sets that divide nothing, and columns that were not offered end the job by name."""
    here = categorical_world()

    parties = federation(tmp_path, here, ALLOWED)
    parties.tamper = _tampering(change, kind)
    error = await _trained(parties, BoostingParams(**BASE))
    assert re.search(fault, error), error


def test_a_message_of_partitions_is_as_long_for_any_outcome() -> None:
    """A node that another candidate won, a small column's partition, a large one's, and both have the same length."""
    sizes = [3, 40]
    small, large = Partition(0, (1,), missing_left=True), Partition(1, (0, 39), missing_left=False)
    outcomes: list[list[Partition]] = [[], [small], [large], [small, large]]
    bodies = [next(iter(partition_messages({5: each}, sizes))) for each in outcomes]
    assert len({body.counted.ByteSize() for body in bodies}) == 1
    assert {len(body.body.partitions) for body in bodies} == {len(sizes)}
    assert len({len(each.right) for body in bodies for each in body.body.partitions}) == 1
    assert [sum(bool(each.column) for each in body.body.partitions) for body in bodies] == [0, 1, 1, 2]
