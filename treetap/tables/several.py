"""Several files as one table: one after the other, with the same columns."""

from __future__ import annotations

import fnmatch
import logging
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, takewhile
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.cells import cast, common_type, plain_column, plain_type
from treetap.tables.dates import is_date
from treetap.tables.files import UNKNOWN_CAUSE, TableFile, check_number, of_table, stored_cause
from treetap.tables.number_styles import PLAIN, Style
from treetap.tables.source import RowsOf, Source, Trouble, is_number, is_text, kind_name, within_memory

log = logging.getLogger(__name__)

#: A folder that stands for a column's value, as in `year=2024/part-0.parquet`, and the one of a missing value.
_PARTITION = re.compile(r"([^/=]+)=([^/]*)/")
_MISSING = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile("0|-?[1-9][0-9]{0,17}")
Columns = dict[str, pa.ChunkedArray]


class SeveralFiles(Source):
    """The rows of the files in their order.

    Folders such as `year=2024` below the table's are columns of text, or of whole numbers if all values are and the
    column is not asked for as it is written.
    """

    def __init__(self, name: str, parts: Sequence[tuple[str, Source]]) -> None:
        """`parts`: each file's name in messages, and its source; at least one.

        Raises:
            DataError: the files do not lie in folders of the same columns.
        """
        self._name, self._parts = name, list(parts)
        self.typed = all(source.typed for _, source in parts)
        self.streams = all(source.streams for _, source in parts)
        self._ends: list[int] = []  # rows up to the end of each file, once they are read
        folders = [folder_columns(name) for name, _ in parts]
        for (other, _), values in zip(parts, folders, strict=True):
            if list(values) != list(folders[0]):
                raise DataError(
                    f"{self}: {other} lies in folders of columns {', '.join(values) or 'none'}, and {parts[0][0]} of "
                    f"{', '.join(folders[0]) or 'none'}: lay all files out in one way"
                )
        self._written = {name: pa.array([values[name] for values in folders], pa.string()) for name in folders[0]}
        self._folders = {name: _values(texts.to_pylist()) for name, texts in self._written.items()}

    def __str__(self) -> str:
        return self._name

    @property
    def file_ends(self) -> list[int]:
        return self._ends

    @property
    def says(self) -> list[str]:
        return [sentence for _, source in self._parts for sentence in source.says]

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """Raise `DataError` if a file has other columns, or columns of another kind, than the first one.

        A column that one file calls categories is one of categories.
        """
        (first, source), *others = self._parts
        known = source.fields()
        kinds = dict(known)
        for name, other in others:
            there = dict(other.fields())
            for column in [*kinds, *there]:
                if (column in kinds) != (column in there):
                    has, lacks = (first, name) if column in kinds else (name, first)
                    raise DataError(f"{self}: {lacks} has no column {column!r}, which {has} has")
                # of numbers whatever their width, or with nothing but nulls
                nulls = pa.types.is_null(kinds[column]) or pa.types.is_null(there[column])
                if self.typed and not (nulls or _kind(kinds[column]) == _kind(there[column])):
                    raise DataError(
                        f"{self}: column {column!r} holds {kind_name(there[column])} in {name}, and "
                        f"{kind_name(kinds[column])} in {first}: write one type"
                    )
            kinds |= {column: kind for column, kind in there.items() if pa.types.is_dictionary(kind)}
        for column in self._folders:
            if column in kinds:
                raise DataError(f"{self}: column {column!r} is in {first} and in the name of a folder: rename one")
        own = [(name, kinds[name]) for name, _ in known]
        return [*own, *((name, values.type) for name, values in self._folders.items())]

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        own = [name for name in wanted if name not in self._folders]
        parts = self._read(own, text)
        if not self.typed and (mixed := [name for name in own if _mixed([part.column(name) for part in parts])]):
            parts = self._read(own, {*text, *mixed})  # text in one file, hence in all
        self._ends = list(accumulate(part.num_rows for part in parts))
        plain = [self._plain(part, place, wanted, text) for place, part in enumerate(parts)]
        kinds = self._common({name: [part[name].type for part in plain] for name in wanted})
        try:
            return pa.table(
                {
                    name: pa.chunked_array([chunk for part in plain for chunk in cast(part[name], kind).chunks], kind)
                    for name, kind in kinds.items()
                }
            )
        except pa.ArrowException:
            raise self._two_types() from None

    def batches(self, wanted: list[str], text: Collection[str]) -> Iterator[pa.Table]:
        if not self.streams:
            yield from super().batches(wanted, text)
            return
        own = [name for name in wanted if name not in self._folders] or self._any_column()
        self.count_rows()  # for the names of rows
        kinds = self._kinds(wanted, text)
        for place, (_, source) in enumerate(self._parts):
            first = self._ends[place - 1] if place else 0
            for part in source.batches(own, text):
                plain = self._plain(part, place, wanted, text, first)
                first += part.num_rows
                try:
                    yield pa.table({name: cast(plain[name], kind) for name, kind in kinds.items()})
                except pa.ArrowException:
                    raise self._two_types() from None

    def words_for_missing(self, names: list[str]) -> dict[str, int]:
        counts = Counter[str]()
        for _, source in self._parts:
            counts.update(source.words_for_missing([name for name in names if name not in self._folders]))
        return dict(counts)

    def orders(self, name: str) -> list[pa.Array]:
        return [] if name in self._folders else [own for _, source in self._parts for own in source.orders(name)]

    def count_rows(self) -> int | None:
        counts = [count for _, source in self._parts if (count := source.count_rows()) is not None]
        if len(counts) < len(self._parts):
            return None
        self._ends = list(accumulate(counts))
        return self._ends[-1]

    def stamp(self) -> object:
        return [source.stamp() for _, source in self._parts]

    def row_name(self, index: int) -> str:
        if not self._ends:  # not read by this process yet
            with suppress(DataError):
                own = self._parts[0][1].fields()[0][0]
                self._ends = list(accumulate(source.read([own], ()).num_rows for _, source in self._parts))
        place = bisect_right(self._ends, index)
        if place >= len(self._ends):
            return super().row_name(index)
        name, source = self._parts[place]
        return f"{name}, {source.row_name(index - (self._ends[place - 1] if place else 0))}"

    @property
    def style(self) -> Style:
        """Files of text have one way to write numbers (`treetap.tables.opening`), which some may not show."""
        return max((source.style for _, source in self._parts), key=lambda style: (style[1] != "", style != PLAIN))

    def remedy(self, trouble: Trouble, content: Sequence[str | None]) -> str:
        asked = self._parts if trouble == "maybe numbers" else self._parts[:1]
        return next((said for _, source in asked if (said := source.remedy(trouble, content))), "")

    def _kinds(self, wanted: list[str], text: Collection[str]) -> dict[str, pa.DataType]:
        """The types of columns that hold those of all files."""
        own = {name: values.type for name, values in self._of_folders(text).items()}
        by_file = [own | {name: plain_type(kind) for name, kind in source.fields()} for _, source in self._parts]
        return self._common({name: [file[name] for file in by_file] for name in wanted})

    def _common(self, kinds: dict[str, list[pa.DataType]]) -> dict[str, pa.DataType]:
        try:
            return {name: common_type(of_files) for name, of_files in kinds.items()}
        except pa.ArrowException:
            raise self._two_types() from None

    def _two_types(self) -> DataError:
        return DataError(f"{self}: a column has types in two files that are not one: write one type")

    def _of_folders(self, text: Collection[str]) -> dict[str, pa.Array]:
        """The values of columns that folders stand for, one for each file; those in `text` as they are written."""
        return {**self._folders, **{name: texts for name, texts in self._written.items() if name in text}}

    def _any_column(self) -> list[str]:
        """A file that is asked for no column has no rows."""
        return [name for name, _ in self._parts[0][1].fields()[:1]]

    def _plain(
        self, part: pa.Table, place: int, wanted: list[str], text: Collection[str], first: int | None = None
    ) -> Columns:
        """Rows of one file, whose first is number `first` of all, with the columns that its folders stand for."""
        if first is None:
            first = self._ends[place - 1] if place else 0
        rows = part.num_rows
        here = RowsOf(self, range(first, first + rows))
        read, folders = dict(zip(part.column_names, part.columns, strict=True)), self._of_folders(text)
        return {
            name: pa.chunked_array([pa.repeat(folders[name][place], rows)])
            if name in folders
            else plain_column(here, f"column {name!r}", read[name])
            for name in wanted
        }

    def _read(self, wanted: list[str], text: Collection[str]) -> list[pa.Table]:
        wanted = wanted or self._any_column()
        return within_memory(self, (source.read(wanted, text) for _, source in self._parts))


