"""Points, bins and their merging, by hand and beside what others compute."""

from __future__ import annotations

import csv
import io
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from treetap.errors import BadInput
from treetap.lab.scorecard.card import MISSING, NUMBERS, OTHER, VALUE, Card, Cell, Column
from treetap.lab.scorecard.exports import exported
from treetap.lab.scorecard.options import Frame
from treetap.lab.scorecard.parts import Part
from treetap.models.own_split import OwnSplit
from treetap.trees.metrics import shares_of, stability_index


def _column(points: list[float], records: list[int], bad: list[int], *, loose: int = 0) -> Column:
    """A column of one cell a bin, the last `loose` of them without an order."""
    cuts = [-math.inf, *range(1, len(points) - loose), math.inf]
    cells = [Cell(NUMBERS, low, high) for low, high in pairwise(cuts)][: len(points) - loose]
    cells += [Cell(VALUE, value=f"v{place}") for place in range(loose)]
    groups = tuple((place,) for place in range(len(points)))
    lefts = np.zeros((len(points), 0), dtype=bool)
    counts = np.array(records), np.array(bad)
    return Column("bank", "x", tuple(cells), (), lefts, groups, np.array(points), *counts)


def test_points_double_the_odds() -> None:
    """At the base points the odds are as asked; `pdo` points more double them, and log-odds are linear in the score."""
    frame = Frame(base_points=600, odds=50, pdo=20)
    assert frame.score(-math.log(50)) == pytest.approx(600)
    assert frame.score(-math.log(200)) == pytest.approx(640)
    for margin in (-3.0, 0.0, 1.25):
        assert frame.bad(frame.score(margin)) == pytest.approx(1 / (1 + math.exp(-margin)))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        *(({"pdo": 0}, "--pdo 0"), ({"pdo": -20}, "--pdo -20"), ({"base_points": math.inf}, "--base-points inf")),
        *(({"odds": 0}, "--odds 0"), ({"odds": math.nan}, "--odds nan")),
    ],
)
def test_frames_that_are_none(given: Mapping[str, float], named: str) -> None:
    """Points that fall with the odds, or are no numbers, are refused by the option's name."""
    with pytest.raises(BadInput, match=named):
        Frame(**given).check()


def _own(splits: list[OwnSplit], columns: list[str], categories: dict[str, Any]) -> list[Column]:
    manifest = {"columns": columns, "categories": categories}
    return Part(Path("model"), "bank", True, manifest, splits, ()).columns()


@pytest.mark.parametrize("seed", range(5))
def test_a_cell_goes_as_its_values_do(seed: int) -> None:
    """At each split: drawn numbers and cuts themselves, missing values, categories and unknown ones."""
    rng = np.random.default_rng(seed)
    cuts = np.array([*np.sort(rng.normal(size=4)), math.inf, -math.inf])
    splits = [OwnSplit(h, 1, 0, 0, float(cuts[h]), bool(rng.random() < 0.5)) for h in range(5)]
    splits[4:] = [OwnSplit(4, 1, 0, 0, math.inf, False), OwnSplit(5, 1, 0, 0, -math.inf, True)]
    sets = [tuple(np.flatnonzero(rng.random(5) < 0.5).tolist()) for _ in range(3)]
    splits += [OwnSplit(6 + h, 1, 1, 0, math.inf, bool(h), right) for h, right in enumerate(sets)]
    encoding = {"encode": "categorical", "values": list("abcde")}
    numbers, named = _own(splits, ["x", "job"], {"job": encoding})
    values = np.array([*rng.normal(size=50), *cuts[:4], math.nan])
    codes = np.array([*rng.integers(0, 6, size=50), math.nan], dtype=np.float64)
    for column, drawn in ((numbers, values), (named, codes)):
        own = [split for split in splits if split.handle in column.handles]
        expected = np.stack([split.goes_left(drawn) for split in own], axis=1)
        np.testing.assert_array_equal(column.lefts[column.places(drawn)], expected)
        untold = column.with_points(dict.fromkeys(column.handles, (0.0, 0.0)))
        np.testing.assert_array_equal(
            untold.bin_of(untold.placed_by_sides(expected)), untold.bin_of(untold.places(drawn))
        )
        assert sorted(cell for group in untold.groups for cell in group) == [*range(len(column.cells))]


def test_bins_in_words() -> None:
    """Intervals that touch are one; what is missing, another category or another party's is named."""
    splits = [OwnSplit(0, 1, 0, 0, 1.5, True), OwnSplit(1, 1, 0, 0, 4.0, True)]
    (column,) = (it.with_points({0: (0, 1), 1: (0, 1)}) for it in _own(splits, ["x"], {}))
    assert column.texts() == ["x < 1.5 or missing", "1.5 ≤ x < 4", "4 ≤ x"]
    cells = (Cell(VALUE, value="a"), Cell(VALUE, value="b"), Cell(OTHER), Cell(MISSING))
    named = Column("bank", "job", cells, (), np.zeros((4, 0), dtype=bool), ((0, 1), (2, 3)), np.zeros(2))
    assert named.texts() == ["a, b", "any other or missing"]


