"""Metrics after each round of a training: rows of a model's files, columns of a message."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from itertools import zip_longest

from treetap.wire.v2 import types_pb2

#: Name of a metric → its value; None where it is no finite number.
Metrics = Mapping[str, float | None]
#: Most rounds in a message, which thereby stays below the limit of its size.
MOST_ROUNDS = 10_000


def columns(rounds: Sequence[Metrics]) -> list[types_pb2.MetricHistory]:
    """The first `MOST_ROUNDS` rounds as columns of a message, in the order in which their names appear."""
    shown = rounds[:MOST_ROUNDS]
    names = dict.fromkeys(name for row in shown for name in row)
    columns = {name: [row.get(name) for row in shown] for name in names}
    return [
        types_pb2.MetricHistory(name=name, values=[math.nan if value is None else value for value in values])
        for name, values in columns.items()
    ]


def rows(history: Iterable[types_pb2.MetricHistory]) -> list[dict[str, float | None]]:
    """Columns of a message as rows, each with the metrics that it has; a value that is no finite number is None."""
    metrics = list(history)
    made: list[dict[str, float | None]] = [
        {} for _ in range(max((len(metric.values) for metric in metrics), default=0))
    ]
    for metric in metrics:
        for row, value in zip(made, metric.values, strict=False):
            if not math.isnan(value):
                row[metric.name] = value if math.isfinite(value) else None
    return made


def append(history: MutableSequence[types_pb2.MetricHistory], metrics: Iterable[types_pb2.NamedMetric]) -> None:
    """Add a round to the columns of a message; of a round beyond `MOST_ROUNDS` it keeps nothing."""
    rounds = max((len(series.values) for series in history), default=0)
    if rounds >= MOST_ROUNDS:
        return
    values = {metric.name: metric.value for metric in metrics}
    known = {series.name for series in history}
    history.extend(
        types_pb2.MetricHistory(name=name, values=[math.nan] * rounds) for name in values if name not in known
    )
    for series in history:
        series.values.append(values.get(series.name, math.nan))


def merged(histories: Iterable[Sequence[Metrics]]) -> list[dict[str, float | None]]:
    """The rows of several parties, of which each has the metrics of other rounds."""
    return [
        {name: value for row in parts for name, value in row.items()} for parts in zip_longest(*histories, fillvalue={})
    ]
