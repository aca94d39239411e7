"""Tables of databases, tried on a real PostgreSQL and on SQLite: types, faults, deadlines, and what no message has."""

from __future__ import annotations

import logging
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.needs import needs_libraries
from treetap.errors import DataError
from treetap.tables import sql
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_classes
from treetap.tables.reading import Table, read_table
from treetap.tables.sql import unverified

pytestmark = pytest.mark.xdist_group("postgresql")
SECRET = "geheim"
DDL = """
CREATE SCHEMA clinic;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN positive AS numeric CHECK (VALUE > 0);
CREATE TABLE clinic."Patients" (id text, n numeric(10, 2), big numeric, w bigint, s smallint, f double precision,
  b boolean, c varchar, d date, z timestamptz, m money, u uuid, e numeric(20, 0));
INSERT INTO clinic."Patients" VALUES
  ('b', 1.50, 123456789.123456789123456789, 9007199254740991, 2, 0.1, true, 'x', '2024-02-29', '2024-02-29 12:00+02',
   5, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 10),
  ('a', NULL, 'NaN', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 9),
  ('c', -0.01, 1e-30, -1, -2, '-2.2250738585072014e-308', false, 'geheim', '1969-12-31', '1970-01-01 00:00+00', 1,
   'c0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 11);
CREATE TABLE clinic.forbidden (id text, x int);
CREATE ROLE guarded LOGIN PASSWORD 'geheim';
GRANT USAGE ON SCHEMA clinic TO guarded;
"""


@pytest.fixture(scope="module")
def clinic(postgresql: str) -> str:
    """The URI of a server with a table of all types."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgresql, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in DDL.split(";\n"):
            if statement.strip():
                cursor.execute(statement)
    return postgresql


@pytest.fixture
def uri(clinic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same in the environment, as CLINIC."""
    monkeypatch.setenv("CLINIC", clinic)
    return clinic


def read(*columns: str, label: str | None = None, **keys: Any) -> Table:
    """These columns of a database's table."""
    given = {"uri": "$CLINIC", "id": "id", "columns": list(columns), "label": label, **keys}
    return read_table(TableConfig.model_validate(given), with_label=label is not None, missing=None)


def fault(*columns: str, **keys: Any) -> str:
    """The refusal of a table, which has none of what is secret."""
    with pytest.raises(DataError) as caught:
        read(*columns, **keys)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.second_tier
@pytest.mark.parametrize("given", [{"table": "clinic.Patients"}, {"query": 'SELECT * FROM clinic."Patients"; '}])
def test_types_of_postgresql(given: dict[str, str], uri: str) -> None:
    """Numbers are those that `float` makes of the database's digits; times, text, booleans and NULL."""
    columns = ["n", "big", "w", "s", "f", "b", "c", "d", "z"]
    table = read(*columns, encode={"c": "ordinal", "d": "days", "z": "days"}, **given)
    assert table.ids == ["a", "b", "c"]
    nan = np.nan
    np.testing.assert_array_equal(
        table.features,
        [
            [nan] * 9,
            [1.5, float("123456789.123456789123456789"), 2**53 - 1, 2, 0.1, 1, 1, 19782, 19782 + 10 / 24],
            [-0.01, 1e-30, -1, -2, -2.2250738585072014e-308, 0, 0, -1, 0],
        ],
    )
    assert table.where(2) == "row 3 in the order of ids"


@pytest.mark.second_tier
def test_ids_and_labels_of_postgresql(uri: str) -> None:
    """Numbers of arbitrary precision and UUIDs are ids as the database writes them; booleans are classes."""
    assert read("w", id="e", table="clinic.Patients").ids == ["10", "11", "9"]
    assert read("w", id="u", table="clinic.Patients").ids[0] == "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    query = 'SELECT id, b FROM clinic."Patients" WHERE b IS NOT NULL'
    assert read_classes(read(label="b", query=query), "b").classes == ["False", "True"]


