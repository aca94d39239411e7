"""Made-up tables in the layouts in which the public sources publish theirs."""

from __future__ import annotations

import dataclasses
import gzip
import io
import struct
import zipfile

import pyarrow as pa
import pyarrow.csv as pacsv

from treetap.commands.data import download
from treetap.commands.data.sources import CATALOGUE, Source

FETCHED = [entry for entry in CATALOGUE.values() if isinstance(entry, Source)]


def described(like: Source, table: pa.Table, **changes: object) -> Source:
    """The catalogue's entry, but with the content of another table."""
    content = download.content_of(table)
    return dataclasses.replace(
        like, rows=table.num_rows, columns=tuple(content.columns), digest=content.digest, **changes
    )


def small(source: Source, rows: int = 3) -> pa.Table:
    """A made-up table with the columns and types of a catalogued one."""
    makers = {
        "int": lambda j: pa.array([(7 * i + j) % 5 - 2 for i in range(rows)], pa.int32()),
        "real": lambda j: pa.array([i / 3 + j for i in range(rows)], pa.float64()),
        "text": lambda j: pa.array([f"wert é{i}-{j}" for i in range(rows)], pa.large_string()),
    }
    return pa.table({name: makers[kind](j) for j, (name, kind, _) in enumerate(source.columns)})


def zipped(**members: bytes) -> bytes:
    """A zip archive; `__` in a name stands for a dot."""
    with io.BytesIO() as out:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name.replace("__", "."), content)
        return out.getvalue()


def csv_of(table: pa.Table, delimiter: str, quoting: str = "needed") -> bytes:
    """The table as CSV text."""
    out = io.BytesIO()
    pacsv.write_csv(table, out, pacsv.WriteOptions(delimiter=delimiter, quoting_style=quoting))
    return out.getvalue()


def workbook(rows: list[list[str | float]]) -> bytes:
    """A workbook with one sheet in the record format of Excel 97: numbers as NUMBER, the rest as LABEL records."""

    def record(kind: int, content: bytes) -> bytes:
        return struct.pack("<HH", kind, len(content)) + content

    def begin(kind: int) -> bytes:
        return record(0x0809, struct.pack("<HHHHII", 0x0600, kind, 0x0DBB, 1996, 0, 6))

    end = record(0x000A, b"")
    name = b"\x06\x00Sheet1"
    start = len(begin(5)) + len(record(0x0085, struct.pack("<IBB", 0, 0, 0) + name)) + len(end)
    parts = [begin(5), record(0x0085, struct.pack("<IBB", start, 0, 0) + name), end, begin(0x10)]
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            if isinstance(cell, str):
                text = struct.pack("<HHHHB", i, j, 0, len(cell), 1) + cell.encode("utf-16-le")
                parts.append(record(0x0204, text))
            else:
                parts.append(struct.pack("<HHHHHd", 0x0203, 14, i, j, 0, cell))
    return b"".join([*parts, end])


def layout(source: Source, table: pa.Table) -> bytes:
    """What the public source of that name would serve if it held this table."""
    if source.name == "credit_default":
        header = [{"default.payment.next.month": "default payment next month"}.get(n, n) for n in table.column_names]
        above = ["", *(f"X{j}" for j in range(1, table.num_columns)), "Y"]
        columns = [list(map(float, column.to_pylist())) for column in table.columns]
        rows = [[float(i), *row] for i, row in enumerate(zip(*columns, strict=True), 1)]
        return zipped(**{source.members[0]: workbook([above, ["ID", *header], *rows])})
    if source.name == "bank_marketing":
        inner = {"bank-full.csv": csv_of(table, ";"), "bank.csv": b"a;b\n1;2\n", "bank-names.txt": b"about"}
        other = zipped(**{"bank-additional.csv": b"x"})
        return zipped(**{"bank-additional.zip": other, "bank.zip": zipped(**inner)})
    if source.name == "appliances_energy":
        return zipped(**{source.members[0]: csv_of(table, ",", "all_valid").replace(b"\n", b"\r\n")})
    if source.name == "obesity":
        return zipped(**{source.members[0]: csv_of(table.select(sorted(table.column_names)), ",")})
    assert source.name == "fars"
    before = table.rename_columns([{"target": "class"}.get(n, n) for n in table.column_names])
    return gzip.compress(csv_of(before, "\t"), 1)
