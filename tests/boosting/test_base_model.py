"""Training that continues from a published model: still the oracle's, and nothing but a training is sent."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.blindness.observed import Observed
from tests.boosting.categories import categorical_world
from tests.growth.evaluated import evaluated
from tests.oracle import OracleModel, oracle_train
from tests.simulator import COORDINATOR, Federation, Message, failed, finished
from tests.worlds import PARTIES, World, assert_oracles_model, assert_oracles_scores, manifest, spec, weighted, world
from treetap.attacks.view.view import read_view
from treetap.errors import ConfigError, UnknownJob
from treetap.models.keyed_ids import KEY
from treetap.models.store import CONTINUATION, read_arrays_of, read_history, read_leakage, read_model
from treetap.party.defences.settings import Defences, LabelDp, ReducedLeakage
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.v2 import setup_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
LABEL_HOLDER, FEATURE, OTHER = PARTIES
PARAMS = BoostingParams(n_estimators=3, max_depth=2, max_bin=5, min_child_weight=0.1, seed=3)
HERE = world(30, (1, 2, 1), seed=6, missing=0.1)


def _job(params: TreeParams, **changes: Any) -> setup_pb2.JobSpec:
    """A job whose key is short, since nothing here depends on its strength."""
    return spec(params, **{"key_bits": 512, "obfuscation": "standard"} | changes)


def _oracle(here: World, base: BoostingParams, further: BoostingParams) -> OracleModel:
    given: dict[str, Any] = {"classes": here.classes, "weights": here.weights, "categories": here.categories}
    first = oracle_train(here.parties, list(here.y), base, **given)
    return oracle_train(here.parties, list(here.y), further, base=first, **given)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "other parameters": (
        {"subsample": 0.8},
        {"max_depth": 3, "max_bin": 9, "learning_rate": 0.1, "reg_lambda": 2.0, "colsample_bytree": 0.6, "seed": 8},
        "sorted-ids",
    ),
    "stopped early, both": (
        {"n_estimators": 9, "learning_rate": 0.9, "early_stopping_rounds": 1, "validation_share": 0.3},
        {"n_estimators": 9, "learning_rate": 0.5, "early_stopping_rounds": 1, "validation_share": 0.3},
        "sorted-ids",
    ),
    "a tree per class": (*({"objective": "multi:softprob", "n_estimators": 2},) * 2, "sorted-ids"),
    "squared error": (*({"objective": "reg:squarederror"},) * 2, "psi"),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("before", "after", "alignment"), CASES.values(), ids=CASES)
async def test_a_continued_model_is_the_oracles(
    before: dict[str, Any], after: dict[str, Any], alignment: str, tmp_path: Path
) -> None:
    """All of the base model's trees, then the further ones; base score, best round, history and scores.

    Private set intersection gives the records another order in each job.
    """
    base, further = replace(PARAMS, **before), replace(PARAMS, **after)
    classes = 3 if base.objective == "multi:softprob" else 2
    here = world(30, (1, 2, 1), objective=base.objective, classes=classes, seed=6, missing=0.1)
    oracle = _oracle(here, base, further)

    federation = Federation(tmp_path, here.tables)
    assert (await federation.train(_job(base, alignment=alignment), "before")).state == "finished"
    status = finished(await federation.train(_job(further, base_model="before", alignment=alignment)))
    assert_oracles_model(federation.states, oracle)
    found = manifest(federation.state(LABEL_HOLDER))
    old = manifest(federation.state(LABEL_HOLDER), "before")
    assert found["best_round"] == oracle.best_round
    assert found["base_margin"] == old["base_margin"]
    assert found["base_model"] == {"name": "before", "trees": old["trees"]}
    assert found["trees"] == status.stored_trees == len(oracle) > old["trees"]
    rounds = read_history(federation.state(LABEL_HOLDER) / "models" / "job")
    assert len(rounds) == len(oracle) // oracle.trees_per_round
    assert [len(each.values) for each in status.history] == [len(rounds)] * len(status.history)
    for protocol in ("interactive", "eini") if further.subsample < 1 else ("interactive",):
        asked = predict_request(protocol, model="job", block=17)
        predicted = finished(await federation.predict(asked))
        assert_oracles_scores(predicted.predictions, oracle, here.newcomers, len(here.y), 1e-8)


@pytest.mark.second_tier
async def test_more_rounds_are_those_of_a_longer_training(tmp_path: Path) -> None:
    """Three rounds and three further ones are six, weights, draws and handles included; and they can go on again."""
    here = weighted(HERE, np.linspace(0.0, 2.0, 30))
    params = replace(PARAMS, subsample=0.8, max_sample_weight=2.0, scale_pos_weight=1.5)

    federation = Federation(tmp_path, here.tables)
    assert (await federation.train(_job(replace(params, n_estimators=5)), "whole")).state == "finished"
    assert (await federation.train(_job(params), "first")).state == "finished"
    for name, base in (("second", "first"), ("third", "second")):
        job = _job(replace(params, n_estimators=1), base_model=base)
        assert (await federation.train(job, name)).error == ""
    for party in PARTIES:
        folder = federation.state(party) / "models"
        assert read_model(folder / "third")[1] == read_model(folder / "whole")[1]
    holder = federation.state(LABEL_HOLDER) / "models"
    assert read_history(holder / "third") == read_history(holder / "whole")
    # What a party knows after a tree, without the share that is explained by a random draw.
    third, whole = (
        [
            {name: (row["sets"], row["signatures"], row["bound_nats"]) for name, row in line["parties"].items()}
            for line in read_leakage(holder / name)
        ]
        for name in ("third", "whole")
    )
    assert third == whole


@pytest.mark.second_tier
@pytest.mark.parametrize("victim", [LABEL_HOLDER, FEATURE, COORDINATOR])
async def test_a_continued_training_outlives_its_processes(victim: str, tmp_path: Path) -> None:
    """Killed before the base model's trees are stored, while they are, and between later steps."""
    oracle = _oracle(HERE, PARAMS, PARAMS)
    killed: Counter[str] = Counter()

    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(_job(PARAMS), "before")).state == "finished"

    def kill(message: Message) -> None:
        if message.word in ("bin", "make_keys", "take_key", "store_tree", "publish") and killed[message.word] < 2:
            killed[message.word] += 1
            federation.restart(victim)

    federation.hook = kill
    status = await federation.train(_job(PARAMS, base_model="before"))
    for _ in range(12):
        if status.state != "interrupted":
            break
        status = await federation.resume()
    assert (status.state, status.error) == ("finished", "")
    assert_oracles_model(federation.states, oracle)
    assert len(read_history(federation.state(LABEL_HOLDER) / "models" / "job")) == len(oracle)
    await federation.close()
    assert set(killed) == {"bin", "make_keys", "take_key", "store_tree", "publish"}


