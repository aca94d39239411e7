"""Damage to the files of an unfinished job: it is an error with the file's name, and nothing is made of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.runtime.stored_jobs import shard, tree, with_trees
from treetap.errors import ConfigError, DataError
from treetap.models.store import TREES
from treetap.party.runtime.job_store import JobStore, Store


def _progress(root: Path) -> JobStore:
    """A job that has begun, with a file of every kind."""
    job = with_trees(root, 3)
    job.bind("table")
    job.save_arrays("scores", {"scores": np.arange(3.0), "trees": np.array(3)})
    return job


def _read_all(root: Path) -> object:
    """All that a resumed job reads."""
    job = Store(root).job("job")
    job.claim("one", "d")
    arrays = job.load_arrays("scores")
    assert arrays is not None
    found = {name: array.tolist() for name, array in arrays.items()}
    return job.lines(TREES).read(), found, job.bind("table")


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", ["job.json", TREES, "scores.npz"])
def test_no_byte_of_progress_can_change_unnoticed(name: str, tmp_path: Path) -> None:
    """Every byte of every file of a job, changed in three ways, is an error with the file's name, or means the same.

    A last line without its end is the exception: a crash leaves such a one, and its tree is grown again.
    """
    path = _progress(tmp_path).folder / name
    expected, whole = _read_all(tmp_path), path.read_bytes()
    told = 0
    for place in range(len(whole) - (name == TREES)):
        for bit in (1, 4, 32):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                found = _read_all(tmp_path)
            except (DataError, ConfigError) as failure:
                found, told = str(failure), told + 1
            assert name in found if isinstance(found, str) else found == expected
    assert told > 2.9 * len(whole)


def test_lines_of_another_job_are_told(tmp_path: Path) -> None:
    """Each line's checksum covers the job, as well as the line before it (`tests/library/models/test_line_file.py`)."""
    job, another = with_trees(tmp_path, 3), Store(tmp_path).job("another")
    another.claim("two", "d")
    another.lines(TREES).put(tree(0), 0)
    shard(job).write_bytes(shard(another).read_bytes())
    with pytest.raises(DataError, match="line 1 is damaged"):
        Store(tmp_path).job("job").lines(TREES).read()


def test_a_damaged_shard_is_not_published(tmp_path: Path) -> None:
    """The checksums are compared before the model is made of the file."""
    job = with_trees(tmp_path, 2)
    shard(job).write_bytes(shard(job).read_bytes().replace(b"0.1", b"0.2"))
    with pytest.raises(DataError, match="line 2 is damaged"):
        job.publish({}, (TREES,))
    assert not job.published


def test_jobs_of_nobody_are_refused_and_discarded(tmp_path: Path) -> None:
    """Without the checksum of the file that says whose they are, and without that file."""
    job = with_trees(tmp_path, 1)
    path = job.folder / "job.json"
    path.write_text('{"submission": "one"}')
    for ask in (lambda: job.claim("one", "d"), lambda: job.bind("table"), lambda: job.lines(TREES).read()):
        with pytest.raises(DataError, match=rf"{path}: is damaged; bring a back-up"):
            ask()
    path.unlink()
    with pytest.raises(DataError, match=rf"{path}: is not there; bring a back-up of it back, or cancel the job"):
        job.claim("one", "d")
    job.discard("one")
    assert not job.folder.exists()
