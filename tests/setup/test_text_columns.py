"""Columns of text through a whole training and prediction, for both protocols that grow trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.simulator import Federation, failed, finished
from tests.worlds import assert_oracles_model, assert_oracles_scores, manifest, spec, world
from treetap.protocols.prediction import predict_request
from treetap.tables.config import Encode
from treetap.trees.params import BoostingParams, ForestParams, TreeParams

FOREST = ForestParams(n_estimators=2, max_depth=3, max_bin=6)
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
NAN = float("nan")
WORDS = ["ant", "bee", "cat", "dog"]


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
