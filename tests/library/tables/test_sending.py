"""Rows that are sent to PostgreSQL, Flight SQL and an object store: types, what is there, and faults on the way."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from tests.library.tables.conftest import Store
from tests.library.tables.flight_sql import PASSWORD, TOKEN, FlightSql
from tests.library.tables.given import parquet_file
from tests.needs import needs_libraries
from treetap.errors import BadInput, DataError
from treetap.tables import several
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table
from treetap.tables.sending import VERDICTS, Target, send

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("postgresql")]
NAN_BITS = np.array([0x7FF8000000000000, 0x8000000000000000, 1, 0x3FB999999999999A], dtype=np.uint64)
ROWS = pa.table(
    {
        "customer": ["007", "7", "ä'\"", None],
        "n": pa.array([1, None, 2**53 + 1, -1], pa.int64()),
        "small": pa.array([1, 2, 255, None], pa.uint8()),
        "score": NAN_BITS.view(np.float64),
        "refused": [True, False, None, True],
        "day": pa.array([dt.date(2024, 2, 29), None, dt.date(1969, 12, 31), None]),
        "at": pa.array([0, 1, None, -1], pa.timestamp("us")),
        "zoned": pa.array([0, 1, None, -1], pa.timestamp("us", "Europe/Berlin")),
        "whole": pa.array([7, None, 8, 9]).cast(pa.decimal128(19, 0)),
        "word": pa.array(["a", "b", "a", None]).dictionary_encode(),
    }
)
#: As a database has them.
KEPT = ROWS.cast(
    pa.schema(
        [
            (field.name, {"small": pa.int64(), "whole": pa.int64(), "word": pa.string()}.get(field.name, field.type))
            for field in ROWS.schema
        ]
    ).set(7, pa.field("zoned", pa.timestamp("us", "UTC")))
)


@pytest.fixture
def flight(monkeypatch: pytest.MonkeyPatch) -> Iterator[FlightSql]:
    """A server, whose URI the variable OUT has."""
    needs_libraries("adbc_driver_flightsql", extra="sql")
    server = FlightSql()
    thread = threading.Thread(target=server.serve)
    thread.start()
    monkeypatch.setenv("OUT", server.uri)
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture
def database(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """SQL on a server with an empty schema `risk`, whose URI the variable OUT has."""
    from adbc_driver_postgresql import dbapi

    monkeypatch.setenv("OUT", postgresql)

    def run(query: str) -> Any:
        with dbapi.connect(postgresql, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table() if query.startswith("SELECT") else None

    run("DROP SCHEMA IF EXISTS risk CASCADE")
    run("CREATE SCHEMA risk")
    yield run
    run("DROP SCHEMA IF EXISTS risk CASCADE")


def to(table: str = "risk.scores", **keys: Any) -> Target:
    """A table of the database of OUT."""
    return Target.model_validate({"uri": "$OUT", "table": table, **keys})


def refusal(file: Path, target: Target) -> str:
    """The refusal of a sending, which has none of what is secret."""
    with pytest.raises(DataError) as caught:
        send(file, target)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def same_bits(found: pa.Table) -> bool:
    """Whether rows are those of `KEPT`, doubles bit for bit."""
    bits = np.asarray(found["score"]).view(np.uint64)
    return (
        bool(np.array_equal(bits, NAN_BITS))
        and found.drop_columns("score").to_pylist() == KEPT.drop_columns("score").to_pylist()
    )


def test_types_of_postgresql(database: Callable[[str], Any], tmp_path: Path) -> None:
    """Ids stay text, doubles their bits, times their microseconds; the table reads back as a party reads tables."""
    file = parquet_file(tmp_path, ROWS)
    assert send(file, to()) == 4
    assert same_bits(database("SELECT * FROM risk.scores"))
    again = TableConfig.model_validate({"uri": "$OUT", "query": "SELECT * FROM risk.scores LIMIT 2", "id": "customer"})
    assert read_table(again, with_label=False, missing=None).ids == ["007", "7"]


def test_types_of_flight_sql(flight: FlightSql, tmp_path: Path) -> None:
    """The same; tables are read from there too, by password or token, and no transaction stays open."""
    assert send(parquet_file(tmp_path, ROWS), to()) == 4
    assert same_bits(flight.tables["risk.scores"])
    assert flight.open == {}
    flight.tables["t"] = pa.table({"id": ["b", "a"], "x": [0.1, None]})
    config = TableConfig.model_validate({"uri": "$OUT", "table": "t", "id": "id", "columns": ["x"]})
    for login in (f"reader:{PASSWORD}", TOKEN):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OUT", f"grpc+tcp://{login}@127.0.0.1:{flight.port}")
            table = read_table(config, with_label=False, missing=None)
        assert table.ids == ["a", "b"]
        np.testing.assert_array_equal(table.features[:, 0], [np.nan, 0.1])


@pytest.mark.parametrize("server", ["database", "flight"])
def test_what_is_there(server: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A table is refused, or gets rows, or gets others; rights on it and its further columns stay."""
    running = request.getfixturevalue(server)
    file = parquet_file(tmp_path, {"id": ["a"], "x": [0.5]})

    def ids() -> list[str]:
        found = running.tables["t"] if server == "flight" else running("SELECT * FROM risk.t ORDER BY id")
        return sorted(found["id"].to_pylist())

    name = "t" if server == "flight" else "risk.t"
    for existing, word, expected in (
        ("append", "a", ["a"]),
        ("append", "b", ["a", "b"]),
        ("refuse", "c", ["a", "b"]),
        ("replace", "d", ["d"]),
    ):
        file = parquet_file(tmp_path, {"id": [word], "x": [0.5]})
        if existing == "refuse":
            assert "there is such a table: name another one, or say --existing" in refusal(file, to(name))
        else:
            send(file, to(name, existing=existing))
        assert ids() == expected
    assert "has no column 'y' of VARCHAR" in refusal(
        parquet_file(tmp_path, {"id": ["a"], "y": ["b"]}), to(name, existing="append")
    )
    assert "has no column 'x' of VARCHAR" in refusal(
        parquet_file(tmp_path, {"id": ["a"], "x": ["007"]}), to(name, existing="replace")
    )
    assert ids() == ["d"]
    assert send(parquet_file(tmp_path, pa.table({"id": pa.array([], pa.string())})), to(name, existing="replace")) == 0
    assert ids() == []


