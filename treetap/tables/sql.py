"""Rows of a query or a table of PostgreSQL or SQLite, through ADBC (extra `sql`), which is imported for these alone.

A query runs read-only, with a deadline here and at the server. What a driver says holds cells, names of users and
hosts, so that no message and no log has any of it: an error is one of the sentences of `treetap.tables.sql_faults`.
Rows of a query have no order: they are taken in that of their ids.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.cells import plain_type
from treetap.tables.source import Source
from treetap.tables.sql_faults import CONNECT_S, cause_of
from treetap.tables.sql_keys import SqlKeys, check_environment, unverified
from treetap.usage import half_of_memory

log = logging.getLogger(__name__)
T = TypeVar("T")
#: Parameters of libpq beside those that the URI has: a server that is gone is noticed within a minute.
_LIBPQ = {
    "connect_timeout": f"{CONNECT_S:.0f}",
    "tcp_user_timeout": "30000",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "application_name": "treetap",
}
_NUMERIC, _MONEY = b"numeric", b"money"
_TYPE = b"POSTGRESQL:type"


class Query(Source):
    """The answer to a query, or the rows of a table."""

    ordered = False

    def __init__(self, keys: SqlKeys) -> None:
        self._keys = keys

    def __str__(self) -> str:
        return self._keys.title

    def fields(self) -> list[tuple[str, pa.DataType]]:
        schema = self._within(lambda call: call.schema(f"SELECT * FROM {self._keys.rows} LIMIT 0"))  # noqa: S608
        return [(field.name, _plain_type(field)) for field in schema]

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """Numbers of arbitrary precision become double, except for those in `text`."""
        columns = ", ".join(map(quoted, wanted))
        table = self._within(lambda call: call.table(f"SELECT {columns} FROM {self._keys.rows}"))  # noqa: S608
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

    def _within(self, work: Callable[[_Call], T]) -> T:
        """The outcome of work on a connection of its own, which ends with it.

        Raises:
            DataError: the database refuses the connection or the query, or does not answer within the deadline.
        """
        outcome: Future[T] = Future()
        call = _Call(self._keys)

        def run() -> None:
            try:
                with call:
                    outcome.set_result(work(call))
            except BaseException as failure:  # noqa: BLE001 - raised below, in the caller's thread
                outcome.set_exception(failure)

        # a driver that hangs in a call cannot be interrupted: its thread must not keep the process from ending
        threading.Thread(target=run, name="treetap-query", daemon=True).start()
        try:
            return outcome.result(CONNECT_S + self._keys.deadline_s)
        except TimeoutError:
            call.give_up()
            raise DataError(f"{self}: no answer within deadline_s = {self._keys.deadline_s:g} seconds") from None
        except DataError:
            raise
        except ImportError as missing:
            raise DataError(f"{self}: needs {missing.name}: pip install 'treetap[sql]'") from None
        except Exception as failure:  # noqa: BLE001 - of a driver, whose message nothing may show
            cause = cause_of(failure)
            log.debug("%s: the driver raised %s", self, type(failure).__name__)
            raise DataError(f"{self}: {cause}") from None


class _Call:
    """One connection, read-only, and one query on it."""

    def __init__(self, keys: SqlKeys) -> None:
        self._keys, self._over = keys, threading.Event()
        self._open: list[Any] = []  # database, connection and statement, as far as there are any

    def __enter__(self) -> _Call:
        uri = self._keys.resolved()
        # not the drivers' `dbapi`, which imports data frames
        if isinstance(uri, Path):
            if not uri.is_file():
                raise DataError(f"{self._keys.title}: there is no such file")
            driver, place = import_module("adbc_driver_sqlite"), f"{uri.absolute().as_uri()}?mode=ro"
        else:
            driver, place = import_module("adbc_driver_postgresql"), _with_deadlines(uri)
            check_environment(self._keys.title, place)
            if unverified(uri):
                log.warning("%s: its URI has no sslmode=verify-full: who answers is not checked", self._keys.title)
        import adbc_driver_manager as manager

        try:
            self._open.append(driver.connect(place))
            self._open.append(manager.AdbcConnection(self._open[0]))
            self._open.append(manager.AdbcStatement(self._open[1]))
            if not isinstance(uri, Path):
                self._open[1].set_autocommit(False)
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
        """The columns of a query."""
        with self._run(query) as reader:
            return reader.schema

    def table(self, query: str) -> pa.Table:
        """The rows of a query; `DataError` if they take up more than half of the memory."""
        if isinstance(self._keys.resolved(), Path):
            self._infer_types_from_all(query)
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

    def _infer_types_from_all(self, query: str) -> None:
        """SQLite's columns have no types: the driver infers them from its first batch, which is made to be all rows."""
        with self._run(f"SELECT count(*) AS n FROM ({query})") as reader:  # noqa: S608
            count = reader.read_all().column("n")[0].as_py()
        self._statement.set_options(**{"adbc.sqlite.query.batch_rows": str(max(1, count))})

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
    """The URI with the parameters that it lacks."""
    _, _, given = uri.partition("?")
    names = {setting.partition("=")[0] for setting in given.split("&")}
    added = "&".join(f"{name}={value}" for name, value in _LIBPQ.items() if name not in names)
    return f"{uri}{'&' if given else '?' if '?' not in uri else ''}{added}"
