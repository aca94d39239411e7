"""An experiment takes encodings from the joined table, once for all runs, and says the lines of a party's file.

The table of an experiment from every kind of source, by the reader of a party.
"""

from __future__ import annotations

import json
import re
import sqlite3
import tomllib
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.needs import needs_libraries
from treetap.errors import ConfigError, DataError
from treetap.lab.api.frames import arrow_of
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import content_digest, read_table, split
from treetap.lab.experiment.party_tables import read_as_party, write_tables
from treetap.lab.local_federation import keep_table
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_ids
from treetap.tables.reading import read_table as read_party_table

LOANS = Path(__file__).parents[2] / "examples" / "loans"
BANK = ["opened", "job", "purpose", "amount", "months", "income", "used_percent", "late_payments", "owns_home"]
TELCO = ["contract_start", "tariff", "monthly_bill", "late_bills", "roaming_days"]
TAKEN = {
    "bank": {"opened": "days", "job": "categorical", "purpose": "categorical", "owns_home": "categorical"},
    "telco": {"contract_start": "days", "tariff": "one-hot"},
}


def _experiment(job: dict[str, Any] | None = None, telco: dict[str, Any] | None = None, **data: Any) -> ExperimentFile:
    """The story's table, of a bank and a telephone company."""
    given = {"path": str(LOANS / "loans.csv"), "label": "defaulted", "id": "customer", "seed": [0, 1], **data}
    party = [
        {"name": "bank", "labels": True, "columns": BANK},
        {"name": "telco", **({"columns": TELCO} if telco is None else telco)},
    ]
    return ExperimentFile.model_validate({"data": given, "party": party, "job": job or {}})


def _encodings(experiment: ExperimentFile, folder: Path, seed: int = 0) -> dict[str, Any]:
    """The encodings in each party's file."""
    table = read_table(experiment, LOANS)
    settings = write_tables(experiment, table, split(experiment, table, seed), folder)
    assert all(own["tables"]["train"]["encode"] == own["tables"]["predict"]["encode"] for own in settings.values())
    return {name: own["tables"]["train"]["encode"] for name, own in settings.items()}


def test_the_parties_files_say_what_was_taken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In every run, with the policy that it needs; the lines on standard error give the parties' own files the same."""
    for seed in (0, 1):
        given = _encodings(_experiment(), tmp_path / str(seed), seed)
        assert given == TAKEN
    said = capfd.readouterr().err
    heading = ": what text and dates were taken for, as a party's own file would say it: bank: encode = "
    assert heading in " ".join(said.split())
    telco = tomllib.loads("\n".join(re.findall(r"  telco:\n((?:    .*\n)+)", said)[:1]))
    assert telco == {"encode": TAKEN["telco"], "date_format": {"contract_start": "%d.%m.%Y"}}
    experiment = _experiment()
    table = read_table(experiment, LOANS)
    drawn = split(experiment, table, 0)
    settings = write_tables(experiment, table, drawn, tmp_path / "again")
    trained = read_as_party(settings["telco"]["tables"]["train"], float("nan"))
    config = TableConfig(path=LOANS / "telco.csv", id="customer", columns=TELCO, **telco)
    alone = read_party_table(config, with_label=False, missing=None)
    assert {name: it.encode for name, it in alone.categories.items()} == TAKEN["telco"]
    both = alone.ids.places_of(trained.ids)
    np.testing.assert_array_equal(alone.features[both[both >= 0]], trained.features[both >= 0])


