"""A quote that is never closed is an error at its line, wherever it opens; readers would lose the rows behind it."""

from __future__ import annotations

import gzip
import io
import random
import re
from pathlib import Path

import pytest

from tests.library.tables.given import read, refusal, text_file
from treetap.tables import csv_file
from treetap.tables.csv_file import survey


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("row", "line"),
    [('3,1.5,"left', 4), ('3,"1.5,left', 4), ('"3,1.5,left', 4), ('"two\nlines",1.5,"left', 5), ('3,1.5,"ok""', 4)],
)
def test_in_any_column(row: str, line: int, delimiter: str, tmp_path: Path) -> None:
    """First, middle and last column, with a detected delimiter, before a small rest and at the very end."""
    for rest in ("\n4,2.0,ok\n5,2.5,ok\n", "\n", ""):
        path = text_file(tmp_path, f"id,x,note\n1,0.5,ok\n2,1.0,ok\n{row}{rest}".replace(",", delimiter))
        refusal(path, "x", match=f"t.csv: line {line}: no quote at the end of a cell closes")


def test_in_the_header_at_the_end_of_a_large_file_and_packed(tmp_path: Path) -> None:
    """Not only where a dialect is detected; and a file without quotes by its settings has none that opens."""
    header = text_file(tmp_path, '"id,x,note\n1,0.5,ok\n2,1.0,ok\n', "header.csv")
    refusal(header, "x", match="line 1: no quote")
    rows = [f'{row},{row}.5,"fine, {row}"\r\n' for row in range(120_000)]
    rows[-1] = rows[-1].replace('"\r', "\r")
    packed = tmp_path / "large.csv.gz"
    packed.write_bytes(gzip.compress(("id,x,note\r\n" + "".join(rows)).encode()))
    refusal(packed, "x", match="line 120001: no quote")
    plain = text_file(tmp_path, 'id,x,note\n1,0.5,"ok\n2,1.0,5" pipe\n', "plain.csv")
    assert len(read(plain, "x", quote="").ids) == 2


def test_closed_by_the_opening_quote_of_a_later_row(tmp_path: Path) -> None:
    """Both rows would be one, of the right width; a quote inside a line is the cell's own business."""
    path = text_file(tmp_path, 'id,x,note\n1,0.5,"ok"\n2,1.0,"left\n3,1.5,"ok"\n4,2.0,ok\n')
    refusal(path, "x", match="line 3: no quote")
    path.write_text('id,x,note\n1,0.5,"two\nlines" \n2,1.0,"5" pipe\n3,1.5,"""said"""\n')
    assert len(read(path, "x").ids) == 3


def test_a_cut_off_file_says_so(tmp_path: Path) -> None:
    """A packed file of which the end is lost."""
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"id,x\n" + b"".join(b"%d,%d\n" % (n, n) for n in range(20_000)))[:-9])
    refusal(path, "x", match="is cut off")


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
    path = text_file(tmp_path, f"id,x,y\n1,{cells},0\n2,7,10\n")
    if cells == "12":
        assert read(path, "x", quote=quote).features.tolist() == [[12.0], [7.0]]
    else:
        refusal(path, "x", quote=quote, match="line 2, column 'x': the cell is not a number")
    assert read(path, "y", quote=quote).features.tolist() == [[0.0], [10.0]]


def test_times_of_day_are_text(tmp_path: Path) -> None:
    """One encoding for all columns takes them, and no encoding names them as text."""
    path = text_file(tmp_path, "id,x\n1,10:30\n2,09:15\n3,11:00\n")
    refusal(path, "x", match="column 'x' holds another text in each record")
    assert read(path, "x", encode="ordinal").categories["x"].values == ["09:15", "10:30", "11:00"]
