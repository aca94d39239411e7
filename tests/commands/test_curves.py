"""Curves of held-out rows and thresholds with their costs, against scikit-learn and counts by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from sklearn import metrics as sk

from tests.commands.experiment_documents import TWO, experiment, run
from treetap.lab.experiment.curves import COSTS, FEW, class_curves, ranked_rows, thresholds
from treetap.lab.experiment.page import html
from treetap.lab.experiment.party_tables import with_positive
from treetap.lab.experiment.results import Evaluation, RunResult
from treetap.pages.pictures import LEFT
from treetap.tables.labels import Labels
from treetap.trees.evaluation import evaluate

CLASSES = ("setosa", "versicolor", "virginica")


def _drawn(rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities to two decimals and class numbers, one of five of the second class."""
    draw = np.random.default_rng(seed)
    labels = (draw.random(rows) < 0.2).astype(int)
    return np.clip(0.25 * labels + 0.75 * draw.random(rows), 0, 1).round(2), labels


def _run(chance: np.ndarray, labels: np.ndarray, names: Sequence[str] = ("no", "yes")) -> RunResult:
    return run(evaluation=Evaluation.model_validate(evaluate(TWO, chance, labels, names)))


def test_a_class_has_four_pictures_of_all_runs() -> None:
    """A line for each run from corner to corner, and bins of all runs together."""
    runs = [run(seed, objective="multi:softprob", classes=CLASSES) for seed in (0, 1)]
    curves = class_curves(runs)
    assert list(curves) == list(CLASSES)
    for it in curves.values():
        roc, gains, precision, calibration = it
        assert [drawn.title for drawn in it] == ["ROC", "Gains", "Precision–recall", "Calibration"]
        for curve in (*roc.curves, *gains.curves):
            assert curve.path.startswith(f"M{LEFT:g} 278L")
            assert curve.path.endswith("L428 14")
        assert len(precision.curves) == 2
        assert sum(float(row[1]) for row in calibration.table.rows) == 60, "a row counts once"


def test_gains_and_precision_are_those_of_the_rows() -> None:
    """Counted over the rows in the order of their probability; precision as scikit-learn has it."""
    chance, labels = _drawn()
    (it,) = class_curves([_run(chance, labels)]).values()
    _, gains, precision, _ = it
    order = np.argsort(-chance, kind="stable")
    for row, share in zip(gains.table.rows, (0.01, 0.05, 0.1, 0.2, 0.5), strict=True):
        least = chance[order[int(share * 300) - 1]]
        # ties at the border are drawn upon in proportion
        above, tied = chance > least, chance == least
        part = (share * 300 - above.sum()) / tied.sum()
        found = (labels[above].sum() + part * labels[tied].sum()) / labels.sum()
        assert float(row[1].rstrip("%")) / 100 == pytest.approx(found, abs=6e-4)
        assert float(row[2]) == pytest.approx(found / share, abs=6e-3)
        assert float(row[3].rstrip("%")) / 100 == pytest.approx(found * labels.sum() / (share * 300), abs=6e-4)
    assert precision.figure == f"average precision {sk.average_precision_score(labels, chance):.4f}"
    assert gains.figure.startswith(f"{gains.table.rows[2][1]} found in the first tenth")


def test_bins_of_few_rows_are_hollow_and_off_the_line() -> None:
    """The most visible mark of a page was one of three rows."""
    chance = np.r_[np.full(50, 0.1), np.full(40, 0.5), np.full(3, 0.95)]
    (it,) = class_curves([_run(chance, np.arange(93) % 2)]).values()
    (curve,) = it[3].curves
    assert [hollow for *_, hollow in curve.points] == [False, False, True]
    assert curve.path.count("L") == 1, "the line ends before the hollow mark"
    assert FEW == 20


