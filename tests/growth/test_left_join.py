"""`join = "left"`: the model of records that feature parties lack is that of the table joined from the left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.boosting.categories import categorical_world
from tests.campaign.cipher import KeysMade, ciphers
from tests.growth.evaluated import with_eval_table
from tests.library.trees.tables import drawn_weights
from tests.oracle import oracle_predict, oracle_train
from tests.serving.served import ask, config, serve
from tests.simulator import DEALER, Federation, failed, finished, run
from tests.worlds import (
    PARTIES,
    World,
    assert_oracles_model,
    assert_oracles_scores,
    joined_model,
    lacking,
    lattice_tolerance,
    manifest,
    spec,
    weighted,
    world,
)
from treetap.errors import ConfigError
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_history, read_model
from treetap.party.alignment import pairs as alignment
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.protocols.prediction import predict_request
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, prediction_pb2, setup_pb2

HOLDER, B, C = PARTIES
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
FOREST = ForestParams(n_estimators=2, max_depth=3, max_bin=6)


@dataclass(frozen=True)
class Case:
    """A training of records of which each feature party lacks a `share`."""

    params: TreeParams
    world: dict[str, Any] = field(default_factory=dict)
    share: float = 0.4
    scheme: str = PAILLIER
    weighted: bool = False
    shared: bool = False
    predicts: tuple[str, ...] = ("interactive", "eini")


CASES = {
    "boosting": Case(BOOSTING, {"dims": (2, 2, 1), "missing": 0.15}),
    "boosting on a lattice": Case(BOOSTING, {"dims": (2, 2, 1), "missing": 0.15}, scheme=LATTICE),
    "two parties, the label holder without columns": Case(BOOSTING, {"dims": (0, 3)}, share=0.6),
    "no record is lacked": Case(BOOSTING, {"dims": (2, 2)}, share=0.0),
    "classes, sampled": Case(
        replace(BOOSTING, objective="multi:softprob", multi_strategy="one_output_per_tree", subsample=0.7),
        {"dims": (1, 2, 2), "objective": "multi:softprob", "classes": 3},
    ),
    "weights, a regression, on a lattice": Case(
        replace(BOOSTING, objective="reg:squarederror", max_sample_weight=7.5),
        {"dims": (1, 2, 2), "objective": "reg:squarederror", "n": 50},
        scheme=LATTICE,
        weighted=True,
    ),
    "split by split, dropout": Case(
        replace(BOOSTING, grow_policy="lossguide", max_leaves=5, party_dropout={"feature-b": 0.5}, n_estimators=4),
        {"dims": (1, 2, 2), "levels": 2},
    ),
    "withheld": Case(
        replace(BOOSTING, instance_spaces="withheld"),
        {"dims": (2, 2, 1), "missing": 0.15},
        scheme=LATTICE,
        predicts=("eini", "eini-lattice"),
    ),
    "withheld and padded, of a label holder without columns": Case(
        replace(BOOSTING, instance_spaces="withheld", pad_trees=True),
        {"dims": (0, 3)},
        share=0.6,
        scheme=LATTICE,
        predicts=("eini-lattice",),
    ),
    "a withheld forest": Case(
        replace(FOREST, instance_spaces="withheld"),
        {"dims": (1, 2, 2)},
        scheme=LATTICE,
        predicts=("eini",),
    ),
    "shared sums": Case(
        replace(BOOSTING, instance_spaces="withheld", max_depth=2),
        {"dims": (2, 2, 1), "missing": 0.15, "levels": 3},
        scheme=LATTICE,
        shared=True,
        predicts=("eini",),
    ),
    "shared sums of padded trees, weighted, one feature party": Case(
        replace(BOOSTING, instance_spaces="withheld", pad_trees=True, max_depth=2, max_sample_weight=7.5),
        {"dims": (0, 3)},
        share=0.6,
        scheme=LATTICE,
        weighted=True,
        shared=True,
        predicts=("eini",),
    ),
    "a forest of shared sums": Case(
        replace(FOREST, instance_spaces="withheld", max_depth=2),
        {"dims": (1, 2, 2), "levels": 3},
        scheme=LATTICE,
        shared=True,
        predicts=("eini",),
    ),
    "a forest": Case(FOREST, {"dims": (2, 2, 1), "missing": 0.15}),
    "a forest on a lattice": Case(replace(FOREST, bootstrap=False), {"dims": (2, 2, 1)}, scheme=LATTICE),
}


#: What nearly all that follows trains on.
HERE = lacking(world(dims=(2, 2, 1), missing=0.1), 0.4)


def _job(params: TreeParams = BOOSTING, **changes: Any) -> setup_pb2.JobSpec:
    return spec(params, **{"alignment": "psi", "join": "left"} | changes)


@pytest.fixture(autouse=True)
def _in_the_order_of_ids(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The label holder's order is that of ids, by which the oracle draws; ciphertexts are transparent."""
    monkeypatch.setattr(alignment, "permutation", np.arange)
    with ciphers(KeysMade(), transparent=True):
        yield


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("name", CASES)
async def test_the_model_is_that_of_the_table_joined_from_the_left(name: str, tmp_path: Path) -> None:
    """Trees and scores are the oracle's, where the cells of records that a party lacks are missing."""
    case = CASES[name]
    here = lacking(world(**case.world), case.share)
    if case.weighted:
        here = weighted(here, drawn_weights(len(here.y), 7.5))
    federation = Federation(tmp_path, here.tables, dealer=case.shared)
    further = {"sums": "shared", "dealer": DEALER} if case.shared else {}
    finished(await federation.train(_job(case.params, parties=len(here.blocks), scheme=case.scheme, **further)))
    oracle = here.oracle(case.params)
    assert_oracles_model(federation.states, oracle)
    for protocol in case.predicts:
        for table, parties, first in (("train", here.parties, 0), ("", here.newcomers, len(here.y))):
            further = {"key_bits": 1024} if protocol == "eini" else {}
            asked = predict_request(model="job", table=table, protocol=protocol, block=17, **further)
            within = lattice_tolerance(oracle) if protocol == "eini-lattice" else 1e-9
            scored = finished(await federation.predict(asked)).predictions
            assert_oracles_scores(scored, oracle, parties, first, within)


