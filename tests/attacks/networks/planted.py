"""Logs of split networks whose gradients are planted: a feature party's transcript, its table, and the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tests.attacks.network_logs import numbers, training_log
from tests.worlds import PARTIES
from treetap.attacks.view.kept_messages import GRADIENTS
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.wire.v2 import exchange_pb2

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
HOLDER, PARTY = PARTIES[:2]
WIDTH = 6
#: Epoch, places of records (n,) → gradients (n, WIDTH).
Gradients = Callable[[int, Ints], Floats]
PARAMS = SplitnnParams(
    objective="multi:softprob",
    epochs=2,
    batch_size=16,
    bottom={DEFAULT: Bottom(hidden=(5,), width=WIDTH)},
    seed=3,
)


@dataclass(frozen=True)
class Planted:
    """A log on disk: the transcript's folder, the party's table, and a table of all labels; `labels`: (N,)."""

    transcript: Path
    table: Path
    truth: Path
    labels: Ints
    params: SplitnnParams


def by_class(labels: Ints, noise: float = 0.0) -> Gradients:
    """One direction for each class, with lengths that vary, and noise around it."""

    def gradients(epoch: int, records: Ints) -> Floats:
        draw = np.random.default_rng([epoch, int(records[0])])
        length = draw.uniform(0.1, 2.0, (len(records), 1))
        return length * (np.eye(WIDTH)[labels[records]] + noise * draw.normal(size=(len(records), WIDTH)))

    return gradients


def at_random(_labels: Ints) -> Gradients:
    """Gradients that have nothing to do with the labels."""
    return lambda epoch, records: np.random.default_rng([100 + epoch, int(records[0])]).normal(
        size=(len(records), WIDTH)
    )


def constant(_labels: Ints) -> Gradients:
    """The same gradient for all records."""
    return lambda _, records: np.tile(np.linspace(-1.0, 1.0, WIDTH), (len(records), 1))


def planted(
    folder: Path,
    made: Callable[[Ints], Gradients],
    *,
    records: int = 240,
    classes: int = 3,
    params: SplitnnParams = PARAMS,
    parts: int = 1,
    again: Gradients | None = None,
    tampered: Callable[[exchange_pb2.PeerMessage], None] | None = None,
    **changes: Any,
) -> Planted:
    """Write a log of a training that recorded all that it received; `parts`: messages of a batch.

    `again`: the gradients of a second attempt at the last epoch.
    """
    params = replace(params, **changes)
    draw = np.random.default_rng(1)
    labels = draw.integers(0, classes, records)
    labels[:classes] = np.arange(classes)
    schedule, gradients = Schedule.of(params, records), made(labels)
    rows = draw.permutation(records)  # place in the common order → row of the party's file
    transcript = folder / "transcript"
    with training_log(transcript, params, rows) as log:

        def train(epoch: int, attempt: int, gradients: Gradients) -> None:
            for batch, places in enumerate(schedule.epoch(epoch)):
                if not schedule.takes_part(epoch, batch, PARTY):
                    continue
                values = gradients(epoch, places)
                of_batch = numbers(GRADIENTS, values, params.wire_type, epoch, batch, parts, attempt)
                for message in of_batch:
                    if tampered is not None:
                        tampered(message)
                    log.received(HOLDER, message)

        for epoch in range(params.epochs):
            train(epoch, 1, gradients)
        if again is not None:
            train(params.epochs - 1, 2, again)
    ids = np.array([f"r{place:05d}" for place in range(records)])
    order = np.argsort(rows)
    columns = {"id": ids[order], "b0": draw.normal(size=records)}
    pq.write_table(pa.table(columns), folder / "own.parquet")
    pq.write_table(pa.table({"id": ids, "y": labels}), folder / "truth.parquet")
    return Planted(transcript, folder / "own.parquet", folder / "truth.parquet", labels, params)
