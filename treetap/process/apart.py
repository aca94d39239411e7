"""A source that another process reads: a damaged file can end that process, and finds no key in its memory.

The reader is forked from a server: it has this process's environment and nothing of its memory. It
answers requests of JSON by JSON, columns by Arrow's stream format, and is not believed: what comes is checked in full.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter

from treetap.errors import DataError, TreetapError
from treetap.process.fork_server import FORKS
from treetap.process.limits import leave_out_pandas
from treetap.tables.files import checked
from treetap.tables.number_styles import Style
from treetap.tables.opening import read_here
from treetap.tables.source import BATCH_ROWS, Source, Trouble, within_memory
from treetap.tables.source_keys import SourceKeys
from treetap.usage import half_of_memory

T = TypeVar("T")
#: Seconds within which a reader answers, beside those that a database is given.
ANSWER_S = 600.0
_PART = 32 << 20  # bytes of columns that are sent at once, if a row has fewer
_VALUE, _COLUMNS, _END, _FAULT = b"v", b"c", b".", b"!"


class ReadApart(Source):
    """A table's source, each of whose answers comes from a reader: of its own, or one for all within `opened`."""

    def __init__(self, keys: SourceKeys) -> None:
        self._keys = keys
        self._kept: _Reader | None = None
        self.typed, self.ordered, self.streams = self._value("about", of=tuple[bool, bool, bool])

    def __str__(self) -> str:
        return self._keys.title

    @contextmanager
    def opened(self) -> Iterator[None]:
        with self._reader() as reader:
            self._kept = reader
            try:
                yield
            finally:
                self._kept = None

    @property
    def file_ends(self) -> list[int]:
        return self._value("file_ends", of=list[int])

    @property
    def says(self) -> list[str]:
        return self._value("says", of=list[str])

    @cached_property
    def style(self) -> Style:
        return self._value("style", of=tuple[str, str])

    def fields(self) -> list[tuple[str, pa.DataType]]:
        return [(field.name, field.type) for table in self._columns("fields") for field in table.schema]

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        parts = within_memory(self, self._columns("read", wanted, sorted(text)))
        if not parts or any(part.schema != parts[0].schema for part in parts):
            raise self._untrue()
        return pa.concat_tables(parts)

    def batches(self, wanted: list[str], text: Collection[str]) -> Iterator[pa.Table]:
        """Read ahead by what a pipe holds."""
        yield from self._columns("batches", wanted, sorted(text))

    def words_for_missing(self, names: list[str]) -> dict[str, int]:
        return self._value("words_for_missing", names, of=dict[str, int])

    def orders(self, name: str) -> list[pa.Array]:
        return [table.column(0).combine_chunks() for table in self._columns("orders", [name])]

    def count_rows(self) -> int | None:
        return self._value("count_rows", of=int | None)  # type: ignore[arg-type] # of a union there is no type

    def stamp(self) -> object:
        return self._value("stamp", of=object)

    def row_name(self, index: int) -> str:
        return self._value("row_name", index, of=str)

    def remedy(self, trouble: Trouble, content: Sequence[str | None]) -> str:
        return self._value("remedy", trouble, list(content), of=str)

    def _value(self, what: str, *given: object, of: type[T]) -> T:
        """The answer to a request, of a type that JSON can have."""
        with self._reader() as reader:
            kind, content = reader.asked(what, given)
        if kind != _VALUE:
            raise self._untrue()
        try:
            return TypeAdapter(of).validate_json(content, strict=True)
        except ValueError:
            raise self._untrue() from None

    def _columns(self, what: str, *given: object) -> Iterator[pa.Table]:
        """The tables that answer a request, checked; the reader is one for this request alone if they are many."""
        with self._reader(alone=what == "batches") as reader:
            kind, content = reader.asked(what, given)
            while kind == _COLUMNS:
                try:
                    with pa.ipc.open_stream(content) as stream:
                        batches = [checked(batch, lambda _: self._untrue()) for batch in stream]
                        table = pa.Table.from_batches(batches, stream.schema)
                    names = table.column_names  # which may be no text
                except Exception:  # noqa: BLE001 - whatever it is, it is no table of ours
                    raise self._untrue() from None
                if given and names != given[0]:
                    raise self._untrue()
                yield table
                kind, content = reader.answer()
            if kind != _END:
                raise self._untrue()

    def _untrue(self) -> DataError:
        """The error for an answer that no sound reader gives."""
        return DataError(f"{self}: the reader of this table sent what is no answer: the file is damaged")

    @contextmanager
    def _reader(self, *, alone: bool = False) -> Iterator[_Reader]:
        if self._kept is not None and not alone:
            yield self._kept
            return
        reader = _Reader(self._keys)
        try:
            yield reader
        finally:
            reader.close()


