"""A small server of Flight SQL in memory: tables, SELECT of columns, DELETE, rows taken in, and transactions.

Messages are those of Arrow's FlightSql.proto, read field by field. Users log in with a password, or show its token.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

USER, PASSWORD, TOKEN = "reader", "geheim", "geheim-token"
_TRANSACTION = 8  # of SqlInfo
_ANSWERS = b"type.googleapis.com/arrow.flight.protocol.sql."
_BEGUN, _PREPARED = _ANSWERS + b"ActionBeginTransactionResult", _ANSWERS + b"ActionCreatePreparedStatementResult"
KINDS = {
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    "DOUBLE PRECISION": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, at = data[at], at + 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def fields(data: bytes) -> dict[int, Any]:
    """Number → value of a message's fields, the last one of several."""
    found: dict[int, Any] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value: Any
        value, at = _varint(data, at)
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        found[tag >> 3] = value
    return found


def message(**values: bytes | int) -> bytes:
    """A message; names are `f1`, `f2` by the fields' numbers, and values shorter than 128 bytes."""
    parts = []
    for name, value in values.items():
        number = int(name[1:]) << 3
        parts.append(bytes([number, value]) if isinstance(value, int) else bytes([number | 2, len(value)]) + value)
    return b"".join(parts)


class _Login(flight.ServerMiddlewareFactory):
    """Refuses who shows neither the password nor its token."""

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> Any:
        del info
        shown = {name.lower(): values[0] for name, values in headers.items()}.get("authorization", "")
        if shown not in (
            f"Bearer {TOKEN}",
            "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode().rstrip("="),
        ):
            raise flight.FlightUnauthenticatedError("geheim: who are you")
        return _Shown()


class _Shown(flight.ServerMiddleware):
    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {TOKEN}"}


class _Anyone(flight.ServerAuthHandler):
    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing: see `_Login`."""

    def is_valid(self, token: bytes) -> bytes:
        return b""


class FlightSql(flight.FlightServerBase):
    """A server on a free port.

    Attributes:
        tables: those that are committed.
        transactions: whether the server has any; `open`: those that are not over.
        fails_after: most rows of an INSERT; `most`: those of a batch that came.
    """

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0", auth_handler=_Anyone(), middleware={"login": _Login()})
        self.tables: dict[str, pa.Table] = {}
        self.transactions, self.fails_after = True, 1 << 60
        self.open: dict[bytes, dict[str, pa.Table]] = {}
        self._prepared: dict[bytes, tuple[str, bytes | None]] = {}
        self._lock, self.most = threading.Lock(), 0

    @property
    def uri(self) -> str:
        return f"grpc://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    def _seen(self, transaction: bytes | None) -> dict[str, pa.Table]:
        return self.open[transaction] if transaction else self.tables

    def _answer(self, command: bytes) -> pa.Table:
        kind, content = _command(command)
        if kind == "CommandGetSqlInfo":
            none: list[pa.Array] = [pa.array([], kind) for kind in (pa.string(), pa.bool_(), pa.int64())]
            kinds = [*none, pa.array([int(self.transactions)], pa.int32())]
            value = pa.UnionArray.from_dense(pa.array([3], pa.int8()), pa.array([0], pa.int32()), kinds)
            return pa.table({"info_name": pa.array([_TRANSACTION], pa.uint32()), "value": value})
        asked = re.fullmatch(r"SELECT (.+) FROM (\S+)( LIMIT 0)?", content[1].decode())
        if asked is None:
            raise flight.FlightServerError("geheim: no SQL")
        table = self._seen(content.get(2)).get(asked[2].replace('"', ""))
        if table is None:
            raise KeyError("geheim: no such table")
        names = table.column_names if asked[1] == "*" else re.findall('"([^"]+)"', asked[1])
        return table.select(names).slice(0, 0 if asked[3] else None)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        table = self._answer(descriptor.command)
        return flight.FlightInfo(table.schema, descriptor, [flight.FlightEndpoint(descriptor.command, [])], -1, -1)

    def do_get(self, context: Any, ticket: Any) -> Any:
        return flight.RecordBatchStream(self._answer(ticket.ticket))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """One statement; of a prepared one the query and its transaction, or with rows what is done with each."""
        kind, content = _command(descriptor.command)
        with self._lock:
            if kind == "CommandStatementUpdate":
                count = self._changed(content[1].decode(), self._seen(content.get(2)))
            else:
                query, transaction = self._prepared[content[1]]
                count = self._taken(query, self._seen(transaction), reader)
        writer.write(pa.py_buffer(b"\x08" + _as_varint(count)))

    def _changed(self, query: str, seen: dict[str, pa.Table]) -> int:
        if made := re.fullmatch(r"CREATE TABLE (IF NOT EXISTS )?(\S+) \((.+)\)", query):
            name = made[2].replace('"', "")
            if name in seen and not made[1]:
                raise flight.FlightServerError("geheim: table already exists")
            columns = (column.partition('" ') for column in made[3].split(", "))
            seen.setdefault(name, pa.schema([(it[1:], KINDS[kind]) for it, _, kind in columns]).empty_table())
            return 0
        name = query.removeprefix("DELETE FROM ").replace('"', "")
        count, seen[name] = seen[name].num_rows, seen[name].slice(0, 0)
        return count

    def _taken(self, query: str, seen: dict[str, pa.Table], reader: Any) -> int:
        into = re.fullmatch(r"INSERT INTO (\S+) \((.+)\) VALUES \((\?, )*\?\)", query)
        assert into is not None
        name, count = into[1].replace('"', ""), 0
        for chunk in reader:
            count += chunk.data.num_rows
            if count > self.fails_after:
                raise flight.FlightServerError("geheim: no space")
            rows = pa.Table.from_batches([chunk.data]).rename_columns(re.findall('"([^"]+)"', into[2]))
            seen[name] = pa.concat_tables([seen[name], rows], promote_options="default")
            self.most = max(self.most, chunk.data.num_rows)
        return count

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        _, content = _command(action.body.to_pybytes())
        with self._lock:
            if action.type == "BeginTransaction":
                name = b"t%d" % len(self.open)
                self.open[name] = dict(self.tables)
                yield message(f1=_BEGUN, f2=message(f1=name))
            elif action.type == "CreatePreparedStatement":
                self._prepared[name := b"p%d" % len(self._prepared)] = content[1].decode(), content.get(2)
                yield message(f1=_PREPARED, f2=message(f1=name))
            elif action.type == "EndTransaction":
                done = self.open.pop(content[1])
                if content[2] == 1:
                    self.tables = done


def _as_varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + _as_varint(number >> 7) if number > 127 else bytes([number])


def _command(data: bytes) -> tuple[str, dict[int, Any]]:
    named = fields(data)
    return named[1].decode().rpartition(".")[2], fields(named.get(2, b""))
