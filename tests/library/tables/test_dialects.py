"""Dialects of CSV: each comes back exact with its keys, and without them exact or refused with the keys that help."""

from __future__ import annotations

import csv
import io
import logging
import re
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tests.library.tables.given import read, refusal, text_file
from treetap.errors import DataError
from treetap.tables.csv_dialect import Dialect
from treetap.tables.csv_file import CsvFile
from treetap.tables.files import TableFile
from treetap.tables.label_columns import cells_of
from treetap.tables.opening import columns_of
from treetap.tables.reading import Table
from treetap.tables.source_keys import Given

IDS = ["007", "Müller; Söhne", 'a "quoted" one', "d,e", "tab\there", "f"]
#: Numbers as Python writes them: every column is something else to a detection.
COLUMNS = {
    "größe": ["1234.5", "-0.25", "1000000.125", "3", "", "12.7"],
    "whole": ["1234", "5678", "9012", "3456", "7890", "1000000"],
    "small": ["1", "2", "3", "", "5", "6"],
    "long": ["0.1", "2.2250738585072014e-308", "123456.7890123456789", "1e300", "-7", "0.30000000000000004"],
}
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "windows-1252", "latin-1"]
KEY = re.compile(r'(delimiter|decimal|thousands|encoding) = ("(?:[^"\\]|\\.)*")')


class Written(NamedTuple):
    """How a file is written."""

    delimiter: str
    decimal: str
    thousands: str
    encoding: str
    quoting: int

    @property
    def keys(self) -> dict[str, Any]:
        """All of it as keys of a table."""
        return {"delimiter": self.delimiter, "decimal": self.decimal, "thousands": self.thousands} | (
            {"encoding": self.encoding} if self.encoding != "utf-8-sig" else {}
        )

    def cell(self, number: str) -> str:
        """A number with this dialect's separators."""
        sign, digits = ("-", number[1:]) if number.startswith("-") else ("", number)
        digits, mark, exponent = digits.partition("e")
        whole, point, rest = digits.partition(".")
        groups = f"{int(whole):,}".replace(",", self.thousands) if whole else ""
        return sign + groups + point.replace(".", self.decimal) + rest + mark + exponent

    def write(self, path: Path, columns: dict[str, list[str]]) -> None:
        """A table of these numbers."""
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.delimiter, quoting=self.quoting)  # type: ignore[arg-type]
        writer.writerow(["id", *columns])
        for row in zip(IDS, *([self.cell(each) for each in column] for column in columns.values()), strict=True):
            writer.writerow(row)
        path.write_bytes(text.getvalue().encode(self.encoding))


