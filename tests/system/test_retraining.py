"""A model without forgotten records, over processes: treetap forget --retrain, and the old model goes everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.commands.command import refused, treetap
from tests.system.federations import settings, states, write_operator_file
from tests.worlds import PARTIES, world
from treetap.lab.local_federation import LocalFederation, to_toml

LABEL_HOLDER, B, C = PARTIES
HERE = world(40, (1, 1, 1), fresh=6, seed=25)
GONE = "r00007"


@pytest.mark.second_tier
def test_a_person_is_forgotten_and_the_model_trained_again(tmp_path: Path) -> None:
    """The job of the same file; the measures of both are compared, and nothing says whom it is about."""
    parties = settings(tmp_path, {"here": HERE}, people={"operators": ["operator"]})
    file, gone, table = tmp_path / "credit.toml", tmp_path / "gone.txt", Path(parties[B]["tables"]["here"]["path"])
    job = {"label_holder": LABEL_HOLDER, "feature_parties": [B, C], "table": "here", "key_bits": 1024}
    file.write_text(to_toml({"name": "credit", "job": {**job, "n_estimators": 2, "max_depth": 2, "max_bin": 4}}))
    gone.write_text(f"{GONE}\n")
    with LocalFederation(tmp_path, parties) as running:
        asked = ("--operator", write_operator_file(running))
        assert treetap("train", file, *asked).status == 0
        running.kill(B)
        forgotten = treetap("forget", "--config", running.folder / B / "config.toml", "--ids", gone)
        assert "treetap forget --retrain" in " ".join(forgotten.out.split())
        own = pq.read_table(table)
        pq.write_table(own.filter([name != GONE for name in own["id"].to_pylist()]), table)
        running.restart(B)
        outcome = treetap("forget", "--retrain", file, "--name", "credit-2", *asked, "--json")
        assert outcome.status == 0, outcome.err
        compared = json.loads(outcome.out)["replaces"]
        assert compared["model"] == "credit"
        assert compared["measures"].pop("records") == {"before": 40, "after": 39}
        assert compared["measures"].keys() >= {"train_auc", "train_logloss"}
        assert all(both["before"] != both["after"] for both in compared["measures"].values())
        assert GONE not in outcome.out + outcome.err
        scored = ("--table", "here-new", *asked)
        assert treetap("predict", "credit-2", *scored).status == 0
        for state in states(running, HERE).values():
            assert [path.name for path in (state / "models").iterdir()] == ["credit-2"]
        outcome = treetap("predict", "credit", *scored)
        assert outcome.status == 2
        assert "'credit' is deleted, since model 'credit-2' has replaced it" in outcome.err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--config", "bank.toml"), "--config, --ids: give both; or --retrain"),
        (("--retrain", "job.toml", "--ids", "gone.txt"), "--retrain: is an operator's, and takes no records out"),
        (("--retrain", "job.toml"), "job.toml: has no name; write that of the model that is to be replaced"),
    ],
)
def test_it_does_not_begin(words: tuple[str, ...], fault: str, tmp_path: Path) -> None:
    """A party's command, or an operator's; the file says which model is meant."""
    (tmp_path / "job.toml").write_text('[job]\nlabel_holder = "bank"\nfeature_parties = ["shop"]\n')
    assert fault in refused(treetap("forget", *words, folder=tmp_path))
