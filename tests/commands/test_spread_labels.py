"""Labels spread over the parties of an experiment: who labels which row, and the tables that the parties get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import treetap
from treetap.lab.experiment.baselines import joined_labels
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import labels_of, read_table, split
from treetap.lab.experiment.party_tables import labels_file, truth, with_classes, write_tables
from treetap.tables import reading
from treetap.tables.config import TableConfig

pytestmark = pytest.mark.second_tier

ROWS = 60


def _experiment(folder: Path, own: list[dict[str, Any]], classes: Any = (0, 1)) -> ExperimentFile:
    """Parties a, b, …, one column each, of a table of 60 rows whose label is 0 and 1 by turns."""
    labels = list(classes) * (ROWS // 2)
    columns = {f"c{k}": np.arange(ROWS) + k for k in range(len(own))}
    content = {"id": [f"r{i:02}" for i in range(ROWS)], **columns, "y": labels}
    pq.write_table(pa.table(content), folder / "t.parquet")
    return ExperimentFile.model_validate(
        {
            "data": {"path": str(folder / "t.parquet"), "label": "y", "id": "id", "test_share": 0.2},
            "party": [{"name": "abcd"[k], "columns": [f"c{k}"], **each} for k, each in enumerate(own)],
            "job": {"protocol": "pivodl"},
        }
    )


def test_shares_are_a_partition_drawn_anew_for_each_seed(tmp_path: Path) -> None:
    """Each training row has one owner, the numbers are those of the shares, and a party may have none."""
    experiment = _experiment(tmp_path, [{"label_share": 0.5}, {"label_share": 0.25}, {"label_share": 0.25}, {}])
    table = read_table(experiment, tmp_path)
    drawn = [split(experiment, table, seed) for seed in (0, 0, 1)]
    for each in drawn:
        assert {name: len(rows) for name, rows in each.labels.items()} == {"a": 24, "b": 12, "c": 12}
        assert sorted(np.concatenate(list(each.labels.values()))) == each.train.tolist()
    assert drawn[0].labels["a"].tolist() == drawn[1].labels["a"].tolist()
    assert drawn[0].labels["a"].tolist() != drawn[2].labels["a"].tolist()


def test_files_name_rows_and_shares_divide_the_others(tmp_path: Path) -> None:
    """A file's training rows are its party's; shares are of the rows that no file names."""
    (tmp_path / "a.txt").write_text("".join(f"r{i:02}\n" for i in range(30)))
    experiment = _experiment(tmp_path, [{"label_rows": "a.txt"}, {"label_share": 0.5}, {"label_share": 0.5}])
    found = split(experiment, read_table(experiment, tmp_path), 0)
    assert found.labels["a"].tolist() == [row for row in found.train if row < 30]
    assert sorted([*found.labels["b"], *found.labels["c"]]) == [row for row in found.train if row >= 30]
    assert abs(len(found.labels["b"]) - len(found.labels["c"])) <= 1


@pytest.mark.parametrize("classes", [[0, 1], ["no", "yes"], [False, True]])
def test_each_party_gets_its_own_labels_and_no_other(tmp_path: Path, classes: list[Any]) -> None:
    """Cells of others' rows are null, a party without labels has no label column, held-out rows none at all."""
    experiment = _experiment(tmp_path, [{"label_share": 0.5}, {"label_share": 0.5}, {}], classes)
    table = read_table(experiment, tmp_path)
    labels = labels_of(experiment, table)
    experiment = with_classes(experiment, labels)
    drawn = split(experiment, table, 0)
    settings = write_tables(experiment, table, drawn, tmp_path / "run")
    tables = {}
    for name, each in settings.items():
        train = each["tables"]["train"]
        kept = pq.read_table(train["path"])
        assert ("y" in kept.column_names) == ("label" in train) == (name in drawn.labels)
        assert pq.read_schema(each["tables"]["predict"]["path"]).names == ["treetap_id", f"c{'abc'.index(name)}"]
        if name in drawn.labels:
            held = np.flatnonzero(kept.column("y").is_valid())
            assert drawn.train[held].tolist() == drawn.labels[name].tolist()
        config = TableConfig.model_validate(train)
        tables[name] = reading.read_table(config, with_label="label" in train, missing=None)
        assert each["policy"]["emits"]["LEAF_WEIGHT"] == ["parties"]
    params = experiment.job.params()
    assert params.to_dict()["classes"] == [str(name) for name in classes]
    joined, ownership = joined_labels(tables, "y", params)
    assert joined.values.tolist() == [row % 2 for row in drawn.train]
    assert {name: len(rows) for name, rows in ownership.items()} == {"a": 24, "b": 24}
    assert pq.read_table(labels_file(experiment, tmp_path / "run")).num_rows == len(drawn.train)
    rows = table.take(pa.array(drawn.test))
    assert truth(rows, "y", [f"r{i:02}" for i in drawn.test], joined).tolist() == [i % 2 for i in drawn.test]


def _files(folder: Path) -> Path:
    """Three hospitals, two of which label halves of 120 patients; the labels follow one column of each of two."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, 4))
    labels = np.where(x[:, 0] + x[:, 2] + rng.normal(scale=0.3, size=120) > 0, "ill", "well")
    pq.write_table(pa.table({**{f"c{j}": x[:, j] for j in range(4)}, "y": labels}), folder / "t.parquet")
    (folder / "exp.toml").write_text(
        """[data]
path = "t.parquet"
label = "y"
compare = true
[[party]]
name = "north"
columns = ["c0", "c1"]
label_share = 0.5
[[party]]
name = "south"
columns = ["c2"]
label_share = 0.5
[[party]]
name = "east"
columns = ["c3"]
[job]
protocol = "pivodl"
key_bits = 512
n_estimators = 2
max_depth = 2
max_bin = 8
instance_threshold = 3
[audit]
run = false
[predict]
"""
    )
    return folder / "exp.toml"


@pytest.mark.xdist_group("experiment")
def test_the_federation_is_the_centralised_model(tmp_path: Path) -> None:
    """A run over sockets, labels at two of three parties: model and measures are those of the joined table."""
    outcome = treetap("experiment", _files(tmp_path), "--json", "--workdir", "kept", folder=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    (found,) = json.loads(outcome.out)["runs"]
    test = found["metrics"]["test"]
    alone = {name: row["auc"] for name, row in found["metrics"].items() if "alone" in name}
    assert test == pytest.approx(found["metrics"]["centralised, test"])
    assert found["predict"]["masked"]["max_difference"] < 1e-9
    assert test["auc"] > max(alone.values())
    assert set(alone) == {"north alone, test", "south alone, test"}
    assert {"logloss", "accuracy"} <= set(found["metrics"]["train"])
    assert found["privacy"] == ["Leaf weights are exact: the job has no epsilon, and so no differential privacy."]
    assert {row["feature"] for row in found["importance"]} >= {"c0", "c2"}
    assert all(row["gain"] is None for row in found["importance"])
    sent = {row["class"] for row in found["traffic"]}
    assert {"AGGREGATE", "BIN_ASSIGNMENT", "LEAF_WEIGHT", "MASKED_SHARE", "CANDIDATE_SUM"} <= sent
    assert not {row["to"] for row in found["traffic"] if row["class"] == "BIN_ASSIGNMENT"} - {"north", "south"}
    shown = treetap("model", "show", found["model"]["east"], "--json")
    assert json.loads(shown.out)["labelled_records"] == 0
    assert treetap("model", "export", found["model"]["south"], "--out", tmp_path / "card").status == 0
