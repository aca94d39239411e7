"""`treetap data fetch` against a server on this machine: what is kept, and what every bad answer becomes."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import treetap_here
from tests.commands.sources import described, layout, small, zipped
from treetap.commands.data import download
from treetap.commands.data.sources import CATALOGUE, Source
from treetap.errors import BadInput, TreetapError

Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve bytes at an address of this machine; `announce` says another length than the true one."""
    with contextlib.ExitStack() as stack:

        def start(body: bytes, status: int = 200, announce: int | None = None, seen: list[str] | None = None) -> str:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    if seen is not None:
                        seen.append(self.path)
                    self.send_response(status)
                    if announce != -1:
                        self.send_header("Content-Length", str(len(body) if announce is None else announce))
                    self.end_headers()
                    with contextlib.suppress(ConnectionError):
                        self.wfile.write(body)

                def log_message(self, *_: object) -> None:
                    pass

            server = HTTPServer(("127.0.0.1", 0), Handler)
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/set"

        yield start


@pytest.fixture
def served(serve: Serve) -> Callable[..., Source]:
    """A source like the one for obesity, with three made-up rows, at an address of this machine."""

    def start(body: bytes | None = None, **how: object) -> Source:
        like = CATALOGUE["obesity"]
        assert isinstance(like, Source)
        table = small(like)
        return described(like, table, url=serve(layout(like, table) if body is None else body, **how))

    return start


def test_fetch_keeps_the_table_and_asks_the_source_once(served: Callable[..., Source], tmp_path: Path) -> None:
    """The first fetch writes the Parquet file and nothing else; the second finds it good and opens no connection."""
    seen: list[str] = []
    source = served(seen=seen)
    assert download.fetch(source, tmp_path / "sets")
    kept = tmp_path / "sets" / "obesity.parquet"
    assert pq.read_table(kept).to_pydict() == small(source).to_pydict()
    written = kept.stat().st_mtime_ns
    assert not download.fetch(source, tmp_path / "sets")
    assert kept.stat().st_mtime_ns == written
    assert seen == ["/set"]
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["obesity.parquet"]
    others = tmp_path / "as any file"
    others.touch()
    assert kept.stat().st_mode == others.stat().st_mode


def test_another_file_of_that_name_is_left_alone(served: Callable[..., Source], tmp_path: Path) -> None:
    """A file with other content, or no Parquet at all, is neither overwritten nor taken for the set."""
    source = served()
    path = tmp_path / source.file
    for content in (b"my notes", None):
        if content is None:
            pq.write_table(small(source, rows=4), path)
        else:
            path.write_bytes(content)
        before = path.read_bytes()
        with pytest.raises(BadInput, match="move it away"):
            download.fetch(source, tmp_path)
        assert path.read_bytes() == before


