"""Tables and bars of an experiment's results: its page has them all, the terminal and the demonstration some."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from treetap import terminal
from treetap.lab.experiment.curves import counted, seeds_of
from treetap.lab.experiment.joint_model import PLAIN, received
from treetap.lab.experiment.results import RunResult, measures, spread, summary
from treetap.pages.pictures import Bar, Bars, Matrix, heat, percent
from treetap.pages.section import Cell, Table
from treetap.wire.disclosure import CLASSES

#: Most features of the table of importances.
MOST_FEATURES = 25


def metric_table(runs: Sequence[RunResult]) -> Table:
    """Every measure of every model over the runs."""
    rows = summary(runs).metrics
    names = measures(rows.values())
    return Table(
        ["", *names],
        [[label, *(row[name].written() if name in row else "–" for name in names)] for label, row in rows.items()],
        f"Mean ± standard deviation of {len(runs)} runs" if len(runs) > 1 else "Metrics of each model",
        style="cards",
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
        "Held-out rows, run by run",
        style="cards",
        folded=True,
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
    counts = Counter[tuple[str, str]]()
    for it in evaluations:
        rows_of_class = zip(it.classes, it.confusion or [], strict=True)
        counts.update({(true, own): n for true, row in rows_of_class for own, n in zip(it.classes, row, strict=True)})
    seeds = seeds_of(runs)
    rows = [(name, "", "", _shares([counts[name, other] for other in names], k, seeds)) for k, name in enumerate(names)]
    return Matrix("true \\ predicted", names, rows, "Confusion matrix", "confusion")


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
    return Table(["class", *shares, *counts], rows, "Figures of each class", style="cards")


def residuals(runs: Sequence[RunResult]) -> Table | None:
    """Quantiles of target less prediction over the runs; None where there are classes."""
    quantiles = list(zip(*(run.evaluation.residuals for run in runs if run.evaluation.residuals), strict=True))
    if not quantiles:
        return None
    values = [spread(row["value"] for row in of_runs).written() for of_runs in quantiles]
    heads = [f"{of_runs[0]['share']:.0%}" for of_runs in quantiles]
    rows = [["target less prediction", *values]]
    return Table(["quantile", *heads], rows, "Quantiles of the residuals", style="cards")


def importances(runs: Sequence[RunResult]) -> tuple[Bars, int]:
    """Features by their share of the model's gain, or of its splits where no party keeps gains; how many are left out.

    Over several runs the mean of the shares ± standard deviation; a run that does not use a feature counts as 0.
    """
    shares: list[dict[tuple[str, str], float]] = []
    splits = Counter[tuple[str, str]]()
    for run in runs:
        # shares, since gains of two runs have no common scale
        whole = math.fsum(row.size for row in run.importance)
        shares.append({(row.party, row.feature): row.size / whole if whole else 0.0 for row in run.importance})
        splits.update({(row.party, row.feature): row.weight for row in run.importance})
    means = {key: spread([of_run.get(key, 0.0) for of_run in shares]) for key in splits}
    order = sorted(means, key=lambda key: -(means[key].mean or 0.0))
    most = max((means[key].mean or 0.0 for key in order), default=0.0)
    bars = []
    for key in order[:MOST_FEATURES]:
        count, mean = splits[key], means[key]
        many = f"{count / len(runs):.1f} splits" if len(runs) > 1 else f"{count} split{'' if count == 1 else 's'}"
        figures = [f"{mean.written(1, 100)} %, {many}"]
        bars.append(Bar(key[1], key[0], figures, percent(mean.mean or 0.0, most), "graph"))
    heads = ("feature", "share of the gain, splits")
    return Bars(heads, bars, "Importance of features"), max(0, len(order) - MOST_FEATURES)


def phases(runs: Sequence[RunResult]) -> Bars:
    """Seconds by phase."""
    seconds = summary(runs).seconds
    most = max((figure.mean or 0.0 for figure in seconds.values()), default=0.0)
    bars = [
        Bar(name, "", [f"{figure.written(2)} s"], percent(figure.mean or 0.0, most), "sealed")
        for name, figure in seconds.items()
    ]
    return Bars(("phase", "seconds"), bars, "Seconds by phase")


def traffic(runs: Sequence[RunResult]) -> Matrix:
    """Bytes by class and receiver, the mean of the runs."""
    totals, parties = received([row for run in runs for row in run.traffic])
    means = {kind: {party: size / len(runs) for party, size in row.items()} for kind, row in totals.items()}
    most = max((size for row in means.values() for size in row.values()), default=0.0)
    return Matrix(
        "class",
        parties,
        [
            (
                *(kind, "", CLASSES[kind].kind),
                [
                    Cell(terminal.size(size), "", heat(size, most)) if (size := row.get(party, 0.0)) else Cell("·")
                    for party in parties
                ],
            )
            for kind, row in means.items()
        ],
        "Who received what: bytes by class and receiver",
    )


def predictions(runs: Sequence[RunResult]) -> Table | None:
    """Each prediction protocol's seconds, largest difference from the centralised model, and bytes by class."""
    of_runs = [run.predict for run in runs if run.predict]
    if not of_runs:
        return None
    sent = [row for run in of_runs for one in run.values() for row in one.traffic]
    kinds, rows = sorted({row.disclosure for row in sent} - {*PLAIN}), []
    for protocol in of_runs[0]:
        every = [run[protocol] for run in of_runs]
        known = [one.max_difference for one in every if one.max_difference is not None]
        # where one run is not comparable, no largest difference is known
        worst = f"{max(known):.1e}" if len(known) == len(every) else "not comparable"
        size = terminal.size(sum(one.bytes for one in every) / len(every))
        sizes = Counter[str]()
        for row in (row for one in every for row in one.traffic):
            sizes[row.disclosure] += row.bytes
        by_kind = [terminal.size(sizes[kind] / len(every)) if sizes[kind] else "·" for kind in kinds]
        rows.append([protocol, spread(one.seconds for one in every).written(2), size, worst, *by_kind])
    heads = ["protocol", "seconds", "sent", "largest difference from the centralised model", *kinds]
    return Table(heads, rows, "Predictions by protocol", style="cards")


def _shares(row: list[int], own: int, seeds: int) -> list[Cell]:
    """Cells of the class number `own`, right in its own column and wrong in the others."""
    whole = sum(row)
    parts = [count / whole if whole else 0.0 for count in row]
    return [
        Cell(counted(count / seeds), f"{part:.1%}", f"{part:.2f}", "right" if k == own else "wrong")
        for k, (count, part) in enumerate(zip(row, parts, strict=True))
    ]