@pytest.mark.second_tier
def test_rows_come_in_the_order_of_their_ids(uri: str) -> None:
    """A query's order is not its own: what a transcript says of rows holds for every reading."""
    for order in ("ASC", "DESC"):
        query = f"SELECT g::text AS id, g AS x FROM generate_series(1, 20) g ORDER BY g {order} -- by number"
        table = read("x", query=query)
        assert table.rows.tolist() == list(range(20))
        np.testing.assert_array_equal(table.features[:, 0], [float(each) for each in table.ids])


@pytest.mark.second_tier(but=5)
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"table": "nothing"}, "table nothing of $CLINIC: there is no such table"),
        ({"query": "SELECT id, geheim FROM clinic.forbidden"}, "the query of $CLINIC: there is no such column"),
        ({"query": "SELEC geheim"}, "the query is no correct SQL"),
        ({"query": "SELECT 1 AS id; DROP TABLE clinic.forbidden"}, "the query is no correct SQL"),
        ({"query": 'SELECT id, c::int AS w FROM clinic."Patients"'}, "a value cannot be converted or computed"),
        ({"query": "SELECT id, 1 AS w FROM clinic.forbidden"}, "has no rows"),
        ({"query": "SELECT 'geheim' AS id, 1/0 AS w"}, "a value cannot be converted or computed"),
        ({"query": "SELECT id, 1 AS w, 2 AS w FROM clinic.forbidden"}, "has column 'w' more than once"),
        ({"query": "SELECT nextval('s') AS id, 1 AS w"}, "there is no such table"),
        ({"table": "clinic.forbidden"}, "has no column 'w'"),
    ],
)
def test_faults_of_queries(keys: dict[str, str], said: str, uri: str) -> None:
    """Each has a cause in words of our own; the driver's quote the query and cells."""
    assert said in fault("w", **keys)


@pytest.mark.second_tier
def test_kinds_of_columns_that_need_a_cast(uri: str) -> None:
    """Money, whose number the driver gives in hundredths, and rows with a fault, by their place among the ids."""
    assert "column 'm' holds money: write CAST(\"m\" AS numeric) in the query" in fault("m", table="clinic.Patients")
    query = 'SELECT id, CAST(m AS numeric) AS m FROM clinic."Patients" WHERE m IS NOT NULL'
    np.testing.assert_array_equal(read("m", query=query).features[:, 0], [5, 1])
    query = "SELECT id, CASE WHEN id = 'b' THEN 'geheim' ELSE '1' END AS w FROM clinic.\"Patients\""
    assert "row 2 in the order of ids, column 'w': the cell is not a number" in fault("w", query=query)


@pytest.mark.second_tier
def test_queries_write_nothing(uri: str) -> None:
    """Whatever the database's user may do, the transaction is read-only."""
    query = "SELECT id, x FROM clinic.forbidden"
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION write() RETURNS int LANGUAGE sql AS 'DELETE FROM clinic.\"Patients\" RETURNING 1'"
        )
    assert "the query writes, and queries run read-only" in fault("x", query=f"{query} UNION SELECT 'a', write()")
    assert len(read("w", table="clinic.Patients").ids) == 3


