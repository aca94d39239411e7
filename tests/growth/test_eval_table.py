"""Records of an eval table: scored after every round, drawn for no tree, watched by early stopping."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.growth.evaluated import Evaluated, evaluated
from tests.simulator import Federation, Message, finished, run
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, joined_model, manifest, spec, world
from treetap.attacks.view.view import read_view
from treetap.errors import BadInput
from treetap.models.store import read_history, read_leakage
from treetap.party.defences.settings import Defences, IdLmid, ReducedLeakage
from treetap.protocols.prediction import predict_request
from treetap.trees.binning import bin_table
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, setup_pb2

Rounds = list[dict[str, float | None]]
HOLDER, B, C = PARTIES
BINARY = BoostingParams(n_estimators=3, max_depth=3, max_bin=5, min_child_weight=0.1, subsample=0.8, seed=1)
MULTI = replace(BINARY, objective="multi:softprob", n_estimators=2, max_depth=2, subsample=1.0)
REGRESSION = replace(BINARY, objective="reg:squarederror", colsample_bytree=0.5, max_depth=2)
FOREST = ForestParams(n_estimators=3, max_depth=3, max_bin=5, bootstrap=True)
PER_NODE = ForestParams(n_estimators=2, max_depth=3, max_bin=4, binning="per-node", criterion="squared_error")
TWO = evaluated(missing=0.1)
CASES: dict[str, tuple[TreeParams, Evaluated, dict[str, Any]]] = {
    "binary": (BINARY, TWO, {}),
    "multi by psi": (
        MULTI,
        evaluated(40, (1, 1, 1), objective="multi:softprob", classes=3, seed=3),
        {"alignment": "psi"},
    ),
    "regression": (REGRESSION, evaluated(objective="reg:squarederror", missing=0.1, seed=2), {}),
    "forest": (FOREST, TWO, {}),
    "bins per node": (PER_NODE, evaluated(objective="reg:squarederror", seed=4), {}),
}


def _job(params: TreeParams, **changes: Any) -> setup_pb2.JobSpec:
    return spec(params, **{"obfuscation": "standard", "eval_table": "eval"} | changes)


def _model(federation: Federation) -> Path:
    return federation.state(HOLDER) / "models" / "job"


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
async def test_the_model_is_that_of_the_training_and_the_metrics_those_of_the_eval_table(
    case: str, tmp_path: Path
) -> None:
    """Splits, bins, draws and base score follow from the training alone; every round is measured on the eval table."""
    params, evaluating, changes = CASES[case]
    here = evaluating.here
    oracle = here.oracle(params)

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, here.tables)
        finished(await federation.train(_job(params, **changes)))
        assert_oracles_model(federation.states, oracle)
        rounds = read_history(_model(federation))
        assert len(rounds) == params.n_estimators
        for number, found in enumerate(rounds, start=1):
            expected = evaluating.metrics(oracle, params, number)
            assert {name: found[name] for name in expected} == pytest.approx(expected)
            assert not any(name.startswith("validation") for name in found)
        assert manifest(federation.state(HOLDER))["training_metrics"] == rounds[-1]
        assert manifest(federation.state(B))["eval_table"] == "eval"
        predicted = await federation.predict(predict_request(model="job"))
        assert_oracles_scores(predicted.predictions, oracle, here.newcomers, len(here.y))


@pytest.mark.second_tier
def test_feature_parties_get_no_ciphertext_of_the_eval_table(tmp_path: Path) -> None:
    """No gradient and no label of its records is sent, and no tree draws one: even if ID-LMID counts all records."""
    sent: Counter[str] = Counter()

    def look(_sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if to == B and name_of(parcel) == "gradients":
            sent[f"gradients {parcel.round}"] += parcel.protocol.boosting.gradients.count
        if to == B and name_of(parcel) == "encrypted_labels":
            sent["labels"] += parcel.protocol.forest.encrypted_labels.count
        return parcel

    async def main(params: TreeParams, folder: Path) -> None:
        federation = Federation(folder, TWO.here.tables)
        federation.tamper = look
        assert (await federation.train(_job(params))).state == "finished"
        await federation.close()

    with ciphers(KeysMade(), transparent=True):
        run(main(replace(BINARY, n_estimators=2, subsample=1.0), tmp_path / "boosting"))
        run(main(replace(FOREST, n_estimators=1), tmp_path / "forest"))
    assert sent == {"gradients 0": len(TWO.here.y), "gradients 1": len(TWO.here.y), "labels": len(TWO.here.y)}


async def test_a_label_holder_that_draws_a_record_of_the_eval_table_is_refused(tmp_path: Path) -> None:
    """A feature party knows which records are of the eval table."""
    params = replace(BINARY, n_estimators=1, subsample=1.0)

    def forge(_sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if to == B and name_of(parcel) == "sampled_records":
            chunk = parcel.growth.sampled_records.chunks[0]
            assert chunk.WhichOneof("coding") == "bitmap"
            bits = bytearray(chunk.bitmap)
            bits[-1] |= 1
            chunk.bitmap = bytes(bits)
        return parcel

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, TWO.here.tables)
        federation.tamper = forge
        status = await federation.train(_job(params))
        assert "draws a record of the eval table in tree 0" in status.error


EARLY = replace(MULTI, n_estimators=9, learning_rate=0.9, early_stopping_rounds=2)
WATCHED = evaluated(40, (1, 1, 1), objective="multi:softprob", classes=3, seed=6)


@pytest.mark.second_tier
async def test_early_stopping_watches_the_eval_table_also_in_a_job_that_is_killed(tmp_path: Path) -> None:
    """All records are trained on; the best round is XGBoost's, that of the smallest loss on the eval table."""
    here, killed = WATCHED.here, set[int]()
    whole = here.oracle(replace(EARLY, early_stopping_rounds=None))
    losses = [WATCHED.metrics(whole, EARLY, rounds)["eval_logloss"] for rounds in range(1, EARLY.n_estimators + 1)]
    best, last = 0, len(losses) - 1
    for number, loss in enumerate(losses):
        best = number if loss < losses[best] else best
        if number - best >= 2:
            last = number
            break
    assert last < EARLY.n_estimators - 1

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, here.tables)

        def kill(message: Message) -> None:
            if (message.word, message.to, message.served) == ("relay_children", HOLDER, False) and len(killed) < 4:
                killed.add(message.number)
                if len(killed) % 2:
                    victim = (HOLDER, B)[len(killed) // 2]
                    federation.restart(victim)

        federation.hook = kill
        status = await federation.train(_job(EARLY))
        while status.state == "interrupted":
            status = await federation.resume()
        assert (status.state, status.error) == ("finished", "")
        found = manifest(federation.state(HOLDER))
        assert (found["best_round"], found["trees"]) == (best, 3 * (last + 1))
        rounds = read_history(_model(federation))
        assert [row["eval_logloss"] for row in rounds] == pytest.approx(losses[: last + 1])
        assert found["training_metrics"] == rounds[best]
        assert (status.used_trees, status.stored_trees) == (3 * (best + 1), 3 * (last + 1))
        predicted = await federation.predict(predict_request(model="job"))
        whole.best_round = best
        assert_oracles_scores(predicted.predictions, whole, here.newcomers, len(here.y))
        await federation.close()
    assert len(killed) == 4


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("weighted", [False, True])
async def test_history_is_xgboosts_on_the_same_bins(weighted: bool, tmp_path: Path) -> None:
    """Losses of both tables after every round, and the best round, as `xgboost.train` has them.

    The eval table has records of the training, with other labels and, `weighted`, with weights of its own.
    """
    xgb = pytest.importorskip("xgboost")
    params = replace(BINARY, n_estimators=9, max_bin=12, subsample=1.0, early_stopping_rounds=3, base_score=0.5)
    here = world(150, (3, 2), seed=7)
    truth = np.where(np.arange(60) % 4, here.y[:60], 1 - here.y[:60])
    weights, tables = np.linspace(0.2, 4.0, 60), {}
    for party, (columns, content) in here.tables.items():
        table = content["train"].sort_by("id").slice(0, 60)
        if party == HOLDER:
            table = table.set_column(table.column_names.index("y"), "y", pa.array(truth))
            table = table.append_column("w", pa.array(weights)) if weighted else table
        tables[party] = (columns, {**content, "eval": table})
    rounds: Rounds = []

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, tables)
        assert (await federation.train(_job(params, parties=2))).state == "finished"
        rounds.extend(read_history(_model(federation)))
        best: int | None = manifest(federation.state(HOLDER))["best_round"]
        await federation.close()
    oracle = here.oracle(replace(params, early_stopping_rounds=None, n_estimators=len(rounds)))
    assert oracle.ties == 0
    assert oracle.lead > 2e-5
    codes = np.hstack([bin_table(block, [str(j) for j in range(block.shape[1])], 12).codes for block in here.blocks])
    train, watched = xgb.DMatrix(codes, label=here.y), xgb.DMatrix(codes[:60], label=truth)
    if weighted:
        watched.set_weight(weights)
    settings = {
        "objective": "binary:logistic", "tree_method": "hist", "max_bin": 4096, "max_depth": 3, "base_score": 0.5,
        "min_child_weight": 0.1, "nthread": 1, "verbosity": 0, "eval_metric": ["auc", "logloss"],
    }  # fmt: skip
    found: dict[str, dict[str, list[float]]] = {}
    watching = {"early_stopping_rounds": 3, "evals_result": found, "verbose_eval": False}
    booster = xgb.train(settings, train, 9, evals=[(train, "train"), (watched, "eval")], **watching)
    assert booster.best_iteration == best
    assert len(rounds) == len(found["eval"]["auc"]) < 9
    for name in ("auc", "logloss"):
        for part in ("train", "eval"):
            assert [row[f"{part}_{name}"] for row in rounds] == pytest.approx(found[part][name], abs=1e-5)