def dialects(encoding: str) -> Iterator[Written]:
    """All combinations that can be read."""
    for delimiter, decimal, thousands, quoting in product(
        ",;\t|", ".,", ("", ".", ",", " ", "'", "\u00a0"), (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    ):
        if decimal != thousands:
            yield Written(delimiter, decimal, thousands, encoding, quoting)


def expected(columns: dict[str, list[str]]) -> np.ndarray[Any, Any]:
    """The features as `float` reads them, in the order of the ids."""
    order = sorted(range(len(IDS)), key=IDS.__getitem__)
    values = [[float(cells[row] or "nan") for cells in columns.values()] for row in order]
    return np.array(values)


def cured(path: Path, columns: dict[str, list[str]], written: Written, keys: dict[str, Any]) -> Table:
    """The table by these keys, changed as the errors say; where they leave a choice, to what was written."""
    for _ in range(5):
        try:
            return read(path, *columns, **keys)
        except DataError as fault:
            said = str(fault)
        assert said.startswith(str(path))
        found = {name: tomllib.loads(f"x = {text}")["x"] for name, text in KEY.findall(said)}
        if "the one that is meant" in said or "so too" in said:
            found = {name: value for name, value in found.items() if written.keys.get(name) == value}
        found |= {"thousands": ""} if "no thousands" in said else {}
        kept = {name: value for name, value in keys.items() if f"leave {name} out" not in said}
        assert kept | found != keys, said
        keys = kept | found
    raise AssertionError(keys)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_dialect_comes_back(encoding: str, given: bool, tmp_path: Path) -> None:
    """By its keys, and without any: what is not detected is named by the error, with a key that helps."""
    for number, written in enumerate(dialects(encoding)):
        path = tmp_path / f"{number}.csv"
        written.write(path, COLUMNS)
        table = read(path, *COLUMNS, **written.keys) if given else cured(path, COLUMNS, written, {})
        assert table.ids == sorted(IDS), written
        np.testing.assert_array_equal(table.features, expected(COLUMNS), err_msg=str(written))


SMALL = {"a": ["0.5", "-1.25", "7", "", "3.75", "9.5"], "b": ["1", "2", "3", "4", "5", "6"]}


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        (Written(",", ".", "", "utf-8", csv.QUOTE_MINIMAL), {"delimiter": ";"}),
        (Written("\t", ",", "", "utf-8", csv.QUOTE_MINIMAL), {"delimiter": "|"}),
        (Written(";", ",", "", "utf-8", csv.QUOTE_MINIMAL), {"decimal": "."}),
        (Written(",", ".", "", "utf-8", csv.QUOTE_MINIMAL), {"decimal": ","}),
        (Written(";", ",", "", "utf-8", csv.QUOTE_MINIMAL), {"thousands": ","}),
        (Written(";", ",", ".", "utf-8", csv.QUOTE_MINIMAL), {"decimal": ",", "thousands": " "}),
        (Written(",", ".", "", "windows-1252", csv.QUOTE_MINIMAL), {"encoding": "utf-8"}),
        (Written(",", ".", "", "latin-1", csv.QUOTE_MINIMAL), {"encoding": "ascii"}),
        (Written(",", ".", "", "utf-16", csv.QUOTE_MINIMAL), {"encoding": "utf-8"}),
        (Written(",", ".", "", "utf-8", csv.QUOTE_MINIMAL), {"encoding": "utf-16"}),
        (Written(",", ".", "", "utf-8", csv.QUOTE_MINIMAL), {"encoding": "windows-1252"}),
    ],
)
def test_a_wrong_key_gets_the_cure_that_works(written: Written, wrong: dict[str, str], tmp_path: Path) -> None:
    """The error names file and key; with what it says the numbers are right."""
    path = tmp_path / "t.csv"
    columns = COLUMNS if written.thousands else {"größe": SMALL["a"], "b": SMALL["b"]}
    written.write(path, columns)
    table = cured(path, columns, written, wrong)
    np.testing.assert_array_equal(table.features, expected(columns))


@pytest.mark.parametrize(("keys", "value"), [({"decimal": ","}, 1.234), ({"thousands": ","}, 1234.0)])
@pytest.mark.parametrize("encode", [None, "ordinal"])
def test_a_number_of_two_readings_is_not_guessed(
    keys: dict[str, str], value: float, encode: str | None, tmp_path: Path
) -> None:
    """1,234 may be either: the error has both keys, with or without an encoding of text, and each works."""
    path = text_file(tmp_path, "id;a\n1;1,234\n2;5,678\n")
    fault = refusal(
        path, "a", encode=encode, match='decimal = "," or with thousands = ",": write the one that is meant'
    )
    assert "1,234" not in fault
    assert read(path, "a", encode=encode, **keys).features[0, 0] == value


@pytest.mark.parametrize(("keys", "value"), [({"decimal": "."}, 1.234), ({"decimal": ",", "thousands": "."}, 1234.0)])
def test_a_point_of_two_readings_is_not_guessed(keys: dict[str, str], value: float, tmp_path: Path) -> None:
    """Nor is 1.234 where cells end at semicolons, unless another column shows what a point is there."""
    path = text_file(tmp_path, "id;a;b\n1.000;1.234;1\n2.000;5.678;2\n3.000;12;3\n")
    fault = refusal(path, "a", match=r"column 'a': three digits follow each point")
    assert {'decimal = "."', 'thousands = "."'} < set(re.findall(r'\w+ = "."', fault))
    assert read(path, "a", **keys).features[0, 0] == value
    assert read(path, "b").features[0, 0] == 1  # the others are not in doubt
    for shows, found in (("0.5", 1.234), ("0.250", 1.234), ("1.2345", 1.234), ("1,5", 1.234), ("1.234,5", 1234.0)):
        path.write_text(f"id;a;b\n1;1.234;{shows}\n2;5.678;{shows}\n")
        if shows == "1,5":  # the file's decimal mark is no point, and its thousands are not seen
            refusal(path, "a", match="three digits")
        else:
            assert read(path, "a").features[0, 0] == found
    path.write_text("id,a\n1,1.234\n")
    assert read(path, "a").features[0, 0] == 1.234


