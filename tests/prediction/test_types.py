"""Types, requests and sources of predictions.

- Predictions have the ids and the classes of the label holder's table: by name and by type, so that a join works.
- Predictions that nobody could do: refused where the request is read, by the option's name.
- A training and predictions whose parties keep their tables in different kinds of sources.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.needs import needs_libraries
from tests.pivodl.jobs import PARAMS as PIVODL
from tests.replay import HERE, JOB, PARAMS
from tests.serving.served import ask, config, serve
from tests.simulator import Federation, failed, finished
from tests.splitnn.jobs import PARAMS as NETWORK
from tests.worlds import PARTIES, SIX, assert_oracles_model, assert_oracles_scores, manifest, spec, world
from treetap.commands.model.view import describe
from treetap.coordinator.prediction import opening_of
from treetap.errors import ConfigError
from treetap.ops.gateway.http_json import model_reply, predict_reply
from treetap.party.eini.entries import write_attributions
from treetap.protocols.prediction import predict_request
from treetap.tables.config import TableConfig
from treetap.tables.label_columns import typed
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import serving_pb2, setup_pb2

LABEL_HOLDER, B, _ = PARTIES
#: Published models of each format.
MODELS = Path(__file__).parent.parent / "library" / "models"
OF_TREES, OF_SIX, OF_PIVODL, OF_NETWORK = spec(PARAMS), spec(PARAMS, len(SIX)), spec(PIVODL), spec(NETWORK)


def _tables(labels: pa.DataType, ids: pa.DataType, column: str = "customer") -> dict[str, Any]:
    """The world's tables with other ids, and the classes 0 and 1 as -5 and 7, or as that type has them."""
    found = {}
    for party, (columns, own) in HERE.tables.items():
        tables = {}
        for name, table in own.items():
            numbers = [int(value[1:]) for value in table.column("id").to_pylist()]
            cells = pa.array([f"c{number}" if ids == pa.string() else number for number in numbers], ids)
            made = table.set_column(0, column if party == LABEL_HOLDER else "id", cells)
            if "y" in made.column_names:
                y = [{0: -5, 1: 7}[value] for value in made.column("y").to_pylist()]
                values: list[Any] = [value > 0 for value in y] if labels == pa.bool_() else y
                cells = pa.array(list(map(str, values)) if labels == pa.string() else values, labels)
                made = made.set_column(made.column_names.index("y"), "y", cells)
            tables[name] = made
        found[party] = (columns, tables)
    return found


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("labels", "ids"),
    [
        (pa.int64(), pa.int64()),
        (pa.string(), pa.string()),
        (pa.bool_(), pa.uint64()),
        (pa.decimal128(5, 2), pa.int32()),
    ],
    ids=str,
)
async def test_a_file_of_predictions(labels: pa.DataType, ids: pa.DataType, tmp_path: Path) -> None:
    """Its table joins it, also after an interruption, and where another party lacks a record; so do explanations.

    The same predictions as CSV read back as they were.
    """
    tables = _tables(labels, ids)
    feature = tables[B][1]["train"]
    tables[B][1]["new"] = feature.slice(1)
    for party in (LABEL_HOLDER, PARTIES[2]):
        tables[party][1]["new"] = tables[party][1]["train"]

    federation = Federation(tmp_path, tables)
    job = setup_pb2.JobSpec()
    job.CopyFrom(JOB)
    job.alignment = "psi"
    assert (await federation.train(job)).state == "finished"

    federation.kill_at(
        B, lambda message: message.word == "ask_directions" and federation.jobs.status("p")[0].round == 3
    )
    request = predict_request(model="job", job="p", table="new", block=4, explain=True)
    assert (await federation.predict(request)).state == "interrupted"
    federation.start(B)
    status = finished(await federation.resume("p"))
    own = tables[LABEL_HOLDER][1]["new"]
    found = pq.read_table(status.predictions)
    assert found.column_names[:2] == ["customer", "prediction"]
    assert (found.schema.field("customer").type, found.schema.field("prediction").type) == (ids, labels)
    joined = own.join(found, "customer", join_type="inner")
    assert joined.num_rows == len(HERE.y)
    assert joined.column("prediction").null_count == 1
    kept = joined.filter(pa.compute.is_valid(joined.column("prediction")))
    assert set(kept.column("prediction").to_pylist()) == set(own.column("y").to_pylist())
    right = pa.compute.equal(kept.column("prediction"), kept.column("y")).to_pylist()
    assert sum(right) > 0.8 * len(right)
    paths = pq.read_table(status.explanations)
    assert own.join(paths.select(["customer"]), "customer", join_type="inner").num_rows == len(HERE.y) - 1
    written = await federation.predict(predict_request(model="job", job="q", table="new", format="csv"))
    assert Path(written.predictions).name == "q.csv"
    types = {field.name: field.type for field in found.schema}
    options = pacsv.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False)
    assert pacsv.read_csv(written.predictions, convert_options=options).equals(found)
    for form, fault in (("cvs", "must be one of parquet, csv; did you mean 'csv'?"), ("xls", "'xls': must be one")):
        with pytest.raises(ConfigError) as refusal:
            federation.jobs.submit(predict_request(model="job", format=form))
        assert fault in str(refusal.value)
    with pytest.raises(ConfigError, match="format and serve do not go together: a served model writes no file"):
        federation.jobs.submit(predict_request(model="job", format="csv", serve=True))


