"""Statuses of jobs in messages of bounded size: many in pages, a long one in parts, since accounts and history grow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import chain

from treetap.wire.v2 import jobs_pb2, setup_pb2

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
    columns = [("history", column) for column in status.history]
    for field, piece in chain(columns, (("accounts", rows) for rows in _rows(status.accounts, most // 2))):
        added = piece.ByteSize() + FRAME_BYTES
        if size + added > most:
            yield part
            part = jobs_pb2.JobStatus(job=status.job, state=status.state, more=True)
            size = part.ByteSize()
        getattr(part, field).append(piece)
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