def test_codes_with_a_comma_are_categories_if_the_table_says_so(tmp_path: Path) -> None:
    """Text of digits and commas in a file with semicolons: refused under `encode` of all, encoded under its name."""
    path = text_file(tmp_path, "id;a;b\n1;1,234;0.5\n2;5,678;0.5\n")
    refusal(path, "a", "b", encode="ordinal", match="column 'a' holds text: every cell with digits")
    table = read(path, "a", "b", encode={"a": "ordinal"})
    assert table.categories["a"].values == ["1,234", "5,678"]
    path.write_text('id,a\n1,"1,2"\n2,"1,3"\n')
    assert read(path, "a", encode="ordinal").categories["a"].values == ["1,2", "1,3"]


@pytest.mark.parametrize(
    ("text", "found", "said"),
    [
        ("id,a\n1,2\n", Dialect(), 0),
        ("id;a\n1;2,5\n", Dialect(delimiter=";", decimal=","), 2),
        ("id;a\n1;2.5\n", Dialect(delimiter=";"), 1),
        ("id\ta\n1\t1.234,5\n", Dialect("\t", ",", "."), 2),
        ("id;a;b\n1;1.234;0,5\n", Dialect(delimiter=";"), 1),  # contradiction: no decimal mark for both
        ("id;a\n1;1.234.567\n", Dialect(";", ",", "."), 2),
        ("id;a;b\n1;1 234;0,5\n", Dialect(";", ",", " "), 2),
        ("id;a\n1;12.03.2024\n", Dialect(delimiter=";"), 1),  # no number in any way
        ("id;a\n", Dialect(delimiter=";"), 1),
        ("x;y,z\n1;2,3\n", Dialect(), 0),  # both have two cells: the comma remains
        ("id\n1;2\n", Dialect(), 0),
        ("", Dialect(), 0),
        ("id\n1;2.345\n", Dialect(), 0),  # rows longer than the header
        ('id;"a;b"\n1;2\n', Dialect(delimiter=";"), 1),
        ("sep=;\nid;a\n1;2,5\n", Dialect(delimiter=";", decimal=",", skip=1), 2),
        ("sep=,\r\nid,a\r\n1,2\r\n", Dialect(skip=1), 1),
    ],
)
def test_what_is_detected(text: str, found: Dialect, said: int, tmp_path: Path) -> None:
    """The comma stays where it can be the delimiter, plain numbers where they can be; the rest is said."""
    (tmp_path / "t.csv").write_bytes(text.encode())
    file = CsvFile(TableFile.local(tmp_path / "t.csv"), Given())
    assert file.dialect == found
    assert len(file.says) == said


def test_what_is_detected_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The party's log has the keys that would say the same, and nothing of the cells."""
    path = text_file(tmp_path, "id;a\n1;2,5\n2;77,5\n", encoding="utf-16")
    with caplog.at_level(logging.INFO, "treetap.tables"):
        read(path, "a")
    assert f"{path}: read as UTF-16, by its byte order mark" in caplog.text
    assert 'delimiter = ";"' in caplog.text
    assert 'decimal = ","' in caplog.text
    assert "77" not in caplog.text.replace(str(tmp_path), "")


