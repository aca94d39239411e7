"""Rows of a query or a table of PostgreSQL, Flight SQL or SQLite, through ADBC (extra `sql`), imported for these alone.

A query runs read-only (of Flight SQL the server decides that), with a deadline here and at the server. What a driver
says holds cells, names of users and hosts, so that no message and no log has any of it: an error is one of the
sentences here. Rows of a query have no order: they are taken in that of their ids. What PostgreSQL's library, libpq,
takes from further variables the URI says, or the table is refused.

Rows are also written, to PostgreSQL and Flight SQL, in one transaction.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from treetap.errors import DataError
from treetap.names import on_loopback
from treetap.tables.cells import kept_type, plain_type
from treetap.tables.source import Source
from treetap.tables.source_keys import SQLITE, SourceKeys
from treetap.usage import half_of_memory

log = logging.getLogger(__name__)
T = TypeVar("T")
#: Seconds for a connection to a database.
CONNECT_S = 10.0
#: SQLSTATE, or its first characters, the longest first.
_STATES = {
    "42P07": "there is such a table: name another one, or say --existing append or replace",
    "42P01": "there is no such table; write its name as the database spells it, SCHEMA.TABLE where it needs one",
    "42703": "there is no such column in the database",
    "42501": "the database's user may not do that: have it granted SELECT to read, INSERT or CREATE to write",
    "42601": "the query is no correct SQL",
    "57014": "the query took longer than deadline_s: raise it, or make the query faster",
    "25006": "the query writes, and queries run read-only: leave the writing out",
    "3D000": "there is no such database",
    "28": "the database refuses the user or the password",
    "22": "a value cannot be converted or computed in the query: correct the query, or the rows",
    "23": "a rule of the table (a key, a CHECK, NOT NULL) forbids a row",
    "53": "the database lacks connections, memory or disk: try again later",
    "57": "the database is shutting down",
    "08": "the connection to the database broke",
    "42": "the query is not correct for this database: try it in the database's own shell",
}
#: What a driver's message contains, of connections and of SQLite, which have no SQLSTATE.
_PHRASES = (
    ("password authentication failed", "the database refuses the user or the password"),
    ("no password supplied", "the database wants a password, and the URI has none"),
    ("no pg_hba.conf entry", "the database's pg_hba.conf does not admit this host and user"),
    ('FATAL:  role "', "the database refuses the user or the password"),
    ('FATAL:  database "', "there is no such database"),
    ("could not translate host name", "the database's host name is unknown"),
    ("onnection refused", "no database listens at that address"),
    ("timeout expired", f"the database does not take the connection within {CONNECT_S:g} seconds"),
    ("No such file or directory", "no database listens at that socket"),
    ("invalid URI", "the URI of the database is not correct"),
    ("invalid connection option", "the URI of the database is not correct"),
    ("invalid integer value", "the URI of the database is not correct"),
    ("invalid port number", "the URI of the database is not correct"),
    ("SSL", "TLS with the database fails: check sslmode and sslrootcert in the URI"),
    ("server closed the connection", "the connection to the database broke"),
    ("no such table", _STATES["42P01"]),
    ("already exists", _STATES["42P07"]),
    ("no such column", _STATES["42703"]),
    ("syntax error", _STATES["42601"]),
    ("incomplete input", _STATES["42601"]),
    ("readonly database", _STATES["25006"]),
    ("file is not a database", "the file is no SQLite database"),
    ("database is locked", "the database is locked by another process: try again later"),
    ("unable to open", "the file cannot be read"),
    ("failed to open", "the file cannot be read"),
)
#: Of errors without these, a status of ADBC → the cause.
_STATUS = {
    "NOT_FOUND": _STATES["42P01"],
    "NOT_IMPLEMENTED": "the database does not take rows in one transaction",
    "TIMEOUT": _STATES["57014"],
    "UNAUTHENTICATED": _STATES["28"],
    "UNAUTHORIZED": _STATES["42501"],
}
_MISMATCH = re.compile(r"Type mismatch in column (\d+)")
_POSTGRESQL = ("postgresql://", "postgres://")
_TLS = "grpc+tls://"
_FLIGHT_SQL = ("grpc://", "grpc+tcp://", _TLS)
#: Databases for whose ADBC driver there is no Python package.
_NO_DRIVER = ("mysql://", "mariadb://")
#: Variables of libpq that are read: a password need not stand in the URI.
ALLOWED = ("PGPASSWORD", "PGPASSFILE")
#: Variable of libpq → the keyword of the URI that it stands for; None of one without.
VARIABLES: dict[str, str | None] = {
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGPORT": "port",
    "PGDATABASE": "dbname",
    "PGUSER": "user",
    "PGPASSWORD": "password",
    "PGPASSFILE": "passfile",
    "PGREQUIREAUTH": "require_auth",
    "PGCHANNELBINDING": "channel_binding",
    "PGSERVICE": "service",
    "PGSERVICEFILE": None,
    "PGOPTIONS": "options",
    "PGAPPNAME": "application_name",
    "PGSSLMODE": "sslmode",
    "PGREQUIRESSL": "sslmode",
    "PGSSLCOMPRESSION": "sslcompression",
    "PGSSLNEGOTIATION": "sslnegotiation",
    "PGSSLCERT": "sslcert",
    "PGSSLKEY": "sslkey",
    "PGSSLCERTMODE": "sslcertmode",
    "PGSSLROOTCERT": "sslrootcert",
    "PGSSLCRL": "sslcrl",
    "PGSSLCRLDIR": "sslcrldir",
    "PGSSLSNI": "sslsni",
    "PGSSLMINPROTOCOLVERSION": "ssl_min_protocol_version",
    "PGSSLMAXPROTOCOLVERSION": "ssl_max_protocol_version",
    "PGMINPROTOCOLVERSION": "min_protocol_version",
    "PGMAXPROTOCOLVERSION": "max_protocol_version",
    "PGREQUIREPEER": "requirepeer",
    "PGGSSENCMODE": "gssencmode",
    "PGKRBSRVNAME": "krbsrvname",
    "PGGSSLIB": "gsslib",
    "PGGSSDELEGATION": "gssdelegation",
    "PGCONNECT_TIMEOUT": "connect_timeout",
    "PGCLIENTENCODING": "client_encoding",
    "PGTARGETSESSIONATTRS": "target_session_attrs",
    "PGLOADBALANCEHOSTS": "load_balance_hosts",
    "PGDATESTYLE": None,
    "PGTZ": None,
    "PGGEQO": None,
    "PGSYSCONFDIR": None,
    "PGLOCALEDIR": None,
}
#: Parameters of libpq beside those that the URI has: a server that is gone is noticed within a minute.
_LIBPQ = {
    "connect_timeout": f"{CONNECT_S:.0f}",
    "tcp_user_timeout": "30000",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "application_name": "treetap",
}
#: A column of SQLite as text, with numbers of which the nearest double is the same.
_AS_TEXT = "CASE typeof({0}) WHEN 'real' THEN printf('%!.17g', {0}) ELSE CAST({0} AS TEXT) END AS {0}"
_NUMERIC, _MONEY = b"numeric", b"money"
_TYPE = b"POSTGRESQL:type"
#: Type of `kept_type` → that of a new column.
_COLUMN = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE PRECISION",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}
#: Types of PostgreSQL that take rows as they are: others would read the same bytes as something else.
_TAKEN = frozenset({b"text", b"varchar", b"int8", b"float8", b"bool", b"date", b"timestamp", b"timestamptz"})


class Query(Source):
    """The answer to a query, or the rows of a table."""

    ordered = False

    def __init__(self, keys: SourceKeys) -> None:
        self._keys = keys

    def __str__(self) -> str:
        return self._keys.title

    def fields(self) -> list[tuple[str, pa.DataType]]:
        schema = self._within(lambda call: call.schema(f"SELECT * FROM {_rows(self._keys)} LIMIT 0"))  # noqa: S608
        return [(field.name, _plain_type(field)) for field in schema]

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """Numbers of arbitrary precision become double, except for those in `text`."""
        table = self._within(lambda call: call.table(wanted))
        return pa.table({name: self._plain(table, name, name in text) for name in wanted})

    def row_name(self, index: int) -> str:
        """The row's place, from 1, among the ids as text."""
        return f"row {index + 1} in the order of ids"

    def _plain(self, table: pa.Table, name: str, as_text: bool) -> pa.ChunkedArray:
        """A column without the types of a database."""
        column, field = table.column(name), table.schema.field(name)
        declared = (field.metadata or {}).get(_TYPE)
        if declared == _MONEY:
            raise DataError(f"{self}: column {name!r} holds money: write CAST({quoted(name)} AS numeric) in the query")
        if isinstance(column.type, pa.OpaqueType):
            column = column.cast(column.type.storage_type)
        return column.cast(pa.float64()) if declared == _NUMERIC and not as_text else column

    def write(self, schema: pa.Schema, parts: Iterator[pa.Table], existing: str) -> None:
        """Have the table take these rows, all or none, a part in memory at a time.

        `schema`: of types that `kept_type` gives. `existing`: what becomes of a table that is there: `refuse`,
        `append`, or `replace`, of its rows. One that is not is created.

        Raises:
            DataError: as of `_within`, or the table is there and must not be, or its columns do not take the rows.
        """
        self._within(lambda call: call.insert(schema, parts, existing), writes=True)

    def _within(self, work: Callable[[_Call], T], *, writes: bool = False) -> T:
        """The outcome of work on a connection of its own, which ends with it.

        Raises:
            DataError: the database refuses the connection or the query, or does not answer within the deadline.
        """
        outcome: Future[T] = Future()
        call = _Call(self._keys, writes=writes)

        def run() -> None:
            try:
                with call:
                    done = work(call)
                outcome.set_result(done)
            except BaseException as failure:  # noqa: BLE001 - raised below, in the caller's thread
                outcome.set_exception(failure)

        # a driver that hangs in a call cannot be interrupted: its thread must not keep the process from ending
        threading.Thread(target=run, name="treetap-query", daemon=True).start()
        try:
            return outcome.result(CONNECT_S + self._keys.deadline_s)
        except TimeoutError:
            call.give_up()
            raise DataError(
                f"{self}: no answer within deadline_s = {self._keys.deadline_s:g} seconds{call.doubt}"
            ) from None
        except DataError:
            raise
        except ImportError as missing:
            raise DataError(f"{self}: needs {missing.name}: install treetap's extra 'sql'") from None
        except Exception as failure:  # noqa: BLE001 - of a driver, whose message nothing may show
            cause = cause_of(failure)
            log.debug("%s: the driver raised %s", self, type(failure).__name__)
            raise DataError(f"{self}: {cause}{call.doubt}") from None


