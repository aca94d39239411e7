"""Tables whose features stay in their source, with more records than exact cuts are for: the oracle's model of the
same cuts, which are those of sketches of the columns in the order of the parties' files.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from tests.library.tables.test_batches import damage
from tests.library.trees.same import differences
from tests.oracle import bin_cuts, oracle_train
from tests.simulator import Federation, failed, finished
from tests.worlds import World, assert_oracles_model, spec, world
from treetap.tables.binned import bin_columns
from treetap.tables.features import Streamed
from treetap.trees.binning import FeatureBins, QuantileSketch, encode, quantile_cuts
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

BLOCK, N = 8, 160
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=6)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    monkeypatch.setattr("treetap.tables.binned.BLOCK", BLOCK)
    monkeypatch.setattr("treetap.party.setup.steps.bin_columns", partial(bin_columns, exact=100))
    for module in ("source", "opening"):
        monkeypatch.setattr(f"treetap.tables.{module}.BATCH_ROWS", 50)


def sketched(here: World, party: str, column: int) -> npt.NDArray[np.float64]:
    """The cuts of a party's column, by its file."""
    names, files = here.tables[party]
    values = files["train"].column(names[column]).to_numpy(zero_copy_only=False)
    sketch = QuantileSketch(PARAMS.max_bin, BLOCK)
    sketch.add(values[~np.isnan(values)])
    return quantile_cuts(*sketch.weighted(), PARAMS.max_bin)


async def test_the_federation_finds_the_oracles_model_of_the_same_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node for node, by the naive oracle and by the centralised trainer; no party has its features in memory."""
    here = world(n=N, dims=(2, 2), missing=0.1, seed=3)
    monkeypatch.setattr(Streamed, "whole", lambda *_: pytest.fail("the features are read at once"))
    cuts = {(name, j): sketched(here, name, j) for name, block in here.parties for j in range(block.shape[1])}
    for name, block in here.parties:
        for j in range(block.shape[1]):
            assert cuts[name, j].tolist() != bin_cuts(block[:, j].tolist(), PARAMS.max_bin)
    oracle = oracle_train(here.parties, list(here.y), PARAMS, cuts_of=lambda name, j: cuts[name, j].tolist())
    bins = {
        name: [FeatureBins(cuts[name, j], bool(np.isnan(block[:, j]).any())) for j in range(block.shape[1])]
        for name, block in here.parties
    }
    tables = [(name, encode(block, bins[name])) for name, block in here.parties]
    assert differences(train(tables, here.y, PARAMS), oracle) == ""

    federation = Federation(tmp_path, here.tables)
    finished(await federation.train(spec(PARAMS, 2)))
    assert_oracles_model({name: federation.state(name) for name in here.tables}, oracle)


async def test_a_damaged_row_group_ends_the_job_before_a_message(tmp_path: Path) -> None:
    """The feature party's file is named by row group and column, and no party has sent another one anything."""
    here = world(n=N, dims=(2, 2))

    federation = Federation(tmp_path, here.tables)
    table = federation.configs["feature-b"].table("train")
    assert table is not None
    path = Path(str(table.path))
    pq.write_table(here.tables["feature-b"][1]["train"], path, row_group_size=60)
    damage(path, 1, 2)
    failed(
        await federation.train(spec(PARAMS, 2)),
        "row group 2 of 3, column 'b1' cannot be decoded; is the Parquet file damaged?",
    )
    assert {message.sender for message in federation.log} & {message.to for message in federation.log} == set()