@pytest.mark.second_tier
def test_a_user_without_rights(uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A table that is not granted; a wrong password, a wrong user and no password: no message and no log has any."""
    address = uri.partition("@")[2]
    with caplog.at_level(logging.DEBUG):
        monkeypatch.setenv("CLINIC", f"postgresql://guarded:{SECRET}@{address}")
        assert "the database's user may not do that: have it granted SELECT" in fault("x", table="clinic.forbidden")
        for login in (f"guarded:{SECRET}x", "guarded", f"nobody:{SECRET}"):
            monkeypatch.setenv("CLINIC", f"postgresql://{login}@{address}")
            assert "password" in fault("x", table="clinic.forbidden")
        monkeypatch.setenv("CLINIC", uri.replace("/postgres", "/geheim").replace("//postgres", "//geheim"))
        assert fault("x", table="clinic.forbidden")
    assert SECRET not in caplog.text
    assert address not in caplog.text


@pytest.mark.second_tier
def test_deadlines(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is too slow ends at the server; one that listens and says nothing is given up."""
    began = time.monotonic()
    assert "took longer than deadline_s" in fault("x", query="SELECT '1' AS id, pg_sleep(9) AS x", deadline_s=0.3)
    monkeypatch.setattr(sql, "CONNECT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("CLINIC", f"postgresql://u:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/d")
        assert "no answer within deadline_s = 0.3 seconds" in fault("x", table="t", deadline_s=0.3)
    monkeypatch.setenv("CLINIC", "postgresql://u:geheim@127.0.0.1:1/d")
    assert "no database listens at that address" in fault("x", table="t")
    assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "the environment variable CLINIC is not set"),
        ("geheim://u:geheim@h/d", "CLINIC holds no postgresql://USER@HOST/DATABASE"),
        ("mysql://u:geheim@h/d", "CLINIC names MySQL, for which no Python package has an ADBC driver"),
        ("sqlite:geheim.db", "and no sqlite:FILE with an absolute path"),
        ("postgresql://u:geheim@h:1/d?geheim=1", "the URI of the database is not correct"),
        ("postgresql://u:geheim@h.invalid/d", "the database's host name is unknown"),
    ],
)
def test_uris_that_name_no_database(value: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the variable's name and not its value."""
    needs_libraries("adbc_driver_postgresql", extra="sql")
    monkeypatch.delenv("CLINIC", raising=False)
    if value is not None:
        monkeypatch.setenv("CLINIC", value)
    assert said in fault("x", table="t")


def test_types_of_sqlite(sqlite_file: sqlite3.Connection, tmp_path: Path) -> None:
    """What a column holds, whatever its declaration, also where the first thousands of rows hold less."""
    sqlite_file.execute("CREATE TABLE t (id TEXT, w INTEGER, f REAL, n NUMERIC, c TEXT, late)")
    rows = [(f"{k:05}", k, k / 7, 10**15 + k, "uv"[k % 2], 0.5 if k == 4999 else None) for k in range(5000)]
    sqlite_file.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", rows)
    sqlite_file.commit()
    keys: dict[str, Any] = {"uri": f"sqlite:{tmp_path / 't.db'}", "encode": {"c": "ordinal"}}
    for source in ({"table": "t"}, {"query": "SELECT * FROM t ORDER BY random()"}):
        table = read("w", "f", "n", "c", "late", **keys, **source)
        assert table.ids == [row[0] for row in rows]
        expected = [[w, f, n, "uv".index(c), np.nan if late is None else late] for _, w, f, n, c, late in rows]
        np.testing.assert_array_equal(table.features, expected)


def test_faults_of_sqlite(sqlite_file: sqlite3.Connection, tmp_path: Path) -> None:
    """No file, another file, columns of different kinds, and queries that write or are none."""
    sqlite_file.execute("CREATE TABLE t (id TEXT, x)")
    sqlite_file.executemany("INSERT INTO t VALUES (?, ?)", [("a", 1), ("b", "geheim"), ("c", 0.5)])
    sqlite_file.commit()
    keys = {"uri": f"sqlite:{tmp_path / 't.db'}"}
    assert f"table u of {tmp_path / 't.db'}: there is no such table" in fault("x", table="u", **keys)
    assert "there is no such column" in fault("x", query="SELECT y FROM t", **keys)
    assert "no correct SQL" in fault("x", query="SELEC x FROM", **keys)
    assert "no correct SQL" in fault("x", query="DELETE FROM t RETURNING id, x", **keys)
    said = fault("x", table="t", **keys)
    assert "column 'x'" in said or "column 2 of those" in said
    assert "there is no such file" in fault("x", table="t", uri=f"sqlite:{tmp_path / 'absent.db'}")
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "other.db").write_text("something else, and long enough to be a header of a database" * 20)
    assert "the file is no SQLite database" in fault("x", table="t", uri=f"sqlite:{tmp_path / 'other.db'}")


