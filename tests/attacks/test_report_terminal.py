"""Reports in a terminal, what they say of sums, and their headlines.

- The audit in a terminal: every figure whole at every width, and what is missing said.
- The report of a label holder of trees as attacker, on made-up figures: document, page, terminal, limits.
- Figures of guesses that tell as much the other way round, in every table of the report.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.attacks.documents import HOLDER, in_terminal, made, printed
from tests.attacks.present import present
from tests.attacks.sums_documents import both_directions, figures, unread
from treetap.attacks.document import Document, parse
from treetap.attacks.limits import exceeded
from treetap.attacks.limits import parse as limits
from treetap.attacks.pivodl.schema import SourceColumns, SourceFigures
from treetap.attacks.report.page import html
from treetap.attacks.report.pivodl import column_words
from treetap.attacks.report.sums import WHO_KNOWS, words
from treetap.attacks.sums.schema import CellsRead
from treetap.errors import BadInput

WHY = "the party offered no sums"
SENTENCE = (
    "placed 84.2 % of telco's cells (900 records × 8 columns) in their bins, by the sums that it opened in 5 trees; 65 "
    "of its 6,128 claims are wrong, which the audit alone knows. The left sets of splits that telco won, which no "
    "noise on sums hides, place 2.1 % by themselves; with all links given it would place 99.5 %. By left sets alone it "
    "learned 7 cuts in 1 of 8 columns, and between which two of these 15.6 % of the cells lie. The order of "
    "systolic is read best: its rank correlation is 0.964."
)
Draw = np.random.Generator
WAYS = ("as received", "after gain inversion", "own labels and nodes", "own labels and columns")
HIDDEN = "without noise"


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_no_figure_is_cut(width: int) -> None:
    """All scores, sizes and bounds stand whole in a line; no table is wider than the terminal."""
    document = made(parties=3, trees=2)
    lines = printed(document, width)
    words = " ".join(lines).split()
    assert not any("…" in line for line in lines)
    assert max((len(line) for line in lines if "──" in line), default=0) <= width
    for name, party in document.parties.items():
        assert name in words
        for it in party.attacks.values():
            for value in (it.v_measure, it.homogeneity, it.completeness, it.ari, it.nmi, it.accuracy):
                assert f"{value:.3f}" in words
        assert f"{max(row.nats for row in party.bounds):.3f}" in words


def test_wide_tables_are_one_each() -> None:
    """Where there is room a row has all scores of an attack."""
    document = made(parties=1, trees=2)
    it = document.parties["lab-north"].attacks["id2graph"]
    (row,) = [line.split() for line in printed(document, 160) if line.split()[1:2] == ["ID2Graph"]]
    others = (it.homogeneity, it.completeness, it.ari, it.nmi, it.accuracy)
    assert row[2:9] == [f"{it.v_measure:.3f}", str(it.after_trees), *(f"{value:.3f}" for value in others)]


@pytest.mark.parametrize("width", [30, 160])
def test_names_are_neither_markup_nor_commands(width: int) -> None:
    """Brackets in a name are brackets; what would command the terminal does not reach it."""
    lines = printed(made(trees=1, parties=["[bold]x[/bold]\x1b[2J"]), width)
    assert any("[bold]x[/bold]\\x1b[2J" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


@pytest.mark.second_tier
def test_ten_parties_and_a_hundred_columns_of_terminal() -> None:
    """The matrix of many receivers is printed in parts, each of which says which class a row is."""
    lines = printed(made(parties=10, trees=1), 100)
    assert len([line for line in lines if line.split()[:1] == ["CIPHERTEXT"]]) >= 2


@pytest.fixture(scope="module")
def document() -> Document:
    """Two feature parties that attack labels, and their label holder, which attacked one of two by its sums."""
    return both_directions(figures("telco"), unread("insurer", WHY), parties=["telco", "insurer"])


def text_of(page: str) -> str:
    """The words of a page, without tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).replace("&#39;", "'").replace("&#160;", " ").split())