def test_a_label_in_a_dialect(tmp_path: Path) -> None:
    """Targets and classes with separators are numbers, and ids stay as they are written."""
    path = text_file(tmp_path, "id;a;y\n1.000;1;1.234,5\n2.000;2;2.000\n")
    table = read(path, "a", label="y")
    assert table.ids == ["1.000", "2.000"]
    assert table.label is not None
    assert cells_of(table.label).to_pylist() == [1234.5, 2000.0]


@pytest.mark.parametrize("ending", [".gz", ".zst", ".bz2"])
def test_compressed_files(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ending of the name; lines are those of the content; what unpacks to too much is refused."""
    path = tmp_path / f"t.csv{ending}"
    codec = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}[ending]
    with pa.output_stream(str(path), compression=codec) as file:
        file.write(b"id;a\n1;1,5\n2;x\n")
    refusal(path, "a", match="line 3, column 'a'")
    assert columns_of(path) == ["id", "a"]
    with pa.output_stream(str(path), compression=codec) as file:
        file.write(b"id,a\n1,1\n" + b"2,1\n" * 500_000)
    monkeypatch.setattr("treetap.tables.files.half_of_memory", lambda: 1 << 20)
    refusal(path, "a", match=r"unpacks to more than half of this machine's memory")
    path.write_bytes(b"id,a\n1,1\n")
    refusal(path, "a", match=f"is not readable as {codec}, as its name says")


def test_the_line_by_which_spreadsheets_say_the_delimiter(tmp_path: Path) -> None:
    """`sep=;` is no header, and lines are counted with it."""
    path = text_file(tmp_path, "sep=;\nid;a\n2;1,5\n1;7,5\n", encoding="utf-16")
    np.testing.assert_array_equal(read(path, "a").features[:, 0], [7.5, 1.5])


@pytest.mark.parametrize("written", [Written(",", ".", "", "utf-8", 0), Written(";", ",", "", "utf-8", 0)])
@pytest.mark.parametrize("odd", ["", " ", "1e400", "nan"])
def test_numbers_are_the_nearest_doubles(written: Written, odd: str, tmp_path: Path) -> None:
    """To the last bit what `float` makes of the digits, whichever of two parsers a column needs."""
    generator = np.random.default_rng(1)
    numbers = generator.integers(0, 2**64, 400, dtype=np.uint64).view(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    texts = [
        f"{each:{form}}"
        for each, form in zip(numbers, [".17g", ".20e", "r", ".30g"] * 100, strict=False)
        if form != "r"
    ]
    texts += [repr(float(each)) for each in numbers]
    rows = "".join(f"{k}{written.delimiter}{text.replace('.', written.decimal)}\n" for k, text in enumerate(texts))
    quoted = f'x{written.delimiter}"{odd}"\n'  # quoted blanks make a column text, which is parsed cell by cell
    path = text_file(tmp_path, f"id{written.delimiter}a\n{rows}{quoted}")
    if odd == "1e400":
        refusal(path, "a", **written.keys, match="the cell is infinite")
        return
    table = read(path, "a", **written.keys)
    found = dict(zip(table.ids, table.features[:, 0], strict=True))
    assert np.isnan(found.pop("x"))
    assert [found[str(k)] for k in range(len(texts))] == list(map(float, texts))


@pytest.mark.parametrize(
    ("text", "encoding", "keys", "said"),
    [
        (
            "id;note;a\n1;'two\nlines; here';1,5\n2;;x\n",
            "utf-16",
            {"quote": "'"},
            "line 4, column 'a': the cell is not",
        ),
        ("id;note;a\n1;'two;1,5\n2;;x;3\n", "latin-1", {"quote": ""}, "line 3: 3 cells expected, 4 found"),
        ("sep=;\nid;a\n2;1,5\n1;x\n", "utf-8", {}, "line 4, column 'a': the cell is not a number"),
        ("id\n1;2.345\n", "utf-8", {"delimiter": ";", "columns": []}, "line 2: 1 cells expected, 2 found"),
    ],
)
def test_lines_in_a_dialect(text: str, encoding: str, keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    """The line of a fault is that of the file, whatever its delimiter, quote and encoding."""
    refusal(text_file(tmp_path, text, encoding=encoding), "a", match=said, **keys)
