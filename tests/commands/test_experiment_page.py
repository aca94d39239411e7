"""The page of an experiment's results: its figures, names that stay text, and how it looks in a browser."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.attacks.browser import BROKEN, OVERLAPS, Browser, found
from tests.attacks.sums_documents import both_directions
from tests.attacks.sums_documents import figures as figures_of
from tests.commands.experiment_documents import REGRESSION, TWO, experiment, run
from treetap.lab.experiment import tables as figures
from treetap.lab.experiment.audited import scores
from treetap.lab.experiment.curves import class_curves, history_pictures, legend, thresholds
from treetap.lab.experiment.page import html
from treetap.lab.experiment.results import Prediction, RunResult, histories_csv

pytestmark = pytest.mark.second_tier

THREE = "multi:softprob"
CLASSES = ("setosa", "versicolor", "virginica")
EVIL = '"><img src=x onerror=document.title="run"><script>document.title="run"</script>{{ 7 * 7 }}</style>'


class _Reader(HTMLParser):
    """Elements with their attributes' names, addresses, texts of cells, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[tuple[str, ...]] = set()
        self.addresses: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, *(name for name, _ in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_page_fetches_nothing() -> None:
    """No address but places of this page and files beside it, no font; its policy forbids them as well."""
    page = html(experiment(), "exp", [run(0, audit_report="/home/me/runs/exp/seed-0/audit.html")])
    addresses = {it for it in _Reader(page).addresses if it != "data:,"}
    assert {it for it in addresses if not it.startswith("#")} == {"history.csv", "seed-0/audit.html"}
    policy = re.search(r'content="(default-src[^"]*)"', page)
    assert "default-src 'none'" in policy[1]
    assert re.findall(r"https?:|//|@import|url\(|@font-face|<iframe|<object", page.replace(policy[1], "")) == []


def test_the_figures_are_those_of_the_runs() -> None:
    """Mean ± standard deviation over folds, counts added up, and each run's own row."""
    runs = [run(0, fold) for fold in (1, 2, 3)]
    text = " ".join(_Reader(html(experiment(cv=3), "exp", runs)).text)
    area = np.array([each.metrics["test"]["auc"] for each in runs])
    assert f"{area.mean():.4f} ± {area.std(ddof=1):.4f}" in text
    for each in runs:
        assert f"seed 0, fold {each.fold}" in text
    matrix = figures.confusion(runs)
    counts = np.sum([each.evaluation.confusion for each in runs], axis=0)
    assert [[cell.figure for cell in cells] for *_, cells in matrix.rows] == [[f"{n}" for n in row] for row in counts]
    assert [[cell.style for cell in cells] for *_, cells in matrix.rows] == [["right", "wrong"], ["wrong", "right"]]
    recall = figures.class_table(runs)
    assert recall.rows[0][-2:] == ["90", str(counts[:, 0].sum())]
    assert sum(float(cell.more.rstrip("%")) for cell in matrix.rows[0][-1]) == pytest.approx(100, abs=0.1)
    traffic = figures.traffic(runs)
    assert traffic.columns == ["lab", "coordinator"]
    assert [row[:3] for row in traffic.rows] == [("CIPHERTEXT", "", "sealed"), ("CONTROL", "", "plain")]
    assert [[cell.figure for cell in cells] for *_, cells in traffic.rows] == [["30.0 kB", "·"], ["·", "900 B"]]


def test_importances_are_shares_over_the_runs() -> None:
    """A feature that a run does not use counts as 0 there; long lists end with the number of the others."""
    row = {"party": "lab", "feature": "c", "weight": 2, "gain": 1.0, "cover": 1.0}
    one, other = run(0), run(1, importance=[row])
    bars, left_out = figures.importances([one, other])
    assert [(bar.name, bar.more, *bar.figures) for bar in bars.rows] == [
        ("c", "lab", "66.7 ± 47.1 %, 2.5 splits"),
        ("a", "clinic", "16.7 ± 23.6 %, 0.5 splits"),
        ("b", "lab", "16.7 ± 23.6 %, 1.0 splits"),
    ]
    assert left_out == 0
    assert [bar.figures[0].split(", ")[1] for bar in figures.importances([other])[0].rows] == ["2 splits"]
    many = [{"party": "lab", "feature": f"f{k}", "weight": 1, "gain": None, "cover": None} for k in range(40)]
    bars, left_out = figures.importances([run(0, importance=many)])
    assert (len(bars.rows), left_out) == (25, 15)
    assert not figures.importances([run(0, importance=[])])[0]


def test_a_row_counts_once_whatever_the_number_of_seeds() -> None:
    """The matrix, the support and the bins of two seeds are their means: each seed holds its own rows out."""
    runs = [run(seed) for seed in (0, 1)]
    matrix, table = figures.confusion(runs), figures.class_table(runs)
    expected = np.mean([each.evaluation.confusion for each in runs], axis=0)
    assert [[float(cell.figure) for cell in cells] for *_, cells in matrix.rows] == expected.tolist()
    assert [row[-2] for row in table.rows] == ["30", "30", "", ""]
    assert "the mean of 2 seeds" in html(experiment(), "exp", runs)


def test_metrics_by_round() -> None:
    """A line for each run and set of records, and the last figures in a table."""
    runs = [run(seed, objective=THREE, classes=CLASSES) for seed in (0, 1)]
    (picture,) = history_pictures(runs)
    assert [curve.style for curve in picture.curves] == ["train", "train", "validation", "validation"]
    assert picture.table.rows == [
        ["seed 0", "0.8000", "0.6500"],
        ["seed 1", "0.8000", "0.6600"],
        ["mean ± standard deviation", "0.8000 ± 0.0000", "0.6550 ± 0.0071"],
    ]
    assert [text for text, _ in legend(runs)] == ["training records", "records of the validation share"]


def test_many_classes_have_the_curves_of_the_most_frequent() -> None:
    """Nine of them, and the page says so."""
    names = tuple(f"class-{k}" for k in range(12))
    runs = [run(objective=THREE, classes=names)]
    assert len(class_curves(runs)) == 9
    assert "Shown are the 9 classes with the most rows" in html(experiment(THREE), "exp", runs)


@pytest.mark.parametrize("objective", [REGRESSION, TWO])
def test_sections_are_there_where_they_have_something_to_say(objective: str) -> None:
    """A regression has residuals and no classes; a model without a history or importances no such section."""
    bare = run(objective=objective, history=[], importance=[])
    page = html(experiment(objective), "exp", [bare])
    sections = re.findall(r'<section id="(\w+)"', page)
    of_classes = ["classes", "thresholds", "curves"]
    assert sections == [
        "metrics",
        *(["residuals"] if objective == REGRESSION else of_classes),
        *("time", "traffic"),
    ]
    assert re.findall(r'href="#(\w+)"', page)[1:] == sections


def test_measures_that_are_not_defined() -> None:
    """Held-out rows of one class have no ROC curve and no AUC; the page says undefined."""
    plain = run(0).plain()
    plain["metrics"]["test"]["auc"] = math.nan
    plain["evaluation"]["roc"] = [{"class": "yes", "auc": None, "average_precision": None, "points": []}]
    one = RunResult.model_validate(plain)
    page = html(experiment(), "exp", [one, run(1)])
    assert "undefined" in page
    (of_yes,) = class_curves([one]).values()
    assert [picture.figure for picture in of_yes[:3]] == [
        "AUC undefined, Gini undefined",
        "– found in the first tenth, lift –",
        "average precision undefined",
    ]
    assert thresholds([one]) is None


def test_stability_of_scores_stands_where_it_is_known() -> None:
    """A label holder that kept no scores of its training has no index; several runs have their mean and deviation."""
    assert "Population stability" not in html(experiment(), "exp", [run(0)])
    known = [run(seed, stability=index) for seed, index in enumerate((0.01, 0.03))]
    assert re.search("Population stability index [^:]*: 0.020 ± 0.014", html(experiment(), "exp", known))


def test_weighted_measures_are_told_from_counts() -> None:
    """Where rows have weights, the page says which figures weigh them."""
    assert "weigh each row by column <bdi>w</bdi>" in html(experiment(weight="w"), "exp", [run(0)])
    assert "weigh each row" not in html(experiment(), "exp", [run(0)])


def test_hostile_names_stay_text() -> None:
    """Names of classes, columns, parties, the table and the experiment are escaped wherever they stand."""
    controlled = "a\x1b[2Jb\u202ec"
    parties = ("clinic", "lab")
    runs = [run(seed, classes=("no", EVIL), columns=(EVIL, controlled, "c")) for seed in (0, 1)]
    runs[0].audit_fault = EVIL
    page = html(experiment(path=EVIL + ".csv", names=parties), EVIL, runs)
    harmless = html(experiment(), "exp", [run(seed, audit_fault="x") for seed in (0, 1)])
    assert _Reader(page).elements == _Reader(harmless).elements
    assert sum(EVIL in text for text in _Reader(page).text) >= 5
    assert "\x1b" not in page
    assert "\\x1b[2Jb\\u202ec" in page


def test_histories_are_one_table() -> None:
    """A line per run and round; a metric that a round lacks is empty."""
    histories = [[{"train_auc": 0.5}], [{"train_auc": 0.5, "eval_auc": 0.1}, {"train_auc": None, "eval_auc": 0.25}]]
    runs = [run(0, fold, history=history) for fold, history in enumerate(histories, 1)]
    assert histories_csv(runs).splitlines() == [
        *("seed,fold,round,train_auc,eval_auc", "0,1,0,0.5,", "0,2,0,0.5,0.1", "0,2,1,,0.25")
    ]
    assert histories_csv([run(3, rounds=1)]).splitlines()[0].startswith("seed,round,train_")


@pytest.mark.skipif(found() is None, reason="no Chromium on this machine: apt-get install chromium")
@pytest.mark.xdist_group("browser")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """Light, dark and on a telephone: no complaint, every picture has a size, no text is cut, nothing is too wide."""
    names = ("a class with a name of quite some length, as exports have them", "b", "c")
    runs = [run(seed, objective=THREE, classes=names, columns=(EVIL, "b" * 60, "c")) for seed in range(4)]
    runs[0].audit = scores(both_directions(figures_of("lab-north"), trees=2).plain())
    runs[0].audit_report = str(tmp_path / "audit.html")
    path = tmp_path / "report.html"
    path.write_text(html(experiment(THREE), EVIL, runs), encoding="utf-8")
    grounds = []
    with Browser(tmp_path) as browser:
        for width, scheme in ((1200, "light"), (1200, "dark"), (380, "light")):
            browser.open(path, width=width, scheme=scheme)
            assert browser.complaints == []
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate(_EMPTY) == []
            assert browser.evaluate(_OUTSIDE) == []
            grounds.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert browser.evaluate("document.title") == f"Experiment {EVIL}"
    light, dark, _ = (sum(map(int, ground.strip("rgb()").split(","))) for ground in grounds)
    assert light > 600 > 150 > dark


@pytest.mark.skipif(found() is None, reason="no Chromium on this machine: apt-get install chromium")
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("objective", [TWO, REGRESSION])
def test_nothing_is_painted_over_anything(objective: str, tmp_path: Path) -> None:
    """Names, figures and bars lie beside each other, no word is broken and no table but those of cells and of folded
    pictures is wider than a telephone."""
    columns = ("account_opened", "late_payments", "number_of_instalments")
    names = ("commercial-bank", "telco")
    runs = [run(seed, objective=objective, columns=columns, names=names) for seed in range(3)]
    for each in runs:
        protocol = Prediction(seconds=1.5, bytes=30_000, max_difference=1e-9, traffic=[])
        same = protocol.model_copy(update={"max_difference": 0.0})
        each.predict = {"interactive": protocol, "eini-lattice": same}
        test = each.metrics["test"]
        each.metrics = {**each.metrics, "centralised, test": test, "label holder alone, test": test}
        kinds = ("CANDIDATE_SUM", "INSTANCE_SPACE", "PUBLIC_KEY", "EMBEDDING_GRADIENT")
        each.traffic += [
            each.traffic[0].model_copy(update={"disclosure": kind, "receiver": names[k % 2]})
            for k, kind in enumerate(kinds)
        ]
    path = tmp_path / "report.html"
    path.write_text(html(experiment(objective, names), "loans", runs), encoding="utf-8")
    with Browser(tmp_path) as browser:
        for width in (400, 600, 601, 800, 1280):
            browser.open(path, width=width)
            browser.evaluate('document.querySelectorAll("details").forEach(it => { it.open = true; })')
            assert browser.complaints == []
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate(OVERLAPS) == []
            assert browser.evaluate(BROKEN) == []
            assert browser.evaluate(_CUT) == []


#: Tables that are wider than their place on a telephone, but for the matrices and the folded ones of pictures.
_CUT = """[...document.querySelectorAll(".scroll")].filter(it => !it.querySelector(".matrix") && !it.closest("figure"))
  .filter(it => it.scrollWidth > it.clientWidth + 1 && innerWidth <= 600).map(it => it.ariaLabel)"""
#: Pictures without a size, and texts that reach out of theirs by more than a pixel.
_EMPTY = """[...document.querySelectorAll("svg")].filter(it => it.checkVisibility()).filter(it => {
  const box = it.getBoundingClientRect(); return !(box.width > 0 && box.height > 0);
}).map(it => it.outerHTML.slice(0, 80))"""
_OUTSIDE = """[...document.querySelectorAll("svg text")].filter(it => it.checkVisibility()).filter(it => {
  const text = it.getBoundingClientRect(), box = it.ownerSVGElement.getBoundingClientRect();
  return text.left < box.left - 1 || text.right > box.right + 1
    || text.top < box.top - 1 || text.bottom > box.bottom + 1;
}).map(it => it.textContent)"""