def test_the_document_is_what_was_written(document: Document) -> None:
    """Its JSON reads back as the same, and only a label holder's part has the key."""
    plain = document.plain()
    assert parse(plain) == document
    assert set(plain["parties"][HOLDER]["columns_read"]) == {"telco", "insurer"}
    assert all("columns_read" not in party for name, party in plain["parties"].items() if name != HOLDER)
    assert document.columns_read["telco"] == figures("telco")
    assert made(trees=1).columns_read == {}


def test_both_directions_are_shown(document: Document) -> None:
    """Page and terminal have a sentence and every figure of either; the label holder is no attacker on labels."""
    page, said = html(document.plain()), in_terminal(document)
    assert words("telco", figures("telco")) == SENTENCE
    for text in (text_of(page), said):
        assert f"{HOLDER} {SENTENCE}" in text
        assert f"was not measured as a reader of insurer's columns: {WHY}." in text
        assert WHO_KNOWS in text
        for row in ("left sets alone (floor) 2.1 % 153 0 0.0 %", "and differences 61.1 % 4,404 5 0.1 %"):
            assert row in text
        for row in ("and all equations 84.2 % 6,128 65 1.1 %", "all links given (bound) 99.5 % 7,171 4 0.1 %"):
            assert row in text
        assert "4,321" not in text  # its own signatures tell nothing about labels that it has
        assert f"No attack was run on the view of {HOLDER}" not in text
    for fact in ("links right 87.6 %", "contradictions 19", "equations 77", "processor time 12.34 s"):
        assert fact in text_of(page)
    assert "telco 84.2 % 1.1 % 2.1 % 99.5 % systolic 0.964 insurer – – – – – –" in text_of(page)
    assert "<dt>feature parties</dt><dd><bdi>2</bdi></dd>" in page


def test_the_pictures_are_in_the_page(document: Document) -> None:
    """A column beside its reconstruction, as data URLs."""
    picture = present(document.columns_read["telco"].picture)
    page = html(document)
    assert re.findall(r'<img src="([^"]*)"', page) == [picture.truth, picture.read]
    assert page.count('href="#columns"') == 1


def test_a_label_holder_alone() -> None:
    """Its page has no section on labels, and no line says that these were not scored."""
    document = both_directions(figures("telco"), alone=True)
    page, said = html(document), in_terminal(document)
    for section in ("attacks", "bounds", "together", "trees"):
        assert f'id="{section}"' not in page
        assert f'href="#{section}"' not in page
    for text in (text_of(page), said):
        assert SENTENCE in text
        assert "No labels were given" not in text
        assert "V-measure" not in text


def _source(placed: int, wrong: int | None) -> SourceFigures:
    """A party of PIVODL whose columns another one read; of 400 cells."""
    counts = dict.fromkeys(("received", "by_left_sets", "opened", "linked", "contradictions"), 0)
    size = {"records": 100, "columns": 4, "cells": 400, "by_left_sets_wrong": None, "rank_correlation": None}
    return SourceFigures.model_validate(counts | size | {"placed": placed, "wrong": wrong, "best_column": None})


def test_words_on_the_columns_of_pivodl() -> None:
    """The party that is read best, by right claims; without its table no claim is called right."""
    both = SourceColumns(sources={"east": _source(90, 60), "west": _source(50, 2)}, reasons={})
    assert column_words(both) == (
        "west",
        "placed 12.0 % of west's cells (100 records that it does not label × 4 columns) in their bins, and no more of "
        "another party's; 2 of its 50 claims are wrong, which the audit alone knows.",
    )
    unscored = present(column_words(SourceColumns(sources={"east": _source(90, None)}, reasons={})))
    assert unscored[1].startswith("claims the bins of 22.5 % of east's cells (")
    assert unscored[1].endswith("; no table scores that.")
    assert column_words(SourceColumns(sources={}, reasons={})) is None