@pytest.mark.second_tier
@pytest.mark.parametrize("shared", [False, True])
async def test_an_eval_tables_records_may_be_lacked_too(shared: bool, tmp_path: Path) -> None:
    """Every round is measured on all of the label holder's, and the training is that without them."""
    evaluating = with_eval_table(lacking(world(dims=(2, 2, 1), fresh=30), 0.4, seed=3))
    params, here, further = replace(BOOSTING, subsample=0.8), evaluating.here, dict[str, Any]()
    if shared:
        params = replace(params, max_depth=2, instance_spaces="withheld")
        further = {"scheme": LATTICE, "sums": "shared", "dealer": DEALER}
    federation = Federation(tmp_path, here.tables, dealer=shared)
    finished(await federation.train(_job(params, eval_table="eval", **further)))
    oracle = here.oracle(params)
    assert_oracles_model(federation.states, oracle)
    rounds = read_history(federation.state(HOLDER) / "models" / "job")
    for number, found in enumerate(rounds, start=1):
        expected = evaluating.metrics(oracle, params, number)
        assert {name: found[name] for name in expected} == pytest.approx(expected)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("one_hot", [1, 50])
async def test_sets_of_categories_and_one_against_the_rest(one_hot: int, tmp_path: Path) -> None:
    """Sums over categories and their complements, of columns of text."""
    here = lacking(categorical_world(missing=0.1), 0.3)
    params = replace(BOOSTING, max_cat_to_onehot=one_hot, max_bin=8)
    federation = Federation(tmp_path, here.tables, encode="categorical")
    finished(await federation.train(_job(params)))
    assert_oracles_model(federation.states, here.oracle(params))


@pytest.mark.second_tier
async def test_monotone_constraints(tmp_path: Path) -> None:
    """Candidates of a feature party with constraints, and their mirror images."""
    marks = {HOLDER: [0, 0], B: [1, -1], C: [1]}
    federation = Federation(tmp_path, HERE.tables, constraints={B: {"b0": 1, "b1": -1}, C: {"c0": 1}})
    finished(await federation.train(_job()))
    oracle = oracle_train(HERE.parties, list(HERE.y), BOOSTING, HERE.classes, monotone=marks)
    assert_oracles_model(federation.states, oracle)


