"""`treetap data`: the catalogue, the content digest, conversion of each source's layout, and what people are told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import treetap_here
from tests.commands.sources import FETCHED, layout, small
from treetap.commands.data import download
from treetap.commands.data.sources import CATALOGUE, ByHand, Source
from treetap.errors import BadInput, TreetapError


def test_fetched_sets_name_https_licence_and_a_label_among_their_columns() -> None:
    """Every entry that is fetched comes by https, under a stated licence, and has its label and a full digest."""
    for source in FETCHED:
        assert source.url.startswith("https://")
        assert source.licence
        assert source.citation
        assert source.label in [name for name, _, _ in source.columns]
        assert len(source.digest) == 64
        assert len({name for name, _, _ in source.columns}) == source.width


def test_digest_ignores_encoding_but_no_value_name_or_order() -> None:
    """Integer width, string type, chunks and a number's last bits do not count; values, names and order do."""
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([0.1, -0.0]), "c": pa.array(["x", "yz"])})
    same = pa.concat_tables([table.slice(0, 1), table.slice(1, 1)]).cast(
        pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.large_string())])
    )
    same = same.set_column(1, "b", pa.array([0.1 + 2**-55, 0.0]))
    digest = download.content_of(table).digest
    assert download.content_of(same).digest == digest
    for other in (
        table.set_column(0, "a", pa.array([1, 3], pa.int32())),
        table.set_column(0, "a", pa.array([1.0, 2.0])),
        table.set_column(1, "b", pa.array([0.10000001, 0.0])),
        table.set_column(2, "c", pa.array(["xy", "z"])),
        table.rename_columns(["a", "b", "d"]),
        table.select(["b", "a", "c"]),
        table.take([1, 0]),
    ):
        assert download.content_of(other).digest != digest


def test_digest_is_the_published_definition() -> None:
    """The digest of a small table, worked out by hand from the definition in the documentation."""
    from hashlib import sha256

    table = pa.table({"n": pa.array([-1], pa.int32()), "r": pa.array([2 / 3]), "t": pa.array(["é"])})
    lines = [("n", "int", b"\xff" * 8), ("r", "real", b"0.666666667\n"), ("t", "text", b"2:\xc3\xa9")]
    whole = "".join(f"{name}\0{kind}\0{sha256(data).hexdigest()}\n" for name, kind, data in lines)
    assert download.content_of(table).digest == sha256(whole.encode()).hexdigest()


def test_missing_values_have_no_digest() -> None:
    """A null and a NaN are refused by the digest, with the column's name."""
    for column in (pa.array([1, None]), pa.array([1.0, float("nan")])):
        with pytest.raises(BadInput, match="column a has missing"):
            download.content_of(pa.table({"a": column}))


@pytest.mark.parametrize("source", FETCHED, ids=lambda source: source.name)
def test_layout_of_each_source_is_converted(source: Source, tmp_path: Path) -> None:
    """A made-up table in the layout of the public source comes out with the catalogue's columns, types and values."""
    if source.sheet:
        pytest.importorskip("xlrd", reason="reading .xls needs the extra `data`")
    table = small(source, rows=5)
    (tmp_path / "archive").write_bytes(layout(source, table))
    found = download.convert(source, download.unpack(source, tmp_path / "archive"))
    assert found.schema.equals(table.schema)
    assert found.to_pydict() == table.to_pydict()


@pytest.mark.second_tier
@pytest.mark.parametrize("source", FETCHED, ids=lambda source: source.name)
def test_real_data_in_its_source_layout_has_the_pinned_digest(source: Source, tmp_path: Path) -> None:
    """The real table, put into its public source's layout and fetched back, is what the catalogue pins."""
    path = Path(os.environ.get("TREETAP_DATA", ".")) / source.file
    if "TREETAP_DATA" not in os.environ or not path.is_file():
        pytest.skip(f"{source.file} is not there: TREETAP_DATA is not set, or its folder lacks it")
    if source.sheet:
        pytest.importorskip("xlrd", reason="reading .xls needs the extra `data`")
    real = pq.read_table(path)
    (tmp_path / "archive").write_bytes(layout(source, real))
    found = download.convert(source, download.unpack(source, tmp_path / "archive"))
    assert download.difference(source, found) is None
    assert found.schema.equals(real.schema)


def test_a_damaged_workbook_is_named() -> None:
    """Bytes that are no workbook end in a message, not in the reader's exception."""
    pytest.importorskip("xlrd", reason="reading .xls needs the extra `data`")
    source = CATALOGUE["credit_default"]
    assert isinstance(source, Source)
    for content in (b"no workbook", bytes.fromhex("d0cf11e0a1b11ae1") + bytes(2000)):
        with pytest.raises(TreetapError, match="not an Excel 97 workbook"):
            download.convert(source, content)


def test_without_xlrd_the_extra_is_named_before_any_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the workbook cannot be read, the command says what to install and asks nobody."""
    monkeypatch.setitem(sys.modules, "xlrd", None)
    monkeypatch.setattr(download, "download", lambda *_: pytest.fail("asked the source"))
    source = CATALOGUE["credit_default"]
    assert isinstance(source, Source)
    with pytest.raises(BadInput, match=r"pip install -e '\S*\[data\]'"):
        download.fetch(source, tmp_path)


def test_list_as_json_tells_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One JSON document with every set, its terms, and the file where there is one."""
    (tmp_path / "fars.parquet").touch()
    monkeypatch.setenv("TREETAP_DATA", str(tmp_path))
    assert treetap_here("data", "list", "--json") == 0
    sets = {row["name"]: row for row in json.loads(capsys.readouterr().out)["sets"]}
    assert list(sets) == list(CATALOGUE)
    assert sets["fars"]["here"] == str(tmp_path / "fars.parquet")
    assert sets["obesity"]["here"] is None
    assert sets["give_me_some_credit"]["fetch"] is False
    assert "licence" in sets["give_me_some_credit"]["why"]


def test_list_for_people_says_why_a_set_is_not_fetched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is followed by the reason, the way by hand and the page of each set that is not fetched."""
    monkeypatch.delenv("TREETAP_DATA", raising=False)
    monkeypatch.setattr(download.terminal, "out", download.terminal.PlainConsole(width=80))
    assert treetap_here("data", "list") == 0
    shown = capsys.readouterr().out
    for name, entry in CATALOGUE.items():
        assert name in shown
        if isinstance(entry, ByHand):
            assert entry.why in shown
            assert entry.how in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fetch", "give_me_some_credit"], "no open licence"),
        (["fetch", "cifar10_subset"], "By hand: draw 2,000"),
        (["fetch", "nothing"], "no such data set; there are credit_default,"),
        (["fetch", "obesity"], "add --out FOLDER or set TREETAP_DATA"),
    ],
)
def test_what_cannot_be_fetched_ends_with_status_2(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sets to be got by hand, unknown names and a missing folder are usage errors with the way out in the message."""
    monkeypatch.delenv("TREETAP_DATA", raising=False)
    assert treetap_here("data", *arguments) == 2
    assert says in capsys.readouterr().err
