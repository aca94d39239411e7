"""Instance spaces that are withheld.

- Instance spaces withheld: the model stays the oracle's, and encrypted predictions by it give its scores.
- Instance spaces withheld: policies, left sets and predictions that cannot be, and what is kept of such a job.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests import worlds
from tests.boosting import test_base_model, test_categories
from tests.boosting.categories import categorical_world
from tests.defences import test_label_dp, test_repair
from tests.growth import test_eval_table, test_monotone
from tests.lattice_ways import in_own_loop, instances, predict_by_eini
from tests.oracle import OracleLeaf
from tests.simulator import Federation, Message, failed, finished, run
from tests.worlds import (
    PARTIES,
    World,
    assert_oracles_model,
    assert_oracles_scores,
    joined_model,
    lattice_tolerance,
    manifest,
    spec,
    world,
)
from treetap.errors import Malformed
from treetap.lattice.histogram_ways import MIB
from treetap.models.store import read_leakage, read_model
from treetap.party.defences.settings import Defences, IdLmid, LabelDp, ReducedLeakage
from treetap.privacy.label_dp import staged
from treetap.protocols.job_spec import params_of, put_params
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.expansion import ExpansionRules
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2, setup_pb2, transcript_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

LABEL_HOLDER, FEATURE, OTHER = PARTIES
SMALL = BoostingParams(
    n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.1, instance_spaces="withheld", subsample=0.9
)
PADDED = replace(SMALL, pad_trees=True)
#: A policy under which names and attributions are sent.
NAMES = {"emits": {"EXPLANATION": ["parties"], "FEATURE_NAME": ["parties"]}}
#: Messages that show a set of records or its size.
SHOWN = {"sampled_records", "instance_spaces"}
HERE = world(60, (1, 2, 2), missing=0.1)
N = len(HERE.y)
ORACLE = HERE.oracle(SMALL)
WITH_DATA = {"encrypted_words", "candidate_sums"}


def job_of(params: TreeParams, parties: int = 3, **changes: Any) -> setup_pb2.JobSpec:
    """A job on a lattice."""
    return spec(params, parties, scheme=LATTICE, **changes)


THREE = partial(world, 90, (1, 2, 2), missing=0.1)


@dataclass(frozen=True)
class Case:
    """A world, the parameters that are tried on it, and how its tables are read."""

    params: TreeParams
    world: Callable[[], World] = THREE
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "padded, missing values, drawn records": Case(replace(PADDED, max_depth=4, gamma=0.5)),
    "classes in vector leaves": Case(
        replace(SMALL, objective="multi:softprob", multi_strategy="multi_output_tree"),
        partial(world, 80, (1, 2, 2), objective="multi:softprob", classes=3),
    ),
    "a tree for each class, best split first": Case(
        replace(SMALL, objective="multi:softprob", grow_policy="lossguide", max_leaves=5, n_estimators=1),
        partial(world, 80, (1, 2, 2), objective="multi:softprob", classes=3, missing=0.1),
    ),
    "ties of few values, padded, limited leaves": Case(
        replace(PADDED, max_leaves=5), partial(world, 80, (2, 2, 2), levels=1, missing=0.1)
    ),
    "parties that sit trees out, padded": Case(
        replace(PADDED, n_estimators=4, party_dropout={FEATURE: 0.4, OTHER: 0.6})
    ),
    "label holder without columns, early stopping": Case(
        replace(SMALL, n_estimators=4, early_stopping_rounds=1, validation_share=0.25),
        partial(world, 80, (0, 2, 2), missing=0.1),
    ),
    "more padded leaves than records": Case(
        replace(PADDED, max_depth=7, n_estimators=1), partial(world, 20, (1, 1, 1))
    ),
    "a forest of drawn records, padded": Case(
        ForestParams(n_estimators=3, max_depth=3, max_bin=6, bootstrap=True, instance_spaces="withheld", pad_trees=True)
    ),
    "a forest of numbers": Case(
        ForestParams(n_estimators=2, max_depth=3, max_bin=6, criterion="squared_error", instance_spaces="withheld"),
        partial(world, 70, (1, 2, 2), objective="reg:squarederror", missing=0.1),
    ),
    "categories, padded": Case(
        replace(PADDED, max_cat_to_onehot=4, subsample=1.0),
        lambda: categorical_world(120, {LABEL_HOLDER: (3,), FEATURE: (6, 0), OTHER: (3, 0)}, missing=0.1, seed=3),
        {
            "encode": "categorical",
        },
    ),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
async def test_the_federation_finds_and_uses_the_oracles_model(case: str, tmp_path: Path) -> None:
    """Node for node; no message holds a set of records of the label holder's; encrypted predictions give its scores."""
    params, here, options = CASES[case].params, CASES[case].world(), CASES[case].options
    oracle = here.oracle(params)

    federation = Federation(tmp_path, here.tables, **options)
    finished(await federation.train(job_of(params, len(here.blocks))))
    assert_oracles_model(federation.states, oracle)
    words = {message.word for message in federation.log}
    assert words >= {"encrypted_words", "won_splits", "left_choices", "children", "leaf_paths"}
    assert not words & SHOWN
    for protocol, within in (("eini", 1e-6), ("eini-lattice", lattice_tolerance(oracle))):
        given = {"key_bits": 1024} if protocol == "eini" else {}
        asked = predict_request(protocol, model="job", block=40, **given)
        predicted = finished(await federation.predict(asked))
        assert_oracles_scores(predicted.predictions, oracle, here.newcomers, len(here.y), within)


