"""Figures of guesses that tell as much the other way round, in every table of the report."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.attacks.documents import made
from treetap.attacks.document import Document
from treetap.attacks.report import html, print_summary
from treetap.terminal import PlainConsole

Draw = np.random.Generator
WAYS = ("as received", "after gain inversion", "own labels and nodes", "own labels and columns")
HIDDEN = "without noise"


class Row(NamedTuple):
    """A row of a table by its heads."""

    cells: dict[str, str]

    def figures(self, heads: tuple[str, ...]) -> list[float]:
        """The numbers under these heads, each the first one of its cell."""
        found = [re.match(r"\d\.\d+", self.cells.get(head, "")) for head in heads]
        return [float(each[0]) for each in found if each is not None]


class _Tables(HTMLParser):
    """All rows of all tables of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self._heads: list[str] = []
        self._cells: list[str] = []
        self._in_head = self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "thead":
            self._heads, self._in_head = [], True
        elif tag == "tr":
            self._cells = []
        elif tag in ("th", "td"):
            self._in_cell = True
            self._cells.append("")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self._cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._in_cell = False
        elif tag == "thead":
            self._heads, self._in_head = self._cells, False
        elif tag == "tr" and not self._in_head:
            self.rows.append(Row(dict(zip(self._heads, self._cells, strict=False))))


def _of_page(document: Document) -> list[Row]:
    reader = _Tables()
    reader.feed(html(document))
    return reader.rows


def _of_terminal(document: Document) -> list[Row]:
    """The rows of every table: the line above a rule has the heads, two blanks part cells."""
    out = io.StringIO()
    print_summary(document, PlainConsole(file=out, width=2000))
    rows, heads, before = [], [], ""
    for line in out.getvalue().splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if set(line.strip()) == {"─"}:
            heads = re.split(r"\s{2,}", before.strip())
        elif heads and len(cells) == len(heads):
            rows.append(Row(dict(zip(heads, cells, strict=True))))
        before = line
    return rows


def _trees(draw: Draw, protocol: str = "boosting") -> dict[str, Any]:
    """Two parties with attacks of random scores after random numbers of trees, some of them left out."""
    content = made(trees=4, seed=int(draw.integers(1000))).plain()
    content["protocol"] = protocol
    for party in content["parties"].values():
        for name in list(party["attacks"]):
            if draw.random() < 0.2:
                del party["attacks"][name]
                continue
            v, accuracy = draw.random((2, 4)).tolist()
            after = int(np.argmax(v))
            known = None if name == "cl" else after + 1
            if name == "cl":
                v, accuracy = [v[after]] * 4, [accuracy[after]] * 4
            party["attacks"][name] |= {
                **{"v_measure": v[after], "accuracy": accuracy[after], "after_trees": known},
                **{"named_accuracy": accuracy[after] * draw.random(), "by_tree": v, "accuracy_by_tree": accuracy},
            }
    return content


def _guess(draw: Draw, two: bool) -> dict[str, Any]:
    right = float(draw.random())
    scored = {"auc": float(draw.random()) if two else None, "inverted": 1 - right if two else None}
    return {"records": 90, "accuracy": right, "majority": float(draw.uniform(0.3, 0.9)), **scored}


def _pivodl(draw: Draw, two: bool = True) -> dict[str, Any]:
    content = _trees(draw, "pivodl")
    for party in content["parties"].values():
        ways = ("as_source", "exact", "without_noise", "after_inversion")
        ways += ("own_labels_and_spaces", "own_labels_and_columns")
        party["label_guess"] = _guess(draw, two) | {"others": 100, "epsilon": 8.0}
        party["label_guess"] |= {"accuracy_by_tree": [None, *draw.random(3)], "auc_by_tree": [None] * 4}
        party["label_guess"] |= {way: _guess(draw, two) if draw.random() < 0.8 else None for way in ways}
        party["label_guess"]["as_source"] = _guess(draw, two)
    return content


def _network(draw: Draw) -> dict[str, Any]:
    content = _trees(draw)
    content |= {"protocol": "splitnn", "trees": 0, "max_depth": 0, "advice": None}
    content["gain"] = dict.fromkeys(("together", "alone", "undefended", "gain", "kept")) | {"reason": "none is at hand"}

    def figures(*names: str) -> dict[str, float]:
        return {name: float(draw.random()) for name in names}

    def measured() -> dict[str, Any]:
        return {"accuracy": float(draw.random()), "deviation": None, "draws": 1}

    for party in content["parties"].values():
        party["attacks"] = {name: it for name, it in party["attacks"].items() if name == "cl"}
        party["trees"] = []
        sizes = {"records": 90, "left_out": 0}
        scores = ("v_measure", "homogeneity", "completeness", "ari", "nmi", "accuracy")
        shape = {"outcome": "clusters", "records": 90, "clusters": 2}
        clusters = figures(*scores) | {"epoch": 1, "left_out": 0, "chosen_by": "labels", **shape}
        clusters["named_accuracy"] = clusters["accuracy"] * draw.random()
        clusters["by_epoch"] = [{"epoch": k, **shape, **figures("v_measure", "accuracy")} for k in (0, 1)]
        labels = {"known": 40, "inferred": measured(), **figures("majority", "kept_out", "own_model"), **sizes}
        labels |= {"ways": ["raw"], "epochs": [0]}
        score = {"epoch": 0, "auc": float(draw.random()), "draws": 1, "left_out": 0, "by_epoch": []}
        row = {"head": "mlp", "tuned": True, "labels": "n", "known": 40, "scratch": measured()}
        row |= {name: measured() for name in ("completed", "untrained", "scratch_all")}
        party["network"] = {
            **{"epochs": 2, "attacked": 2, "sat_out": 0, "width": 3, "amplified": None, "reasons": {}},
            "gradient-clusters": clusters if draw.random() < 0.8 else None,
            "gradient-labels": labels if draw.random() < 0.8 else None,
            "norm-scoring": score,
            "direction-scoring": None,
            "completion": {"evaluated_on": "own table", **sizes, **figures("majority"), "rows": [row]}
            if draw.random() < 0.8
            else None,
        }
    return content


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("seed", range(4))
def test_no_symmetric_figure_is_below_one_half(seed: int) -> None:
    """An AUC, and the accuracy of a guess of two classes, is that of the better side; the document has it as it is."""
    for kind in (_pivodl, _network):
        document = Document.model_validate(kind(np.random.default_rng(seed)))
        found = []
        for row in [*_of_page(document), *_of_terminal(document)]:
            if "guess" in row.cells or WAYS[0] in row.cells or "score" in row.cells:
                found += row.figures(("AUC", HIDDEN, *WAYS))
        assert found
        assert all(figure >= 0.5 for figure in found)
        raw = [party.label_guess.auc for party in document.parties.values() if party.label_guess is not None]
        assert all(f"{1 - auc:.3f} (inverted)" in html(document) for auc in raw if auc is not None and auc < 0.5)
