"""Formats of tables by the names of their files, and what a file's first bytes say that it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

#: Ending of a file's name → format.
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
NAMES = {"csv": "CSV", "parquet": "Parquet", "feather": "Feather", "jsonl": "JSON lines"}
#: Bytes of a file by which its content is recognised.
HEAD = 4096


class Content(NamedTuple):
    """The kind of a file. `format`: the format that reads it; empty if none does. `remedy`: a clause."""

    what: str
    remedy: str
    format: str = ""


_EXPORT = "export the table as CSV or Parquet from the program that wrote it"
_CORRECT = "correct the path"
_SPREADSHEET = "save the sheet as CSV (UTF-8) from the spreadsheet program"
_OFFICE = re.compile(rb"\[Content_Types\]\.xml|xl/|mimetypeapplication/vnd\.oasis")
_MAGIC: tuple[tuple[bytes, Content], ...] = (
    (b"PAR1", Content("Parquet", 'write format = "parquet"', "parquet")),
    (b"ARROW1", Content("an Arrow file (Feather)", 'write format = "feather"', "feather")),
    (b"\xff\xff\xff\xff", Content("a stream of Arrow", 'write format = "feather"', "feather")),
    (b"FEA1", Content("Feather of version 1", "write it again with a present pyarrow, as version 2")),
    (b"\xd0\xcf\x11\xe0", Content("an old Excel workbook", _SPREADSHEET)),
    (b"\x1f\x8b", Content("gzip", 'end its name with ".gz", as in table.csv.gz')),
    (b"\x28\xb5\x2f\xfd", Content("zstd", 'end its name with ".zst", as in table.csv.zst')),
    (b"BZh", Content("bzip2", 'end its name with ".bz2", as in table.csv.bz2')),
    (b"\xfd7zXZ\x00", Content("xz", "unpack it")),
    (b"7z\xbc\xaf", Content("a 7-Zip archive", "unpack it")),
    (b"SQLite format 3\x00", Content("a SQLite database", 'write uri = "sqlite:FILE" and table = "NAME" for path')),
    (b"\x89PNG", Content("a PNG image", _CORRECT)),
    (b"\xff\xd8\xff", Content("a JPEG image", _CORRECT)),
    (b"GIF8", Content("a GIF image", _CORRECT)),
    (b"%PDF", Content("a PDF document", _EXPORT)),
    (b"\x89HDF", Content("HDF5", _EXPORT)),
    (b"\x93NUMPY", Content("a NumPy array", _EXPORT)),
    (b"ORC", Content("ORC", _EXPORT)),
    (b"Obj\x01", Content("Avro", _EXPORT)),
    (b"$FL2", Content("an SPSS file", _EXPORT)),
    (b"<stata_dta>", Content("a Stata file", _EXPORT)),
    (b"\x80\x04\x95", Content("a Python pickle", _EXPORT)),
    (b"\x80\x05\x95", Content("a Python pickle", _EXPORT)),
    (b"RDX", Content("an R file", _EXPORT)),
)
_TEXT: tuple[tuple[re.Pattern[bytes], Content], ...] = (
    (
        re.compile(rb"(<!doctype html|<html)[\s>]", re.IGNORECASE),
        Content("an HTML page, such as a server sends for a login or an error", "fetch the table again"),
    ),
    (re.compile(rb"<\?xml"), Content("XML", _EXPORT)),
    (re.compile(rb'\{\s*"'), Content("JSON", 'write format = "jsonl" if each line is one object', "jsonl")),
    (re.compile(rb'\[\s*(\{\s*"|\[)'), Content("a JSON array", "write it with one object a line (jq -c '.[]')")),
)


def content_of(head: bytes) -> Content | None:
    """The kind of a file by its first bytes; None where they may be text of a table."""
    for magic, content in _MAGIC:
        if head.startswith(magic):
            return content
    if head.startswith(b"PK\x03\x04"):
        office = _OFFICE.search(head) is not None
        return Content("a workbook of a spreadsheet", _SPREADSHEET) if office else Content("a ZIP archive", "unpack it")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for pattern, content in _TEXT:
        if pattern.match(start):
            return content
    return _nul(head)


def _nul(head: bytes) -> Content | None:
    """Text has no bytes of value 0, unless it is UTF-16 or UTF-32, which are read by their byte order mark."""
    if b"\0" not in head or head[:2] in (b"\xff\xfe", b"\xfe\xff") or head[:4] == b"\0\0\xfe\xff":
        return None
    places: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
        ("utf-16-le", lambda raw: raw[1::2]),
        ("utf-16-be", lambda raw: raw[::2]),
    )
    for name, zeros in places:
        if len(head) > 3 and zeros(head).count(0) > 0.6 * len(zeros(head)):
            return Content(f"text in {name.upper()}", f'write encoding = "{name}"')
    return Content("binary data", _CORRECT)