@pytest.mark.parametrize("kind", ["money", "numeric", "integer", "real", "uuid", "timestamp"])
def test_columns_that_would_read_other_values(kind: str, database: Callable[[str], Any], tmp_path: Path) -> None:
    """COPY has no types of its own: a column of another type is refused before, also one of as many bytes."""
    database(f"CREATE TABLE risk.t (x {kind}, made timestamptz DEFAULT now())")
    file = parquet_file(tmp_path, {"x": [5]})
    if kind == "integer":  # as many digits may not fit
        assert "has no column 'x' of BIGINT" in refusal(file, to("risk.t", existing="append"))
    else:
        assert "change the table" in refusal(file, to("risk.t", existing="append"))
    assert database("SELECT count(*) AS n FROM risk.t")["n"].to_pylist() == [0]


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("RAISE EXCEPTION 'geheim' USING ERRCODE = '53100'", "the database lacks connections, memory or disk"),
        (
            "PERFORM pg_terminate_backend(pg_backend_pid())",
            "is shutting down|connection to the database broke|does not",
        ),
        ("RAISE EXCEPTION 'geheim' USING ERRCODE = '23514'", "a rule of the table"),
        ("PERFORM pg_sleep(9)", "took longer than deadline_s|no answer within deadline_s"),
    ],
)
def test_faults_midway(ends: str, said: str, database: Callable[[str], Any], tmp_path: Path) -> None:
    """A full disk, a connection that is closed, a rule, a deadline: none of the rows is there, the earlier ones are."""
    send(parquet_file(tmp_path, {"x": [-1]}), to("risk.t"))
    database(f"""CREATE FUNCTION risk.stop() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF NEW.x = 99999 THEN {ends}; END IF; RETURN NEW; END $$""")
    database("CREATE TRIGGER stop BEFORE INSERT ON risk.t FOR EACH ROW EXECUTE FUNCTION risk.stop()")
    file = parquet_file(tmp_path, {"x": range(100_000)})
    for existing in ("append", "replace"):
        assert re.search(said, refusal(file, to("risk.t", existing=existing, deadline_s=2.0)))
        assert database("SELECT x FROM risk.t")["x"].to_pylist() == [-1]