@pytest.mark.parametrize("delimiter", [";", ","])
@pytest.mark.parametrize("encode", ["auto", {"b": "ordinal", "*": "auto"}])
def test_numbers_beside_a_text_that_means_missing(delimiter: str, encode: Any, tmp_path: Path) -> None:
    """Parties read them as the table writes them, with decimal commas and thousands too, unless they are categories."""
    values = [float(row * 37) + 0.5 for row in range(40)]
    texts = [f"{value:,.1f}" if delimiter == ";" else f"{value:.1f}" for value in values]
    texts = [text.translate(str.maketrans(",.", ".,")) if delimiter == ";" else text for text in texts]
    rows = [(row, row % 7, "-" if row % 5 == 0 else texts[row], f"t{row % 3}", row % 2) for row in range(40)]
    lines = [delimiter.join(map(str, row)) for row in (("nr", "a", "b", "c", "y"), *rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    data = {"path": "t.csv", "label": "y", "id": "nr", "missing": ["-"], "encode": encode}
    party = [{"name": "bank", "labels": True, "columns": ["a"]}, {"name": "telco", "columns": ["b", "c"]}]
    experiment = ExperimentFile.model_validate({"data": data, "party": party, "job": {}})
    table = read_table(experiment, tmp_path)
    drawn = split(experiment, table, 0)
    settings = write_tables(experiment, table, drawn, tmp_path / "split")
    read = read_as_party(settings["telco"]["tables"]["train"], float("nan"))
    wanted = [np.nan if row % 5 == 0 else values[row] for row in sorted(drawn.train)]
    if encode != "auto":
        assert set(read.categories["b"].values) <= set(texts)
        return
    assert set(read.categories) == {"c"}
    by_row = np.argsort([int(it) for it in read.ids])
    np.testing.assert_array_equal(read.features[by_row, read.columns.index("b")], wanted)


def test_the_party_that_gets_all_other_columns_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """By its share of 1, as if it named them."""
    read_table(_experiment(telco={"share": 1.0}), LOANS)
    assert '    date_format = { contract_start = "%d.%m.%Y" }' in capfd.readouterr().err


def test_categories_of_jobs_that_do_not_partition_them(tmp_path: Path) -> None:
    """They are one-hot."""
    for number, job in enumerate(({"protocol": "forest"}, {"multi_strategy": "multi_output_tree"})):
        given = _encodings(_experiment(job), tmp_path / str(number))
        hot = {name: "one-hot" if it == "categorical" else it for name, it in TAKEN["bank"].items()}
        assert given["bank"] == hot


def test_settings_hold_for_the_columns_that_they_name(tmp_path: Path) -> None:
    """Of others what the cells show, whether a party claims them or draws them; a party's own encodings for its own."""
    given = _encodings(_experiment(encode={"job": "ordinal"}), tmp_path / "named")
    assert given["bank"] == TAKEN["bank"] | {"job": "ordinal"}
    telco = {"share": 1.0, "encode": "one-hot"}
    days = {"contract_start": "days"}
    with pytest.raises(DataError, match="column 'contract_start' holds 2503 different texts"):
        read_table(_experiment(telco=telco), LOANS)
    given = _encodings(_experiment(telco=telco | {"encode": "auto"}), tmp_path / "drawn")
    assert given == TAKEN
    given = _encodings(_experiment(telco={"columns": TELCO, "encode": {"tariff": "one-hot"}}), tmp_path / "own")
    assert given["telco"] == days | {"tariff": "one-hot"}


def test_columns_that_may_identify_records(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Text is refused with the line that makes it the id, and numbers are said to be worth a thought."""
    with pytest.raises(DataError) as refused:
        read_table(_experiment(telco={"share": 1.0}, id=None), LOANS)
    said = "column 'customer' holds another text in each record: if it identifies records, id = \"customer\"; else drop"
    assert said in str(refused.value)
    rows = "".join(f"{4711 + 3 * row},{row % 7},{row % 2}\n" for row in range(120))
    (tmp_path / "t.csv").write_text(f"nr,a,y\n{rows}")
    parties = [{"name": "bank", "labels": True, "columns": ["a"]}, {"name": "telco", "columns": ["nr"]}]
    content = {"data": {"path": "t.csv", "label": "y"}, "party": parties, "job": {}}
    read_table(ExperimentFile.model_validate(content), tmp_path)
    said = "column 'nr' holds another number in each record. If it identifies records: id = \"nr\" # in [data]"
    assert said in " ".join(capfd.readouterr().err.split())


def test_rows_by_time_in_written_dates(tmp_path: Path) -> None:
    """The last ones by the days that they mean are held out; days that may be months are refused."""
    days = [date(2019, 1, 1) + timedelta(days=25 * row) for row in range(40)]
    rows = [f"{day.strftime('%d.%m.%Y')},{row % 5},{row % 3},{row % 2}\n" for row, day in enumerate(days)]
    parties = [{"name": "bank", "labels": True, "columns": ["a"]}, {"name": "telco", "columns": ["b"]}]
    content = {"data": {"path": "t.csv", "label": "y", "time": "when"}, "party": parties, "job": {}}
    experiment = ExperimentFile.model_validate(content)
    (tmp_path / "t.csv").write_text("when,a,b,y\n" + "".join(rows))
    assert split(experiment, read_table(experiment, tmp_path), 0).test.tolist() == list(range(32, 40))
    (tmp_path / "t.csv").write_text(
        "when,a,b,y\n" + "".join(f"0{row % 9 + 1}.02.2019{line[10:]}" for row, line in enumerate(rows))
    )
    with pytest.raises(DataError, match="column 'when' holds dates whose day and month could change places"):
        read_table(experiment, tmp_path)


def test_a_frames_categories_of_numbers(tmp_path: Path) -> None:
    """They are categories in the file that an experiment reads them from."""
    frame = pa.table({"a": pa.array([3, 1, None, 2] * 10).dictionary_encode(), "b": range(40), "y": [0, 1] * 20})
    keep_table(arrow_of(frame), tmp_path / "t.parquet")
    parties = [{"name": "bank", "labels": True, "columns": ["a"]}, {"name": "telco", "columns": ["b"]}]
    content = {"data": {"path": "t.parquet", "label": "y"}, "party": parties, "job": {}}
    experiment = ExperimentFile.model_validate(content)
    table = read_table(experiment, tmp_path)
    settings = write_tables(experiment, table, split(experiment, table, 0), tmp_path)
    assert settings["bank"]["tables"]["train"]["encode"] == {"a": "categorical"}
    assert read_as_party(settings["bank"]["tables"]["train"], float("nan")).categories["a"].values == ["1", "2", "3"]


ROWS = [(f"r{i}", i / 4, i % 3 + 0.5, i % 2) for i in range(20)]


def experiment(**data: Any) -> ExperimentFile:
    """Two parties with a column each."""
    parties = [{"name": "clinic", "labels": True, "columns": ["a"]}, {"name": "lab", "columns": ["b"]}]
    return ExperimentFile.model_validate({"data": {"label": "y", "id": "id", **data}, "party": parties, "job": {}})


def table(folder: Path, **data: Any) -> pa.Table:
    """The joined table of a file in this folder."""
    return read_table(experiment(**data), folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the same table in every form."""
    needs_libraries("adbc_driver_sqlite", extra="sql")
    columns = dict(zip(["id", "a", "b", "y"], map(list, zip(*ROWS, strict=True)), strict=True))
    made = pa.table(columns)
    for number in range(2):
        (tmp_path / "parts").mkdir(exist_ok=True)
        pq.write_table(made.slice(10 * number, 10), tmp_path / f"parts/{number}.parquet")
    comma = "".join(f"{each[0]};{each[1]};{each[2]};{each[3]}\n".replace(".", ",") for each in ROWS)
    (tmp_path / "t.csv").write_text(f"id;a;b;y\n{comma}")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made.to_pylist()))
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("CREATE TABLE t (id TEXT, a REAL, b REAL, y INTEGER)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
    database.close()
    return tmp_path


def test_all_sources_are_one_table(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Row for row, whose digest is the same; what was detected is said on standard error."""
    digest = content_digest(table(folder, path="parts"))
    assert capfd.readouterr().err == ""
    for data in ({"path": "t.csv"}, {"path": "t.jsonl"}, {"path": ["parts/0.parquet", "parts/1.parquet"]}):
        assert content_digest(table(folder, **data)) == digest
    said = capfd.readouterr().err.replace("\n", " ")
    assert 'delimiter = ";"' in said
    assert 'decimal = ","' in said
    of_database = table(folder, uri="sqlite:t.db", table="t")
    assert of_database.column("treetap_id").to_pylist() == sorted(row[0] for row in ROWS)
    place = {each: row for row, each in enumerate(of_database.column("treetap_id").to_pylist())}
    assert content_digest(of_database.take(pa.array([place[row[0]] for row in ROWS]))) == digest


def test_rows_of_a_query_need_ids(folder: Path) -> None:
    """Numbers of rows would be others in the next run."""
    with pytest.raises(ConfigError, match="rows of a query have no order: name their ids by id = COLUMN"):
        table(folder, uri="sqlite:t.db", table="t", id=None)


def test_a_fault_names_its_file(folder: Path) -> None:
    """A cell by file and row, a column that is absent by the key that would find it."""
    pq.write_table(pa.table({"id": ["x"], "a": [float("inf")], "b": [1.0], "y": [0]}), folder / "parts/2.parquet")
    with pytest.raises(DataError, match=r"parts: 2\.parquet, row 1, column 'a': the cell is infinite"):
        table(folder, path="parts")
    with pytest.raises(DataError, match=r'has no column .*; write delimiter = ";"'):
        table(folder, path="t.csv", delimiter="|")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_files_of_ids_are_tables_too(name: str, folder: Path) -> None:
    """`label_rows` and `treetap predict --records` take the first column of every format."""
    assert read_ids(folder / name) == [row[0] for row in ROWS]
