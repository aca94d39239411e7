"""Jobs that the journal may forget: those that are over and whose record nothing later needs.

A finished training stays, because predictions with its model need its record. So does a job that can still be resumed,
because its parties hold files that only `cancel` deletes; and a damaged one, because only a person knows what it was:
so is called one of another version of the protocol, which another release can read.
An operator who names finished trainings or damaged jobs gives them up.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection

from treetap.coordinator.runtime.journal import Journal
from treetap.errors import BadInput, ConfigError, Conflict, TreetapError
from treetap.names import NAME
from treetap.wire.status_parts import UNDER_WAY
from treetap.wire.v2 import jobs_pb2

log = logging.getLogger(__name__)
DAY_S = 86_400.0
#: Seconds between two looks for jobs that are over for long enough.
LOOK_S = 3600.0


def named(journal: Journal, running: Collection[str], jobs: Collection[str]) -> list[jobs_pb2.JobStatus]:
    """The statuses of these jobs, which an operator gives up.

    Raises:
        UnknownJob: one is not there.
        Conflict: one runs, or can be resumed: its parties hold files.
    """
    statuses = []
    for job in dict.fromkeys(jobs):
        if not journal.has(job):
            raise journal.unknown(job)
        status = journal.status(job)
        if job in running:
            raise Conflict(f"job {job} is running: treetap cancel {job} ends it")
        if status.state != "damaged" and not is_over(status):
            raise Conflict(f"job {job} is {status.state}, and its parties hold files of it: treetap cancel {job} first")
        statuses.append(status)
    return statuses


def old(journal: Journal, running: Collection[str], days: float) -> list[jobs_pb2.JobStatus]:
    """The statuses of jobs that nothing later needs and that ended more than `days` ago.

    Raises:
        BadInput: `days` is negative or no number.
    """
    if not days >= 0:
        raise BadInput(f"days = {days:g}: jobs end 0 or more days ago, or are named")
    before = time.time() - days * DAY_S
    return [
        status
        for status in journal.listed()
        if is_over(status)
        and (status.kind, status.state) != ("train", "finished")
        and status.job not in running
        and journal.ended_at(status.job) < before
    ]


def is_over(status: jobs_pb2.JobStatus) -> bool:
    nothing_kept = status.bad_input or status.kind == "align" or status.released
    return status.state in ("finished", "cancelled") or (status.state == "failed" and nothing_kept)


def made_up(prefix: str) -> str:
    """A name that no job has."""
    return f"{prefix}-{secrets.token_hex(4)}"


def check_free(job: str, holder: jobs_pb2.JobStatus | None) -> None:
    """Raise unless a new job may have a name. `holder`: the job that has it, which may give it back.

    Raises:
        ConfigError: it is no name, or that job keeps it.
    """
    if not NAME.match(job):
        raise ConfigError(f"{job!r} is not a name for a job: lower-case letters, digits and inner hyphens, at most 63")
    if holder is not None and not holder.released:
        raise ConfigError(f"there is a job {job!r} already ({holder.state}); {_cure(holder)}")


def _cure(status: jobs_pb2.JobStatus) -> str:
    """The commands that free the name of a job that keeps it."""
    other, job = "choose another name", status.job
    if status.state in UNDER_WAY or (status.kind, status.state) == ("train", "finished"):
        return other  # a model needs its training's record
    first = "" if is_over(status) or status.state == "damaged" else f"treetap cancel {job}, then "
    return f"{other}, or give this one up: {first}treetap prune {job}"


async def keep_for(prune: Callable[[], list[str]], days: float) -> None:
    """Prune at regular intervals, until cancelled. `prune`: forgets jobs older than `days` and returns their names."""
    while True:
        try:
            if gone := prune():
                log.info("the journal keeps jobs for %g days; it has forgotten %s", days, ", ".join(gone))
        except TreetapError as failure:
            log.error("jobs that are over stay in the journal: %s", failure)
        await asyncio.sleep(LOOK_S)