@pytest.mark.second_tier
def test_records_of_the_eval_table_make_no_set_larger(tmp_path: Path) -> None:
    """A policy's least size of a set, and what sets say about labels, count records of the training alone."""
    small = evaluated(24, (2, 2, 1), fresh=60)

    async def main(folder: Path, policies: dict[str, dict[str, Any]], **changes: Any) -> tuple[str, list[Any]]:
        federation = Federation(folder, small.here.tables, policies=policies)
        status = await federation.train(_job(replace(BINARY, n_estimators=1, subsample=1.0), **changes))
        lines = read_leakage(_model(federation)) if status.state == "finished" else []
        for line in lines:
            for row in line["parties"].values():
                del row["by_chance_nats"], row["excess_share"]
        await federation.close()
        return status.error, lines

    with ciphers(KeysMade(), transparent=True):
        with_table, without = (run(main(tmp_path / name, {}, eval_table=name)) for name in ("eval", ""))
        assert with_table == without
        assert with_table[1]
        errors = {
            party: run(main(tmp_path / party, {party: {"columns": {"min_instance_space": 12}}}))[0] for party in PARTIES
        }
    rule = "its policy says min_instance_space = 12"
    assert {party for party, error in errors.items() if rule in error} >= {HOLDER, C}, errors


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("params", [BINARY, FOREST], ids=["boosting", "forest"])
def test_defences_count_the_training_alone(params: TreeParams, tmp_path: Path) -> None:
    """With ID-LMID and a tree that the label holder grows alone the model is that of a job without an eval table."""
    defences = {HOLDER: Defences(id_lmid=IdLmid(xi=0.2), reduced_leakage=ReducedLeakage(trees=1))}
    params = replace(params, n_estimators=2)

    async def main(name: str) -> tuple[Any, Rounds]:
        federation = Federation(tmp_path / f"with {name}", TWO.here.tables, defences=defences)
        assert (await federation.train(_job(params, eval_table=name))).state == "finished"
        found, rounds = joined_model(federation.states), read_history(_model(federation))
        await federation.close()
        return found, [{key: value for key, value in row.items() if key.startswith("train_")} for row in rounds]

    with ciphers(KeysMade(), transparent=True):
        found, rounds = run(main("eval"))
        expected, train_rounds = run(main(""))
    assert found == expected
    assert rounds == train_rounds


