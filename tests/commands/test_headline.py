"""Together against alone: its figures against counts by hand, its words, and when an experiment has it by itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.commands.experiment_documents import experiment, run
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.file_tables import AuditTable
from treetap.lab.experiment.headline import Gain, compared, gain_of, headline
from treetap.lab.experiment.kept import MOST_RECORDS, with_usual
from treetap.lab.experiment.results import Results
from treetap.trees import metrics, number_metrics
from treetap.version import install


def test_a_gain_is_of_the_same_rows_and_its_interval_covers_what_redrawing_them_does() -> None:
    """AUC of two classes; half of the interval is 1.96 of the standard deviations of DeLong's formula."""
    # Class numbers, and chances of the second class that know more and less of them.
    draw = np.random.default_rng(3)
    truth = np.arange(400) % 2
    clear, vague = (1 / (1 + np.exp(-draw.normal(strength * (truth - 0.5)))) for strength in (2.0, 0.7))
    gain = gain_of("binary:logistic", clear, {"bank": vague}, truth, None, 0)
    assert (gain.measure, gain.best) == ("auc", "bank")
    assert (gain.together, gain.alone["bank"]) == (metrics.auc(clear, truth), metrics.auc(vague, truth))
    # DeLong, DeLong and Clarke-Pearson 1988: each row's share of the difference
    wins = [(it[truth == 1][:, None] > it[truth == 0]).astype(float) for it in (clear, vague)]
    of_rows = [wins[0].mean(axis=k) - wins[1].mean(axis=k) for k in (1, 0)]
    half = 1.96 * sum(it.var(ddof=1) / len(it) for it in of_rows) ** 0.5
    assert gain.low is not None
    assert (gain.high - gain.low) / 2 == pytest.approx(half, rel=0.15)
    assert gain.low > 0
    same = gain_of("binary:logistic", vague, {"bank": vague}, truth, None, 0)
    assert (same.low, same.high) == (0.0, 0.0)


def test_the_measure_fits_the_labels() -> None:
    """Accuracy of three classes, RMSE of numbers, of which less is better; rows count by their weights."""
    truth = np.array([0, 1, 2, 2])
    right, wrong = np.eye(3)[truth], np.eye(3)[[0, 1, 2, 0]]
    gain = gain_of("multi:softprob", right, {"a": wrong, "b": np.eye(3)[[1, 1, 1, 1]]}, truth, None, 0)
    assert (gain.measure, gain.together, gain.alone, gain.best) == ("accuracy", 1.0, {"a": 0.75, "b": 0.25}, "a")
    weighed = gain_of("multi:softprob", right, {"a": wrong}, truth, np.array([1.0, 1.0, 1.0, 0.0]), 0)
    assert weighed.alone == {"a": 1.0}
    numbers = gain_of("reg:squarederror", np.zeros(4), {"a": np.ones(4)}, np.zeros(4), None, 0)
    assert (numbers.measure, numbers.together, numbers.low, numbers.high) == ("rmse", 0.0, 1.0, 1.0)
    assert gain_of("binary:logistic", np.ones(4), {"a": np.ones(4)}, np.zeros(4), None, 0) is None, "no AUC"


@pytest.mark.parametrize(
    ("objective", "measure", "line"),
    [("survival:cox", "cox_nloglik", "Cox loss"), ("reg:quantileerror", "quantile", "quantile loss")],
)
def test_a_gain_of_what_is_no_mean_is_by_the_loss_of_the_training(objective: str, measure: str, line: str) -> None:
    """RMSE puts the worse model first: a hazard is no time, and nine of ten labels lie below their quantile."""
    draw, options = np.random.default_rng(4), {"quantile_alpha": 0.9}
    hazards = np.exp(draw.normal(size=300))
    times = draw.exponential(1 / hazards)
    # less than 0: censored
    truth = np.where(draw.random(300) < 0.3, -times, times) if measure == "cox_nloglik" else times
    right = hazards if measure == "cox_nloglik" else np.log(10) / hazards
    wrong = np.full(300, truth.mean())
    gain = gain_of(objective, right, {"a": wrong}, truth, np.full(300, 2.0), 0, options)
    assert number_metrics.rmse(right, truth) > number_metrics.rmse(wrong, truth)
    expected = {
        name: metrics.evaluate(objective, it, truth, None, options)[measure]
        for name, it in {"together": right, "a": wrong}.items()
    }
    assert (gain.measure, gain.together, gain.alone) == (measure, expected["together"], {"a": expected["a"]})
    assert 0 < gain.low < expected["a"] - expected["together"] < gain.high
    assert f" {line}, a alone " in headline([gain])
    few = np.array([1.0, -2.0, -3.0])  # one event
    assert measure == "quantile" or gain_of(objective, few**2, {"a": -few + 9}, few, None, 0) is None


@pytest.mark.second_tier
def test_few_rows_tell_nothing_for_certain() -> None:
    """Two models that know equally much are told apart as rarely as 95 % promise, however rare a class is."""
    draw = np.random.default_rng(5)
    for rare, most in ((1, 0), (2, 6), (4, 8)):
        truth, certain = np.repeat([0, 1], [60 - rare, rare]), 0
        for seed in range(60):
            first, second = (1 / (1 + np.exp(-truth - draw.normal(size=60))) for _ in range(2))
            means = compared([gain_of("binary:logistic", first, {"bank": second}, truth, None, seed)])
            certain += means.certain
        assert certain <= most, rare
    alone = gain_of("binary:logistic", np.array([0.1, 0.9]), {"bank": np.array([0.9, 0.1])}, np.array([0, 1]), None, 0)
    assert (alone.together, alone.alone, alone.low, alone.high) == (1.0, {"bank": 0.0}, -1.0, 1.0)
    one = np.array([1.0, 0.0])
    assert gain_of("reg:squarederror", np.zeros(2), {"bank": np.ones(2)}, np.zeros(2), one, 0) is None


