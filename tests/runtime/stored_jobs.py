"""Jobs with trees on a party's disk, for tests of what the disk keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treetap.models.line_file import plain_lines
from treetap.models.store import TREES
from treetap.party.runtime.job_store import JobStore, Store


class PowerCut(Exception):
    """Stands for the moment at which a process ends."""


def tree(number: int) -> dict[str, Any]:
    """A tree that can be told from others."""
    return {"tree": number, "splits": [{"handle": number, "threshold": 0.1 * number}]}


def with_trees(root: Path, count: int) -> JobStore:
    """That many trees of submission "one"."""
    job = Store(root).job("job")
    job.claim("one", "d")
    for number in range(count):
        job.lines(TREES).put(tree(number), number)
    return job


def publish(job: JobStore, manifest: dict[str, Any] | None = None) -> None:
    """Publish a job's trees."""
    job.publish(manifest or {}, {TREES: plain_lines(job.lines(TREES).read())})


def shard(job: JobStore) -> Path:
    """The file of a job's trees."""
    return job.folder / TREES