class _Reader:
    """This process's end of a reader."""

    def __init__(self, keys: SourceKeys) -> None:
        self._title, self._answer_s = keys.title, ANSWER_S + (keys.deadline_s if keys.uri else 0)
        self._process = FORKS.fork(_serve, (keys,))
        self._late = False

    def asked(self, what: str, given: tuple[object, ...]) -> tuple[bytes, bytes]:
        """The kind and the content of the first answer to a request; raises as `answer` does."""
        with suppress(OSError):  # it has ended, which the answer will say
            self._process.pipe.send_bytes(json.dumps([what, *given]).encode())
        return self.answer()

    def answer(self) -> tuple[bytes, bytes]:
        """The kind and the content of the next answer.

        Raises:
            DataError: the source's own error; or the reader has ended, or was ended because it is late.
        """
        clock = threading.Timer(self._answer_s, self._end_late)
        clock.start()
        try:
            kind, content = self._process.pipe.recv_bytes(1), self._process.pipe.recv_bytes(half_of_memory())
        except (EOFError, OSError):
            raise self._ended() from None
        finally:
            clock.cancel()
        if kind == _FAULT:
            raise DataError(str(content, "utf-8", "replace"))
        return kind, content

    def close(self) -> None:
        self._process.end()

    def _end_late(self) -> None:
        self._late = True
        self._process.kill()

    def _ended(self) -> DataError:
        if self._late:
            return DataError(f"{self._title}: the reader of this table was ended: no answer in {self._answer_s:g} s")
        self._process.ended(1.0)  # its pipe may be gone a moment before it is
        if self._process.fate:
            return DataError(f"{self._title}: the reader of this table was lost: {self._process.fate}")
        code = self._process.exitcode or 0
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        if code == -signal.SIGKILL:
            return DataError(f"{self._title}: the reader of this table ended {how}: was there too little memory?")
        return DataError(f"{self._title}: the reader of this table ended {how}: the file is damaged")


def _serve(pipe: Connection, keys: SourceKeys) -> None:
    """A reader's life: answer requests in order until the pipe ends."""
    leave_out_pandas()
    source: Source | None = None
    while True:
        try:
            what, *given = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            source = source or read_here(keys)
            for kind, content in _answers(source, what, given):
                _send(pipe, kind, content)
        except TreetapError as failure:
            _send(pipe, _FAULT, str(failure).encode("utf-8", "replace"))
        except BrokenPipeError:
            return
        except Exception as failure:  # noqa: BLE001 - of a library, at content that anyone may have written
            _send(pipe, _FAULT, f"{keys.title}: cannot be read ({type(failure).__name__})".encode())


def _send(pipe: Connection, kind: bytes, content: bytes | memoryview) -> None:
    pipe.send_bytes(kind)
    pipe.send_bytes(content)


def _answers(source: Source, what: str, given: list[Any]) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """The answers to a request, each its kind and its content."""
    tables: dict[str, Callable[[], Iterable[pa.Table]]] = {
        "read": lambda: _parts(source.read(*given)),
        "batches": lambda: source.batches(*given),
        "orders": lambda: (pa.table({name: own}) for (name,) in given for own in source.orders(name)),
        "fields": lambda: [pa.schema(source.fields()).empty_table()],
    }
    if what in tables:
        yield from ((_COLUMNS, _written(table)) for table in tables[what]())
        yield _END, b""
        return
    named = [source.typed, source.ordered, source.streams] if what == "about" else getattr(source, what)
    yield _VALUE, json.dumps(named(*given) if callable(named) else named).encode()


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """The rows in parts that are sent at once; one without rows if there are none."""
    rows = min(BATCH_ROWS, max(1, _PART * max(1, table.num_rows) // max(1, table.nbytes)))
    return (table.slice(first, rows) for first in range(0, max(1, table.num_rows), rows))


def _written(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return memoryview(sink.getvalue())