@pytest.mark.second_tier
@pytest.mark.parametrize("seed", range(8))
def test_monotonic_points_are_isotonic_regression(seed: int) -> None:
    """By records, in the direction that changes less; a bin without an order stays as it is."""
    isotonic = pytest.importorskip("sklearn.isotonic").IsotonicRegression
    rng = np.random.default_rng(seed)
    points, records = rng.normal(size=8) + np.arange(8) * rng.choice([-0.4, 0.4]), rng.integers(1, 50, size=8)
    column = _column([*points, 9.0], [*records, 3], [0] * 9, loose=1)
    made = column.merged(0, 0, monotonic=True)
    at = np.arange(8)
    fits = [isotonic(increasing=rising).fit(at, points, records).predict(at) for rising in (True, False)]
    best = min(fits, key=lambda fit: float(records @ (fit - points) ** 2))
    np.testing.assert_allclose(made.points[made.bin_of(np.arange(9))], [*best, 9.0], atol=1e-12)


@pytest.mark.second_tier(but=6)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("loose", [0, 1, 8])
def test_merged_bins_are_as_large_as_asked(seed: int, loose: int) -> None:
    """Records, bad ones and the mean score stay; each bin has enough unless one is left; numbers stay together."""
    rng = np.random.default_rng(seed)
    records = rng.integers(0, 40, size=8)
    bad = rng.binomial(records, 0.3)
    column = _column(rng.normal(size=8).tolist(), records.tolist(), bad.tolist(), loose=loose)
    made = column.merged(30, 5, monotonic=bool(seed % 2))
    assert (made.records.sum(), made.bad.sum()) == (records.sum(), bad.sum())
    assert made.records @ made.points == pytest.approx(column.records @ column.points)
    if len(made.groups) > 1:
        assert made.records.min() >= 30
        assert np.minimum(made.bad, made.records - made.bad).min() >= 5
    for group in made.groups:
        numbers = [place for place in group if column.cells[place].kind == NUMBERS]
        assert len(made.ranges(group)) <= 1 or loose
        assert numbers == sorted(numbers)


def test_whole_points_start_at_the_worst_bin() -> None:
    """The score is the same but for rounding, at most half a point for the base and each column; reasons follow."""
    card = Card(412.3, (_column([-8.6, 3.2, 1.0], [5, 5, 5], [1, 1, 1]), _column([0.4, -0.6], [5, 5], [1, 1])))
    whole = card.whole()
    assert [column.points.tolist() for column in whole.columns] == [[0, 12, 10], [1, 0]]
    assert [column.lost.tolist() for column in whole.columns] == [[12, 0, 2], [0, 1]]
    cells = [np.array([0, 1, 2, 0]), np.array([0, 1, 0, 1])]
    assert np.abs(whole.scores(cells) - card.scores(cells)).max() <= 1.5
    assert whole.scores(cells).tolist() == [404, 415, 414, 403]


def test_names_are_text_in_every_file() -> None:
    """Quotation marks and tags in the name of a column or a category end nothing."""
    name, word = 'a"b <c>&', 'it\'s \\ "x" <&'
    cells = (Cell(VALUE, value=word), Cell(VALUE, value="b"), Cell(OTHER), Cell(MISSING))
    groups, points = ((0, 3), (1,), (2,)), np.array([7.0, 2.0, 0.0])
    column = Column("bank", name, cells, (), np.zeros((4, 0), dtype=bool), groups, points)
    card = Card(100.0, (column, replace(column, party="telco")))
    with sqlite3.connect(":memory:") as base:
        base.execute("CREATE TABLE records (" + '"' + name.replace('"', '""') + '")')
        base.executemany("INSERT INTO records VALUES (?)", [(word,), ("b",), ("new",), (None,)])
        scores = [row[0] for row in base.execute(f"SELECT score FROM ({exported(card, 'bank', 'sql')})")]
    assert scores == [107, 102, 100, 107]
    space = {"p": "http://www.dmg.org/PMML-4_4"}
    (characteristic,) = ET.fromstring(exported(card, "bank", "pmml")).iterfind(".//p:Characteristic", space)
    assert characteristic.get("reasonCode") == name
    array = characteristic.find(".//p:Array", space)
    assert array is not None
    assert array.text == '"it\'s \\\\ \\"x\\" <&"'
    rows = list(csv.DictReader(io.StringIO(exported(card, "bank", "csv"))))
    assert [row["column"] for row in rows] == ["", *[name] * 6]


def test_a_bin_without_a_record_is_named() -> None:
    """Not one of missing values, since tables may have none."""
    column = _column([1.0, 2.0], [4, 0], [1, 0])
    with pytest.raises(BadInput, match=r"bank, x: no record of the table is in bin '1 ≤ x': .*--min-share"):
        column.filled()
    _column([1.0, 2.0], [4, 1], [1, 0]).filled()


def test_stability_by_hand() -> None:
    """Σ (q − p) ln(q / p), and half a record more in each bin."""
    before, now = shares_of(np.array([9, 0])), shares_of(np.array([4, 5]))
    p, q = [9.5 / 10, 0.5 / 10], [4.5 / 10, 5.5 / 10]
    by_hand = sum((b - a) * math.log(b / a) for a, b in zip(p, q, strict=True))
    assert stability_index(before, now) == pytest.approx(by_hand)
    assert stability_index(before, before) == 0
