"""A label holder's part of a model as XGBoost's JSON, and models that have no place there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xgboost

from tests.simulator import Federation, run
from tests.worlds import PARTIES, spec, world
from treetap.errors import BadInput
from treetap.lab.experiment.joint_model import open_shards, scores
from treetap.lab.experiment.xgboost_export import check_exportable, export_alone, export_run
from treetap.party.defences.settings import Defences
from treetap.tables.config import TableConfig
from treetap.trees.params import BoostingParams

PARAMS = BoostingParams(n_estimators=3, max_depth=3, max_bin=12)
HERE = world(80, (3, 2, 1), missing=0.1, seed=4)
OWNER = PARTIES[0]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Published models of the label holder: all of whose trees it grew alone, and one of all parties."""
    found = []
    for given in ({OWNER: Defences.model_validate({"reduced_leakage": {"trees": 3}})}, {}):
        folder = tmp_path_factory.mktemp("federation")

        async def main(folder: Path = folder, given: dict[str, Defences] = given) -> None:
            federation = Federation(folder, HERE.tables, defences=given)
            assert (await federation.train(spec(PARAMS))).state == "finished"

        run(main())
        found.append(folder / OWNER / "state" / "models" / "job")
    return found[0], found[1]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("with_table", [True, False])
def test_a_part_that_stands_alone(with_table: bool, models: tuple[Path, Path], tmp_path: Path) -> None:
    """It needs no other party's columns; the file is for its owner alone."""
    own, out = models[0], tmp_path / "model.json"
    table = TableConfig(path=str(own.parents[2] / "train.parquet"), id="id", columns=["a0"], label="y")
    assert export_alone(own, table if with_table else None, out) == OWNER
    assert out.stat().st_mode & 0o077 == 0
    booster = xgboost.Booster()
    booster.load_model(out)
    opened, columns = open_shards({OWNER: own}), HERE.new[0].astype(np.float32)
    expected = scores(opened.published, opened.meaning, {OWNER: columns.astype(np.float64)})
    matrix = xgboost.DMatrix(columns, feature_names=[f"{OWNER}.{name}" for name in HERE.tables[OWNER][0]])
    np.testing.assert_allclose(booster.predict(matrix, output_margin=True), expected[:, 0], rtol=1e-6, atol=1e-6)
    described = json.loads(booster.attr("treetap"))
    assert (described["label_holder"], described["classes"]) == (OWNER, ["0", "1"])
    assert [each["column"] for each in described["features"]] == HERE.tables[OWNER][0]


def test_a_part_that_does_not(models: tuple[Path, Path], tmp_path: Path) -> None:
    """Splits of other parties have no meaning here, and a feature party's part has no shape."""
    with pytest.raises(BadInput, match=r"\d+ of \d+ splits are those of feature-., .*stands alone only if all splits"):
        export_alone(models[1], None, tmp_path / "no.json")
    feature = models[1].parents[3] / PARTIES[1] / "state" / "models" / "job"
    with pytest.raises(BadInput, match="is a feature party's part of a model"):
        export_alone(feature, None, tmp_path / "no.json")
    assert not (tmp_path / "no.json").exists()


def test_models_that_xgboost_cannot_have() -> None:
    """Networks, and models whose leaf weights lie apart, are refused before a training."""
    check_exportable("boosting")
    for protocol, why in (("splitnn", "trains networks"), ("pivodl", "has no label holder")):
        with pytest.raises(BadInput, match=why):
            check_exportable(protocol)


def test_folders_that_are_none(models: tuple[Path, Path], tmp_path: Path) -> None:
    """No model, and a run of which a part or a table is gone, by name."""
    with pytest.raises(BadInput, match="has no model; name a folder of shards, of an experiment"):
        export_run(tmp_path, tmp_path / "no.json")
    run_folder = tmp_path / "seed-0"
    for party in PARTIES[:2]:
        target = run_folder / party / "state" / "models"
        target.mkdir(parents=True)
        (target / "experiment").symlink_to(models[1].parents[3] / party / "state" / "models" / "job")
    with pytest.raises(BadInput, match=r"feature-b/train\.parquet: is not there"):
        export_run(run_folder, tmp_path / "no.json")
    for party in PARTIES[:2]:
        (run_folder / party / "train.parquet").write_bytes(b"")
    with pytest.raises(BadInput, match=r"the model has parties .*feature-c.*, and these shards are of"):
        export_run(run_folder, tmp_path / "no.json")
