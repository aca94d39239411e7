"""Columns of text, and constant ones.

- Columns of text through a whole training and prediction, for both protocols that grow trees.
- Columns with one value: refused before anything is sent, or dropped by the party that owns them.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.simulator import Federation, failed, finished
from tests.worlds import World, assert_oracles_model, assert_oracles_scores, manifest, spec, world
from treetap.protocols.prediction import predict_request
from treetap.tables.config import Encode, TableConfig
from treetap.tables.reading import read_table
from treetap.trees.params import BoostingParams, ForestParams, TreeParams

FOREST = ForestParams(n_estimators=2, max_depth=3, max_bin=6)
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
NAN = float("nan")
WORDS = ["ant", "bee", "cat", "dog"]
PARAMS = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
OWNER = "feature-b"


def _with_text(encode: Encode):
    """A world whose column b0 holds words, of which the newcomers have one that training had not; and its blocks."""
    here = world(50, (1, 2, 1), seed=3)
    columns, tables = here.tables["feature-b"]
    blocks, new = [block.copy() for block in here.blocks], [block.copy() for block in here.new]
    for name, part in (("train", blocks), ("predict", new)):
        known = 3 if name == "train" else 4
        ids, values = (tables[name].column(column).to_pylist() for column in ("id", "b0"))
        codes = {
            key: min(int(abs(value) * 2), known - 1) if value == value else None
            for key, value in zip(ids, values, strict=True)
        }
        words = pa.array([None if code is None else WORDS[code] for code in codes.values()], pa.string())
        tables[name] = tables[name].set_column(tables[name].column_names.index("b0"), "b0", words)
        ordered = np.array([NAN if codes[key] in (None, 3) else codes[key] for key in sorted(codes)], dtype=np.float64)
        hot = np.where(np.isnan(ordered)[:, None], NAN, ordered[:, None] == np.arange(3))
        part[1] = np.hstack([ordered[:, None] if encode == "ordinal" else hot, part[1][:, 1:]])
    assert columns[0] == "b0"
    return here, list(zip(here.tables, blocks, strict=True)), list(zip(here.tables, new, strict=True))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("params", [FOREST, BOOSTING], ids=["forest", "boosting"])
@pytest.mark.parametrize("encode", ["ordinal", "one-hot"])
async def test_text_is_trained_on_and_predicted_with(encode: Encode, params: TreeParams, tmp_path: Path) -> None:
    """The model is the oracle's on the encoded columns, and a word that training had not is a missing value."""
    here, blocks, new = _with_text(encode)
    shown = type(here)(here.tables, [block for _, block in blocks], here.y, [block for _, block in new], here.classes)
    oracle = shown.oracle(params)

    federation = Federation(tmp_path, here.tables, encode=encode)
    assert (await federation.train(spec(params))).state == "finished"
    assert_oracles_model(federation.states, oracle)
    for protocol in ("interactive", "eini"):
        predicted = finished(await federation.predict(predict_request(model="job", protocol=protocol)))
        assert_oracles_scores(predicted.predictions, oracle, shown.newcomers, len(here.y))
    stored = manifest(federation.state("feature-b"))
    assert stored["categories"]["b0"]["values"] == WORDS[:3]
    assert stored["source_columns"] == ["b0", "b1"]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("partitions", [False, True])
async def test_what_the_cells_show_is_kept_with_the_model(partitions: bool, tmp_path: Path) -> None:
    """Trees that may partition categories take them so, by the party's policy, and a prediction reads as they did."""
    here, blocks, new = _with_text("ordinal" if partitions else "one-hot")
    shown = type(here)(here.tables, [block for _, block in blocks], here.y, [block for _, block in new], here.classes)

    policies = {party: {"columns": {"category_partitions": partitions}} for party in here.tables}
    federation = Federation(tmp_path, here.tables, encode="auto", policies=policies)
    finished(await federation.train(spec(BOOSTING)))
    stored = manifest(federation.state("feature-b"))["categories"]["b0"]
    assert (stored["encode"], stored["values"]) == ("categorical" if partitions else "one-hot", WORDS[:3])
    predicted = finished(await federation.predict(predict_request(model="job", protocol="interactive")))
    if not partitions:
        oracle = shown.oracle(BOOSTING)
        assert_oracles_model(federation.states, oracle)
        assert_oracles_scores(predicted.predictions, oracle, shown.newcomers, len(here.y))


async def test_without_the_setting_the_message_names_it(tmp_path: Path) -> None:
    """A job on a table with text fails as the user's to mend, and the message says what to set."""
    here, _, _ = _with_text("ordinal")

    federation = Federation(tmp_path, here.tables)
    failed(
        await federation.train(spec(FOREST)),
        "column 'b0' holds text; write in the table's settings:\n",
        'encode = { b0 = "one-hot" }',
        bad_input=True,
    )


