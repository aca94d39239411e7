"""`treetap data`: public data sets from their public sources, as the Parquet files that benchmarks read.

A set is fetched in four steps: download its archive, unpack one file, convert that to a table, compare the table's
content digest with the one in the catalogue. Only a table that passes the last step is kept, so that every benchmark on
`TREETAP_DATA` uses the same rows and columns.

The content digest does not depend on Parquet, Arrow or the program that read the numbers. It is the SHA-256 over one
line per column in order, `name NUL kind NUL h LF`, where h is the hexadecimal SHA-256 over the column's values in row
order:

    int     8 bytes, little-endian, two's complement
    real    C's `%.9g` and LF, zero without sign. Nine digits, because readers of CSV differ in a number's last bits; no
            real value of the catalogued sets lies within 200 units in the last place of where nine digits round
    text    the number of bytes in decimal, a colon, the bytes in UTF-8

A missing value has no digest; the catalogued sets have none.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import http.client
import io
import os
import ssl
import struct
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Column, Table

from treetap import terminal
from treetap.commands.data.sources import CATALOGUE, ByHand, Source
from treetap.errors import BadInput, DataError, TreetapError
from treetap.models.durable import writing_whole
from treetap.names import did_you_mean
from treetap.version import install

#: Seconds without a byte after which a download fails.
SILENCE_S = 30.0
#: The largest file that is unpacked, in bytes: the catalogue's largest has 12 MB.
LARGEST = 100_000_000
_BLOCK = 1 << 16
_TYPES = {"int": pa.int32(), "real": pa.float64(), "text": pa.large_string()}


class Content(NamedTuple):
    """A table's content digest, and per column name, kind and the first 8 digits of its values' digest."""

    digest: str
    columns: list[tuple[str, str, str]]


def find(name: str) -> Source:
    """The catalogue's entry, if it can be fetched.

    Raises:
        BadInput: the name is unknown, or the set must be downloaded by hand; the message describes how.
    """
    entry = CATALOGUE.get(name)
    if entry is None:
        raise BadInput(f"{name}: no such data set; there are {', '.join(CATALOGUE)}{did_you_mean(name, CATALOGUE)}")
    if isinstance(entry, ByHand):
        raise BadInput(f"{name} is not fetched: {entry.why}\nBy hand: {entry.how}\nSource: {entry.page}")
    return entry


def listing(folder: Path | None) -> list[dict[str, Any]]:
    """One dictionary per catalogued set; `here` is the file below `folder`, if it exists (it is not read)."""
    rows = []
    for name, entry in CATALOGUE.items():
        path = folder / entry.file if folder else None
        row: dict[str, Any] = {"name": name, "title": entry.title, "rows": entry.rows, "columns": entry.width}
        row |= {"label": entry.label, "licence": entry.licence, "citation": entry.citation, "page": entry.page}
        if isinstance(entry, Source):
            row |= {"fetch": True, "url": entry.url, "digest": entry.digest}
        else:
            row |= {"fetch": False, "why": entry.why, "by_hand": entry.how}
        rows.append(row | {"file": entry.file, "here": str(path) if path and os.path.isfile(path) else None})
    return rows


def print_listing(rows: list[dict[str, Any]]) -> None:
    """Print the rows of `listing` as a table, then the reason and remedy for each set that is not fetched."""
    table = Table(Column("set", no_wrap=True), "rows", "columns", Column("how", no_wrap=True), "here", "licence")
    for row in rows:
        how = "fetch" if row["fetch"] else "by hand"
        shape = (f"{row['rows']:,}", str(row["columns"]))
        table.add_row(row["name"], *shape, how, "yes" if row["here"] else "", row["licence"])
    terminal.out.print(table)
    for row in rows:
        if not row["fetch"]:
            text = f"\n{row['name']}: {row['why']}\n  {row['by_hand']}\n  {row['page']}"
            terminal.out.print(text, soft_wrap=True)


def fetch(source: Source, folder: Path) -> bool:
    """Put `source.file` into `folder`; False if it was there already, with the right content.

    Raises:
        BadInput: the folder is not usable, another file is in the way, or xlrd is needed and absent.
        TreetapError: the source does not answer, or its file differs from the catalogue's description. Nothing is kept.
    """
    path = folder / source.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = path.exists()
    except OSError as error:
        reason = "is a file" if os.path.isfile(folder) else f"cannot be made or read: {error.strerror or error}"
        raise BadInput(f"--out {folder}: {reason}; name a folder") from None
    if there:
        wrong = _wrong_file(source, path)
        if wrong is None:
            return False
        raise BadInput(
            f"{path}: is not the {source.name} of the list of known sets: {wrong}; move it away to fetch the set"
        )
    if source.sheet:
        _xlrd(source.name)
    archive = folder / f".{source.file}.{os.getpid()}.download.part"
    part = folder / f".{source.file}.{os.getpid()}.part"
    try:
        download(source, archive)
        table = convert(source, unpack(source, archive))
        wrong = difference(source, table)
        if wrong is not None:
            raise TreetapError(
                f"{source.name}: the file from {source.url} is not the one in the list of known sets: {wrong}; "
                f"nothing was kept. See {source.page}"
            )
        with writing_whole(path, mode=0o666, draft=part) as file:  # public data: readable as the umask allows
            pq.write_table(table, file, compression="zstd")
    except OSError as error:
        raise TreetapError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # nothing to remove, or a folder that was removed in the meantime
            archive.unlink()
    return True


def download(source: Source, path: Path) -> None:
    """Stream the archive to `path`, with a progress bar on standard error.

    Raises:
        TreetapError: no answer, an HTTP error, more bytes than `source.limit` or fewer than announced.
    """
    opener = urllib.request.build_opener()
    opener.addheaders = [("User-Agent", "treetap")]
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=terminal.err,
    )
    try:
        with opener.open(source.url, timeout=SILENCE_S) as response, bars, path.open("xb") as file:
            announced = response.headers.get("Content-Length", "")
            total = int(announced) if announced.isdecimal() else None
            bar = bars.add_task(source.name, total=total)
            if total is not None and total > source.limit:
                raise TreetapError(f"{source.url}: announces {total} bytes; {source.limit} is the limit")
            # what a source announces is not believed: the bytes that come are counted too
            while block := response.read(_BLOCK):
                file.write(block)
                bars.update(bar, advance=len(block))
                if file.tell() > source.limit:
                    raise TreetapError(f"{source.url}: sends more than the limit of {source.limit} bytes")
            if total is not None and file.tell() < total:
                raise TreetapError(f"{source.url}: broke off after {file.tell()} of {total} bytes; try again")
    except urllib.error.HTTPError as error:
        raise TreetapError(f"{source.url}: answers {error.code} {error.reason}. See {source.page}") from error
    except urllib.error.URLError as error:
        raise TreetapError(f"{source.url}: cannot be reached: {error.reason}. Is there a network?") from error
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise TreetapError(f"{source.url}: stopped answering: {error or type(error).__name__}; try again") from error


def unpack(source: Source, archive: Path) -> bytes:
    """The one file wanted: through zip archives, each in the one before, or through gzip.

    Raises:
        TreetapError: not such an archive, without the file, damaged, or the file is larger than `LARGEST`.
    """
    content = archive.read_bytes()
    try:
        if not source.members:
            with gzip.open(io.BytesIO(content)) as packed:
                content = packed.read(LARGEST + 1)
        for member in source.members:
            with zipfile.ZipFile(io.BytesIO(content)) as packed_files:
                members = [info for info in packed_files.infolist() if Path(info.filename).name == member]
                if not members:
                    names = ", ".join(packed_files.namelist()[:8])
                    raise TreetapError(f"{source.url}: holds no {member!r}, but {names}. See {source.page}")
                with packed_files.open(members[0]) as packed_file:
                    content = packed_file.read(LARGEST + 1)
            _limit(source, content)
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, NotImplementedError) as error:
        kind = "zip" if source.members else "gzip"
        raise TreetapError(
            f"{source.url}: is not a whole {kind} archive: {error}; it begins with {content[:16]!r}. See {source.page}"
        ) from error
    _limit(source, content)
    return content


def convert(source: Source, content: bytes) -> pa.Table:
    """The unpacked file as a table with the catalogue's columns, in its order and with its types.

    Columns are found by name, after `source.rename`; others (a row number) are left out.

    Raises:
        TreetapError: a column is missing or a cell cannot be of its column's type.
    """
    read = _read_sheet if source.sheet else _read_csv
    try:
        columns = read(source, content)
        arrays = []
        for name, kind, _ in source.columns:
            values = columns[name]
            try:
                arrays.append(pc.cast(values, _TYPES[kind]))
            except pa.ArrowException as error:
                raise TreetapError(f"{source.name}: column {name}: {error}") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise TreetapError(f"{source.name}: cannot be read: {error}") from error
    return pa.table(arrays, names=[name for name, _, _ in source.columns])


def content_of(table: pa.Table) -> Content:
    """The content digest defined at the top of this file.

    Raises:
        DataError: a column has missing values, or is neither whole numbers, real numbers nor text.
    """
    whole = hashlib.sha256()
    columns = []
    for name in table.column_names:
        values = table.column(name).combine_chunks()
        if values.null_count or (pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py()):
            raise DataError(f"column {name} has missing values")
        if pa.types.is_integer(values.type):
            kind, data = "int", values.to_numpy().astype("<i8").tobytes()
        elif pa.types.is_floating(values.type):
            reals = values.to_numpy().astype(np.float64) + 0.0  # -0.0 becomes 0.0
            kind, data = "real", b"".join(b"%.9g\n" % value for value in reals.tolist())
        elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            texts = (text.encode() for text in values.to_pylist())
            kind, data = "text", b"".join(b"%d:%b" % (len(text), text) for text in texts)
        else:
            raise DataError(f"column {name} is of type {values.type}")
        digest = hashlib.sha256(data).hexdigest()
        whole.update(f"{name}\0{kind}\0{digest}\n".encode())
        columns.append((name, kind, digest[:8]))
    return Content(whole.hexdigest(), columns)


def difference(source: Source, table: pa.Table) -> str | None:
    """A description of the first difference between the table and the catalogue's entry; None if they agree."""
    if (table.num_rows, table.num_columns) != (source.rows, source.width):
        return f"it has {table.num_rows} rows and {table.num_columns} columns, not {source.rows} and {source.width}"
    try:
        content = content_of(table)
    except DataError as error:
        return str(error)
    for number, (column, wanted) in enumerate(zip(content.columns, source.columns, strict=True), 1):
        if column[0] != wanted[0]:
            return f"column {number} is {column[0]}, not {wanted[0]}"
        if column != wanted:
            return (
                f"column {wanted[0]} is the first that differs: {column[1]} {column[2]}…, not {wanted[1]} {wanted[2]}…"
            )
    return None if content.digest == source.digest else f"its content digest is {content.digest}, not {source.digest}"


