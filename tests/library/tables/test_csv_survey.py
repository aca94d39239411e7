"""A quote that is never closed is an error at its line, wherever it opens; readers would lose the rows behind it."""

from __future__ import annotations

import gzip
import io
import random
import re
from pathlib import Path

import pytest

from treetap.errors import DataError
from treetap.tables import csv_file
from treetap.tables.config import TableConfig
from treetap.tables.csv_file import survey
from treetap.tables.reading import read_ids, read_table


def _read(path: Path, **keys: object) -> int:
    config = TableConfig(path=path, id="id", columns=["x"], **keys)  # type: ignore[arg-type]
    return len(read_table(config, with_label=False, missing=None).ids)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("row", "line"),
    [('3,1.5,"left', 4), ('3,"1.5,left', 4), ('"3,1.5,left', 4), ('"two\nlines",1.5,"left', 5), ('3,1.5,"ok""', 4)],
)
def test_in_any_column(row: str, line: int, delimiter: str, tmp_path: Path) -> None:
    """First, middle and last column, with a detected delimiter, before a small rest and at the very end."""
    for rest in ("\n4,2.0,ok\n5,2.5,ok\n", "\n", ""):
        path = tmp_path / "t.csv"
        path.write_text(f"id,x,note\n1,0.5,ok\n2,1.0,ok\n{row}{rest}".replace(",", delimiter))
        with pytest.raises(DataError, match=f"t.csv: line {line}: no quote at the end of a cell closes"):
            _read(path)


def test_in_the_header_at_the_end_of_a_large_file_and_packed(tmp_path: Path) -> None:
    """Not only where a dialect is detected; and a file without quotes by its settings has none that opens."""
    header = tmp_path / "header.csv"
    header.write_text('"id,x,note\n1,0.5,ok\n2,1.0,ok\n')
    with pytest.raises(DataError, match="line 1: no quote"):
        _read(header)
    rows = [f'{row},{row}.5,"fine, {row}"\r\n' for row in range(120_000)]
    rows[-1] = rows[-1].replace('"\r', "\r")
    packed = tmp_path / "large.csv.gz"
    packed.write_bytes(gzip.compress(("id,x,note\r\n" + "".join(rows)).encode()))
    with pytest.raises(DataError, match="line 120001: no quote"):
        _read(packed)
    plain = tmp_path / "plain.csv"
    plain.write_text('id,x,note\n1,0.5,"ok\n2,1.0,5" pipe\n')
    assert _read(plain, quote="") == 2


def test_in_files_of_ids(tmp_path: Path) -> None:
    """Such as `--records` and `label_rows` name."""
    path = tmp_path / "ids.csv"
    path.write_text('id\n1\n"2\n3\n')
    with pytest.raises(DataError, match="line 3: no quote"):
        read_ids(path)


def test_closed_by_the_opening_quote_of_a_later_row(tmp_path: Path) -> None:
    """Both rows would be one, of the right width; a quote inside a line is the cell's own business."""
    path = tmp_path / "t.csv"
    path.write_text('id,x,note\n1,0.5,"ok"\n2,1.0,"left\n3,1.5,"ok"\n4,2.0,ok\n')
    with pytest.raises(DataError, match="line 3: no quote"):
        _read(path)
    path.write_text('id,x,note\n1,0.5,"two\nlines" \n2,1.0,"5" pipe\n3,1.5,"""said"""\n')
    assert _read(path) == 3


def test_a_cut_off_file_says_so(tmp_path: Path) -> None:
    """A packed file of which the end is lost."""
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"id,x\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(20_000)))[:-9])
    with pytest.raises(DataError, match="is cut off"):
        _read(path)


def _by_character(text: str) -> int | None:
    """The same, one character after the other."""
    state, opened, line, over = "start", 0, 1, False
    places = iter(range(len(text)))
    for place in places:
        each = text[place]
        if state == "quoted" and each == '"':
            if text[place + 1 : place + 2] == '"':
                next(places)
            elif over and not re.match(" *([,\r\n]|$)", text[place + 1 :]):
                return opened
            else:
                state = "cell"
        elif state == "start" and each == '"':
            state, opened, over = "quoted", line, False
        elif state != "quoted":
            state = "start" if each in ",\r\n" else "cell"
        over |= each in "\r\n"
        line += each == "\r" or (each == "\n" and text[place - 1 : place] != "\r")
    return opened if state == "quoted" else None


def test_against_a_reader_by_character(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the parts that are read at a time end."""
    draw = random.Random(5)
    for _ in range(4_000):
        text = "".join(draw.choice('a ",\n\r') for _ in range(draw.randrange(24)))
        monkeypatch.setattr(csv_file, "_PART", draw.choice([1, 2, 3, 7, 1 << 20]))
        found = survey(io.StringIO(text, newline=""), ",", '"', 1 << 20)
        assert found.open_quote == _by_character(text), repr(text)


@pytest.mark.parametrize("quote", ['"', ""])
@pytest.mark.parametrize("cells", ["0x10", "0X1f", "12"])
def test_hexadecimal_numbers_are_text(cells: str, quote: str, tmp_path: Path) -> None:
    """Wherever they stand; a column beside them stays one of numbers."""
    path = tmp_path / "t.csv"
    path.write_text(f"id,x,y\n1,{cells},0\n2,7,10\n")
    if cells == "12":
        assert _read(path, quote=quote) == 2
    else:
        with pytest.raises(DataError, match="line 2, column 'x': the cell is not a number"):
            _read(path, quote=quote)
    config = TableConfig(path=path, id="id", columns=["y"], quote=quote)
    assert read_table(config, with_label=False, missing=None).features.tolist() == [[0.0], [10.0]]


def test_times_of_day_are_text(tmp_path: Path) -> None:
    """One encoding for all columns takes them, and no encoding names them as text."""
    path = tmp_path / "t.csv"
    path.write_text("id,x\n1,10:30\n2,09:15\n3,11:00\n")
    with pytest.raises(DataError, match="column 'x' holds another text in each record"):
        _read(path)
    table = read_table(TableConfig(path=path, id="id", columns=["x"], encode="ordinal"), with_label=False, missing=None)
    assert table.categories["x"].values == ["09:15", "10:30", "11:00"]