def test_an_output_that_is_no_folder_is_named_before_any_download(
    served: Callable[..., Source], tmp_path: Path
) -> None:
    """A file, a path below a file and a name too long are refused; listing them shows that nothing is there."""
    seen: list[str] = []
    source = served(seen=seen)
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for folder, says in (
        (notes, "is a file"),
        (notes / "below", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(BadInput, match=f"--out .*{says}.*; name a folder"):
            download.fetch(source, folder)
        assert all(row["here"] is None for row in download.listing(folder))
    assert seen == []
    assert notes.read_text() == "mine"


def test_a_folder_that_goes_during_the_download_is_named(
    served: Callable[..., Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing what was written so far does not hide why it could not be written."""

    def gone(_: Source, path: Path) -> None:
        path.parent.rmdir()
        path.parent.write_text("a file now")
        raise NotADirectoryError(20, "Not a directory")

    monkeypatch.setattr(download, "download", gone)
    with pytest.raises(TreetapError, match=r"obesity\.parquet: cannot be written: Not a directory"):
        download.fetch(served(), tmp_path / "sets")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda table: table.slice(1), "2 rows and 17 columns, not 3 and 17"),
        (lambda table: table.set_column(3, "Weight", pa.array([1.0, 2.0, 3.0])), "column Weight is the first"),
        (lambda table: table.drop_columns(["SMOKE"]), "0 columns 'SMOKE'"),
        (lambda table: table.set_column(1, "Age", pa.array(["12", "old", "3"])), "old"),
    ],
    ids=["rows", "values", "column", "type"],
)
def test_a_source_with_other_content_is_refused(
    change: Callable[[pa.Table], pa.Table], says: str, serve: Serve, tmp_path: Path
) -> None:
    """If the source has changed, the message says where, and no file is left."""
    like = CATALOGUE["obesity"]
    assert isinstance(like, Source)
    table = small(like)
    source = described(like, table, url=serve(layout(like, change(table))))
    with pytest.raises(TreetapError, match=says) as raised:
        download.fetch(source, tmp_path)
    assert not isinstance(raised.value, BadInput)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"status": 404}, "answers 404"),
        ({"body": b"<!DOCTYPE html>moved"}, "not a whole zip archive.*DOCTYPE"),
        ({"body": zipped(readme__txt=b"nothing")}, "holds no 'ObesityDataSet.*but readme.txt"),
        ({"announce": 10**6}, "broke off after"),
        ({"announce": 10**12}, "announces 1000000000000 bytes"),
        ({"body": b"x" * 200_000, "announce": -1}, "more than the limit"),
    ],
    ids=["http error", "no zip", "no member", "cut short", "too large, announced", "too large, unannounced"],
)
def test_bad_answers_are_named_and_leave_nothing(
    how: dict[str, object], says: str, served: Callable[..., Source], tmp_path: Path
) -> None:
    """Whatever a source answers instead of the set becomes one message, and no file."""
    source = dataclasses.replace(served(**how), limit=100_000 if how.get("announce") == -1 else 10**7)
    with pytest.raises(TreetapError, match=says):
        download.fetch(source, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nobody_listening_and_silence_are_named(
    served: Callable[..., Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused connection, a source that never answers and one that stops in the middle end in a message."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        source = dataclasses.replace(served(), url=f"http://127.0.0.1:{listener.getsockname()[1]}/set")
        with pytest.raises(TreetapError, match="cannot be reached"):
            download.fetch(source, tmp_path)
        listener.listen()
        monkeypatch.setattr(download, "SILENCE_S", 0.1)
        with pytest.raises(TreetapError, match="stopped answering: timed out"):
            download.fetch(source, tmp_path)
        listener.accept()[0].close()

        def begin() -> None:
            connection = listener.accept()[0]
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nPK")
            with connection:
                connection.recv(10**6)
                connection.recv(1)  # until the other side gives up

        thread = threading.Thread(target=begin)
        thread.start()
        with pytest.raises(TreetapError, match="stopped answering: timed out"):
            download.fetch(source, tmp_path)
        thread.join()
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_unpacks_to_too_much_is_refused(
    served: Callable[..., Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpacking stops at the limit, for zip and for gzip."""
    monkeypatch.setattr(download, "LARGEST", 10_000)
    source = served()
    archive = tmp_path / "archive"
    for members, content in ((source.members, zipped(**{source.members[0]: bytes(10_001)})), ((), bytes(10_001))):
        archive.write_bytes(content if members else gzip.compress(content))
        with pytest.raises(TreetapError, match="unpacks to more than 10000"):
            download.unpack(dataclasses.replace(source, members=members), archive)


def test_broken_gzip_is_named(served: Callable[..., Source], tmp_path: Path) -> None:
    """A gzip file cut short, and one that never was one, are refused."""
    source = dataclasses.replace(served(), members=())
    for content in (gzip.compress(os.urandom(1000))[:-20], b"version https://git-lfs"):
        (tmp_path / "archive").write_bytes(content)
        with pytest.raises(TreetapError, match="not a whole gzip archive"):
            download.unpack(source, tmp_path / "archive")


def test_fetch_command_reports_and_fails_with_status_1(
    served: Callable[..., Source],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`treetap data fetch` names file and digest; a source that has gone is a failure, not a usage error."""
    source = served()
    monkeypatch.setitem(CATALOGUE, "obesity", source)
    monkeypatch.setenv("TREETAP_DATA", str(tmp_path))
    assert treetap_here("data", "fetch", "obesity") == 0
    assert f"{tmp_path / source.file}: fetched, content digest {source.digest}" in capsys.readouterr().out
    assert treetap_here("data", "fetch", "obesity") == 0
    assert "already there" in capsys.readouterr().out
    monkeypatch.setitem(CATALOGUE, "obesity", served(status=503))
    assert treetap_here("data", "fetch", "obesity", "--out", str(tmp_path / "elsewhere")) == 1
    assert "answers 503" in capsys.readouterr().err


def test_a_link_in_the_place_of_the_archive_is_not_followed(served: Callable[..., Source], tmp_path: Path) -> None:
    """In a folder that others may write to, none of them can have another file written instead."""
    source = served()
    mine = tmp_path / "mine"
    mine.write_text("mine")
    link = tmp_path / f".{source.file}.{os.getpid()}.download.part"
    link.symlink_to(mine)
    with pytest.raises(TreetapError, match="cannot be written: File exists"):
        download.fetch(source, tmp_path)
    assert mine.read_text() == "mine"
    assert download.fetch(source, tmp_path)  # the link is gone