def _wrong_file(source: Source, path: Path) -> str | None:
    try:
        return difference(source, pq.read_table(path))
    except (pa.ArrowException, OSError) as error:
        return f"it is not a Parquet file: {error}"


def _limit(source: Source, content: bytes) -> None:
    if len(content) > LARGEST:
        raise TreetapError(f"{source.url}: unpacks to more than {LARGEST} bytes")


def _renamed(source: Source, header: list[str]) -> list[str]:
    """The header with the catalogue's names; every wanted column must be in it once."""
    names = [source.rename.get(name, name) for name in header]
    for name, _, _ in source.columns:
        if names.count(name) != 1:
            raise TreetapError(
                f"{source.name}: the file has {names.count(name)} columns {name!r}; its header is {', '.join(header)}"
            )
    return names


def _read_csv(source: Source, content: bytes) -> dict[str, pa.ChunkedArray]:
    """CSV with a header; the separator is whichever of `,`, `;` and tab the header has most of."""
    first = content.split(b"\n", 1)[0].decode("utf-8-sig").rstrip("\r")
    separator = max(",;\t", key=first.count)
    names = _renamed(source, next(csv.reader([first], delimiter=separator), []))
    kinds = {name: pa.large_string() if kind == "text" else pa.float64() for name, kind, _ in source.columns}
    table = pacsv.read_csv(
        pa.BufferReader(content),
        read_options=pacsv.ReadOptions(column_names=names, skip_rows=1, use_threads=False),
        parse_options=pacsv.ParseOptions(delimiter=separator),
        # Whole numbers are read as real ones: some sources write 1.0 for 1. The cast that follows refuses 1.5.
        convert_options=pacsv.ConvertOptions(column_types=kinds, include_columns=list(kinds), null_values=[]),
    )
    return {name: table.column(name) for name in kinds}


def _read_sheet(source: Source, content: bytes) -> dict[str, pa.Array]:
    """An Excel 97 workbook's first sheet, whose second row is the header."""
    xlrd = _xlrd(source.name)
    try:
        sheet = xlrd.open_workbook(file_contents=content, logfile=io.StringIO()).sheet_by_index(0)
        if sheet.nrows < 2:
            raise TreetapError(f"{source.name}: the sheet has {sheet.nrows} rows and no header")
        names = _renamed(source, [str(cell) for cell in sheet.row_values(1)])
        return {name: pa.array(sheet.col_values(names.index(name), 2)) for name, _, _ in source.columns}
    except (xlrd.XLRDError, xlrd.compdoc.CompDocError, struct.error) as error:
        raise TreetapError(f"{source.name}: is not an Excel 97 workbook: {error}") from error


def _xlrd(name: str) -> Any:
    try:
        import xlrd
    except ImportError:
        raise BadInput(f"{name} is published as an Excel workbook: {install('data')}") from None
    return xlrd