@pytest.mark.second_tier
async def test_nothing_is_sent_about_the_base_models_trees(tmp_path: Path) -> None:
    """Messages between parties are those of a training of the further trees alone, and name no earlier tree."""
    federation = Observed(tmp_path, HERE.tables)
    assert (await federation.train(_job(PARAMS), "before")).state == "finished"
    first = {each.step for each in federation.crossed}
    federation.crossed.clear()
    assert (await federation.train(_job(PARAMS, base_model="before"))).state == "finished"
    assert {each.step for each in federation.crossed} == first
    peers = [each.message for each in federation.crossed if each.to != COORDINATOR]
    trees = {message.round for message in peers if message.WhichOneof("body") and message.HasField("growth")}
    assert trees <= {3, 4, 5}
    assert trees


@pytest.mark.second_tier
async def test_splits_of_categories_are_continued(tmp_path: Path) -> None:
    """Under the base model's encoding, which the same table has again; the further trees' too."""
    here = categorical_world(missing=0.1)
    params = replace(PARAMS, n_estimators=2, max_depth=3)
    oracle = _oracle(here, params, params)

    federation = Federation(tmp_path, here.tables, encode="categorical")
    assert (await federation.train(_job(params), "before")).error == ""
    finished(await federation.train(_job(params, base_model="before")))
    assert_oracles_model(federation.states, oracle)
    predicted = await federation.predict(predict_request("interactive", model="job"))
    assert_oracles_scores(predicted.predictions, oracle, here.newcomers, len(here.y))


@pytest.mark.second_tier
async def test_the_base_models_eval_table_is_left_behind(tmp_path: Path) -> None:
    """Scores of records that the base model's training only measured are not kept; those of the others are."""
    here = evaluated(missing=0.1).here
    oracle = _oracle(here, PARAMS, PARAMS)

    federation = Federation(tmp_path, here.tables)
    job = _job(PARAMS, eval_table="eval", alignment="psi")
    assert (await federation.train(job, "before")).error == ""
    finished(await federation.train(_job(PARAMS, base_model="before", alignment="psi")))
    assert_oracles_model(federation.states, oracle)
    kept = read_arrays_of(federation.state(LABEL_HOLDER) / "models" / "before", CONTINUATION)[1]
    assert {len(each) for name, each in kept.items() if name != KEY} == {len(here.y)}


