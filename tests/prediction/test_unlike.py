"""Tables to predict whose cells the model takes for unknown or missing: in the status, by count and party alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.simulator import Federation
from tests.worlds import PARTIES, spec, world
from treetap.commands.jobs import progress_view
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

HOLDER, B, C = PARTIES
STUMPS = BoostingParams(n_estimators=1, max_depth=1, max_bin=6)
FRESH = 8


def _federation(folder: Path, words: list[str | None], **more: Any) -> Federation:
    """B has a column of colours; C's only one has no value any more."""
    here = world(40, (1, 2, 1), fresh=FRESH)
    for name, cells in (("train", ["red", "blue"] * 20), ("predict", words)):
        table = here.tables[B][1][name]
        here.tables[B][1][name] = table.set_column(table.column_names.index("b0"), "b0", pa.array(cells))
    later = here.tables[C][1]["predict"]
    here.tables[C][1]["predict"] = later.set_column(1, "c0", pa.nulls(FRESH, pa.float64()))
    return Federation(folder, here.tables, encode="categorical", **more)


async def _predicted(folder: Path, words: list[str | None], empty: bool = False, **more: Any) -> jobs_pb2.JobStatus:

    federation = _federation(folder, words, **more)
    if not empty:
        path = federation.configs[C].tables["predict"].path
        table = pq.read_table(path)
        pq.write_table(table.set_column(1, "c0", pa.array([0.5] * FRESH)), path)
    assert (await federation.train(spec(STUMPS))).error == ""
    return await federation.predict(predict_request(model="job", protocol="interactive"))


async def test_the_status_has_the_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the party that has them; neither a column nor a cell."""
    status = await _predicted(tmp_path, ["red", "Red", "green", None, "blue", "red", "red", "red"])
    assert [(each.party, each.unknown_cells, each.empty_columns) for each in status.cells] == [(B, 2, 0)]
    progress_view.print_statuses([status])
    assert f"{B}: 2 cells of no category of the training" in capsys.readouterr().out
    assert progress_view.status_dict(status)["cells"] == [{"party": B, "unknown_cells": 2, "empty_columns": 0}]
    assert not re.search(r"\bb0\b", str(status))


async def test_a_policy_keeps_the_counts(tmp_path: Path) -> None:
    """Where METRIC goes to nobody, the status lacks them; what is everything is refused all the same."""
    words = ["red", "Red", *["blue"] * 6]
    kept = {"policies": {B: {"emits": {"METRIC": []}}}}
    assert list((await _predicted(tmp_path / "some", words, **kept)).cells) == []
    status = await _predicted(tmp_path / "all", ["green"] * FRESH, **kept)
    assert (status.state, status.bad_input) == ("failed", True)
    assert "column 'b0': all 8 cells are of no category of the training" in status.error


async def test_a_table_without_any_value_is_refused(tmp_path: Path) -> None:
    """Its party would send every record the same way."""
    status = await _predicted(tmp_path, ["red"] * FRESH, empty=True)
    assert (status.state, status.bad_input) == ("failed", True)
    assert "no column has any value, and 1 had some in the training" in status.error


async def test_a_job_without_a_feature_is_refused(tmp_path: Path) -> None:
    """Two tables without columns would finish with a model of no split."""
    here = world(40, (1, 1), fresh=FRESH)
    tables = {party: ([], content) for party, (_, content) in here.tables.items()}

    federation = Federation(tmp_path, tables)
    status = await federation.train(spec(STUMPS, parties=2))
    await federation.close()
    assert (status.state, status.bad_input) == ("failed", True)
    assert "no party has a feature: columns of table 'train' names none at" in status.error


@pytest.mark.parametrize("others", [0, 10])
async def test_an_eval_table_of_the_trainings_records(
    others: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted by the label holder, and refused where all are trained on with the same labels."""
    here = world(60, (1, 1), fresh=20)
    for party, (_, content) in here.tables.items():
        table = content["train"]
        if others:
            new = content["predict"].sort_by("id").slice(0, others)
            new = new.append_column("y", pa.array([0, 1] * (others // 2))) if party == HOLDER else new
            table = pa.concat_tables([table, new.select(table.column_names)])
        content["eval"] = table

    federation = Federation(tmp_path, here.tables)
    status = await federation.train(spec(STUMPS, parties=2, eval_table="eval"))
    await federation.close()
    said = f"60 of {60 + others} records of the eval table are trained on"
    assert status.state == ("finished" if others else "failed"), status.error
    assert said in (caplog.text if others else status.error)