async def test_columns_are_defended_with_all_records_that_a_tree_draws(tmp_path: Path) -> None:
    """No record of the training is set aside: groups may have half of all, not of some."""
    params = replace(BINARY, n_estimators=2, subsample=1.0, min_child_weight=0.0)
    early = replace(params, early_stopping_rounds=5, validation_share=0.5)
    small = evaluated(24, (2, 2, 1))

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, small.here.tables, defences={B: Defences(min_cell_records=10)})
        finished(await federation.train(_job(early)))


async def test_audits_are_refused(tmp_path: Path) -> None:
    """An audit's sets are of the training."""
    with ciphers(KeysMade(), transparent=True):
        recorded = Federation(tmp_path / "recorded", TWO.here.tables, record="received")
        assert (await recorded.train(_job(replace(BINARY, n_estimators=1)))).state == "finished"
        await recorded.close()
        with pytest.raises(BadInput, match="train without eval_table to measure attacks"):
            read_view(recorded.state(B) / "transcripts" / "job", party=B)


def _changed(party: str, table: str, change: Any) -> dict[str, Any]:
    """The tables of `TWO`, one of them changed."""
    columns, content = TWO.here.tables[party]
    return {**TWO.here.tables, party: (columns, {**content, table: change(content[table])})}


def _without(party: str, table: str) -> dict[str, Any]:
    columns, content = TWO.here.tables[party]
    return {**TWO.here.tables, party: (columns, {name: each for name, each in content.items() if name != table})}


