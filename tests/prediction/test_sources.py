"""A training and predictions whose parties keep their tables in different kinds of sources."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

from tests.needs import needs_libraries
from tests.simulator import Federation, finished
from tests.worlds import assert_oracles_model, assert_oracles_scores, spec, world
from treetap.protocols.prediction import predict_request
from treetap.tables.config import TableConfig
from treetap.trees.params import BoostingParams


def _comma(table: pa.Table, folder: Path, name: str) -> dict[str, Any]:
    """CSV with semicolons and decimal commas."""
    rows = [["" if cell is None else str(cell).replace(".", ",") for cell in row.values()] for row in table.to_pylist()]
    text = "\n".join(";".join(row) for row in [table.column_names, *rows])
    (folder / f"{name}.csv").write_text(text.replace("nan", "") + "\n")
    return {"path": folder / f"{name}.csv"}


def _database(table: pa.Table, folder: Path, name: str) -> dict[str, Any]:
    """A table of SQLite."""
    columns = ", ".join(table.column_names)
    with closing(sqlite3.connect(folder / "t.db")) as database:
        database.execute(f"CREATE TABLE {name} ({columns})")
        marks = ", ".join("?" * table.num_columns)
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", [tuple(row.values()) for row in table.to_pylist()])
        database.commit()
    return {"uri": f"sqlite:{folder / 't.db'}", "query": f"SELECT {columns} FROM {name} ORDER BY random()"}


def _folder(table: pa.Table, folder: Path, name: str) -> dict[str, Any]:
    """A folder of Feather files."""
    (folder / name).mkdir()
    for part in range(3):
        rows = table.slice(part * 25, 25 if part < 2 else None)
        if rows.num_rows:
            feather.write_feather(rows, str(folder / name / f"{part}.feather"))
    return {"path": folder / name}


async def test_sources_of_all_kinds_give_the_oracles_model(tmp_path: Path) -> None:
    """The model and the scores are those of the joined table; a file of ids is a table too."""
    needs_libraries("adbc_driver_sqlite", extra="sql")
    params = BoostingParams(n_estimators=2, max_depth=3, max_bin=8)
    here = world(dims=(2, 2, 1), missing=0.15)
    oracle = here.oracle(params)
    writers = dict(zip(here.tables, (_comma, _database, _folder), strict=True))

    federation = Federation(tmp_path, here.tables)
    for party, (columns, tables) in here.tables.items():
        given = {}
        for name, content in tables.items():
            keys = writers[party](content, tmp_path / party, name)
            label = "y" if "y" in content.column_names else None
            given[name] = TableConfig(**keys, id="id", columns=columns, label=label)
        federation.configs[party] = federation.configs[party].model_copy(update={"tables": given})
        federation.start(party)
    finished(await federation.train(spec(params, len(here.blocks))))
    assert_oracles_model({name: federation.state(name) for name in here.tables}, oracle)
    for table, parties, first in (("train", here.parties, 0), ("", here.newcomers, len(here.y))):
        predicted = finished(await federation.predict(predict_request(model="job", table=table, block=17)))
        assert_oracles_scores(predicted.predictions, oracle, parties, first)
    (tmp_path / "label-holder/ids.jsonl").write_text('{"id": "r00003"}\n{"id": "r00001"}\n')
    request = predict_request(model="job", table="train", records_file="ids.jsonl", block=3)
    predicted = await federation.predict(request)
    assert (predicted.state, predicted.error, predicted.records) == ("finished", "", 2)