@pytest.mark.second_tier
@pytest.mark.parametrize("privacy", ["published", "withheld", "private"])
async def test_a_training_continues_by_the_same_join(privacy: str, tmp_path: Path) -> None:
    """Further trees are those of a longer training; another join is refused, since its trees have no such side."""
    params, further = replace(BOOSTING, max_depth=2), dict[str, Any]()
    if privacy != "published":
        params, further = replace(params, instance_spaces="withheld"), {"scheme": LATTICE}
    further |= {"sums": "shared", "dealer": DEALER} if privacy == "private" else {}
    federation = Federation(tmp_path, HERE.tables, dealer=privacy == "private")
    finished(await federation.train(_job(params, **further), "before"))
    finished(await federation.train(_job(params, base_model="before", **further)))
    longer = HERE.oracle(replace(params, n_estimators=4))
    assert_oracles_model(federation.states, longer)
    with pytest.raises(ConfigError, match="was trained with join = 'left'"):
        await federation.train(_job(params, base_model="before", join="", **further), "inner")


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("victim", [HOLDER, B])
@pytest.mark.parametrize("word", ["match_ids", "bin", "choose_splits"])
async def test_a_killed_job_goes_on_with_the_same_records(victim: str, word: str, tmp_path: Path) -> None:
    """In the order and with the lacking records that were found before."""
    federation = Federation(tmp_path, HERE.tables)
    federation.kill_at(victim, lambda message: message.word == word, back=True)
    status = await federation.train(_job())
    finished(status if status.state == "finished" else await federation.resume())
    assert_oracles_model(federation.states, HERE.oracle(BOOSTING))


