"""Tables in an S3-compatible store, tried on moto's server: objects, prefixes, patterns, faults and deadlines."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.library.tables.conftest import Store
from treetap.errors import DataError
from treetap.tables import several as store_module
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("object store")]


def parquet(**columns: Any) -> bytes:
    """A file's content."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


def read(path: Any, endpoint: str | None, **keys: Any) -> Table:
    """The table with its column x."""
    given = {"path": path, "id": "id", "columns": ["x"], "endpoint_override": endpoint, **keys}
    return read_table(TableConfig.model_validate(given), with_label=False, missing=None)


def test_objects_of_all_formats(object_store: Store) -> None:
    """CSV in its dialect, packed, and Parquet; rows are named as those of files."""
    csv = object_store.put("one/t.csv", b"id;x\nb;1,5\na;-2\n")
    for place in (
        csv,
        object_store.put("one/p.parquet", parquet(id=["b", "a"], x=[1.5, -2.0])),
        object_store.put("one/t.jsonl", b'{"id": "b", "x": 1.5}\n{"id": "a", "x": -2}\n'),
    ):
        table = read(place, object_store.endpoint)
        assert str(table.path) == place
        assert table.ids == ["a", "b"]
        np.testing.assert_array_equal(table.features[:, 0], [-2, 1.5])
    assert read(csv, object_store.endpoint).where(0) == "line 3"
    damaged = object_store.put("one/d.parquet", parquet(id=["b", "a"], x=[np.inf, -2.0]))
    with pytest.raises(DataError, match=rf"^{damaged}: row 1, column 'x': the cell is infinite"):
        read(damaged, object_store.endpoint)


def test_an_object_that_changes_while_its_features_are_needed(
    object_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put again or deleted, it is refused by name."""
    monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    place = object_store.put("passes/p.parquet", parquet(id=["b", "a"], x=[1.5, -2.0]))
    config = TableConfig.model_validate(
        {"path": place, "id": "id", "columns": ["x"], "endpoint_override": object_store.endpoint}
    )
    table = read_table(config, with_label=False, missing=None, streams=True)
    assert table.features[:, 0].tolist() == [-2, 1.5]
    object_store.put("passes/p.parquet", parquet(id=["b", "a"], x=[1.5, -2.0], y=["more", "bytes"]))
    with pytest.raises(DataError, match=rf"^{place}: has been written again since the beginning of the job"):
        _ = table.features
    object_store.remove("passes/p.parquet")
    with pytest.raises(DataError, match=rf"^{place}: there is no such file"):
        _ = table.features


@pytest.mark.parametrize("place", ["s3://tables/many", "s3://tables/many/", "s3://tables/many/*/p.parquet"])
def test_prefixes_and_patterns(place: str, object_store: Store) -> None:
    """All objects below a prefix, with columns from the names of folders; those that match a pattern."""
    for year in (2023, 2024):
        object_store.put(f"many/year={year}/p.parquet", parquet(id=[f"r{year}"], x=[float(year)]))
    object_store.put("many/_SUCCESS", b"")
    table = read(place, object_store.endpoint, columns=["x", "year"])
    np.testing.assert_array_equal(table.features, [[2023, 2023], [2024, 2024]])
    assert table.where(1) == "year=2024/p.parquet, row 1"


def test_the_endpoint_of_the_environment(object_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """`AWS_ENDPOINT_URL_S3`, as Amazon's own tools take it."""
    place = object_store.put("env/t.csv", b"id,x\na,1\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", object_store.endpoint)
    assert read(place, None).ids == ["a"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://tables/absent.csv", "there is no such file"),
        ("s3://absent/t.csv", "there is no such bucket"),
        ("s3://tables/empty/*.csv", "there is no such file"),
        ("s3://tables/notes", "has no file whose name ends with .csv"),
    ],
)
def test_what_is_not_there(place: str, said: str, object_store: Store) -> None:
    """An object, a bucket, and a prefix without tables are told apart."""
    object_store.put("notes/README.md", b"")
    with pytest.raises(DataError) as caught:
        read(place, object_store.endpoint)
    assert str(caught.value).startswith(f"{place}: {said}")


@contextmanager
def refusing() -> Iterator[str]:
    """The endpoint of a store that refuses every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_store_that_refuses(object_store: Store) -> None:
    """The remedy names the variables of the environment, and has neither of their values."""
    with refusing() as endpoint, pytest.raises(DataError, match="access is denied: check AWS_ACCESS_KEY_ID") as caught:
        read("s3://tables/t.csv", endpoint)
    assert "geheim" not in str(caught.value)


def test_a_store_that_does_not_answer(object_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a listener, and with one that says nothing, the error comes within the deadlines."""
    monkeypatch.setattr(store_module, "CONNECT_S", 0.5)
    monkeypatch.setattr(store_module, "REQUEST_S", 1.0)
    monkeypatch.setattr(store_module, "ATTEMPTS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port in (1, silent.getsockname()[1]):
            with pytest.raises(DataError, match="the store cannot be reached; check endpoint_override"):
                read("s3://tables/t.csv", f"http://127.0.0.1:{port}")