#: Tests of features, whose jobs withhold instance spaces here, and pad trees where they can.
FEATURES: tuple[Callable[..., Any], ...] = (
    test_base_model.test_a_continued_model_is_the_oracles,
    test_base_model.test_splits_of_categories_are_continued,
    test_categories.test_the_model_is_the_oracles,
    test_eval_table.test_the_model_is_that_of_the_training_and_the_metrics_those_of_the_eval_table,
    test_monotone.test_bounds_hold_in_subtrees_that_the_label_holder_grows_alone,
    test_monotone.test_partitions_of_categories_beside_constraints,
    test_label_dp.test_the_model_is_that_of_the_noisy_labels,
    test_repair.test_a_federation_repairs_as_the_joined_table_does,
)

#: Of these those that have forests too.
FEATURES_OF_FORESTS: tuple[Callable[..., Any], ...] = (
    test_eval_table.test_the_model_is_that_of_the_training_and_the_metrics_those_of_the_eval_table,
    test_repair.test_a_federation_repairs_as_the_joined_table_does,
    test_label_dp.test_the_model_is_that_of_the_noisy_labels,
)


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("feature", "given"),
    [*instances(FEATURES, of_forests=False), *instances(FEATURES_OF_FORESTS, of_forests=True)],
)
def test_features(
    feature: Callable[..., Any], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models, metrics and scores are those that the feature has where instance spaces are sent."""
    trained, words = list[TreeParams](), set[str]()
    train = Federation.train

    async def withholding(federation: Federation, job: setup_pb2.JobSpec, *args: Any, **more: Any) -> Any:
        params = params_of(job)
        assert isinstance(params, TreeParams)
        if params.bins_per_node:
            pytest.skip("bins of each node and instance spaces withheld do not go together")
        repaired = any(own.private_values for own in federation.defences.values())  # compared with trees as they are
        stops = isinstance(params, BoostingParams) and params.early_stopping_rounds is not None
        pads = not (stops or params.expansion.one_by_one or repaired)
        trained.append(replace(params, instance_spaces="withheld", pad_trees=pads))
        put_params(job, trained[-1])
        status = await train(federation, job, *args, **more)
        words.update(message.word for message in federation.log)
        return status

    monkeypatch.setattr(worlds, "default_scheme", LATTICE)
    monkeypatch.setattr(Federation, "train", withholding)
    predict_by_eini(monkeypatch)
    in_own_loop(feature, given, tmp_path, monkeypatch)
    assert trained
    assert "encrypted_words" in words
    assert not words & SHOWN


DEFENDED: dict[str, Defences] = {
    "sets withdrawn, first trees alone": Defences(id_lmid=IdLmid(xi=0.3), reduced_leakage=ReducedLeakage(trees=1)),
    "repaired": Defences(label_dp=LabelDp(epsilon=1.0), grafting=True, refit=True),
}


@pytest.mark.second_tier
@pytest.mark.parametrize("case", DEFENDED)
def test_padded_leaves_have_the_values_of_local_subtrees(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees of defences, padded or not, are the same and give the same scores and, by entries, attributions."""
    here = world(60, (2, 2, 2), seed=3)
    scores = list[Any]()

    async def main(params: BoostingParams, folder: Path) -> None:
        fixed = random.Random(1).randrange
        monkeypatch.setattr("treetap.party.defences.noisy_labels.staged", lambda *drawn: staged(*drawn[:-1], fixed))
        federation = Federation(folder, here.tables, defences={LABEL_HOLDER: DEFENDED[case]})
        finished(await federation.train(job_of(params)))
        lines = read_model(federation.state(LABEL_HOLDER) / "models" / "job")[1]
        assert [line["tree"].pop("padded", 0) for line in lines] == [3 * params.pad_trees] * 3
        shards = [read_model(federation.state(party) / "models" / "job")[1] for party in PARTIES[1:]]
        assert {len(line["leaves"]) == 8 for shard in shards for line in shard} >= {params.pad_trees}
        scores.append([line["tree"] for line in lines])
        for protocol, given in (("eini", {"key_bits": 1024}), ("eini-lattice", {})):
            predicted = finished(await federation.predict(predict_request(protocol, model="job", **given)))
            scores.append(pq.read_table(predicted.predictions).column("score").to_pylist())
        await federation.close()

    params = replace(SMALL, n_estimators=3, subsample=1.0, min_child_weight=0.5)
    run(main(params, tmp_path / "as they are"))
    run(main(replace(params, pad_trees=True), tmp_path / "padded"))
    trees, padded = scores[:3], scores[3:]
    assert trees[0] == padded[0]
    assert any(tree["local"] for tree in trees[0]) or case == "repaired"
    assert trees[1] == pytest.approx(padded[1], abs=1e-8)
    assert trees[2] == pytest.approx(padded[2], abs=1e-3)


@pytest.mark.second_tier
async def test_attributions_and_explanations_of_padded_trees(tmp_path: Path) -> None:
    """Encrypted ones: values that add up to the score, and the paths of the trees as they are."""
    here = CASES["padded, missing values, drawn records"].world()
    oracle = here.oracle(PADDED)

    federation = Federation(tmp_path, here.tables, policies={FEATURE: NAMES, OTHER: NAMES})
    assert (await federation.train(job_of(PADDED))).state == "finished"
    asked = predict_request("eini", model="job", key_bits=1024, attributions=True, explain=True)
    predicted = finished(await federation.predict(asked))
    assert_oracles_scores(predicted.predictions, oracle, here.newcomers, len(here.y), 1e-8)
    table = pq.read_table(predicted.attributions)
    parts = [table.column(name).to_numpy() for name in table.column_names if ":" in name or name == "expected"]
    assert sum(parts) == pytest.approx(table.column("score").to_numpy(), abs=1e-8)
    leaves = [{number for number, node in tree.nodes.items() if isinstance(node, OracleLeaf)} for tree in oracle]
    for paths in pq.read_table(predicted.explanations).column("paths").to_pylist():
        assert {path["leaf"] for path in paths if path["tree"] == 0} <= leaves[0]


def test_sums_over_no_records_are_treated_as_others() -> None:
    """Those of a node that a padded tree does not have: dropped, and refused where a node's own would be."""
    values = np.array([[2, 1, 1], [-2, 1, 1], [2, 1, 1], [-2, 1, 1]], dtype=np.int64)
    criterion = BoostingCriterion(1.0, BoostingParams())
    tree = GrowingTree(values, criterion, ExpansionRules(3), subtract=True, left_first=True, padded=True)
    tree.next_stage()  # nothing was chosen
    assert (tree.build, tree.asked) == ([], [2])
    assert not len(tree.rows_asked(2))
    assert tree.take_asked(np.zeros((1, 5, 3), dtype=np.int64)).shape == (0, 5, 3)
    assert not len(tree.take_asked(np.ones((1, 5, 3), dtype=np.int64)))
    tree.check_offered(np.array([[[2, 1, 4]]]))
    with pytest.raises(Malformed, match="sums of node 2 are such that no records"):
        tree.check_offered(np.array([[[2, 1, 5]]]))
    tree.next_stage()
    assert tree.asked == [4, 6]
    tree.next_stage()
    assert tree.asked == []


def test_a_nodes_size_does_not_show_by_what_is_refused() -> None:
    """Sums of more records than a node has, but no more than the tree: taken where the party does not know its size."""
    values = np.array([[g << 30, 1 << 30, 1] for g in (2, -2, 2, -2, -2, 2)], dtype=np.int64)
    for withheld in (False, True):
        criterion = BoostingCriterion(1.0, BoostingParams(min_child_weight=0.0))
        tree = GrowingTree(values, criterion, ExpansionRules(3), subtract=True, left_first=withheld)
        tree.take_candidates([np.array([[values[[0, 2]].sum(axis=0)]])], [()])
        (choice,) = tree.choose()
        tree.split(choice.node, 0, np.array([0, 2]))
        tree.next_stage()
        more = values[:3].sum(axis=0)[np.newaxis, np.newaxis]
        assert (tree.build, len(tree.rows[2]), more[0, 0, 2]) == ([2], 2, 3)
        if withheld:
            tree.check_offered(more)
        else:
            with pytest.raises(Malformed, match="sums of node 2 are such that no records"):
                tree.check_offered(more)


async def test_a_node_that_the_party_did_not_offer_is_not_split(tmp_path: Path) -> None:
    """A label holder that names another node as won, or the same one twice."""
    seen: list[int] = []

    def forge(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if to == FEATURE and name_of(parcel) == "won_splits" and parcel.growth.won_splits.splits:
            split = parcel.growth.won_splits.splits[0]
            seen.append(split.node)
            split.node = 6 if len(seen) == 1 else split.node
        return parcel

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = forge
    failed(await federation.train(job_of(SMALL)), "of tree 0, a winning candidate of node 6, which is not to be split")


async def test_what_is_kept_of_such_a_job(tmp_path: Path) -> None:
    """Manifests, a continued model's too; accounts of sets and cells; own splits over all records; predictions."""
    continued = replace(SMALL, instance_spaces="sent", n_estimators=1)

    federation = Federation(tmp_path, HERE.tables, record="both")
    assert (await federation.train(job_of(SMALL), "before")).state == "finished"
    assert (await federation.train(job_of(continued, base_model="before"))).state == "finished"
    for model in ("before", "job"):
        for state in federation.states.values():
            assert manifest(state, model)["instance_spaces"] == "withheld"
        predicted = failed(await federation.predict(predict_request(job=f"by-{model}", model=model)), bad_input=True)
        assert re.search(
            f"model {model}: a model that was trained with instance_spaces = 'withheld' and protocol 'interactive' "
            "do not go together: .*; use protocol eini or eini-lattice",
            predicted.error,
        ), predicted.error
    await federation.close()
    trees = joined_model(federation.states, "before")
    assert_oracles_model(federation.states, ORACLE, "before")
    accounts = read_leakage(federation.state(LABEL_HOLDER) / "models" / "before")
    for tree, account in zip(trees, accounts, strict=True):
        owners = {node: what[1] for node, what in tree.items() if what[0] == "split"}
        for party in PARTIES[1:]:
            # The nodes below splits of a party alone.
            assert account["parties"][party]["sets"] == sum(
                2 for node in owners if all(owners[node >> up] == party for up in range(node.bit_length()))
            )
    assert sum(account["parties"][party]["sets"] for account in accounts for party in PARTIES[1:])
    for party in PARTIES[1:]:
        for split in _own_splits(federation.state(party) / "transcripts" / "before"):
            left, right = (rows_of(chunks, N).tolist() for chunks in (split.left, split.right))
            assert sorted([*left, *right]) == list(range(N))


def _own_splits(folder: Path) -> list[transcript_pb2.OwnSplit]:
    records = [record for record in TranscriptReader(folder) if record.kind == TranscriptRecord.OWN]
    kind = transcript_pb2.OwnSplit.DESCRIPTOR.full_name
    return [transcript_pb2.OwnSplit.FromString(each.message) for each in records if each.message_type == kind]


@pytest.mark.second_tier
def test_bytes_are_named_before_the_first_tree(tmp_path: Path) -> None:
    """Those of words and sums, as layout gives them: a padded job takes just these, another one fewer."""
    named: list[int] = []

    async def main(params: BoostingParams, folder: Path) -> tuple[int, int]:
        federation = Federation(folder, HERE.tables)

        def hook(message: Message) -> None:
            if message.word == "begin_tree" and not message.served:
                named.append(federation.jobs.status("job")[0].planned_bytes)

        federation.hook = hook
        status = await federation.train(job_of(params))
        await federation.close()
        rows = [row for each in status.accounts for row in each.account.traffic]
        data = ("CIPHERTEXT", "CANDIDATE_SUM")
        sent = (row.bytes for row in rows if row.step in WITH_DATA and row.disclosure in data)
        assert status.planned_mib > MIB[0][0]  # what a party holds at least
        return status.planned_bytes, sum(sent)

    planned, sent = run(main(PADDED, tmp_path / "padded"))
    assert planned == pytest.approx(sent, rel=1e-3)  # frames of messages are not counted
    assert set(named) == {planned}
    more, fewer = run(main(replace(SMALL, max_depth=5), tmp_path / "not padded"))
    assert more > planned
    assert fewer < more