def test_a_feature_party_gets_words_and_sets_of_its_own_records_alone(tmp_path: Path) -> None:
    """Gradients, drawn records, and sets count the party's records; no list comes from another feature party."""
    own = {party: HERE.tables[party][1]["train"].num_rows for party in (B, C)}
    gradients, routes = dict.fromkeys(own, 0), set[tuple[str, str]]()

    def look(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "blinded_ids":
            routes.add((sender, to))
        if name_of(parcel) == "gradients" and parcel.round == 0:
            gradients[to] += parcel.protocol.boosting.gradients.count
        if name_of(parcel) == "sampled_records":
            assert len(rows_of(parcel.growth.sampled_records.chunks, own[to])) == own[to]
        for space in parcel.growth.instance_spaces.spaces:
            rows_of([space.records], own[to])  # of so many records in all

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        federation.tamper = look
        finished(await federation.train(_job()))
        assert {manifest(federation.state(party)).get("join") for party in PARTIES} == {"left"}
        await federation.close()

    run(main())
    assert gradients == own
    assert routes == {(HOLDER, B), (B, HOLDER), (HOLDER, C), (C, HOLDER)}


def _apart(here: World) -> World:
    """The same world, in which the last party has none of the others' records."""
    columns, content = here.tables[C]
    others = {
        name: table.set_column(0, "id", [[f"s{i}" for i in range(len(table))]]) for name, table in content.items()
    }
    return replace(here, tables={**here.tables, C: (columns, others)})


REFUSED: dict[str, tuple[World, dict[str, Any], dict[str, Any], str]] = {
    "no common record": (_apart(HERE), {}, {}, "no record is common with"),
    "few common records": (
        HERE,
        {HOLDER: {"columns": {"min_common_records": 50}}},
        {},
        "min_common_records = 50",
    ),
    "a partner's policy": (HERE, {B: {"columns": {"left_join": False}}}, {}, "left_join = false"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refusals(case: str, tmp_path: Path) -> None:
    """Numbers of common records are those of each pair; a partner's policy permits the join."""
    here, policies, changes, said = REFUSED[case]
    failed(await Federation(tmp_path, here.tables, policies=policies).train(_job(**changes)), said)


async def test_equal_ids_need_no_side_for_lacking_records(tmp_path: Path) -> None:
    """`sorted-ids` has the same meaning: all tables hold the same ids, and the model is that of an inner join."""
    here = world(dims=(2, 2, 1))
    federation = Federation(tmp_path, here.tables)
    for name, join in (("job", "left"), ("inner", "")):
        finished(await federation.train(_job(alignment="sorted-ids", join=join), name))
    assert joined_model(federation.states) == joined_model(federation.states, "inner")
    failed(await Federation(tmp_path / "b", HERE.tables).train(_job(alignment="sorted-ids")), "needs the same ids")


async def test_predictions_are_evaluated_explained_and_proven(tmp_path: Path) -> None:
    """On all records of the label holder, one at a time, which a party may lack; other protocols are refused.

    Lists come back with a proof.
    """
    policies = {party: {"keys": {"alignment_proof": True}} for party in PARTIES}
    evaluating = with_eval_table(HERE)
    federation = Federation(tmp_path, evaluating.here.tables, policies=policies)
    finished(await federation.train(_job()))
    asked = predict_request(model="job", table="eval", protocol="interactive", evaluate=True, explain=True, block=1)
    predicted = finished(await federation.predict(asked))
    assert_oracles_scores(predicted.predictions, HERE.oracle(BOOSTING), HERE.newcomers, len(HERE.y))


@pytest.mark.parametrize("protocol", ["interactive", "eini"])
@pytest.mark.second_tier
async def test_a_served_model_answers_for_all_records(protocol: str, tmp_path: Path) -> None:
    """Of a request for records some of which each party lacks, and for one alone."""
    federation = Federation(tmp_path, HERE.tables, serve={HOLDER: config()})
    finished(await federation.train(_job()))
    await serve(federation, protocol=protocol)
    scores = np.array(oracle_predict(HERE.oracle(BOOSTING), HERE.newcomers))[:, 0]
    ids = [f"r{len(HERE.y) + i:05d}" for i in range(len(scores))]
    found = [entry.scores[0] for entry in (await ask(federation, *ids)).predictions]
    found += [(await ask(federation, each)).predictions[0].scores[0] for each in ids]
    assert found == pytest.approx([*scores, *scores], abs=1e-9)


@pytest.mark.second_tier
@pytest.mark.parametrize("protocol", ["interactive", "eini"])
async def test_a_party_that_is_away_is_guessed_not_missing(protocol: str, tmp_path: Path) -> None:
    """Without it records go both ways at its splits; of those that are there, missing records go to their side.

    Scores are alike by both protocols.
    """
    federation = Federation(tmp_path, HERE.tables)
    finished(await federation.train(_job()))
    federation.kill(C)
    asked = predict_request("interactive", model="job", away_policy="degrade", away_deadline_s=5, job="plain")
    plain = pq.read_table(finished(await federation.predict(asked)).predictions)
    asked = predict_request(protocol, model="job", away_policy="degrade", away_deadline_s=5, job="again")
    predicted = pq.read_table(finished(await federation.predict(asked)).predictions)
    guessed = predicted.column("guessed").to_numpy()
    assert len(guessed) == len(HERE.new[0])
    assert guessed.max() > 0
    scores = predicted.column("score").to_pylist()
    assert scores == pytest.approx(plain.column("score").to_pylist(), abs=1e-9)


ALONE = lacking(world(dims=(2, 2)), 0.6)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("here", [ALONE, HERE], ids=["one feature party", "two"])
async def test_encrypted_predictions_show_a_party_its_own_records(here: World, tmp_path: Path) -> None:
    """Of a block it is told its own ones; the only feature party gets entries of these alone, one of several of all.

    So none learns of which the others have.
    """
    own = {party: content["predict"].num_rows for party, (_, content) in here.tables.items() if party != HOLDER}
    told, blocks = dict.fromkeys(own, 0), dict.fromkeys(own, 0)

    def look(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "block_records":
            body = parcel.prediction.block_records
            told[to] += len(rows_of(body.chunks, own[to])) if body.chunks else 0
            blocks[to] += body.records

    federation = Federation(tmp_path, here.tables)
    finished(await federation.train(_job(parties=len(here.blocks))))
    federation.tamper = look
    asked = predict_request("eini", model="job", key_bits=1024, block=25)
    scored = finished(await federation.predict(asked)).predictions
    assert_oracles_scores(scored, here.oracle(BOOSTING), here.newcomers, len(here.y))
    assert told == own
    assert blocks == (own if len(own) == 1 else dict.fromkeys(own, len(here.new[0])))


@pytest.mark.second_tier
async def test_attributions_add_up_where_a_party_lacks_a_record(tmp_path: Path) -> None:
    """They are those of a record all of whose cells are missing there: their sum is the score."""
    federation = Federation(tmp_path, ALONE.tables, policies={B: {"emits": {"EXPLANATION": ["parties"]}}})
    finished(await federation.train(_job(parties=2)))
    asked = predict_request("eini", model="job", key_bits=1024, attributions=True)
    predicted = finished(await federation.predict(asked))
    assert_oracles_scores(predicted.predictions, ALONE.oracle(BOOSTING), ALONE.newcomers, len(ALONE.y))
    table = pq.read_table(predicted.attributions)
    players = [name for name in table.column_names if ":" in name]
    parts = np.sum([table.column(name).to_numpy() for name in ("expected", *players)], axis=0)
    assert parts == pytest.approx(table.column("score").to_numpy(), abs=1e-8)


@pytest.mark.second_tier
async def test_bits_that_hide_a_path_count_what_is_known_of_records_that_a_party_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Splits of such a party hide nothing from a label holder: records differ by who has them."""
    policies = {HOLDER: {"columns": {"min_candidate_bits": 0}}}
    federation, found = Federation(tmp_path, HERE.tables, policies=policies), list[np.ndarray[Any, Any]]()
    finished(await federation.train(_job()))

    def check(_: Policy, party: str, spare: np.ndarray[Any, Any], fault: str) -> None:
        del fault
        found.extend([spare] if party == HOLDER else [])

    monkeypatch.setattr(Policy, "check_paths", check)
    finished(await federation.predict(predict_request("eini", model="job", key_bits=1024)))
    lines = read_model(federation.state(HOLDER) / "models" / "job")[1]
    own = {split["handle"]: OwnSplit.from_dict(split) for line in lines for split in line["own"]}

    def bits(record: int) -> float:
        named = f"r{len(HERE.y) + record:05d}"
        there = {party for party in (B, C) if named in HERE.tables[party][1]["predict"].column("id").to_pylist()}

        def ways(tree: Tree, node: int) -> int:
            if (split := next((split for split in tree.splits if split.node == node), None)) is None:
                return 1
            sides = [ways(tree, 2 * node), ways(tree, 2 * node + 1)]
            if split.owner in there:
                return sum(sides)
            left = node in tree.missing_left
            if split.owner == HOLDER:
                mine = own[split.handle]
                left = bool(mine.goes_left(HERE.new[0][[record], mine.feature])[0])
            return sides[not left]

        return sum(np.log2(ways(Tree.from_dict(line["tree"]), 1)) for line in lines) if there else np.nan

    expected = np.array([bits(record) for record in range(len(HERE.new[0]))])
    expected = np.sort(expected[~np.isnan(expected)])
    (spare,) = found
    known = expected[0] - np.sort(spare)[0]  # bits of the sums, the same for all records
    assert np.sort(spare) + known == pytest.approx(expected)
    assert len({*expected.round(9)}) > 2


async def _tampered(body: Callable[[prediction_pb2.BlockRecords], None], folder: Path) -> Any:
    def change(sender: str, _: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "block_records" and parcel.prediction.block_records.records:
            body(parcel.prediction.block_records)

    federation = Federation(folder, ALONE.tables)
    finished(await federation.train(_job(replace(BOOSTING, n_estimators=1, max_depth=1), parties=2)))
    federation.tamper = change
    return await federation.predict(predict_request("eini", model="job", key_bits=1024))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: setattr(body, "places", body.places[4:]), "places of"),
        (lambda body: setattr(body, "places", body.places[:4] * (len(body.places) // 4)), "places of"),
        (lambda body: setattr(body, "records", 1), "places of 1 records"),
        (lambda body: setattr(body, "records", 1 << 20), "has 1048576 records, blocks have"),
    ],
    ids=["too few", "one twice", "beyond the block", "a long block"],
)
async def test_places_that_no_block_has(change: Any, said: str, tmp_path: Path) -> None:
    """A feature party refuses them by the block."""
    failed(await _tampered(change, tmp_path), said)


@pytest.mark.second_tier
async def test_sides_of_a_partys_splits_count_its_own_records(tmp_path: Path) -> None:
    """`min_side_records`, where sums are shared: none leaves fewer of those that the party has."""
    least = {B: 8, C: 5}
    defences = {party: Defences(min_side_records=count) for party, count in least.items()}
    sides: list[tuple[str, int]] = []
    for fewest in ({}, defences):
        federation = Federation(tmp_path / str(len(fewest)), HERE.tables, dealer=True, defences=fewest)
        params = replace(BOOSTING, instance_spaces="withheld", subsample=1.0, min_child_weight=0.0)
        finished(await federation.train(_job(params, scheme=LATTICE, sums="shared", dealer=DEALER)))
        trees = [Tree.from_dict(line["tree"]) for line in read_model(federation.state(HOLDER) / "models" / "job")[1]]
        sides = _own_sides(federation, trees)
        assert sides
        assert any(count < least[party] for party, count in sides) == (not fewest)


def _own_sides(federation: Federation, trees: list[Tree]) -> list[tuple[str, int]]:
    """Of each split of a feature party, and each side, how many records of its own go there."""
    owned = {}
    for m, party in enumerate(PARTIES):
        lines = read_model(federation.state(party) / "models" / "job")[1]
        for line in lines:
            for split in map(OwnSplit.from_dict, line["splits" if m else "own"]):
                owned[party, split.handle] = split.goes_left(HERE.blocks[m][:, split.feature])
    found = []
    for tree in trees:
        rows = {1: np.arange(len(HERE.y))}
        for split in sorted(tree.splits, key=lambda split: split.node):
            here, left = rows[split.node], owned[split.owner, split.handle]
            rows[2 * split.node], rows[2 * split.node + 1] = here[left[here]], here[~left[here]]
            if split.owner != HOLDER:
                has = np.isin([f"r{i:05d}" for i in range(len(HERE.y))], HERE.tables[split.owner][1]["train"]["id"])
                found += [(split.owner, int(has[rows[child]].sum())) for child in (2 * split.node, 2 * split.node + 1)]
    return found
