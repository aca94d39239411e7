"""The source that a table's settings describe, and its columns, checked as far as every table needs it.

They are there, once, and text is text.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.names import ANY, nearest
from treetap.tables.arrow_file import ArrowFile
from treetap.tables.cells import plain_column
from treetap.tables.csv_file import CsvFile
from treetap.tables.files import HEAD, MOST_FILES, NAMES, SUFFIXES, TableFile, content_of, missing, of_table
from treetap.tables.numbers import is_text
from treetap.tables.parquet import ParquetFile
from treetap.tables.record_ids import is_id
from treetap.tables.several import SeveralFiles, folder_columns, name_with_folders
from treetap.tables.source import RowsOf, Source
from treetap.tables.source_keys import Given, SourceKeys, fixed_part


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
    _check_styles(keys, [source for source in sources if isinstance(source, CsvFile)])
    return SeveralFiles(keys.title, list(zip(names, sources, strict=True)))


def _files(keys: SourceKeys, place: Path | str) -> list[tuple[str, TableFile]]:
    """The files that one path stands for, with their names in messages."""
    any_name = keys.format is not None
    if isinstance(place, Path):
        return local_files(place, any_name, keys.check_within)
    from treetap.tables.object_store import stored_files  # see `read_here`

    return stored_files(place, keys.endpoint_override, any_name)


def _check_styles(keys: SourceKeys, files: Sequence[CsvFile]) -> None:
    """Raise `DataError` where two files write numbers in two ways: each is read as it is read alone."""
    if len({file.style for file in files}) < 2:
        return
    ways = {(file.shown.mark, file.shown.separator): file for file in reversed(files)}
    for one, other in combinations(reversed(ways.values()), 2):
        if one.shown.contradicts(other.shown):
            raise DataError(
                f"{keys.title}: numbers are written differently in {one} and {other}: write them in one way"
            )


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
        base, paths, lacks = path, path.rglob("*"), "is a folder without a file whose name ends with "
    elif base is not None and not path.exists():
        pattern = str(path.relative_to(base))
        paths, lacks = base.glob(pattern), "matches no file whose name ends with "
    else:
        return [(name_with_folders(path.as_posix()), TableFile.local(path, allowed))]
    kept = sorted(file for file in paths if of_table(file.relative_to(base).as_posix(), any_name) and file.is_file())
    if not kept:
        raise DataError(f"{path}: {lacks}{', '.join(SUFFIXES)}")
    if len(kept) > MOST_FILES:
        raise DataError(f"{path}: has {len(kept)} files, and a table at most {MOST_FILES}")
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