def _strange(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("y"), "y", pa.array([7] * len(table)))


def _two_weighted(table: pa.Table) -> pa.Table:
    return table.append_column("w", pa.array([1.0] * 2 + [0.0] * (len(table) - 2)))


def _other_ids(table: pa.Table) -> pa.Table:
    return table.set_column(0, "id", pa.array([f"x{place}" for place in range(len(table))]))


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Any], str]] = {
    "too few records to measure": (
        TWO.here.tables, {HOLDER: {"labels": {"min_evaluated_records": 31}}}, {}, "says min_evaluated_records = 31",
    ),
    "too few records to score": (
        TWO.here.tables, {B: {"columns": {"min_prediction_records": 31}}}, {}, f"{B} takes no part: its policy",
    ),
    "too few records with a weight": (
        _changed(HOLDER, "eval", _two_weighted),
        {HOLDER: {"labels": {"min_evaluated_records": 3}}}, {}, "min_evaluated_records = 3, and fewer records of",
    ),
    "a party without the table": (_without(B, "eval"), {}, {}, f"{B} has no table 'eval'"),
    "a class that the training lacks": (_changed(HOLDER, "eval", _strange), {}, {}, "holds 1 class that no common rec"),
    "no record in common": (
        _changed(B, "eval", _other_ids), {}, {"alignment": "psi"}, "no record of the eval table is common",
    ),
    "ids of the training in the eval table": (
        _changed(B, "eval", lambda table: TWO.here.tables[B][1]["train"]), {}, {}, "are not those of label-holder",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
async def test_refusals(case: str, tmp_path: Path) -> None:
    """Each names what is wrong, before any tree."""
    tables, policies, changes, expected = REFUSALS[case]

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, tables, policies=policies)
        status = await federation.train(_job(replace(BINARY, n_estimators=1), **changes))
        await federation.close()
        assert not any(message.word == "begin_tree" for message in federation.log)
    assert status.state == "failed"
    assert expected in status.error