async def test_a_class_in_json(tmp_path: Path) -> None:
    """`treetap model show --json` has classes in their type."""
    federation = Federation(tmp_path, _tables(pa.int8(), pa.int64()))
    assert (await federation.train(JOB)).state == "finished"
    folder = federation.state(LABEL_HOLDER) / "models" / "job"
    assert manifest(federation.state(LABEL_HOLDER))["class_type"] == "int8"
    assert describe(folder)["classes"] == [-5, 7]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("column", ["prediction", "score", "score_a", "paths"])
async def test_an_id_column_of_a_taken_name(column: str, tmp_path: Path) -> None:
    """It is refused before any work; it would replace a column of the predictions."""
    federation = Federation(tmp_path, _tables(pa.int64(), pa.int64(), column))
    assert (await federation.train(JOB)).state == "finished"
    failed(
        await federation.predict(predict_request(model="job")),
        f"the id column is called {column!r}, as a column of the predictions is",
        bad_input=True,
    )


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("labels", "told", "classes"),
    [
        (pa.int64(), serving_pb2.CLASS_WHOLE_NUMBER, [-5, 7]),
        (pa.float32(), serving_pb2.CLASS_NUMBER, [-5.0, 7.0]),
        (pa.bool_(), serving_pb2.CLASS_BOOLEAN, [False, True]),
        (pa.string(), serving_pb2.CLASS_TEXT, ["-5", "7"]),
    ],
    ids=str,
)
async def test_answers_to_clients(labels: pa.DataType, told: Any, classes: list[Any], tmp_path: Path) -> None:
    """Answers over gRPC name the type; over HTTP classes have it, and ids are as they were asked."""
    federation = Federation(tmp_path, _tables(labels, pa.int64()), serve={LABEL_HOLDER: config()})
    assert (await federation.train(JOB)).state == "finished"
    await serve(federation)
    answer = await ask(federation, "16", "17", "99")
    assert (answer.class_type, {each.label for each in answer.predictions[:2]} <= {*answer.classes}) == (told, True)
    reply = json.loads(predict_reply(answer, [16, "17", 99]).model_dump_json(exclude_none=True))
    assert [row["id"] for row in reply["predictions"]] == [16, "17", 99]
    for row in reply["predictions"][:2]:
        assert row["prediction"] in classes
        assert type(row["prediction"]) is type(classes[0])
    described = model_reply(federation.node(LABEL_HOLDER).served_models.describe("app", ""))
    assert [(type(value), value) for value in described.classes] == [(type(value), value) for value in classes]


def test_attributions(tmp_path: Path) -> None:
    """A row per record and class, both in their types."""
    ids, classes = typed(["10", "7"], pa.int64()), typed(["1", "2", "11"], pa.int8())
    parts = [([ids[place : place + 1]], np.zeros((1, 3)), np.zeros((1, 1, 3))) for place in range(2)]
    path = tmp_path / "a.parquet"
    write_attributions(path, [pa.field("customer", pa.int64())], parts, np.zeros(3), ["telco"], ["telco"], classes)
    found = pq.read_table(path)
    assert (found.schema.field("customer").type, found.schema.field("class").type) == (pa.int64(), pa.int8())
    assert found.column("customer").to_pylist() == [10, 10, 10, 7, 7, 7]
    assert found.column("class").to_pylist() == [1, 2, 11, 1, 2, 11]


@pytest.mark.parametrize(
    ("job", "asked", "named"),
    [
        (OF_TREES, {"protocol": "magic"}, "protocol = 'magic': must be one of interactive, eini, eini-lattice"),
        (OF_TREES, {"protocol": "eini", "key_bits": 1000}, "key_bits = 1000: must be"),
        (OF_TREES, {"protocol": "interactive", "form": "sideways"}, "form = 'sideways': must be one of"),
        (OF_TREES, {"protocol": "masked"}, "'masked': does not predict with models of boosting; use interactive or"),
        (OF_TREES, {"recipient": "feature-b"}, "recipient = 'feature-b': the scores of a model of boosting go to its"),
        (
            OF_TREES,
            {"protocol": "eini", "attributions": True, "explain_limit": 3},
            "explain-limit = 3: is an option",
        ),
        (OF_SIX, {"protocol": "eini", "attributions": True}, "attributions: 5 feature parties are too many"),
        (OF_PIVODL, {"protocol": "interactive"}, "'interactive': does not predict with models of pivodl; use masked"),
        (OF_PIVODL, {"protocol": "eini"}, "'eini': does not predict with models of pivodl; use masked"),
        (OF_PIVODL, {"recipient": "nobody"}, r"recipient = 'nobody': is no party of model job \(label-holder, feature"),
        (OF_PIVODL, {"protocol": "masked", "prediction_weights": "blurred"}, "prediction_weights = 'blurred': must be"),
        (OF_NETWORK, {"protocol": "interactive"}, "does not predict with models of splitnn; use splitnn"),
    ],
)
def test_a_request_is_refused_by_name(job: setup_pb2.JobSpec, asked: dict[str, Any], named: str) -> None:
    """Before any party is asked; options that do not go together are rows of the exclusions."""
    with pytest.raises(ConfigError, match=named):
        opening_of(predict_request(model="job", **asked), job, "submission", "word")


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
