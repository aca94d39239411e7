"""The results of an experiment as one self-contained HTML file; names are escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from treetap import terminal
from treetap.attacks.verdict import Verdict
from treetap.lab.experiment.baselines import concluded
from treetap.lab.experiment.curves import (
    MOST_CLASSES,
    class_curves,
    counted,
    history_pictures,
    legend,
    seeds_of,
    thresholds,
)
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.headline import Gain, compared, headline
from treetap.lab.experiment.headline import written as worth
from treetap.lab.experiment.report import received
from treetap.lab.experiment.results import (
    RunResult,
    Spread,
    measures,
    spread,
    summary,
    to_lower,
    warnings,
    worst_verdicts,
)
from treetap.neural.params import SplitnnParams
from treetap.pages.page import render
from treetap.pages.pictures import Bar, Cell, Matrix, Table, heat, percent
from treetap.tables.labels import class_name
from treetap.trees.params import TreeParams
from treetap.wire.disclosure import CLASSES


def html(experiment: ExperimentFile, name: str, runs: Sequence[RunResult]) -> str:
    """The page of an experiment's finished runs; at least one. `name`: the experiment's."""
    importance, left_out = importances(runs)
    gains, verdicts = [run.gain for run in runs], worst_verdicts(runs)
    return render(
        "treetap.lab.experiment",
        "results.html.j2",
        name=name,
        runs=len(runs),
        warnings=warnings(runs),
        headline=headline(gains),
        conclusion=concluded(runs),
        beside=beside(gains),
        model=_model(experiment, runs),
        learned=learned(verdicts),
        to_do=[(advice, _near(run.audit_report or "")) for advice, run in to_lower(verdicts)],
        not_done=list(dict.fromkeys(line for run in runs for line in run.left_out)),
        folds=experiment.data.cv,
        weight=experiment.data.weight,
        facts=_facts(experiment, runs),
        says=list(dict.fromkeys(line for run in runs for line in run.says)),
        faults=[(run.planned.title, run.audit_fault) for run in runs if run.audit_fault is not None],
        audits=[(run.planned.title, _near(run.audit_report)) for run in runs if run.audit_report],
        metrics=metric_table(runs),
        by_run=run_table(runs),
        stability=_stability(runs),
        confusion=confusion(runs),
        classes=class_table(runs),
        residuals=residuals(runs),
        seeds=seeds_of(runs),
        thresholds=thresholds(runs),
        curves=class_curves(runs),
        most_classes=MOST_CLASSES,
        history=history_pictures(runs),
        legend=legend(runs),
        importance=importance,
        left_out=left_out,
        phases=phases(runs),
        traffic=traffic(runs),
        kinds=KINDS,
        terms=_terms(runs),
        predictions=predictions(runs),
    )


def _stability(runs: Sequence[RunResult]) -> str:
    """The stability index, over several runs with its spread; empty where no run has one."""
    known = [run.stability for run in runs if run.stability is not None]
    return spread(known).written(3) if known else ""


def _facts(experiment: ExperimentFile, runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    """Names and values of the settings that were run."""
    data, first, *others = experiment.data, *experiment.in_order
    held_out = f"{data.cv} folds" if data.cv is not None else f"{data.test_share:.0%} of the rows"
    roles = [("parties", ", ".join([first, *others]))]
    if not experiment.spread:
        roles = [("label holder", first), ("feature parties", ", ".join(others))]
    return [
        ("table", data.title),
        ("label", data.label),
        *([] if data.positive is None else [("class looked for", class_name(data.positive))]),
        ("protocol", experiment.job.protocol),
        ("objective", experiment.job.params().objective),
        *roles,
        ("columns", ", ".join(str(len(names)) for names in runs[0].columns.values())),
        ("held out", held_out + ("" if data.time is None else f", the last by {data.time}")),
        ("seeds", ", ".join(dict.fromkeys(str(run.seed) for run in runs))),
        ("runs", str(len(runs))),
        ("treetap", version("treetap")),
        ("made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]


def _model(experiment: ExperimentFile, runs: Sequence[RunResult]) -> str:
    """The model and the rows that it learned from, as one sentence."""
    params, grown = experiment.job.params(), [run.trees for run in runs if run.trees is not None]
    if isinstance(params, TreeParams):
        counts = sorted({trees["used"] for trees in grown}) or [params.n_estimators]
        trees = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
        rate = getattr(params, "learning_rate", None)
        what = f"{trees} trees of depth {params.max_depth}" + ("" if rate is None else f", learning rate {rate:g}")
    else:
        assert isinstance(params, SplitnnParams)
        what = f"{params.epochs} epochs of batches of {params.batch_size}"
    seconds = spread(math.fsum(run.seconds.values()) for run in runs).mean or 0.0
    rows = [spread(run.records[kind] for run in runs).mean or 0.0 for kind in ("train", "test")]
    of_runs = "" if len(runs) == 1 else f"{len(runs)} runs, each of "
    return (
        f"{what}. {of_runs.capitalize()}{rows[0]:,.0f} training rows and {rows[1]:,.0f} held-out ones, {seconds:.1f} s."
    )


if TYPE_CHECKING:
    from treetap.attacks.report.verdict import Line

#: Kind of disclosure class → its legend.
KINDS = {
    "open": "readable: tells of records",
    "sealed": "sealed: unreadable without a key or the other shares",
    "plain": "running the job: names, sizes, published figures",
}


#: Measure of a gain → the head of its bars, and the figures at their ends; of errors the largest has the whole length.
BESIDE: dict[str, tuple[str, float, float | None]] = {
    "auc": ("from 0.5, chance, to 1", 0.5, 1.0),
    "accuracy": ("of 100 %", 0.0, 1.0),
    "rmse": ("error", 0.0, None),
}


def beside(gains: Sequence[Gain | None]) -> tuple[str, list[Bar]] | None:
    """Bars of together and of each party alone, and their head."""
    means = compared(gains)
    if means is None:
        return None
    head, low, high = BESIDE[means.measure]
    figures = {"together": means.together, **{f"{name} alone": value for name, value in means.alone.items()}}
    whole = (max(figures.values()) if high is None else high) - low
    return head, [
        Bar(
            name,
            "",
            [worth(means.measure, value, unit=True)],
            percent(max(0.0, value - low), whole),
            "graph" if name == "together" else "alone",
        )
        for name, value in figures.items()
    ]


def learned(verdicts: Sequence[tuple[Verdict, RunResult]]) -> list[tuple[str, list[Line]]]:
    """The verdicts as lines, those of a run together, and the address of the run's audit."""
    if not verdicts:
        return []
    from treetap.attacks.report.verdict import lines  # the attacks need an extra

    addresses = {run.planned: _near(run.audit_report or "") for _, run in verdicts}
    return [
        (address, lines(it for it, run in verdicts if run.planned == planned)) for planned, address in addresses.items()
    ]