def test_the_threshold_of_least_cost() -> None:
    """Of all thresholds, tried one by one; beside the cost of ½."""
    chance, labels = _drawn()
    shown = thresholds([_run(chance, labels)])
    name, table = shown
    assert name == "yes"
    for row, cost in zip(table.rows, COSTS, strict=True):

        def paid(flagged: np.ndarray, cost: int = cost) -> int:
            return int(cost * (labels[~flagged]).sum() + (1 - labels[flagged]).sum())

        by_threshold = {at: paid(chance >= at) for at in [*sorted(set(chance.tolist())), 1.01]}
        least = min(by_threshold.values())
        flagged = chance >= float(row[1])
        assert paid(flagged) == least
        assert float(row[2].rstrip("%")) / 100 == pytest.approx(flagged.mean(), abs=6e-4)
        assert float(row[3].rstrip("%")) / 100 == pytest.approx(labels[flagged].sum() / labels.sum(), abs=6e-4)
        assert float(row[5].rstrip("%")) / 100 == pytest.approx(least / paid(chance > 0.5), abs=6e-4)
    assert thresholds([run(objective="multi:softprob", classes=CLASSES)]) is None
    wrong_way = thresholds([_run(1 - chance * 0.5, labels)])
    assert wrong_way[1].rows[0][1:4] == ["none", "0.0%", "0.0%"], "flagging nothing costs least"


def test_costs_are_means_of_the_runs() -> None:
    """Each run chooses by its own rows."""
    runs = [_run(*_drawn(seed=seed)) for seed in (1, 2)]
    both, alone = thresholds(runs), [thresholds([it]) for it in runs]
    of_one = [float(it[1].rows[2][1]) for it in alone if it is not None]
    assert float(both[1].rows[2][1]) == pytest.approx(np.mean(of_one), abs=0.01)
    assert len(ranked_rows(runs, "yes")) == 2


def test_the_class_looked_for_is_that_of_the_whole_table() -> None:
    """One for all runs, whatever their held-out rows; a class that is named has the only curves, of many too."""
    rare, even = (Labels(np.repeat([0, 1], counts), ["bad", "good"]) for counts in ((2, 8), (3, 7)))
    assert [with_positive(experiment(), it).data.positive for it in (rare, even)] == ["bad", "good"]
    assert with_positive(experiment(positive="good"), rare).data.positive == "good"
    numbers = Labels(np.arange(6) % 3, ["1", "2", "3"])
    assert with_positive(experiment(), numbers).data.positive is None
    assert with_positive(experiment(positive=2), numbers).data.positive == "2"
    chance, labels = _drawn()
    for name in ("no", "yes"):
        document = Evaluation.model_validate(evaluate(TWO, chance, labels, ("no", "yes"), name))
        assert [[it.name for it in part] for part in (document.roc, document.calibration)] == [[name]] * 2
        made = run(evaluation=document)
        table = thresholds([made])
        assert (table[0], list(class_curves([made]))) == (name, [name])
    chances = np.eye(3)[np.arange(6) % 3]
    three = Evaluation.model_validate(evaluate("multi:softprob", chances, np.arange(6) % 3, CLASSES, "versicolor"))
    several = [run(evaluation=three)]
    assert (list(class_curves(several)), thresholds(several)) == (["versicolor"], None)
    assert "class looked for" in html(experiment(positive="yes"), "exp", [run()])


def test_a_rare_first_class_is_the_one_that_is_flagged() -> None:
    """Whatever the classes are called: curves, thresholds and costs are those with the names the other way round."""
    chance, labels = _drawn()
    usual, turned = _run(chance, labels), _run(1 - chance, 1 - labels, ["frauds", "ok"])
    (expected, expected_costs), (name, costs) = (thresholds([it]) or ("", None) for it in (usual, turned))
    assert (expected, name) == ("yes", "frauds")
    assert [row[1:5] for row in costs.rows] == [row[1:5] for row in expected_costs.rows]
    (shown,) = class_curves([turned])
    assert shown == "frauds"