def test_a_large_answer_is_bounded(
    sqlite_file: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes is counted, and refused beyond half of the memory."""
    sqlite_file.execute("CREATE TABLE t (id INTEGER, x REAL)")
    sqlite_file.executemany("INSERT INTO t VALUES (?, ?)", [(k, 0.5) for k in range(1000)])
    sqlite_file.commit()
    monkeypatch.setattr("treetap.tables.sql.half_of_memory", lambda: 8000)
    assert "more than half of this machine's memory" in fault("x", table="t", uri=f"sqlite:{tmp_path / 't.db'}")


@pytest.mark.second_tier
def test_drivers_are_imported_for_queries_alone(sqlite_file: sqlite3.Connection, tmp_path: Path) -> None:
    """A process that reads files has no driver, and one that reads a database no DBAPI of data frames."""
    sqlite_file.execute("CREATE TABLE t (id TEXT)")
    sqlite_file.execute("INSERT INTO t VALUES ('a')")
    sqlite_file.commit()
    (tmp_path / "t.csv").write_text("id\na\n")
    program = f"""
import sys
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table
def loaded(**keys):
    read_table(TableConfig.model_validate({{"id": "id", **keys}}), with_label=False, missing=None)
    return sorted({{name.partition(".")[0] for name in sys.modules}} & set(sys.argv[1:]))
print(loaded(path={str(tmp_path / "t.csv")!r}))
print(loaded(uri={f"sqlite:{tmp_path / 't.db'}"!r}, table="t"))
"""
    names = ["adbc_driver_manager", "adbc_driver_sqlite", "adbc_driver_postgresql", "polars", "sklearn"]
    done = subprocess.run(
        [sys.executable, "-c", program, *names], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["[]", "['adbc_driver_manager', 'adbc_driver_sqlite']"]


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("uri", "unchecked"),
    [
        ("postgresql://u@db.clinic.internal/d", True),
        ("postgresql://u:p@10.0.0.1:5432/d?sslmode=require", True),
        ("postgresql://u@db.clinic.internal/d?sslmode=verify-full", False),
        ("postgresql://u@127.0.0.1:5432/d", False),
        ("postgresql://u@localhost/d", False),
        ("postgresql://u@[::1]/d", False),
        ("postgresql:///d?host=/run/postgresql", False),
        ("postgresql://u@[/d", False),
        ("grpc://u:p@db.clinic.internal:1", True),
        ("grpc+tls://u:p@db.clinic.internal:1", False),
    ],
)
def test_servers_whose_certificate_is_not_checked(uri: str, unchecked: bool) -> None:
    """Those on another host without sslmode=verify-…: the log says so."""
    assert unverified(uri) == unchecked


@pytest.mark.second_tier
def test_types_of_a_databases_own(uri: str) -> None:
    """Enumerations are text, domains what they are made of."""
    kinds = "CASE g WHEN 1 THEN 'ok' ELSE 'sad' END::mood AS m, (g * 1.5)::positive AS p"
    query = f"SELECT g::text AS id, {kinds} FROM generate_series(1, 2) g"
    table = read("m", "p", query=query, encode={"m": "ordinal"})
    assert table.categories["m"].values == ["ok", "sad"]
    np.testing.assert_array_equal(table.features, [[0, 1.5], [1, 3.0]])


def test_a_source_that_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tests are skipped with the remedy, and fail where all sources are wanted."""
    monkeypatch.delenv("TREETAP_ALL_SOURCES", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"needs no_such_library: pip install '\.\[sql\]'"):
        needs_libraries("no_such_library", extra="sql")
    monkeypatch.setenv("TREETAP_ALL_SOURCES", "1")
    with pytest.raises(pytest.fail.Exception, match="needs no_such_library"):
        needs_libraries("no_such_library", extra="sql")
