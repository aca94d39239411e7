"""Tables of an experiment's page: figures over its runs, mean ± standard deviation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from treetap import terminal
from treetap.commands.experiment.planned import planned
from treetap.commands.experiment.report import received
from treetap.commands.experiment.summary import Spread, measures, metric_rows, spread, summary
from treetap.wire.disclosure import CLASSES

Run = Mapping[str, Any]
#: Most features of the table of importances.
MOST_FEATURES = 25
CLASS_HEADS = ("precision", "recall", "f1", "support", "predicted")


class Table(NamedTuple):
    """Heads, the first one of the rows' names, and rows of text."""

    heads: list[str]
    rows: list[list[str]]


class Bar(NamedTuple):
    """A row with a bar: `percent` of the largest one; `style`: its class in the style sheet."""

    name: str
    more: str
    figure: str
    percent: str
    style: str = "sealed"


class Cell(NamedTuple):
    """A cell of a matrix; `heat` 0 to 1."""

    figure: str
    more: str
    heat: str


class Matrix(NamedTuple):
    """Named rows of cells below named columns."""

    columns: list[str]
    rows: list[tuple[str, list[Cell]]]


def metric_table(runs: Sequence[Run]) -> Table:
    """Every measure of every model over the runs."""
    found = summary(runs)["metrics"]
    names = measures(found.values())
    return Table(
        ["", *names],
        [
            [label, *(Spread(row[name]["mean"], row[name]["sd"]).written() if name in row else "–" for name in names)]
            for label, row in found.items()
        ],
    )


def run_table(runs: Sequence[Run]) -> Table:
    """The measures of the held-out rows of each run, and its records."""
    names = measures(metric_rows(run)["test"] for run in runs)
    return Table(
        ["run", "training records", "held out", *names],
        [
            [
                planned(run).title,
                f"{run['records']['train']:,}",
                f"{run['records']['test']:,}",
                *(spread([run["metrics"]["test"].get(name)]).written() for name in names),
            ]
            for run in runs
        ],
    )


def confusion(runs: Sequence[Run]) -> Matrix | None:
    """Held-out rows of all runs by true and predicted class, with the share of the true class; None of a regression."""
    found = [run["evaluation"] for run in runs if run["evaluation"].get("confusion")]
    if not found:
        return None
    names = list(dict.fromkeys(name for each in found for name in each["classes"]))
    place = {name: k for k, name in enumerate(names)}
    counts = [[0] * len(names) for _ in names]
    for each in found:
        for true, row in zip(each["classes"], each["confusion"], strict=True):
            for predicted, count in zip(each["classes"], row, strict=True):
                counts[place[true]][place[predicted]] += count
    return Matrix(names, [(name, _shares(row)) for name, row in zip(names, counts, strict=True)])


def class_table(runs: Sequence[Run]) -> Table | None:
    """Figures per class and their averages over the runs; None of a regression."""
    found = [run["evaluation"] for run in runs if "per_class" in run["evaluation"]]
    if not found:
        return None
    names = list(dict.fromkeys(name for each in found for name in each["classes"]))
    rows = []
    for name in names:
        given = [row for each in found for row in each["per_class"] if row["class"] == name]
        counted = ("support", "predicted")
        shares = [spread(row[head] for row in given).written(3) for head in CLASS_HEADS if head not in counted]
        rows.append([name, *shares, *(f"{sum(row[head] for row in given):,}" for head in counted)])
    for kind in ("macro", "weighted"):
        averaged = [spread(each["averages"][kind][head] for each in found).written(3) for head in CLASS_HEADS[:3]]
        rows.append([f"{kind} average", *averaged, "", ""])
    return Table(["class", *CLASS_HEADS], rows)


def residuals(runs: Sequence[Run]) -> Table | None:
    """Quantiles of target less prediction over the runs; None where there are classes."""
    found = [run["evaluation"]["residuals"] for run in runs if "residuals" in run["evaluation"]]
    if not found:
        return None
    shares = [row["share"] for row in found[0]]
    values = [spread(each[k]["value"] for each in found).written() for k in range(len(shares))]
    return Table(["quantile", *(f"{share:.0%}" for share in shares)], [["target less prediction", *values]])