class _Call:
    """One connection, and one query on it, read-only, or the rows that it `writes`.

    Attributes:
        doubt: while rows are committed, the end of an error's sentence.
    """

    def __init__(self, keys: SourceKeys, *, writes: bool) -> None:
        self._keys, self._writes, self._over, self.doubt = keys, writes, threading.Event(), ""
        self._open: list[Any] = []  # database, connection and statement, as far as there are any

    def __enter__(self) -> _Call:
        uri = _resolved(self._keys)
        # not the drivers' `dbapi`, which imports data frames
        self._of_postgresql, place = isinstance(uri, str) and not uri.startswith(_FLIGHT_SQL), tuple[Any, ...]()
        if isinstance(uri, Path):
            if self._writes:
                raise DataError(f"{self._keys.title}: rows are sent to PostgreSQL or Flight SQL, not to SQLite")
            if not uri.is_file():
                raise DataError(f"{self._keys.title}: there is no such file")
            driver, place = import_module("adbc_driver_sqlite"), (f"{uri.absolute().as_uri()}?mode=ro",)
        elif self._of_postgresql:
            driver, place = import_module("adbc_driver_postgresql"), (_with_deadlines(uri),)
            check_environment(self._keys.title, *place)
        else:
            driver, place = import_module("adbc_driver_flightsql"), _of_flight(uri, self._keys.deadline_s)
        if unverified(str(uri)):
            log.warning(
                "%s: its URI has neither sslmode=verify-full nor %s: who answers is not checked", self._keys.title, _TLS
            )
        import adbc_driver_manager as manager

        try:
            self._open.append(driver.connect(*place))
            self._open.append(manager.AdbcConnection(self._open[0]))
            self._open.append(manager.AdbcStatement(self._open[1]))
            if self._of_postgresql or self._writes:
                self._open[1].set_autocommit(False)
            if self._of_postgresql:
                if not self._writes:
                    self._update("SET TRANSACTION READ ONLY")
                self._update(f"SET LOCAL statement_timeout = {max(1, round(self._keys.deadline_s * 1000))}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for cursor in reversed(self._open):
            cursor.close()

    def schema(self, query: str) -> pa.Schema:
        with self._run(query) as reader:
            return reader.schema

    def table(self, wanted: list[str]) -> pa.Table:
        """These columns of all rows; `DataError` if they take up more than half of the memory."""
        untyped = isinstance(_resolved(self._keys), Path)
        mixed = self._with_missing(wanted) if untyped else set[str]()
        columns = ", ".join(_AS_TEXT.format(quoted(name)) if name in mixed else quoted(name) for name in wanted)
        query = f"SELECT {columns} FROM {_rows(self._keys)}"  # noqa: S608
        if untyped:  # the driver infers SQLite's types from its first batch, which is made to be all rows
            with self._run(f"SELECT count(*) AS n FROM ({query})") as reader:  # noqa: S608
                count = reader.read_all().column("n")[0].as_py()
            self._statement.set_options(**{"adbc.sqlite.query.batch_rows": str(max(1, count))})
        most, size, parts = half_of_memory(), 0, []
        with self._run(query) as reader:
            for batch in reader:
                size += batch.nbytes
                if size > most:
                    raise DataError(
                        f"{self._keys.title}: the rows take up more than half of this machine's memory: write them "
                        "to a file of Parquet"
                    )
                if self._over.is_set():
                    raise TimeoutError
                parts.append(batch)
            return pa.Table.from_batches(parts, reader.schema)

    def insert(self, schema: pa.Schema, parts: Iterator[pa.Table], existing: str) -> None:
        """As `Query.write`."""
        faults: list[Exception] = []

        def checked() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist([], schema)  # a driver takes one batch at least
            try:
                for part in parts:
                    yield from part.to_batches()
            except Exception as fault:  # noqa: BLE001 - raised below: a driver would leave its stream to the server open
                faults.append(fault)

        columns = ", ".join(f"{quoted(field.name)} {_COLUMN[field.type]}" for field in schema)
        unless = "" if existing == "refuse" else "IF NOT EXISTS "
        try:
            self._update(f"CREATE TABLE {unless}{_rows(self._keys)} ({columns})")
            self._check_columns(schema)
            if existing == "replace":
                self._update(f"DELETE FROM {_rows(self._keys)}")  # noqa: S608
            self._take(pa.RecordBatchReader.from_batches(schema, checked()))
            if faults or self._over.is_set():
                raise next(iter(faults), TimeoutError())
        except Exception:
            with suppress(Exception):  # the connection may be gone, and the server's transaction with it
                self._open[1].rollback()
                self._open[1].set_autocommit(True)  # ends the transaction that the driver begins then
            raise
        self.doubt = "; the rows may be there all the same: look before they are sent again"
        self._open[1].set_autocommit(True)  # commits, and begins no other

    def _take(self, rows: pa.RecordBatchReader) -> None:
        """Append rows in the transaction: by COPY; of Flight SQL, whose driver ingests outside of it, by INSERT."""
        if self._of_postgresql:
            *schema, table = (self._keys.table or "").split(".")
            within = {"adbc.ingest.target_db_schema": schema[-1]} if schema else {}
            target = {"adbc.ingest.target_table": table, "adbc.ingest.mode": "adbc.ingest.mode.append"}
            self._statement.set_options(**target, **within)
        else:
            columns, cells = ", ".join(map(quoted, rows.schema.names)), ", ".join("?" for _ in rows.schema)
            self._statement.set_sql_query(f"INSERT INTO {_rows(self._keys)} ({columns}) VALUES ({cells})")  # noqa: S608
            self._statement.prepare()
        self._statement.bind_stream(rows)
        self._statement.execute_update()

    def _check_columns(self, wanted: pa.Schema) -> None:
        """Raise `DataError` unless the table has columns of these names that hold the same values."""
        there = {field.name: field for field in self.schema(f"SELECT * FROM {_rows(self._keys)} LIMIT 0")}  # noqa: S608
        for field in wanted:
            held = there.get(field.name, pa.field("", pa.null()))
            if kept_type(held.type) != field.type or (held.metadata or {}).get(_TYPE) not in (None, *_TAKEN):
                raise DataError(
                    f"{self._keys.title}: has no column {field.name!r} of {_COLUMN[field.type]}, as the rows have: "
                    "change the table, or name another one"
                )

    def _with_missing(self, wanted: list[str]) -> set[str]:
        """The columns of features of SQLite that have a text, maybe among numbers, which means a missing value."""
        texts = ", ".join("'" + text.replace("'", "''") + "'" for text in self._keys.missing if isinstance(text, str))
        names = [name for name in wanted if name not in self._keys.spared] if texts else []
        if not names:
            return set()
        asked = ", ".join(f"max(typeof({it}) = 'text' AND trim({it}) IN ({texts}))" for it in map(quoted, names))
        with self._run(f"SELECT {asked} FROM {_rows(self._keys)}") as reader:  # noqa: S608
            return {name for name, has in zip(names, reader.read_all().columns, strict=True) if has[0].as_py()}

    @property
    def _statement(self) -> Any:
        return self._open[2]

    def _update(self, command: str) -> None:
        self._statement.set_sql_query(command)
        self._statement.execute_update()

    def _run(self, query: str) -> Any:
        """A reader of batches whose errors, other than those of Arrow's reader, have a SQLSTATE."""
        from adbc_driver_manager._reader import AdbcRecordBatchReader

        self._statement.set_sql_query(query)
        stream, _ = self._statement.execute_query()
        return AdbcRecordBatchReader._import_from_c(stream.address)

    def give_up(self) -> None:
        """Have the thread of this call end as soon as its driver returns, and the driver told to."""
        self._over.set()
        if len(self._open) == 3:
            threading.Thread(target=self._cancel, name="treetap-query-cancel", daemon=True).start()

    def _cancel(self) -> None:
        try:
            self._statement.cancel()
        except Exception as failure:  # noqa: BLE001 - a driver that cannot is left to end by itself
            log.debug("%s: cancelling raised %s", self._keys.title, type(failure).__name__)


def quoted(name: str) -> str:
    """An identifier as SQL writes it."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _plain_type(field: pa.Field) -> pa.DataType:
    if (field.metadata or {}).get(_TYPE) == _NUMERIC:
        return pa.float64()
    return field.type.storage_type if isinstance(field.type, pa.OpaqueType) else plain_type(field.type)


def _with_deadlines(uri: str) -> str:
    _, _, given = uri.partition("?")
    names = {setting.partition("=")[0] for setting in given.split("&")}
    added = "&".join(f"{name}={value}" for name, value in _LIBPQ.items() if name not in names)
    return f"{uri}{'&' if given else '?' if '?' not in uri else ''}{added}"


def _of_flight(uri: str, deadline_s: float) -> tuple[str, dict[str, str]]:
    """The address of a server of Flight SQL, and the driver's options.

    `uri`: grpc+tls://USER:PASSWORD@HOST:PORT, or with a bearer's token alone in the place of the two.
    """
    scheme, _, rest = uri.partition("://")
    login, _, address = rest.rpartition("@")
    user, colon, password = map(unquote, login.partition(":"))
    bearer = {"adbc.flight.sql.authorization_header": f"Bearer {user}"} if user else {}
    timeouts = (f"adbc.flight.sql.rpc.timeout_seconds.{kind}" for kind in ("fetch", "query", "update"))
    shown = {"username": user, "password": password} if colon else bearer
    return f"{scheme}://{address}", dict.fromkeys(timeouts, str(deadline_s)) | shown


def _rows(keys: SourceKeys) -> str:
    """The table or query from which a SELECT takes its rows."""
    if keys.table is not None:
        return ".".join(map(quoted, keys.table.split(".")))
    query = (keys.query or "").strip().rstrip(";")
    return f"({query}\n) AS treetap_rows"  # its last line may be a comment


def _resolved(keys: SourceKeys) -> str | Path:
    """The URI of a server, or the file of SQLite.

    Raises:
        DataError: the environment variable is not set or names no database that can be read.
    """
    uri = keys.uri or ""
    if not uri.startswith("$"):
        return Path(uri.removeprefix(SQLITE))
    name = uri[1:]
    value = os.environ.get(name)
    if not value:
        raise DataError(f"{keys.title}: the environment variable {name} is not set")
    if value.startswith((*_POSTGRESQL, *_FLIGHT_SQL)):
        return value
    if value.startswith(_NO_DRIVER):
        raise DataError(
            f"{keys.title}: {name} names MySQL, for which no Python package has an ADBC driver: treetap reads and "
            "writes none; use PostgreSQL, Flight SQL or Parquet"
        )
    file = Path(value.removeprefix(SQLITE))
    if value.startswith(SQLITE) and file.is_absolute():
        return file
    raise DataError(
        f"{keys.title}: {name} holds no postgresql://USER@HOST/DATABASE, no grpc+tls://USER@HOST:PORT, and no "
        "sqlite:FILE with an absolute path"
    )


def unverified(uri: str) -> bool:
    """True for a server on another host whose certificate would not be checked."""
    try:
        host = urlsplit(uri).hostname
    except ValueError:  # libpq will refuse it
        return False
    return bool(host) and not on_loopback(f"{host}:0") and not uri.startswith(_TLS) and "sslmode=verify-" not in uri


def check_environment(title: str, uri: str) -> None:
    """Raise `DataError` if a variable would decide about the connection to `uri` what that does not say itself.

    `title`: of the table, in messages, which never have the URI.
    """
    try:
        parts = urlsplit(uri)
        own = {"host": parts.hostname, "port": parts.netloc.rpartition("@")[2].rpartition(":")[1]}
    except ValueError:  # the driver refuses it
        return
    own |= {"user": parts.username, "password": parts.password, "dbname": parts.path.strip("/")}
    said = {name for name, value in own.items() if value} | {name for name, _ in parse_qsl(parts.query)}
    for variable, keyword in VARIABLES.items():
        if variable in ALLOWED or not os.environ.get(variable) or keyword in said:
            continue
        remedy = "unset it" if keyword is None else f"say {keyword} in the URI, or unset it"
        raise DataError(f"{title}: the environment variable {variable} would decide about the connection: {remedy}")


def cause_of(failure: Exception) -> str:
    """The cause of a driver's error, for a message."""
    state = str(getattr(failure, "sqlstate", None) or "")
    if state:
        known = next((cause for start, cause in _STATES.items() if state.startswith(start)), None)
        return known or f"the database refuses the query (SQLSTATE {state})"
    said = str(failure)
    if mismatch := _MISMATCH.search(said):
        return (
            f"column {int(mismatch[1]) + 1} of those that the table names (id, columns, label) has cells of different "
            "kinds: write CAST(… AS TEXT) or CAST(… AS REAL) in a query, or list in missing a text that means a "
            "missing value"
        )
    known = next((cause for phrase, cause in _PHRASES if phrase in said), None)
    known = known or _STATUS.get(getattr(getattr(failure, "status_code", None), "name", ""))
    return known or f"the database does not do that ({type(failure).__name__})"