def _terms(runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    """The classes of bytes that were received, and the information that a reader of each learns."""
    totals, _ = received([row for run in runs for row in run.traffic])
    return [(kind, CLASSES[kind].tells) for kind in totals]


def _near(report: str) -> str:
    """The address of an audit's report from the page, which lies beside the run's folder."""
    path = Path(report)
    return quote(f"{path.parent.name}/{path.name}")


#: Most features of the table of importances.
MOST_FEATURES = 25


def metric_table(runs: Sequence[RunResult]) -> Table:
    """Every measure of every model over the runs."""
    rows = summary(runs).metrics
    names = measures(rows.values())
    return Table(
        ["", *names],
        [[label, *(row[name].written() if name in row else "–" for name in names)] for label, row in rows.items()],
    )


def run_table(runs: Sequence[RunResult]) -> Table:
    """The measures of the held-out rows of each run, and its records."""
    names = measures(run.metrics["test"] for run in runs)
    return Table(
        ["run", "training records", "held out", *names],
        [
            [
                run.planned.title,
                f"{run.records['train']:,}",
                f"{run.records['test']:,}",
                *(spread([run.metrics["test"].get(name)]).written() for name in names),
            ]
            for run in runs
        ],
    )


def confusion(runs: Sequence[RunResult]) -> Matrix | None:
    """Held-out rows of a seed by true and predicted class, with the share of the true class; None of a regression.

    Over several seeds their mean: each holds its own rows out, and a row counts once in each at most.
    """
    evaluations = [run.evaluation for run in runs if run.evaluation.confusion]
    if not evaluations:
        return None
    # runs of several seeds may hold out rows of different classes
    names = list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.classes))
    place = {name: k for k, name in enumerate(names)}
    counts = [[0] * len(names) for _ in names]
    for evaluation in evaluations:
        for true, row in zip(evaluation.classes, evaluation.confusion or [], strict=True):
            for predicted, count in zip(evaluation.classes, row, strict=True):
                counts[place[true]][place[predicted]] += count
    seeds = seeds_of(runs)
    return Matrix(names, [(name, "", "", _shares(counts[k], k, seeds)) for k, name in enumerate(names)])


def class_table(runs: Sequence[RunResult]) -> Table | None:
    """Figures per class and their averages over the runs; None of a regression."""
    evaluations = [run.evaluation for run in runs if run.evaluation.per_class]
    if not evaluations:
        return None
    shares, counts, rows, seeds = ("precision", "recall", "f1"), ("support", "predicted"), [], seeds_of(runs)
    for name in dict.fromkeys(name for evaluation in evaluations for name in evaluation.classes):
        given = [row for evaluation in evaluations for row in evaluation.per_class if row.name == name]
        # shares are means over the runs, counts are of the rows that a seed held out
        means = [spread(getattr(row, head) for row in given).written(3) for head in shares]
        rows.append([name, *means, *(counted(sum(getattr(row, head) for row in given) / seeds) for head in counts)])
    for kind in ("macro", "weighted"):
        means = [spread(evaluation.averages[kind][head] for evaluation in evaluations).written(3) for head in shares]
        rows.append([f"{kind} average", *means, "", ""])
    return Table(["class", *shares, *counts], rows)