def _with_constants() -> World:
    """A world in which a party has two constant columns and an empty one, which its new records lack."""
    here = world(40, (1, 2, 1), seed=3, missing=0.1)
    columns, tables = here.tables[OWNER]
    rows = tables["train"].num_rows
    same = {"one": pa.array([7.0] * rows), "none": pa.nulls(rows, pa.float64()), "two": pa.array(["x"] * rows)}
    for name, cells in same.items():
        tables["train"] = tables["train"].append_column(name, cells)
    return replace(here, tables={**here.tables, OWNER: ([*columns, *same], tables)})


async def test_they_are_refused_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The operator reads the first name and how many follow, the party's log has all; no party has sent anything."""
    here = _with_constants()

    with caplog.at_level(logging.INFO):
        federation = Federation(tmp_path, here.tables, encode="ordinal")
        failed(
            await federation.train(spec(PARAMS)),
            "column 'one' is constant, and so are 2 more, which this party's log lists: leave them",
            "set drop_constant = true in the table's settings",
            bad_input=True,
        )
        assert not [message for message in federation.log if message.word == "deliver"]
        await federation.close()
    said = "of its 40 records, column 'one' is constant, column 'none' has no value at all, column 'two' is constant"
    assert said in caplog.text


async def test_they_are_dropped(tmp_path: Path) -> None:
    """The model is the one without them, the manifest names them, and a table for predictions need not have them."""
    here = _with_constants()
    oracle = here.oracle(PARAMS)

    federation = Federation(tmp_path, here.tables, encode="ordinal", drop_constant=True)
    assert (await federation.train(spec(PARAMS))).state == "finished"
    assert_oracles_model(federation.states, oracle)
    stored = manifest(federation.state(OWNER))
    assert stored["dropped_columns"] == ["one", "none", "two"]
    assert stored["source_columns"] == stored["columns"] == ["b0", "b1"]
    assert set(stored["categories"]) == set()
    assert "dropped_columns" not in manifest(federation.state("feature-c"))
    predicted = await federation.predict(predict_request(model="job", protocol="interactive"))
    assert_oracles_scores(predicted.predictions, oracle, here.newcomers, len(here.y))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("drop", [False, True])
async def test_one_value_among_the_common_records_alone(drop: bool, tmp_path: Path) -> None:
    """Refused after the alignment; with `drop_constant` the column is kept, and no node splits at it."""
    here = world(40, (1, 2, 1), seed=3)
    columns, tables = here.tables[OWNER]
    common = tables["train"].column("id").to_pylist()
    more = pa.table({"id": ["x1"], "b0": [0.5], "b1": [0.25], "late": [2.0]})
    tables["train"] = pa.concat_tables([tables["train"].append_column("late", pa.array([1.0] * len(common))), more])
    tables["predict"] = tables["predict"].append_column("late", pa.array([3.0] * tables["predict"].num_rows))
    here = replace(here, tables={**here.tables, OWNER: ([*columns, "late"], tables)})
    oracle = here.oracle(PARAMS)

    federation = Federation(tmp_path, here.tables, drop_constant=drop)
    status = await federation.train(spec(PARAMS, alignment="psi"))
    if drop:
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_model(federation.states, oracle)
        assert manifest(federation.state(OWNER))["columns"] == ["b0", "b1", "late"]
    else:
        assert "column 'late' is constant: leave it out, or set drop_constant" in status.error


@pytest.mark.parametrize(
    ("cells", "encode", "dropped"),
    [
        ([1.0, 1.0, 1.0], None, True),
        ([None, None, None], None, True),
        ([1.0, None, 1.0], None, False),
        ([-1.0, -1.0, 1.0], None, False),
        ([-1.0, -1.0, -1.0], None, True),
        (["x", "x", "x"], "one-hot", True),
        (["x", "x ", "x"], "one-hot", False),
        (["x", None, "x"], "one-hot", False),
        (["x", "y", "x"], "ordinal", False),
        (["2024-01-01", "2024-01-01T00:00", "2024-01-01"], "days", True),
    ],
)
def test_what_is_constant(cells: list[object], encode: str | None, dropped: bool, tmp_path: Path) -> None:
    """One value in all records, or none; a value beside missing cells, which `missing` marks too, says something."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c"], "c": pa.array(cells), "n": [1, 2, 3]}), path)
    config = TableConfig(path=path, id="id", columns=["c", "n"], encode=encode, drop_constant=True)
    table = read_table(config, with_label=False, missing=-1.0)
    assert table.dropped == (["c"] if dropped else [])
    assert ("c" in table.sources) != dropped
    np.testing.assert_array_equal(table.features[:, -1], [1, 2, 3])
    assert table.features.shape[1] == len(table.columns)
    refused = read_table(config.model_copy(update={"drop_constant": False}), with_label=False, missing=-1.0)
    assert list(refused.constant()) == (["c"] if dropped and encode != "one-hot" else [])
