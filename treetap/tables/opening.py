"""The source that a table's settings describe, and its columns, checked as far as every table needs it.

They are there, once, and text is text.

Parquet files of any origin: with run lengths and dictionaries a few kilobytes can describe terabytes.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from treetap.errors import DataError, nearest
from treetap.names import ANY
from treetap.tables.cells import is_tensor, plain_column
from treetap.tables.csv_file import CsvFile
from treetap.tables.files import (
    HEAD,
    NAMES,
    SUFFIXES,
    ArrowFile,
    FileSource,
    TableFile,
    check_number,
    content_of,
    decoding,
    missing,
    of_table,
)
from treetap.tables.record_ids import is_id
from treetap.tables.several import SeveralFiles, folder_columns, name_with_folders
from treetap.tables.source import BATCH_ROWS, RowsOf, Source, is_text, too_large, within_memory
from treetap.tables.source_keys import Given, SourceKeys, fixed_part
from treetap.usage import half_of_memory

_NUMBER = 8  # bytes of a number
_BLOCK = 32 << 20  # bytes of a batch
_OF_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class ParquetFile(FileSource):
    """A file whose columns have types, read by row group."""

    streams = True

    def fields(self) -> list[tuple[str, pa.DataType]]:
        with decoding(self, "Parquet"), self.file.open() as raw:
            return [(field.name, field.type) for field in pq.read_schema(raw)]

    def read(self, wanted: list[str], _text: Collection[str]) -> pa.Table:
        most = half_of_memory()
        with _open(self.file, wanted) as file:
            row = _NUMBER * len(wanted) + file.tensors
            if file.rows * row > most or file.all_of_longest(most) > most:
                raise too_large(self)
            parts = within_memory(self, file.batches())
            return pa.Table.from_batches(parts, parts[0].schema if parts else pa.schema(file.fields))

    def batches(self, wanted: list[str], _text: Collection[str]) -> Iterator[pa.Table]:
        """No page of another column is read, and a damaged row group is named with its column."""
        with _open(self.file, wanted) as file:
            for batch in file.batches():
                yield pa.Table.from_batches([batch]).select(wanted)

    def count_rows(self) -> int:
        with decoding(self, "Parquet"), self.file.open() as raw:
            return int(pq.read_metadata(raw).num_rows)


@contextmanager
def _open(source: TableFile, wanted: list[str]) -> Iterator[_Columns]:
    """These columns of a file; `DataError` if it cannot be opened."""
    with ExitStack() as stack:
        with decoding(source, "Parquet"):
            raw = stack.enter_context(source.open())
            file = stack.enter_context(pq.ParquetFile(raw, page_checksum_verification=True))
            schema = file.schema_arrow  # made anew each time it is asked for
            fields = [schema.field(name) for name in wanted]
            text = [field.name for field in fields if _is_text(field.type)]
            cells = file
            if text:
                raw = stack.enter_context(source.open())
                cells = stack.enter_context(pq.ParquetFile(raw, read_dictionary=text))
        yield _Columns(source, fields, text, file, cells)


class _Columns:
    """Columns of an open file. `cells`: the file with dictionaries for its columns of `text`."""

    def __init__(
        self, source: TableFile, fields: list[pa.Field], text: list[str], file: pq.ParquetFile, cells: pq.ParquetFile
    ) -> None:
        self.fields = fields
        self._source, self._text, self._file, self._cells = source, text, file, cells
        self.rows = int(file.metadata.num_rows)
        #: Values of a row in columns of tensors.
        self.tensors = sum(math.prod(field.type.shape) for field in fields if is_tensor(field.type))

    def all_of_longest(self, most: int) -> int:
        """The bytes of columns of text, had every cell the longest text of its dictionary, as far as the bound."""
        size = 0
        for group in range(self._file.num_row_groups if self._text else 0):
            with decoding(self._source, "Parquet", partial(self._undecodable, group)):
                size += self._file.metadata.row_group(group).num_rows * self._longest(group, self._text)
            if size > most:
                break
        return size

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows; a batch has no more than `_BLOCK` bytes, if that is one row at least."""
        names, text = [field.name for field in self.fields], self._text
        for group in range(self._file.num_row_groups):
            with decoding(self._source, "Parquet", partial(self._undecodable, group)):
                yield from self._of_group(group, names, text)

    def _of_group(self, group: int, names: list[str], text: list[str]) -> Iterator[pa.RecordBatch]:
        longest = self._longest(group, text)
        if longest > half_of_memory():
            raise too_large(self._source)
        rows = min(BATCH_ROWS, max(1, _BLOCK // max(self.tensors, _NUMBER * len(names), longest)))
        yield from self._file.iter_batches(batch_size=rows, row_groups=[group], columns=names)

    def _longest(self, group: int, text: list[str]) -> int:
        """The bytes of a row with the longest texts of a group of rows.

        One cell of each column is decoded, and with it the dictionary, where there is one.
        """
        if not text:
            return 0
        first = next(self._cells.iter_batches(batch_size=1, row_groups=[group], columns=text), None)
        columns = () if first is None else first.columns
        return sum(int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0) for column in columns)

    def _undecodable(self, group: int) -> DataError:
        """The error for the first column of a group of rows that cannot be decoded."""
        place = f"{self._source}: row group {group + 1} of {self._file.num_row_groups}"
        for name, kind in [(field.name, field.type) for field in self.fields]:
            try:
                for _ in self._of_group(group, [name], [name] if _is_text(kind) else []):
                    pass
            except Exception as failure:  # noqa: BLE001 - whatever it is, it is this column's
                place = f"{place}, column {name!r}"
                log.debug("%s: decoding it raised %s", place, type(failure).__name__)
                break
        return DataError(f"{place} cannot be decoded; is the Parquet file damaged? Write it again")


def _is_text(kind: pa.DataType) -> bool:
    """True for text and bytes, also where the file keeps them as categories, which become text later."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(is_kind(kind) for is_kind in _OF_TEXT)


def source_of(keys: SourceKeys) -> Source:
    """The source of a table, read by another process where others may have written it.

    Raises:
        DataError: it is not there, holds something else than a table, or lies where it may not.
    """
    source: Source = read_here(keys) if keys.read_by is None else keys.read_by(keys)
    if not keys.missing and keys.duplicates == "refuse":
        return source
    from treetap.tables.cleaned import Cleaned  # most tables are read as they are

    return Cleaned(source, keys)


def read_here(keys: SourceKeys) -> Source:
    """The same, read by this process."""
    for place in keys.local():
        keys.check_within(place)
    if keys.uri is not None:
        from treetap.tables.sql import Query  # most tables are files of this machine

        return Query(keys)
    files = [file for place in keys.places for file in _files(keys, place)]
    names = [name for name, _ in files]
    if len(files) == 1 and not folder_columns(names[0]):
        return file_source(files[0][1], keys.format, keys.dialect, keys)
    if len(set(names)) < len(names):  # of several folders
        names = [str(file) for _, file in files]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{keys.title}: names file {twice[0]} twice")
    sources = [file_source(file, keys.format, keys.dialect, keys) for _, file in files]
    if keys.missing:
        from treetap.tables.json_lines import JsonLines  # see above

        lines = [source for source in sources if isinstance(source, JsonLines)]
        texts = frozenset[str]().union(*(source.texts for source in lines))
        for source in lines:
            source.texts = texts
    kinds = {type(source): name for name, source in zip(names, sources, strict=True)}
    if len(kinds) > 1:
        raise DataError(f"{keys.title}: {' and '.join(kinds.values())} are of different formats: write one")
    csv_files = [source for source in sources if isinstance(source, CsvFile)]
    if len({file.style for file in csv_files}) > 1:  # each is read as it is read alone
        ways = {(file.shown.mark, file.shown.separator): file for file in reversed(csv_files)}
        for one, other in combinations(reversed(ways.values()), 2):
            if one.shown.contradicts(other.shown):
                raise DataError(
                    f"{keys.title}: numbers are written differently in {one} and {other}: write them in one way"
                )
    return SeveralFiles(keys.title, list(zip(names, sources, strict=True)))


def _files(keys: SourceKeys, place: Path | str) -> list[tuple[str, TableFile]]:
    """The files that one path stands for, with their names in messages."""
    any_name = keys.format is not None
    if isinstance(place, Path):
        return local_files(place, any_name, keys.check_within)
    from treetap.tables.several import stored_files  # see `read_here`

    return stored_files(place, keys.endpoint_override, any_name)


def file_source(
    file: TableFile, kind: str | None = None, given: Given | None = None, keys: SourceKeys | None = None
) -> Source:
    """One file of a format, by default that of its name. `keys`: the table's, if it has any.

    Raises:
        DataError: it is not there, its name says no format, or its first bytes are of something else.
    """
    try:
        head = file.head(HEAD)
    except (pa.ArrowException, OSError) as failure:
        codec = f"{file.codec}, as its name says" if file.codec else "a file"
        raise missing(file, failure) or DataError(f"{file}: is not readable as {codec}") from None
    content, named = content_of(head), kind or SUFFIXES.get(file.suffix)
    own_encoding = given is not None and given.encoding is not None
    if named is None:
        holds = f"its content is {content.what}: {content.remedy}" if content else 'write format = "csv" if it is CSV'
        raise DataError(f"{file}: its name does not end with {', '.join(SUFFIXES)}; {holds}")
    if content is not None and content.format != named and not (own_encoding and content.what.startswith("text")):
        by = f'format = "{kind}"' if kind else "its name"
        raise DataError(f"{file}: is {content.what}, not {NAMES[named]} as {by} says: {content.remedy}")
    if file.codec and named in ("parquet", "feather"):
        raise DataError(f"{file}: {NAMES[named]} has its own compression: unpack the file, and read that")
    if named == "csv":
        tabs = file.suffix in (".tsv", ".tab")
        usual = given or Given()
        return CsvFile(file, replace(usual, delimiter="\t") if tabs and usual.delimiter is None else usual)
    if named == "feather":
        return ArrowFile(file)
    if named == "jsonl":
        from treetap.tables.json_lines import JsonLines  # see `read_here`

        return JsonLines(file, keys)
    return ParquetFile(file)


def source_at(place: Source | Path) -> Source:
    """A source as it is, or that of a path alone."""
    return place if isinstance(place, Source) else source_of(SourceKeys(path=place))


def local_files(path: Path, any_name: bool, allowed: Callable[[Path], Path] = Path) -> list[tuple[str, TableFile]]:
    """The files below a folder or of a pattern, or the one at a path, which need not exist.

    `any_name`: see `of_table`; the configuration says a format. `allowed`: asked whenever a file is opened.

    Raises:
        DataError: a folder or a pattern without a file, or with too many.
    """
    base = fixed_part(path)
    if path.is_dir():
        base, paths, lacks = path, path.rglob("*"), "is a folder without a"
    elif base is not None and not path.exists():
        pattern = str(path.relative_to(base))
        paths, lacks = base.glob(pattern), "matches no"
    else:
        return [(name_with_folders(path.as_posix()), TableFile.local(path, allowed))]
    kept = sorted(file for file in paths if of_table(file.relative_to(base).as_posix(), any_name) and file.is_file())
    check_number(path, kept, lacks)
    return [(file.relative_to(base).as_posix(), TableFile.local(file, allowed)) for file in kept]


log = logging.getLogger(__name__)


def columns_of(place: Source | Path) -> list[str]:
    """The names of a table's columns, in their order."""
    return [name for name, _ in source_at(place).fields()]


def called(name: str) -> str:
    """The name of a column, or a pattern that no column matches."""
    return f"that {name!r} matches" if ANY in name else repr(name)


def check_columns(source: Source, wanted: list[str]) -> None:
    """Raise `DataError` if a column that a configuration names is not there, or there twice."""
    have = columns_of(source)
    times = Counter(have)
    absent = [name for name in wanted if name not in times]
    # names of columns stay in this log: the message goes to the operator
    if absent:
        meant = [f"for {name!r} {meant_name!r} may be meant" for name in absent if (meant_name := nearest(name, have))]
        log.info("%s: %s", source, "; ".join([f"the table's columns are {', '.join(map(repr, have))}", *meant]))
        more = f", nor {len(absent) - 1} more that the configuration names" if len(absent) > 1 else ""
        remedy = source.remedy("no column", absent[:1]) or "this party's log lists those that it has"
        raise DataError(f"{source}: has no column {called(absent[0])}{more}; {remedy}")
    doubled = sorted({name for name in wanted if times[name] > 1})
    if doubled:
        raise DataError(f"{source}: has column {doubled[0]!r} more than once")


def read_columns(
    source: Source, wanted: list[str], text: Collection[str], ids: Sequence[str] = (), texts: Collection[str] = ()
) -> pa.Table:
    """The columns, which are there, in the source's order of rows; those in `text` as they are written.

    Rows of a source without an order come in that of the columns `ids`. Whole numbers of a source with types, whose
    folders alone write them, stay numbers, but for those in `texts`.

    Raises:
        DataError: the source cannot be read or has no rows.
    """
    whole = {name for name, kind in source.fields() if pa.types.is_integer(kind)} if source.typed else set()
    table = source.read(wanted, {*text} - whole | {*texts} & whole)
    if table.num_rows == 0:
        raise DataError(f"{source}: has no rows")
    return table if source.ordered or not ids else _in_order_of(table, source, ids)


def missing_words(source: Source, columns: Mapping[str, pa.ChunkedArray]) -> list[str]:
    """Sentences about columns of text whose cells a word makes missing, as a file of text has it. Raises as `read`."""
    texts = [name for name, column in columns.items() if is_text(column.type) and column.null_count]
    return [
        f"column {name!r}: {count} cells count as missing by a word for it without quotes, such as NA or null"
        for name, count in source.words_for_missing(texts).items()
    ]


def plain_batches(
    source: Source, wanted: list[str], text: Collection[str] = ()
) -> Iterator[tuple[int, dict[str, pa.ChunkedArray]]]:
    """The rows of a source that streams, in batches: the first row's number, and its columns as `plain_column` does.

    `text`: see `Source.read`.

    Raises:
        DataError: the source cannot be read, or a cell of text is none.
    """
    first, kinds = 0, dict[str, pa.DataType]()
    for batch in source.batches(wanted, text):
        here = RowsOf(source, range(first, first + batch.num_rows))
        columns = {name: plain_column(here, f"column {name!r}", batch.column(name)) for name in wanted}
        for name, column in columns.items():
            if kinds.setdefault(name, column.type) != column.type:
                raise DataError(f"{source}: column {name!r} holds bytes, and in some rows no text: write it as text")
        yield first, columns
        first += batch.num_rows


def _in_order_of(table: pa.Table, source: Source, names: Sequence[str]) -> pa.Table:
    """The rows in the order of their ids as text; as they are where these are of a kind that no ids have."""
    columns = {name: plain_column(source, f"column {name!r}", table.column(name)) for name in names}
    if not all(is_id(column.type) for column in columns.values()):
        return table
    texts = pa.table({name: column.cast(pa.large_string()) for name, column in columns.items()})
    return table.take(pc.sort_indices(texts, sort_keys=[(name, "ascending") for name in names]))
