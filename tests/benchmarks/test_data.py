"""The public data sets of benchmarks: the digest, each source's layout, and what a fetch keeps and refuses."""

from __future__ import annotations

import gzip
import io
import os
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.commands.command import python
from treetap.tables.config import TableConfig
from treetap.tables.label_columns import cells_of
from treetap.tables.reading import read_table

pytestmark = pytest.mark.second_tier

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "data.py"
FETCHED = ("credit_default", "bank_marketing", "appliances_energy", "obesity", "fars")
Serve = Callable[..., str]


@pytest.fixture
def data(benchmark: Any) -> Any:
    """The script as a module."""
    return benchmark("data")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve bytes at an address of this machine; `announce` says another length than the true one."""
    with ExitStack() as stack:

        def start(body: bytes, status: int = 200, announce: int = 0) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    self.send_response(status)
                    self.send_header("Content-Length", str(announce or len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, *_: object) -> None:
                    pass

            server = HTTPServer(("127.0.0.1", 0), Handler)
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            for end in (thread.join, server.server_close, server.shutdown):
                stack.callback(end)
            return f"http://127.0.0.1:{server.server_port}/set"

        yield start


def small(known: Any, rows: int = 3) -> pa.Table:
    """A made-up table with the columns and types of a set."""
    makers = {
        "int": lambda j: pa.array([(7 * i + j) % 5 - 2 for i in range(rows)], pa.int32()),
        "real": lambda j: pa.array([i / 3 + j for i in range(rows)], pa.float64()),
        "text": lambda j: pa.array([f"wert é{i}-{j}" for i in range(rows)], pa.large_string()),
    }
    columns = [column.split(":") for column in known.columns.split()]
    return pa.table({name: makers[kind](j) for j, (name, kind, _) in enumerate(columns)})


def described(data: Any, name: str, url: str) -> Any:
    """The set, but with the content of the made-up table, at another address."""
    table = small(data.SETS[name])
    digest, columns = data.content_of(table)
    return data.SETS[name]._replace(rows=table.num_rows, columns=" ".join(columns), digest=digest, url=url)


def zipped(members: dict[str, bytes]) -> bytes:
    with io.BytesIO() as out:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return out.getvalue()


def csv_of(table: pa.Table, delimiter: str, quoting: str = "needed") -> bytes:
    out = io.BytesIO()
    pacsv.write_csv(table, out, pacsv.WriteOptions(delimiter=delimiter, quoting_style=quoting))
    return out.getvalue()


def workbook(rows: list[list[str | float]]) -> bytes:
    """A workbook with one sheet in the record format of Excel 97: numbers as NUMBER, the rest as LABEL records."""

    def record(kind: int, content: bytes) -> bytes:
        return struct.pack("<HH", kind, len(content)) + content

    def begin(kind: int) -> bytes:
        return record(0x0809, struct.pack("<HHHHII", 0x0600, kind, 0x0DBB, 1996, 0, 6))

    end, name = record(0x000A, b""), b"\x06\x00Sheet1"
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


def layout(data: Any, name: str, table: pa.Table) -> bytes:
    """What the public source of that name would serve if it held this table."""
    theirs = {ours: their for their, ours in data.SETS[name].rename.items()}
    table, last = table.rename_columns([theirs.get(column, column) for column in table.column_names]), ""
    if members := data.SETS[name].members:
        last = members[-1]
    if name == "credit_default":
        above = ["", *(f"X{j}" for j in range(1, table.num_columns)), "Y"]
        columns = [list(map(float, column.to_pylist())) for column in table.columns]
        rows = [[float(i), *row] for i, row in enumerate(zip(*columns, strict=True), 1)]
        return zipped({last: workbook([above, ["ID", *table.column_names], *rows])})
    if name == "bank_marketing":
        return zipped({"bank.zip": zipped({last: csv_of(table, ";"), "bank.csv": b"a;b\n1;2\n"}), "about.txt": b""})
    if name == "appliances_energy":
        return zipped({last: csv_of(table, ",", "all_valid").replace(b"\n", b"\r\n")})
    if name == "obesity":
        return zipped({last: csv_of(table.select(sorted(table.column_names)), ",")})
    return gzip.compress(csv_of(table, "\t"), 1)


def test_digest_is_the_published_definition(data: Any) -> None:
    """The digest of a small table, worked out by hand from measured/data-sets.md; encodings do not count."""
    table = pa.table({"n": pa.array([-1], pa.int32()), "r": pa.array([2 / 3]), "t": pa.array(["é"])})
    lines = [("n", "int", b"\xff" * 8), ("r", "real", b"0.666666667\n"), ("t", "text", b"2:\xc3\xa9")]
    whole = "".join(f"{name}\0{kind}\0{sha256(content).hexdigest()}\n" for name, kind, content in lines)
    digest, _ = data.content_of(table)
    assert digest == sha256(whole.encode()).hexdigest()
    same = table.cast(pa.schema([("n", pa.int64()), ("r", pa.float64()), ("t", pa.large_string())]))
    assert data.content_of(same.set_column(1, "r", pa.array([2 / 3 + 2**-53])))[0] == digest
    assert data.content_of(table.select(["r", "n", "t"]))[0] != digest
    for column in (pa.array([1, None]), pa.array([1.0, float("nan")])):
        with pytest.raises(ValueError, match="column a has missing"):
            data.content_of(pa.table({"a": column}))


@pytest.mark.parametrize("name", FETCHED)
def test_layout_of_each_source_is_converted(name: str, data: Any) -> None:
    """A table in the layout of the public source is found again; the real one, where it is, has the pinned digest."""
    known, here = data.SETS[name], Path(os.environ.get("TREETAP_DATA", ".")) / data.SETS[name].file
    for table in [small(known), *([pq.read_table(here)] if here.is_file() else [])]:
        converted = data.convert(known, data.unpacked(known, layout(data, name, table)))
        assert converted.equals(table)
    assert not here.is_file() or data.difference(known, converted) == ""


def test_a_fetch_keeps_what_is_right(data: Any, serve: Serve, tmp_path: Path) -> None:
    """The file and nothing else; the second time it is found good, and another file of its name is left alone."""
    known = described(data, "obesity", serve(layout(data, "obesity", small(data.SETS["obesity"]))))
    assert data.fetch(known, tmp_path / "sets")
    assert not data.fetch(known, tmp_path / "sets")
    (kept,) = (tmp_path / "sets").iterdir()
    assert pq.read_table(kept).to_pydict() == small(known).to_pydict()
    kept.write_bytes(b"mine")
    with pytest.raises(SystemExit, match="move it away"):
        data.fetch(known, tmp_path / "sets")
    assert kept.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda table: table.slice(1), "2 rows, not 3"),
        (lambda table: table.set_column(3, "Weight", pa.array([1.0, 2.0, 3.0])), "column Weight:real:.* is the first"),
        (lambda table: table.drop_columns(["SMOKE"]), "SMOKE"),
        (lambda table: table.set_column(1, "Age", pa.array(["12", "old", "3"])), "old"),
    ],
    ids=["rows", "values", "column", "type"],
)
def test_a_source_with_other_content_is_refused(
    change: Callable[[pa.Table], pa.Table], says: str, data: Any, serve: Serve, tmp_path: Path
) -> None:
    """By what differs, and no file is left."""
    known = described(data, "obesity", serve(layout(data, "obesity", change(small(data.SETS["obesity"])))))
    with pytest.raises(SystemExit, match=says):
        data.fetch(known, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"body": b"", "status": 404}, "Error 404"),
        ({"body": b"<!DOCTYPE html>moved"}, "BadZipFile.*DOCTYPE"),
        ({"body": zipped({"readme.txt": b""})}, "KeyError: 'ObesityDataSet"),
        ({"body": zipped({"ObesityDataSet_raw_and_data_sinthetic.csv": bytes(100_001)})}, "more than 100000 bytes"),
        ({"body": b"PK", "announce": 100}, "sends 2 bytes, announces 100"),
        ({"body": b"x" * 200_000}, "200000 is the limit|100000 is the limit"),
    ],
    ids=["http error", "no zip", "no member", "bomb", "cut short", "too large"],
)
def test_bad_answers_are_named_and_leave_nothing(
    how: dict[str, Any], says: str, data: Any, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes is bounded."""
    for limit in ("MOST", "LARGEST"):
        monkeypatch.setattr(data, limit, 100_000)
    with pytest.raises(SystemExit, match=says):
        data.fetch(described(data, "obesity", serve(**how)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_images_come_back_channels_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a part in one column, or the first ones in two that together are the image."""
    images, labels = np.random.default_rng(3).integers(0, 256, (6, 4, 7, 3), np.uint8), np.array([2, 0, 1, 0, 2, 1])
    np.savez(tmp_path / "cifar10_subset.npz", train_images=images, train_labels=labels)
    monkeypatch.setenv("TREETAP_DATA", str(tmp_path))
    out, wanted = tmp_path / "t.parquet", images.transpose(0, 3, 1, 2)
    for further, names, count in (((), ["image"], 6), (("--halves", "--rows", "4"), ["left", "right"], 4)):
        done = python(SCRIPT, "cifar10_subset", "--images", str(out), *further, tables=True)
        assert done.status == 0, done.err
        config = TableConfig(path=out, id="id", columns=names, label="label")
        table = read_table(config, with_label=True, missing=None)
        np.testing.assert_array_equal(np.concatenate(list(table.tensors.values()), axis=3), wanted[:count])
        assert table.ids[0] == "train-00000"
        assert table.label is not None
        assert cells_of(table.label).to_pylist() == labels[:count].tolist()