def test_a_file_that_cannot_be_read_to_its_end(
    database: Callable[[str], Any], flight: FlightSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgresql: str
) -> None:
    """The error names the file, not the database, in which nothing is left: no table either."""
    file = tmp_path / "t.parquet"
    fine = pa.table({"x": np.arange(200_000) % 7 / 8})
    pq.write_table(
        fine, file, row_group_size=50_000, compression="none", use_dictionary=False, write_page_checksum=True
    )
    content = bytearray(file.read_bytes())
    content[len(content) * 3 // 4] ^= 255
    file.write_bytes(content)
    assert "row group 4 of 4, column 'x' cannot be decoded" in refusal(file, to("t"))
    assert (flight.tables, flight.open) == ({}, {})
    monkeypatch.setenv("OUT", postgresql)
    assert "row group 4 of 4, column 'x' cannot be decoded" in refusal(file, to("risk.t"))
    assert database("SELECT count(*) AS n FROM pg_tables WHERE schemaname = 'risk'")["n"].to_pylist() == [0]


def test_faults_of_flight_sql(flight: FlightSql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error midway leaves nothing; a server without transactions, and a wrong password, are refused."""
    flight.fails_after = 70_000
    assert refusal(parquet_file(tmp_path, {"x": range(100_000)}), to("t"))
    assert (flight.tables, flight.open) == ({}, {})
    monkeypatch.setenv("OUT", flight.uri.replace(PASSWORD, f"{PASSWORD}x"))
    file = parquet_file(tmp_path, ROWS)
    assert "refuses the user or the password" in refusal(file, to("t"))
    monkeypatch.setenv("OUT", flight.uri)
    flight.transactions = False
    assert "does not take rows in one transaction" in refusal(file, to("t"))
    assert flight.tables == {}


def test_rows_come_in_parts(flight: FlightSql, tmp_path: Path) -> None:
    """No batch has more than 65,536 rows, however long the file's groups of rows are."""
    file = parquet_file(tmp_path, {"x": np.arange(300_000)}, row_group_size=300_000)
    assert send(file, to("t")) == 300_000
    assert flight.most <= 65_536
    assert flight.tables["t"]["x"].to_pylist() == list(range(300_000))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": [[1, 2]]}, "column 'x' has a type for which a table has no column"),
        ({"x": pa.array([2**63], pa.uint64())}, "column 'x' holds uint64 of which not all fit int64"),
        ({"x": pa.array([1], pa.timestamp("ns"))}, "column 'x' holds timestamp[ns] of which not all fit timestamp[us]"),
        ({"x": pa.array(["1.5"]).cast(pa.decimal128(4, 1))}, "column 'x' holds decimal128(4, 1)"),
    ],
)
def test_cells_that_no_column_holds(columns: dict[str, Any], said: str, flight: FlightSql, tmp_path: Path) -> None:
    """Nothing is rounded or cut off: the file is refused by the column."""
    assert said in refusal(parquet_file(tmp_path, columns), to("t"))
    assert flight.tables == {}


def test_csv_is_refused(tmp_path: Path) -> None:
    """Its cells have no types."""
    (tmp_path / "t.csv").write_text("id\n007\n")
    assert "CSV has no types" in refusal(tmp_path / "t.csv", to())


@pytest.mark.parametrize("value", ["mysql://u:geheim@h/d", "mariadb://u:geheim@h/d", "sqlite:/t.db", "geheim"])
def test_databases_that_take_no_rows(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MySQL, for which there is no driver, by name; SQLite, and what is no address."""
    monkeypatch.setenv("OUT", value)
    said = refusal(parquet_file(tmp_path, ROWS), to())
    assert {"m": "no Python package has an ADBC driver", "s": "not to SQLite"}.get(value[0], "holds no") in said


def test_a_server_whose_certificate_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, and has nothing of the address."""
    monkeypatch.setenv("OUT", "grpc://u:geheim@h.invalid:1")
    with caplog.at_level(logging.DEBUG):
        refusal(parquet_file(tmp_path, ROWS), to(deadline_s=3.0))
    assert "grpc+tls" in caplog.text
    assert not any(word in caplog.text for word in ("geheim", "h.invalid"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "give either path, or uri"),
        ({"uri": "postgresql://u:geheim@h/d", "table": "t"}, "is the name of an environment variable"),
        ({"uri": "$OUT", "query": "SELECT 1"}, "rows are sent to a table"),
        ({"path": "t.parquet"}, "rows are sent to one object"),
        ({"path": "s3://b/t.csv"}, "rows are sent to one object"),
        ({"path": "s3://b/t.parquet", "existing": "append"}, "an object is written at once"),
        ({"uri": "$OUT", "table": "t", "existing": "keep"}, "refuse"),
    ],
)
def test_targets_that_are_none(keys: dict[str, str], said: str) -> None:
    """By the key, and without a password."""
    with pytest.raises(ValidationError, match=said):
        Target.model_validate(keys)