def name_with_folders(path: str) -> str:
    """The name of a file, behind those of the folders around it that stand for columns."""
    *folders, name = path.split("/")
    inside = takewhile(lambda folder: _PARTITION.fullmatch(f"{folder}/"), reversed(folders))
    return "/".join([*reversed(list(inside)), name])


def folder_columns(name: str) -> dict[str, str | None]:
    """Column → value, None where it is missing, in the names of a file's folders, whose special characters may be
    written as %2F.
    """
    named = _PARTITION.findall(name)
    return {unquote(column): None if value in ("", _MISSING) else unquote(value) for column, value in named}


def _values(texts: list[str | None]) -> pa.Array:
    """A column's values in the names of folders, one for each file."""
    if all(text is None or _WHOLE.fullmatch(text) for text in texts):
        return pa.array([text and int(text) for text in texts], pa.int64())
    return pa.array(texts, pa.string())


def _kind(kind: pa.DataType) -> str:
    kind = plain_type(kind)
    if is_number(kind):
        return "number"
    if is_text(kind):
        return "text"
    return "time" if is_date(kind) and getattr(kind, "tz", None) is None else str(kind)


def _mixed(columns: Sequence[pa.ChunkedArray]) -> bool:
    """True if a column is text, or times, in some files and something else in others."""
    kinds = {_kind(column.type) for column in columns if not pa.types.is_null(column.type)}
    return len(kinds) > 1


