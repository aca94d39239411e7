"""Columns of images in a federation: networks take them, trees refuse them, and later tables must have their shapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.needs import needs_library_of
from tests.pivodl.jobs import PARAMS as OF_PIVODL
from tests.pivodl.jobs import fitting, policies
from tests.simulator import Federation
from tests.splitnn.jobs import EMITS
from tests.splitnn.jobs import PARAMS as OF_NETWORKS
from tests.worlds import PARTIES, Tables, spec, world
from treetap.models.store import read_manifest
from treetap.neural.params import DEFAULT, Bottom
from treetap.protocols.prediction import predict_request
from treetap.tables.cells import tensor_column
from treetap.trees.params import BoostingParams, ForestParams, TreeParams

pytestmark = pytest.mark.second_tier

HERE = world(40, (1, 2, 1), fresh=5)
B = PARTIES[1]
TREES = {
    "boosting": BoostingParams(n_estimators=1, max_depth=2, max_bin=4),
    "forest": ForestParams(n_estimators=1, max_depth=2, max_bin=4),
    "pivodl": OF_PIVODL,
}


def _with_images(tables: Tables, **shapes: tuple[int, ...]) -> Tables:
    """The tables, of which feature-b's have images of a shape in column b1: in some tables, and each of its own."""
    columns, content = tables[B]
    draw = np.random.default_rng(2)
    changed = dict(content)
    for table, shape in shapes.items():
        cells: pa.Table = content[table]
        images: Any = tensor_column(draw.integers(0, 256, (cells.num_rows, *shape), dtype=np.uint8))
        changed[table] = cells.set_column(cells.column_names.index("b1"), "b1", images)
    return {**tables, B: (columns, changed)}


@pytest.mark.parametrize("protocol", TREES)
async def test_trees_refuse_images_by_name(protocol: str, tmp_path: Path) -> None:
    """The party and the column are named to the operator, and nothing is grown."""
    params: TreeParams = TREES[protocol]
    here = fitting(HERE, OF_PIVODL) if protocol == "pivodl" else HERE
    job = spec(params)

    own = policies(job) if protocol == "pivodl" else None
    federation = Federation(tmp_path, _with_images(here.tables, train=(3, 4)), policies=own)
    status = await federation.train(job)
    assert (status.state, status.bad_input, status.stored_trees) == ("failed", True, 0)
    assert status.error.startswith(f"{B}: ")
    assert "train.parquet: column 'b1' holds tensors of shape 3 x 4, and trees split at numbers" in status.error


async def test_a_model_of_trees_is_asked_about_no_images(tmp_path: Path) -> None:
    """A column of numbers that has become one of images since the training is named, with both."""
    federation = Federation(tmp_path, _with_images(HERE.tables, predict=(3, 4)))
    assert (await federation.train(spec(TREES["boosting"]))).state == "finished"
    status = await federation.predict(predict_request(model="job"))
    said = "column 'b1' holds tensors of shape 3 x 4, and no tensors when it was trained on"
    assert (status.state, status.error.endswith(said)) == ("failed", True)


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ((2, 3, 4), None),
        ((2, 4, 3), "column 'b1' holds tensors of shape 2 x 4 x 3, and tensors of shape 2 x 3 x 4 when it was trained"),
        ((3, 4), "column 'b1' holds tensors of shape 3 x 4, and tensors of shape 2 x 3 x 4 when it was trained on"),
        (None, "column 'b1' holds no tensors, and tensors of shape 2 x 3 x 4 when it was trained on"),
    ],
)
async def test_a_later_table_of_a_network_has_the_same_shape(
    later: tuple[int, ...] | None, said: str | None, tmp_path: Path
) -> None:
    """The error names both shapes; the manifest has the one of the training."""
    needs_library_of("splitnn")
    shapes = {"train": (2, 3, 4), **({} if later is None else {"predict": later})}
    params = replace(OF_NETWORKS, epochs=1, bottom={DEFAULT: Bottom(width=3)})

    federation = Federation(tmp_path, _with_images(HERE.tables, **shapes), policies=EMITS)
    assert (await federation.train(spec(params))).state == "finished"
    manifest = read_manifest(tmp_path / B / "state" / "models" / "job")
    assert manifest["tensors"] == {"b1": {"shape": [2, 3, 4]}}
    assert (manifest["columns"], manifest["source_columns"]) == (["b0"], ["b0", "b1"])
    status = await federation.predict(predict_request(model="job"))
    assert status.state == ("finished" if said is None else "failed")
    assert said is None or said in status.error