def importances(runs: Sequence[Run]) -> tuple[list[Bar], int]:
    """Features by their share of the model's gain, or of its splits where no party keeps gains; how many are left out.

    Over several runs the mean of the shares ± standard deviation; a run that does not use a feature counts as 0.
    """
    shares: list[dict[tuple[str, str], float]] = []
    splits: dict[tuple[str, str], int] = {}
    for run in runs:
        rows = {(row["party"], row["feature"]): row for row in run["importance"]}
        sizes = {key: row["weight"] * (1.0 if row["gain"] is None else row["gain"]) for key, row in rows.items()}
        whole = math.fsum(sizes.values())
        shares.append({key: size / whole if whole else 0.0 for key, size in sizes.items()})
        for key, row in rows.items():
            splits[key] = splits.get(key, 0) + row["weight"]
    means = {key: spread([each.get(key, 0.0) for each in shares]) for key in splits}
    order = sorted(means, key=lambda key: -(means[key].mean or 0.0))
    most = max((means[key].mean or 0.0 for key in order), default=0.0)
    bars = [
        Bar(
            feature,
            party,
            f"{_percent(means[party, feature])}, {_splits(splits[party, feature], len(runs))}",
            _part(means[party, feature].mean or 0.0, most),
            "graph",
        )
        for party, feature in order[:MOST_FEATURES]
    ]
    return bars, max(0, len(order) - MOST_FEATURES)


def phases(runs: Sequence[Run]) -> list[Bar]:
    """Seconds by phase."""
    found = summary(runs)["seconds"]
    most = max((row["mean"] or 0.0 for row in found.values()), default=0.0)
    return [
        Bar(name, "", f"{Spread(row['mean'], row['sd']).written(2)} s", _part(row["mean"] or 0.0, most))
        for name, row in found.items()
    ]


def traffic(runs: Sequence[Run]) -> tuple[Matrix, dict[str, str]]:
    """Bytes by class and receiver, the mean of the runs; class → its style by how readable it is."""
    totals, parties = received([row for run in runs for row in run["traffic"]])
    means = {kind: {party: size / len(runs) for party, size in row.items()} for kind, row in totals.items()}
    most = max((size for row in means.values() for size in row.values()), default=0.0)
    rows = [(kind, [_received(row.get(party, 0.0), most) for party in parties]) for kind, row in means.items()]
    return Matrix(parties, rows), {kind: CLASSES[kind].kind for kind in means}


def predictions(runs: Sequence[Run]) -> Table | None:
    """Each prediction protocol's seconds, bytes, and largest difference from the centralised model."""
    found = [run["predict"] for run in runs if "predict" in run]
    if not found:
        return None
    rows = []
    for protocol in found[0]:
        each = [run[protocol] for run in found]
        differences = [row["max_difference"] for row in each]
        worst = "not comparable" if None in differences else f"{max(differences):.1e}"
        size = terminal.size(sum(row["bytes"] for row in each) / len(each))
        rows.append([protocol, f"{spread(row['seconds'] for row in each).written(2)}", size, worst])
    return Table(["protocol", "seconds", "sent", "largest difference from the centralised model"], rows)


def _shares(row: list[int]) -> list[Cell]:
    whole = sum(row)
    parts = [count / whole if whole else 0.0 for count in row]
    return [Cell(f"{count:,}", f"{part:.1%}", f"{part:.2f}") for count, part in zip(row, parts, strict=True)]


def _received(size: float, most: float) -> Cell:
    return Cell(terminal.size(size), "", f"{math.log1p(size) / math.log1p(most):.2f}") if size else Cell("·", "", "")


def _splits(count: int, runs: int) -> str:
    """The number of splits of one run, or the mean of several."""
    return f"{count / runs:.1f} splits" if runs > 1 else f"{count} split{'' if count == 1 else 's'}"


def _percent(figure: Spread) -> str:
    return Spread(None if figure.mean is None else 100 * figure.mean, figure.sd and 100 * figure.sd).written(1) + " %"


def _part(value: float, most: float) -> str:
    return f"{100 * value / most:.2f}" if most else "0"