def test_the_line_says_what_a_federation_is_worth() -> None:
    """Means over the runs, the mean interval, and where there is no gain that."""
    first = Gain(measure="auc", together=0.73, alone={"bank": 0.66}, low=0.05, high=0.09)
    second = Gain(measure="auc", together=0.726, alone={"bank": 0.662}, low=0.04, high=0.1)
    assert headline([first, second]) == "Together 0.728 AUC, bank alone 0.661 (gain +0.067, +0.045 to +0.095)"
    assert headline([first.model_copy(update={"low": -0.01})]) == (
        "Together 0.730 AUC, bank alone 0.660 (gain +0.070, -0.010 to +0.090: no more than chance)"
    )
    several = Gain(measure="accuracy", together=0.9, alone={"north": 0.8, "south": 0.85}, low=0.02, high=0.08)
    assert (
        headline([several]) == "Together 90.0 % right, south, the best alone, 85.0 % (gain +5.0 points, +2.0 to +8.0)"
    )
    error = Gain(measure="rmse", together=3.21, alone={"bank": 4.0}, low=0.7, high=0.9)
    assert headline([error]) == "Together 3.21 RMSE, bank alone 4 (gain +0.79, +0.7 to +0.9)"
    none = Gain(measure="auc", together=0.73, alone={})
    assert headline([none]) == "Together 0.730 AUC; the label holder has no columns to predict by alone"
    assert headline([first, None]) is None
    assert headline([]) is None
    partly = compared([several, several.model_copy(update={"alone": {"north": 0.6}})])
    assert partly.alone == pytest.approx({"north": 0.7})


def test_a_gain_and_its_interval_are_of_the_same_comparison() -> None:
    """Where another party does best alone in another run, both are of the best of each run."""
    first = Gain(measure="auc", together=0.8, alone={"north": 0.7, "south": 0.6}, low=0.06, high=0.14)
    second = Gain(measure="auc", together=0.8, alone={"north": 0.6, "south": 0.76}, low=0.01, high=0.07)
    assert headline([first, second]) == (
        "Together 0.800 AUC, the best alone of each run (north or south) 0.730 (gain +0.070, +0.035 to +0.105)"
    )
    means = compared([first, second])
    assert (means.low + means.high) / 2 == pytest.approx(means.gain)
    assert means.alone == pytest.approx({"north": 0.65, "south": 0.68})
    nothing = compared([first, second.model_copy(update={"alone": {}})])
    assert (nothing.best, nothing.certain) == (None, False)


def test_the_document_begins_with_it() -> None:
    """`--json` has the line, and per run its figures; a run without a comparison has neither."""
    gain = {"measure": "auc", "together": 0.73, "alone": {"clinic": 0.66}, "low": 0.05, "high": 0.09}
    document = Results.of([run(gain=gain)]).plain()
    assert next(iter(document.items())) == (
        "headline",
        "Together 0.730 AUC, clinic alone 0.660 (gain +0.070, +0.050 to +0.090)",
    )
    assert document["runs"][0]["gain"] == gain
    assert Results.of([run()]).headline is None


def test_trees_are_compared_and_audited_unless_the_file_says_otherwise() -> None:
    """Up to so many records, and what is left out for another reason than the file's is said."""
    usual, said = with_usual(experiment(), MOST_RECORDS)
    assert (usual.data.compare, usual.audit, said) == (True, AuditTable(), [])
    assert (usual.audited, usual.record(usual.party[1])) == (True, "received")
    large, said = with_usual(experiment(), MOST_RECORDS + 1)
    assert (large.data.compare, large.audited) == (False, False)
    why = "the table has 100,001 records, more than 100,000"
    assert said == [
        f"Not compared with clinic alone: {why}. To do so:\n    compare = true  # in [data]",
        f"Not audited: {why}. To do so:\n    [audit]",
    ]
    asked = experiment(compare=True).model_copy(update={"audit": AuditTable(by_tree=False)})
    assert with_usual(asked, MOST_RECORDS + 1) == (asked, [f"Not run by another privacy: {why}."])
    off = experiment(compare=False).model_copy(update={"audit": AuditTable(run=False)})
    assert with_usual(off, 10) == (off, [])
    assert not off.audited


def test_what_cannot_be_audited_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party without a transcript, a library that is not there, a network: with the reason, and without a fault."""
    content = experiment().model_dump(mode="json", exclude_unset=True)
    content["party"][1]["record"] = "off"
    silent = ExperimentFile.model_validate(content)
    expected = ["Not audited: lab has record = 'off' and keeps no transcript."]
    assert with_usual(silent, 10)[1] == expected
    monkeypatch.setattr("treetap.lab.experiment.kept.lacking", lambda: "scipy")
    usual, said = with_usual(experiment(), 10)
    assert (usual.data.compare, usual.audited) == (True, False)
    assert said == [f"Not audited: it needs scipy: {install('audit')}."]
    monkeypatch.setattr("treetap.lab.experiment.file_tables.lacking", lambda: "scipy")
    AuditTable(run=False)
    with pytest.raises(ValueError, match="needs scipy"):
        AuditTable()