@pytest.mark.second_tier
async def test_an_audit_says_where_the_earlier_trees_are(tmp_path: Path) -> None:
    """A transcript of a continued training has the further trees with their sets, the base model's has the others."""
    federation = Federation(tmp_path, HERE.tables, record="received")
    assert (await federation.train(_job(PARAMS), "before")).state == "finished"
    assert (await federation.train(_job(PARAMS, base_model="before"))).state == "finished"
    before, after = (read_view(federation.state(FEATURE) / "transcripts" / job) for job in ("before", "job"))
    assert [tree.index for tree in (*before.trees, *after.trees)] == [0, 1, 2, 3, 4, 5]
    (fault,) = after.faults
    assert "trees 0 to 2 are not in the transcript" in fault
    assert "they are of model 'before', from which the job continues and whose own transcript has them" in fault


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", PARTIES)
async def test_other_tables_are_refused(party: str, tmp_path: Path) -> None:
    """Of any party, by that party and before anything is sent: scores of other records would tell directions."""
    federation = Observed(tmp_path, HERE.tables)
    assert (await federation.train(_job(PARAMS), "before")).state == "finished"
    # A party's table with another value of one cell.
    columns, content = HERE.tables[party]
    table = content["train"]
    cells = table.column(columns[0]).to_numpy().copy()
    cells[np.flatnonzero(~np.isnan(cells))[0]] += 0.5
    pq.write_table(
        table.set_column(table.column_names.index(columns[0]), columns[0], pa.array(cells)),
        federation.configs[party].tables["train"].path,
    )
    federation.crossed.clear()
    failed(
        await federation.train(_job(PARAMS, base_model="before")),
        party,
        "is not the table on which base_model 'before' was trained: a cell or a constr",
        bad_input=True,
    )
    assert all(each.to == COORDINATOR for each in federation.crossed)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "objective": ({"objective": "reg:squarederror"}, "objective was binary:logistic"),
    "base_score": ({"base_score": 0.3}, "base_score is the base model's; leave it out"),
    "missing": ({"missing": -1.0}, "missing must be as in its training"),
    "party_dropout": ({"party_dropout": {FEATURE: 0.3}}, "party_dropout must name the parties that its training named"),
}


async def test_jobs_that_do_not_fit_the_base_model_are_refused(tmp_path: Path) -> None:
    """By the coordinator where it knows: no such model, other parties; by the parties otherwise, with all reasons."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(_job(PARAMS), "before")).state == "finished"
    assert (await federation.train(_job(ForestParams(n_estimators=1, max_depth=2)), "forest")).state == "finished"
    for params, fault in REFUSED.values():
        failed(await federation.train(_job(replace(PARAMS, **params), base_model="before")), fault, bad_input=True)
        federation.jobs.prune(["job"], 0, dry_run=False)
    for given, kind, fault in (
        ({"base_model": "absent"}, UnknownJob, "there is no model 'absent'"),
        ({"base_model": "forest"}, ConfigError, "was trained by forest, not by boosting"),
        ({"base_model": "before", "feature_parties": [FEATURE]}, ConfigError, "continues with the same parties"),
        ({"base_model": "No name"}, ConfigError, "is not the name of a model"),
    ):
        with pytest.raises(kind, match=fault):
            await federation.train(_job(PARAMS, **given))
    with pytest.raises(ConfigError, match="eval_table and base_model do not go together"):
        await federation.train(_job(PARAMS, base_model="before", eval_table="train"))
    with pytest.raises(ConfigError, match="base_model and protocol 'forest' do not go together"):
        await federation.train(_job(ForestParams(), base_model="before"))


@pytest.mark.second_tier
async def test_label_dp_covers_the_base_model_too(tmp_path: Path) -> None:
    """Scores by labels as they are would go into further trees beside noisy labels; a noisy base model is continued."""
    noisy = {LABEL_HOLDER: Defences(label_dp=LabelDp(epsilon=3.0))}

    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(_job(PARAMS), "before")).error == ""
    await federation.close()
    federation = Observed(tmp_path, HERE.tables, defences=noisy)
    failed(
        await federation.train(_job(PARAMS, base_model="before"), "refused"),
        "label_dp would not cover them; train the base model with label_dp too",
        bad_input=True,
    )
    assert all(each.to == COORDINATOR for each in federation.crossed)
    assert (await federation.train(_job(PARAMS), "noisy")).error == ""
    continued = await federation.train(_job(PARAMS, base_model="noisy"))
    assert (continued.state, continued.error, continued.stored_trees) == ("finished", "", 6)


@pytest.mark.second_tier
async def test_trees_that_the_label_holder_grows_alone_are_counted_with_the_base_models(tmp_path: Path) -> None:
    """Of six trees, three of a base model grown by all, Reduced-Leakage of four has one further tree grown alone."""
    first = oracle_train(HERE.parties, list(HERE.y), PARAMS)
    oracle = oracle_train(HERE.parties, list(HERE.y), PARAMS, base=first, own_trees=4)
    assert [bool(tree.withdrawn) for tree in oracle] == [False] * 3 + [True, False, False]

    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(_job(PARAMS), "before")).error == ""
    await federation.close()
    defences = {LABEL_HOLDER: Defences(reduced_leakage=ReducedLeakage(trees=4))}
    federation = Federation(tmp_path, HERE.tables, defences=defences)
    assert (await federation.train(_job(PARAMS, base_model="before"))).error == ""
    assert_oracles_model(federation.states, oracle)


async def test_models_without_their_records_scores_are_refused(tmp_path: Path) -> None:
    """An earlier release's; and a party's model of the same name that another job has made."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(_job(PARAMS), "before")).state == "finished"
    assert (await federation.train(_job(PARAMS), "twin")).state == "finished"
    models = federation.state(FEATURE) / "models"
    shutil.rmtree(models / "before")
    shutil.copytree(models / "twin", models / "before")
    failed(
        await federation.train(_job(PARAMS, base_model="before")), "this model was trained by another job of that name"
    )