def test_a_regression() -> None:
    """Attacks on labels are not scored there, and those on columns are."""
    document = both_directions(figures("lab-north"), classes=None)
    for text in (text_of(html(document)), in_terminal(document)):
        assert "placed 84.2 % of lab-north's cells" in text
        assert "(regression), so no attack on labels is scored" in text


def test_names_are_escaped() -> None:
    """A feature party's column may have any name."""
    page = html(both_directions(figures("telco", best="<b>&")))
    assert "<b>&" not in page
    assert "The order of &lt;b&gt;&amp; is read best" in page


@pytest.mark.parametrize(("limit", "above"), [("columns=0.1", True), ("columns=0.8421", False)])
def test_a_limit(limit: str, above: bool, document: Document) -> None:
    """On the share that was placed by all that was read, and without any label."""
    message = f"telco: {HOLDER} placed a share of 0.842, above 0.1"
    assert exceeded(document, limits([limit])) == ([message] if above else [])
    assert exceeded(both_directions(figures("telco"), labelled=False), limits([limit])) == ([message] if above else [])


def test_a_limit_on_left_sets() -> None:
    """They may place more than the attack by sums does, whose links of columns with categories are of no use to it."""
    few, many = CellsRead(placed=0.005, claims=20, wrong=1), CellsRead(placed=0.25, claims=900, wrong=0)
    document = both_directions(figures("telco", together=few, left_sets=many))
    message = f"telco: {HOLDER} placed a share, by left sets alone, of 0.250, above 0.1"
    assert exceeded(document, limits(["columns=0.1"])) == [message]


def test_limits_on_labels_beside_it(document: Document) -> None:
    """A label holder's transcript is none that they judge."""
    assert exceeded(document, limits(["any=1", "information=1", "accuracy=1"])) == []


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (made(trees=1), r"no label holder's attack by opened sums is in this audit: .* \[\[victim\]\]"),
        (both_directions(unread("telco", WHY), trees=1), f"nothing was attacked: {WHY}"),
    ],
)
def test_a_limit_that_cannot_be_judged(document: Document, said: str) -> None:
    """Nothing was attacked: a fault, and no pass."""
    with pytest.raises(BadInput, match=f"--fail-above columns: {said}"):
        exceeded(document, limits(["columns=0.1"]))


#: A row of a table by its heads.
Row = dict[str, str]


def _figures(row: Row) -> list[float]:
    """The numbers under heads of symmetric figures, each the first one of its cell."""
    found = [re.match(r"\d\.\d+", row.get(head, "")) for head in ("AUC", HIDDEN, *WAYS)]
    return [float(each[0]) for each in found if each is not None]


def _of_terminal(document: Document) -> list[Row]:
    """The rows of every table: the line above a rule has the heads, two blanks part cells."""
    rows, heads, before = [], [], ""
    for line in printed(document, 2000):
        cells = re.split(r"\s{2,}", line.strip())
        if set(line.strip()) == {"─"}:
            heads = re.split(r"\s{2,}", before.strip())
        elif heads and len(cells) == len(heads):
            rows.append(dict(zip(heads, cells, strict=True)))
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
        # The rows of every table of the page.
        rows = []
        for table in re.findall(r"<table.*?</table>", html(document), re.DOTALL):
            heads, *others = [
                [text_of(cell) for cell in re.findall(r"<t[hd]\b.*?</t[hd]>", row, re.DOTALL)]
                for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
            ]
            rows += [dict(zip(heads, cells, strict=False)) for cells in others]
        for row in [*rows, *_of_terminal(document)]:
            if row.keys() & {"guess", WAYS[0], "score"}:
                found += _figures(row)
        assert found
        assert all(figure >= 0.5 for figure in found)
        raw = [party.label_guess.auc for party in document.parties.values() if party.label_guess is not None]
        assert all(f"{1 - auc:.3f} (inverted)" in html(document) for auc in raw if auc is not None and auc < 0.5)