def residuals(runs: Sequence[RunResult]) -> Table | None:
    """Quantiles of target less prediction over the runs; None where there are classes."""
    quantiles = list(zip(*(run.evaluation.residuals for run in runs if run.evaluation.residuals), strict=True))
    if not quantiles:
        return None
    values = [spread(row["value"] for row in of_runs).written() for of_runs in quantiles]
    heads = [f"{of_runs[0]['share']:.0%}" for of_runs in quantiles]
    return Table(["quantile", *heads], [["target less prediction", *values]])


def importances(runs: Sequence[RunResult]) -> tuple[list[Bar], int]:
    """Features by their share of the model's gain, or of its splits where no party keeps gains; how many are left out.

    Over several runs the mean of the shares ± standard deviation; a run that does not use a feature counts as 0.
    """
    shares: list[dict[tuple[str, str], float]] = []
    splits: dict[tuple[str, str], int] = {}
    for run in runs:
        # shares, since gains of two runs have no common scale
        whole = math.fsum(row.size for row in run.importance)
        shares.append({(row.party, row.feature): row.size / whole if whole else 0.0 for row in run.importance})
        for row in run.importance:
            splits[row.party, row.feature] = splits.get((row.party, row.feature), 0) + row.weight
    means = {key: spread([of_run.get(key, 0.0) for of_run in shares]) for key in splits}
    order = sorted(means, key=lambda key: -(means[key].mean or 0.0))
    most = max((means[key].mean or 0.0 for key in order), default=0.0)
    bars = [
        Bar(
            feature,
            party,
            [f"{_percent(means[party, feature])}, {_splits(splits[party, feature], len(runs))}"],
            percent(means[party, feature].mean or 0.0, most),
            "graph",
        )
        for party, feature in order[:MOST_FEATURES]
    ]
    return bars, max(0, len(order) - MOST_FEATURES)


def phases(runs: Sequence[RunResult]) -> list[Bar]:
    """Seconds by phase."""
    seconds = summary(runs).seconds
    most = max((figure.mean or 0.0 for figure in seconds.values()), default=0.0)
    return [
        Bar(name, "", [f"{figure.written(2)} s"], percent(figure.mean or 0.0, most), "sealed")
        for name, figure in seconds.items()
    ]


def traffic(runs: Sequence[RunResult]) -> Matrix:
    """Bytes by class and receiver, the mean of the runs."""
    totals, parties = received([row for run in runs for row in run.traffic])
    means = {kind: {party: size / len(runs) for party, size in row.items()} for kind, row in totals.items()}
    most = max((size for row in means.values() for size in row.values()), default=0.0)
    return Matrix(
        parties,
        [
            (kind, "", CLASSES[kind].kind, [_received(row.get(party, 0.0), most) for party in parties])
            for kind, row in means.items()
        ],
    )


def predictions(runs: Sequence[RunResult]) -> Table | None:
    """Each prediction protocol's seconds, bytes, and largest difference from the centralised model."""
    of_runs = [run.predict for run in runs if run.predict]
    if not of_runs:
        return None
    rows = []
    for protocol in of_runs[0]:
        every = [run[protocol] for run in of_runs]
        known = [one.max_difference for one in every if one.max_difference is not None]
        # where one run is not comparable, no largest difference is known
        worst = f"{max(known):.1e}" if len(known) == len(every) else "not comparable"
        size = terminal.size(sum(one.bytes for one in every) / len(every))
        rows.append([protocol, spread(one.seconds for one in every).written(2), size, worst])
    return Table(["protocol", "seconds", "sent", "largest difference from the centralised model"], rows)


def _shares(row: list[int], own: int, seeds: int) -> list[Cell]:
    """Cells of the class number `own`, right in its own column and wrong in the others."""
    whole = sum(row)
    parts = [count / whole if whole else 0.0 for count in row]
    return [
        Cell(counted(count / seeds), f"{part:.1%}", f"{part:.2f}", "right" if k == own else "wrong")
        for k, (count, part) in enumerate(zip(row, parts, strict=True))
    ]


def _received(size: float, most: float) -> Cell:
    return Cell(terminal.size(size), "", heat(size, most)) if size else Cell("·")


def _splits(count: int, runs: int) -> str:
    """The number of splits of one run, or the mean of several."""
    return f"{count / runs:.1f} splits" if runs > 1 else f"{count} split{'' if count == 1 else 's'}"


def _percent(figure: Spread) -> str:
    mean, sd = (None if value is None else 100 * value for value in (figure.mean, figure.sd))
    return Spread(mean=mean, sd=sd, runs=figure.runs).written(1) + " %"