def stored(object_store: Store) -> dict[str, bytes]:
    """Key → content of the store's objects, without marks of folders."""
    client = object_store._client
    found = client.list_objects_v2(Bucket=object_store.bucket, Prefix="out/").get("Contents", [])
    keys = [each["Key"] for each in found if not each["Key"].endswith("/")]
    return {key: client.get_object(Bucket=object_store.bucket, Key=key)["Body"].read() for key in keys}


def test_objects(object_store: Store, tmp_path: Path) -> None:
    """A file of Parquet is sent as it is, refused where there is one, or replaces it; nothing else is left."""
    file = parquet_file(tmp_path, {"x": np.random.default_rng(1).random(3_000_000)}, compression="none")
    keys = {"path": f"s3://{object_store.bucket}/out/march.parquet", "endpoint_override": object_store.endpoint}
    assert send(file, Target.model_validate(keys)) == 3_000_000
    assert stored(object_store) == {"out/march.parquet": file.read_bytes()}
    other = parquet_file(tmp_path, ROWS)
    assert "is there already: name another object, or say --existing replace" in refusal(
        other, Target.model_validate(keys)
    )
    assert send(other, Target.model_validate({**keys, "existing": "replace"})) == 4
    assert stored(object_store) == {"out/march.parquet": other.read_bytes()}
    absent = {**keys, "path": "s3://absent/t.parquet"}
    assert "there is no such bucket" in refusal(other, Target.model_validate(absent))


def test_an_object_whose_sending_is_interrupted(
    object_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is gone midway, a process that is: what was there is there, and nothing of the new one."""
    keys = {
        "path": f"s3://{object_store.bucket}/out/march.parquet",
        "endpoint_override": object_store.endpoint,
        "existing": "replace",
    }
    old = parquet_file(tmp_path, ROWS, "old.parquet")
    send(old, Target.model_validate(keys))
    file = parquet_file(tmp_path, {"x": np.random.default_rng(1).random(3_000_000)}, compression="none")

    class Content:
        """A file that ends with an error after its first part."""

        def __init__(self, error: BaseException) -> None:
            self._parts = iter([file.read_bytes()[: 8 << 20]])
            self._error = error

        def size(self) -> int:
            return file.stat().st_size

        def read(self, _size: int) -> bytes:
            for part in self._parts:
                return part
            raise self._error

    for error in (KeyboardInterrupt(), OSError("geheim")):
        content: Any = Content(error)
        with pytest.raises((KeyboardInterrupt, DataError)):
            several.store_whole(keys["path"], keys["endpoint_override"], content, replace=True)
        assert stored(object_store) == {"out/march.parquet": old.read_bytes()}
    monkeypatch.setattr(several, "_MOST_MOVED", 1 << 20)
    assert "at most 5 GiB" in refusal(file, Target.model_validate(keys))


def test_verdicts(object_store: Store, flight: FlightSql, tmp_path: Path) -> None:
    """An audit's document is a table of its verdicts."""
    row = {"party": "telco", "learned": "labels", "of": "bank", "word": "a little", "measure": "AUC", "before": 0.5}
    document = tmp_path / "audit.json"
    document.write_text(json.dumps({"verdicts": [{**row, "details": "x"}, {**row, "before": None}], "parties": {}}))
    assert send(document, to("verdicts")) == 2
    expected = pa.Table.from_pylist([row, {**row, "before": None}], VERDICTS)
    assert flight.tables["verdicts"].equals(expected)
    keys = {"path": f"s3://{object_store.bucket}/out/v.parquet", "endpoint_override": object_store.endpoint}
    send(document, Target.model_validate(keys))
    assert pq.read_table(pa.BufferReader(stored(object_store)["out/v.parquet"])).equals(expected)
    document.write_text("{}")
    assert "is not readable JSON of an audit" in refusal(document, to("verdicts"))


def test_the_command(flight: FlightSql, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says where how many rows are now; a fault of an option is one line with the key."""
    from treetap.commands.accounts import Sending
    from treetap.commands.accounts import send as command

    given: Any = inspect.unwrap(command)
    given(Sending(file=parquet_file(tmp_path, ROWS), uri="$OUT", table="t", existing="append"))
    assert capsys.readouterr().out == "table t of $OUT: 4 rows\n"
    with pytest.raises(BadInput, match=r"^existing: "):
        given(Sending(file=tmp_path / "t.parquet", uri="$OUT", table="t", existing="keep"))
    with pytest.raises(BadInput, match=r"^path: rows are sent to one object"):
        given(Sending(file=tmp_path / "t.parquet", path="t.parquet"))
