"""Statuses of jobs in parts and pages: none too large for a message, and joined they are what they were."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import pytest

from treetap.wire.rpc import MESSAGE_LIMIT
from treetap.wire.status_parts import PART_BYTES, jobs_of, joined, pages, parts
from treetap.wire.v2 import jobs_pb2, setup_pb2, types_pb2

T = TypeVar("T")
MOST = 4096


def _status(job: str, parties: int, rows: int) -> jobs_pb2.JobStatus:
    """A finished job with that many rows of traffic and of seconds at each of its parties."""
    traffic = [types_pb2.TrafficRow(to=f"to-{row}", step="gradients", messages=row, bytes=row) for row in range(rows)]
    seconds = [types_pb2.NamedAmount(name=f"step-{row}", amount=row / 4) for row in range(rows)]
    accounts = [
        jobs_pb2.PartyAccount(party=f"party-{party}", account=setup_pb2.Accounted(traffic=traffic, seconds=seconds))
        for party in range(parties)
    ]
    metrics = [types_pb2.NamedMetric(name="auc", value=0.9)]
    status = jobs_pb2.JobStatus(job=job, state="finished", round=7, metrics=metrics, accounts=accounts, away=["a", "b"])
    values = [number / 8 for number in range(min(rows, 300))]
    status.history.extend(types_pb2.MetricHistory(name=f"metric-{each}", values=values) for each in range(3))
    return status


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def _joined(found: AsyncIterator[jobs_pb2.JobStatus]) -> list[jobs_pb2.JobStatus]:
    return [status async for status in joined(found)]


@pytest.mark.parametrize(("parties", "rows"), [(0, 0), (1, 3), (3, 40), (40, 3), (2, 1000)])
async def test_a_status_in_parts(parties: int, rows: int) -> None:
    """Each fits, all but the last say that there are more, and each tells job and state."""
    status = _status("job", parties, rows)
    found = list(parts(status, MOST))
    assert all(part.ByteSize() <= MOST + 64 for part in found)
    assert (len(found) > 1) == (status.ByteSize() > MOST)
    assert [part.more for part in found] == [True] * (len(found) - 1) + [False]
    assert {(part.job, part.state) for part in found} == {("job", "finished")}
    assert await _joined(_each(found)) == [status]


async def test_many_statuses_in_pages() -> None:
    """Long ones and short ones; each page fits, and none is lost or doubled. No job at all is one empty page."""
    statuses = [_status(f"job-{number}", number % 4, number) for number in range(60)]
    found = list(pages(statuses, MOST))
    assert len(found) > 3
    assert all(page.ByteSize() <= MOST + 256 for page in found)
    assert await _joined(jobs_of(_each(found))) == statuses
    assert list(pages([])) == [jobs_pb2.StatusReply()]


def test_a_part_fits_a_message() -> None:
    """With the sizes of today."""
    status = _status("job", 30, 2000)
    assert status.ByteSize() > MESSAGE_LIMIT > 2 * PART_BYTES
    assert max(page.ByteSize() for page in pages([status] * 2)) < MESSAGE_LIMIT
