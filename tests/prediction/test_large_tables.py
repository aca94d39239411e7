"""Predictions of tables that stay in their source: the same files as of tables in memory, whatever the blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.library.process.test_grouped_rows import FILE
from tests.masked.predictions import implied_scores, predicted, scores_of, trained
from tests.pivodl.federations import transparent
from tests.pivodl.jobs import DEEP, fitting
from tests.simulator import Federation, finished
from tests.worlds import spec, world
from treetap.party.prediction.opened_model import HeldValues, StoredValues
from treetap.protocols.prediction import predict_request
from treetap.tables import streamed_reading
from treetap.tables.features import Held
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
HERE = world(40, (2, 2, 1), missing=0.15, fresh=23)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=8)


@pytest.mark.second_tier
@given(st.integers(1, 300), st.lists(st.integers(0, 299), max_size=60), st.sampled_from([1, 8]))
def test_stored_values_are_those_in_memory(total: int, asked: list[int], spread: int) -> None:
    """Of records in any order, side by side or far apart, once and again, or of none."""
    draws = np.random.default_rng(total)
    table, rows = draws.normal(size=(total, 3)), draws.permutation(total)
    table[draws.random(table.shape) < 0.2] = np.nan
    held, stored = HeldValues(table), StoredValues.of(Held(table), rows, [0, 2], FILE)
    wanted = np.unique(np.array(asked, dtype=np.int64) * spread % total)
    for places in (wanted, wanted[::2], np.arange(total), wanted):
        for feature in (2, 0):
            assert np.array_equal(stored.column(places, feature), held.column(places, feature), equal_nan=True)
            assert np.array_equal(stored.columns(places)(feature), held.columns(places)(feature), equal_nan=True)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", ["interactive", "eini", "eini-lattice"])
async def test_streamed_tables_have_the_same_predictions(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a small table in memory is that of one in its source, for two sizes of blocks."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(spec(PARAMS, len(HERE.blocks)))).state == "finished"
    files = []
    for name, block, streamed in (("held", 1000, 1 << 27), ("whole", 1000, 0), ("parts", 5, 0)):
        monkeypatch.setattr(streamed_reading, "STREAMED", streamed)
        asked = predict_request(model="job", job=name, protocol=protocol, block=block)
        status = finished(await federation.predict(asked))
        files.append(pq.read_table(status.predictions))
    assert files[0].equals(files[1])
    assert files[0].equals(files[2])


@pytest.mark.second_tier
async def test_streamed_tables_and_masked_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each party passes records on by the values of its own splits, which it has read once."""
    here = fitting(world(40, (1, 1, 1), seed=25, fresh=20), DEEP)

    with transparent():
        federation = await trained(tmp_path, here, DEEP)
        monkeypatch.setattr(streamed_reading, "STREAMED", 0)
        status = await predicted(federation, block=7)
        assert (scores_of(status.predictions) == implied_scores(federation.states, here)).all()


async def test_a_damaged_row_group_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction fails as bad input, exit status 2, with file, row group and column; nothing is scored."""
    monkeypatch.setattr(streamed_reading, "STREAMED", 0)

    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(spec(PARAMS, len(HERE.blocks)))).state == "finished"
    columns, tables = HERE.tables["feature-b"]
    path = federation.configs["feature-b"].table("predict").path  # type: ignore[union-attr]
    pq.write_table(tables["predict"], path, row_group_size=8, compression="zstd", use_dictionary=False)
    place = pq.read_metadata(path).row_group(1).column(tables["predict"].schema.get_field_index(columns[-1]))
    content = bytearray(path.read_bytes())
    middle = place.data_page_offset + place.total_compressed_size // 2
    content[middle : middle + 8] = bytes(8)
    path.write_bytes(content)
    status = await federation.predict(predict_request(model="job", table="predict"))
    assert (status.state, status.bad_input, status.predictions) == ("failed", True, "")
    assert f"row group 2 of 3, column {columns[-1]!r}" in status.error