#: Seconds for a connection, and without a byte of an answer; attempts at one request.
CONNECT_S, REQUEST_S, ATTEMPTS = 5.0, 20.0, 3
SCHEME = "s3://"
#: Bytes of an object that are in memory at a time while it is written, and most that a store moves.
_PART, _MOST_MOVED = 8 << 20, 5 << 30
T = TypeVar("T")


def stored_files(place: str, endpoint: str | None, any_name: bool) -> list[tuple[str, TableFile]]:
    """The object at a place, those below it if it is a prefix, or those of a pattern: as `local_files`.

    Raises:
        DataError: there is none, the bucket is not there, or the store cannot be reached or refuses access.
    """
    from pyarrow import fs

    store = _store(endpoint)
    key = place.removeprefix(SCHEME).rstrip("/")
    bucket, _, below = key.partition("/")
    wild = next((at for at, part in enumerate(below.split("/")) if set(part) & set("*?[")), None)
    base = key if wild is None else "/".join([bucket, *below.split("/")[:wild]])
    # a store has no folders: a prefix is one if anything is below it
    info = asked(place, lambda: store.get_file_info(base))
    if info.type == fs.FileType.NotFound:
        known = asked(place, lambda: store.get_file_info(bucket)).type != fs.FileType.NotFound
        raise DataError(f"{place}: there is no such {'file' if known else 'bucket'}")
    if info.type == fs.FileType.File and wild is None:
        return [(name_with_folders(below), _file(place, store, key))]
    listed = asked(place, lambda: store.get_file_info(fs.FileSelector(base, recursive=True)))
    paths = sorted(entry.path for entry in listed if entry.type == fs.FileType.File)
    names = [entry.removeprefix(f"{base}/") for entry in paths]
    pattern = None if wild is None else "/".join(below.split("/")[wild:])
    kept = [name for name in names if of_table(name, any_name) and (pattern is None or _matches(name, pattern))]
    check_number(place, kept, "has no" if wild is None else "matches no")
    return [(name, _file(f"{SCHEME}{base}/{name}", store, f"{base}/{name}")) for name in kept]


def store_whole(place: str, endpoint: str | None, content: pa.NativeFile, *, replace: bool) -> None:
    """Write an object, which appears whole or, after an error, not at all. A part is in memory at a time.

    It is written beside its key and moved in the store: what Arrow's writer has got when a process is interrupted
    becomes an object.

    Raises:
        DataError: there is one and it is not to be replaced, the content is too long, or as of `stored_files`.
    """
    from pyarrow import fs

    store, key = _store(endpoint), place.removeprefix(SCHEME)
    folder, _, name = key.rpartition("/")
    beside = f"{folder}/.{name}.{token_hex(8)}"
    if content.size() > _MOST_MOVED:
        raise DataError(f"{place}: an object store moves at most 5 GiB at once: send the rows to a database")

    def put() -> None:
        if not replace and store.get_file_info(key).type != fs.FileType.NotFound:
            raise DataError(f"{place}: is there already: name another object, or say --existing replace")
        with store.open_output_stream(beside, compression=None) as stream:
            while part := content.read(_PART):
                stream.write(part)
                stream.flush()  # waits, so that no further part is read before this one is in the store
        store.move(beside, key)

    try:
        asked(place, put)
    except BaseException:
        with suppress(OSError):
            store.delete_file(beside)
        raise


def asked(place: str, request: Callable[[], T]) -> T:
    """The answer to a request; `DataError` with the cause, without what the store says."""
    try:
        return request()
    except FileNotFoundError:
        raise DataError(f"{place}: there is no such file") from None
    except (OSError, pa.ArrowException) as failure:
        cause = stored_cause(failure) or UNKNOWN_CAUSE
        log.debug("%s: the store's answer raised %s", place, type(failure).__name__)
        raise DataError(f"{place}: {cause}") from None


def _file(name: str, store: Any, key: str) -> TableFile:
    return TableFile(
        name,
        lambda: asked(name, lambda: store.open_input_file(key)),
        lambda: asked(name, lambda: _stamp(store.get_file_info(key))),
    )


def _stamp(info: Any) -> object:
    if info.mtime_ns is None:
        raise FileNotFoundError
    return info.type, info.size, info.mtime_ns


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("/"), pattern.split("/")
    return len(wanted) == len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _store(endpoint: str | None) -> Any:
    """The store: Amazon's, or the one at an endpoint, `http://` or `https://` before its address."""
    from pyarrow import fs

    address = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    scheme, mark, host = address.rpartition("://")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return fs.S3FileSystem(
        endpoint_override=host.rstrip("/") or None,
        scheme=scheme if mark else "https",
        region=region or ("us-east-1" if host else None),
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )
