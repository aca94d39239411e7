"""Statuses of jobs in messages of bounded size: many in pages, a long one in parts; metrics after each round."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, MutableSequence, Sequence
from itertools import zip_longest

from treetap.wire.v2 import jobs_pb2, setup_pb2, types_pb2

#: States of a job that change without an operator.
UNDER_WAY = ("running", "waiting")
#: Most bytes of a part, and of a page.
PART_BYTES = 512 * 1024
#: Most bytes that a message adds to another which holds it.
FRAME_BYTES = 8


def parts(status: jobs_pb2.JobStatus, most: int = PART_BYTES) -> Iterator[jobs_pb2.JobStatus]:
    """The status in parts, each but the last marked by `more`."""
    if status.ByteSize() <= most:
        yield status
        return
    part = jobs_pb2.JobStatus()
    part.CopyFrom(status)
    del part.accounts[:], part.history[:]
    part.more = True
    size = part.ByteSize()
    for column in status.history:
        if size + (added := column.ByteSize() + FRAME_BYTES) > most:
            yield part
            part = jobs_pb2.JobStatus(job=status.job, state=status.state, more=True)
            size = part.ByteSize()
        part.history.append(column)
        size += added
    for rows in _rows(status.accounts, most // 2):
        added = rows.ByteSize() + FRAME_BYTES
        if size + added > most:
            yield part
            part = jobs_pb2.JobStatus(job=status.job, state=status.state, more=True)
            size = part.ByteSize()
        part.accounts.append(rows)
        size += added
    part.more = False
    yield part


def pages(statuses: Iterable[jobs_pb2.JobStatus], most: int = PART_BYTES) -> Iterator[jobs_pb2.StatusReply]:
    """The statuses in pages; one at least."""
    page, size = jobs_pb2.StatusReply(), 0
    for status in statuses:
        for part in parts(status, most):
            added = part.ByteSize() + FRAME_BYTES
            if page.jobs and size + added > most:
                yield page
                page, size = jobs_pb2.StatusReply(), 0
            page.jobs.append(part)
            size += added
    yield page


async def joined(statuses: AsyncIterator[jobs_pb2.JobStatus]) -> AsyncIterator[jobs_pb2.JobStatus]:
    """The statuses of which these are the parts."""
    whole = jobs_pb2.JobStatus()
    async for part in statuses:
        more = part.more
        whole.MergeFrom(part)
        if more:
            continue
        whole.ClearField("more")
        # one account for each party, where parts had several
        accounts: dict[str, setup_pb2.Accounted] = {}
        for piece in whole.accounts:
            accounts.setdefault(piece.party, setup_pb2.Accounted()).MergeFrom(piece.account)
        if len(accounts) < len(whole.accounts):
            del whole.accounts[:]
            whole.accounts.extend(
                jobs_pb2.PartyAccount(party=name, account=account) for name, account in accounts.items()
            )
        yield whole
        whole = jobs_pb2.JobStatus()


async def jobs_of(replies: AsyncIterator[jobs_pb2.StatusReply]) -> AsyncIterator[jobs_pb2.JobStatus]:
    """The parts in pages."""
    async for page in replies:
        for part in page.jobs:
            yield part


def _rows(accounts: Iterable[jobs_pb2.PartyAccount], most: int) -> Iterator[jobs_pb2.PartyAccount]:
    """The accounts, in pieces of at most that many bytes or of one row."""
    for account in accounts:
        for field, rows in account.account.ListFields():
            piece = jobs_pb2.PartyAccount(party=account.party)
            size = 0
            for row in rows:
                if size and size + row.ByteSize() > most:
                    yield piece
                    piece, size = jobs_pb2.PartyAccount(party=account.party), 0
                getattr(piece.account, field.name).append(row)
                size += row.ByteSize() + FRAME_BYTES
            yield piece


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
