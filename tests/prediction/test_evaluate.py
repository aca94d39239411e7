"""Evaluated predictions: the recipient's own labels, a document beside the predictions, and what leaves the party."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.growth.evaluated import evaluated
from tests.pivodl import small_job
from tests.pivodl.federations import federation_of, transparent
from tests.simulator import Federation, finished, run
from tests.trainings import policies
from tests.worlds import PARTIES, Tables, spec, spread
from treetap.commands.jobs.progress_view import status_dict
from treetap.errors import ConfigError
from treetap.protocols.libraries import missing_library
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import training
from treetap.trees.evaluation import evaluate
from treetap.trees.job_params import JobParams
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.v2 import jobs_pb2

HOLDER, B, _ = PARTIES
BINARY = BoostingParams(n_estimators=2, max_depth=2, max_bin=4, min_child_weight=0.1)
FOREST = ForestParams(n_estimators=2, max_depth=2, max_bin=4)
TWO = evaluated(40, (1, 1, 1), fresh=30, seed=5)
THREE = evaluated(40, (1, 1, 1), fresh=30, seed=3, objective="multi:softprob", classes=3)
NUMBERS = evaluated(40, (1, 1, 1), fresh=30, seed=4, objective="reg:squarederror")
MULTI = replace(BINARY, objective="multi:softprob")


def _asked(protocol: str = "", **more: Any) -> jobs_pb2.PredictRequest:
    return predict_request(protocol, **{"model": "job", "job": "p", "table": "eval", "evaluate": True} | more)


def _outcome(path: str, objective: str) -> np.ndarray:
    """What the file of predictions says of every record, as an ensemble's outcome."""
    table = pq.read_table(path)
    if objective in ("reg:squarederror", "squared_error"):
        return table.column("prediction").to_numpy()
    names = [name for name in table.column_names if name.startswith("probability")]
    found = np.column_stack([table.column(name).to_numpy() for name in names])
    return found[:, 0] if found.shape[1] == 1 else found


def _assert_evaluation(status: jobs_pb2.JobStatus, objective: str, labels: np.ndarray, classes: list[str]) -> None:
    """The document is that of the predictions in the file; the status has its measures to four digits."""
    assert (status.state, status.error) == ("finished", "")
    document = json.loads(Path(status.evaluation).read_text())
    assert Path(status.evaluation).parent == Path(status.predictions).parent
    assert (document.pop("model"), document.pop("table"), document.pop("guessed")) == ("job", "eval", 0)
    assert document.pop("without_label") == 0
    assert document == evaluate(objective, _outcome(status.predictions, objective), labels, classes)
    shown = {name: float(f"{value:.4g}") for name, value in document["measures"].items() if value is not None}
    assert status_dict(status)["metrics"] == shown
    assert shown


CASES: dict[str, tuple[JobParams, Any, str]] = {
    "interactive": (BINARY, TWO, "interactive"),
    "eini of three classes": (MULTI, THREE, "eini"),
    "eini-lattice of numbers": (replace(BINARY, objective="reg:squarederror"), NUMBERS, "eini-lattice"),
    "interactive forest": (FOREST, TWO, "interactive"),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
async def test_the_label_holder_compares_predictions_with_its_labels(case: str, tmp_path: Path) -> None:
    """By every protocol of predictions of trees, and for classes as for numbers."""
    params, evaluating, protocol = CASES[case]
    classes = [] if params.objective == "reg:squarederror" else [str(k) for k in range(evaluating.here.classes)]

    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, evaluating.here.tables)
        assert (await federation.train(spec(params, obfuscation="standard"))).state == "finished"
        status = await federation.predict(_asked(protocol, block=16))
        await federation.close()
    _assert_evaluation(status, params.objective, evaluating.labels, classes)


@pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
async def test_the_recipient_of_masked_sums_compares_too(tmp_path: Path) -> None:
    """The recipient's labels of the table; another party has none."""
    here = spread(NUMBERS.here, [place % 3 for place in range(40)])

    with transparent():
        federation = federation_of(tmp_path, here, small_job.JOB)
        assert (await federation.train(small_job.JOB)).state == "finished"
        status = await federation.predict(_asked())
        error = (await federation.predict(_asked(recipient=B, job="other"))).error
    _assert_evaluation(status, "reg:squarederror", NUMBERS.labels, [])
    assert f"{B}: evaluate: the configuration names no label column for table 'eval'" in error


@pytest.mark.second_tier
@pytest.mark.skipif(bool(missing_library("splitnn", training("splitnn"))), reason="needs treetap[neural]")
async def test_predictions_of_networks_are_compared_too(tmp_path: Path) -> None:
    """With the same document as those of trees."""
    from tests.splitnn.small_job import PARAMS

    job = spec(PARAMS)

    federation = Federation(tmp_path, TWO.here.tables, policies=policies(job))
    finished(await federation.train(job))
    _assert_evaluation(await federation.predict(_asked()), PARAMS.objective, TWO.labels, ["0", "1"])


async def test_a_policy_keeps_the_measures_at_the_label_holder(tmp_path: Path) -> None:
    """Without METRIC for the coordinator the document is written and nothing of it leaves the party."""
    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, TWO.here.tables)
        assert (await federation.train(spec(BINARY, obfuscation="standard"))).state == "finished"
        federation.kill(HOLDER)
        federation.policies[HOLDER] = {"emits": {"METRIC": []}}
        federation.configs[HOLDER] = federation.configs[HOLDER].under(federation.policy(HOLDER))
        federation.start(HOLDER)
        status = await federation.predict(_asked())
        await federation.close()
    assert (status.state, status.error) == ("finished", "")
    assert len(status.metrics) == 0
    assert json.loads(Path(status.evaluation).read_text())["measures"]["auc"] is not None


def _labels(change: Any) -> Tables:
    """The tables of `TWO`, the labels of the eval table changed."""
    columns, content = TWO.here.tables[HOLDER]
    table = content["eval"]
    place = table.column_names.index("y")
    changed = table.set_column(place, "y", pa.array(change(table.column("y").to_pylist())))
    return {**TWO.here.tables, HOLDER: (columns, {**content, "eval": changed})}


def test_few_labels_and_strange_ones_are_refused(tmp_path: Path) -> None:
    """Records without a label do not count; a label that the model does not know is named by its row alone."""

    async def main(folder: Path, tables: Tables, least: int) -> tuple[jobs_pb2.JobStatus, list[str]]:
        federation = Federation(folder, tables, policies={HOLDER: {"labels": {"min_evaluated_records": least}}})
        assert (await federation.train(spec(BINARY, obfuscation="standard"))).state == "finished"
        before = len(federation.log)
        status = await federation.predict(_asked())
        words = [message.word for message in federation.log[before:]]
        await federation.close()
        return status, words

    with ciphers(KeysMade(), transparent=True):
        half = _labels(lambda cells: [None, *cells[1:]])
        status, words = run(main(tmp_path / "few", half, 30))
        assert "min_evaluated_records = 30, and fewer records common to all parties have a label" in status.error
        assert "block_records" not in words
        found, _ = run(main(tmp_path / "enough", half, 29))
        document = json.loads(Path(found.evaluation).read_text())
        assert (document["records"], document["without_label"]) == (29, 1)
        status, _ = run(main(tmp_path / "strange", _labels(lambda cells: [7, *cells[1:]]), 2))
    assert "is none of the model's classes" in status.error
    assert "7" not in status.error.rpartition("eval.parquet")[2]


async def test_a_subset_and_a_served_model_are_not_evaluated(tmp_path: Path) -> None:
    """Measures of a subset that the operator chooses, with a record and without it, would tell its label."""
    with ciphers(KeysMade(), transparent=True):
        federation = Federation(tmp_path, TWO.here.tables)
        assert (await federation.train(spec(BINARY, obfuscation="standard"))).state == "finished"
        for more, said in (({"records_file": "some.txt"}, "would tell the label of one"), ({"serve": True}, "served")):
            with pytest.raises(ConfigError, match=said):
                await federation.predict(_asked(**more))
