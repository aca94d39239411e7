"""A party's disk: what a crash at any moment leaves, and what the next start makes of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.stored_jobs import PowerCut, shard, tree, with_trees
from treetap.errors import BadInput, ConfigError
from treetap.models.store import TREES
from treetap.party.runtime.job_store import Store


def _cut(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    def cut(*_: Any, **__: Any) -> None:
        raise PowerCut

    monkeypatch.setattr(owner, name, cut)


def test_a_job_leaves_no_trace_before_it_writes(tmp_path: Path) -> None:
    """Asking what is stored makes no folder."""
    job = Store(tmp_path).job("job")
    assert job.lines(TREES).read() == []
    assert job.load_arrays("scores") is None
    assert not job.published
    assert not job.folder.exists()


@pytest.mark.parametrize("moment", ["savez", "fsync", "replace"])
def test_arrays_are_whole_or_not_there(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash while arrays are written, before or after their first time, leaves the last whole ones."""
    job = Store(tmp_path).job("job")
    owner = {"savez": np, "fsync": os, "replace": Path}[moment]
    for expected in (None, [1.0, 2.0]):
        with monkeypatch.context() as patch:
            _cut(patch, owner, moment)
            with pytest.raises(PowerCut):
                job.save_arrays("scores", {"scores": np.array([3.0])})
        found = job.load_arrays("scores")
        assert (found if found is None else found["scores"].tolist()) == expected
        job.save_arrays("scores", {"scores": np.array([1.0, 2.0])})


def test_arrays_hold_no_objects(tmp_path: Path) -> None:
    """Nothing that would have to be unpickled is written."""
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        Store(tmp_path).job("job").save_arrays("scores", {"scores": np.array([{}])})


def test_discarding_takes_the_files_of_one_submission(tmp_path: Path) -> None:
    """Progress of the submission goes, twice if asked twice; that of another submission stays, and every model."""
    job = Store(tmp_path).job("job")
    for published in (False, True):
        job.claim("one", "d")
        job.lines(TREES).put(tree(0), 0)
        if published:
            job.publish({}, (TREES,))
        job.discard("another")
        assert (job.published, (job.folder / TREES).is_file()) == (published, not published)
        job.discard("one")
        job.discard("one")
        assert list((tmp_path / "jobs").iterdir()) == []
        assert job.published == published


@pytest.mark.parametrize("published", [False, True])
def test_a_name_belongs_to_one_submission(published: bool, tmp_path: Path) -> None:
    """The same submission finds its files again; another one of this name is refused and told where they lie."""
    job = Store(tmp_path).job("job")
    job.claim("one", "d")
    if published:
        job.publish({}, (TREES,))
    job.claim("one", "d")
    place = tmp_path / ("models" if published else "jobs") / "job"
    with pytest.raises(ConfigError, match=f"files of another job of this name, in {place}"):
        job.claim("two", "d")
    assert not published or list((tmp_path / "jobs").iterdir()) == []


def test_stored_trees_belong_to_one_table(tmp_path: Path) -> None:
    """Until a tree is stored the table may change; then it is the one of that tree."""
    job = Store(tmp_path).job("job")
    job.claim("one", "d")
    assert job.bind("a")
    assert job.bind("b")
    job.lines(TREES).put(tree(0), 0)
    assert job.bind("b")
    assert not job.bind("a")
    job.publish({}, (TREES,))
    assert not job.bind("a")
    assert job.bind("b")


def test_a_deletion_that_the_disk_refuses_is_told_and_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job's name is free at once; what stays of its files goes with the next start, which names it."""
    job = with_trees(tmp_path, 1)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(5, os.strerror(5), str(shard(job)))

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            job.discard("one")
    assert not job.folder.exists()
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == [".job.gone"]
    job.claim("two", "d")
    job.discard("two")
    assert list((tmp_path / "jobs").iterdir()) == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        job.claim("three", "d")
        with pytest.raises(OSError, match="Input/output error"):
            job.discard("three")
    Store(tmp_path)
    assert list((tmp_path / "jobs").iterdir()) == []
    assert ".job.gone" in caplog.text


def test_a_tree_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tree, array and manifest is synchronised to the disk, its folder too where a name appears."""
    synced: list[str] = []
    true_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        true_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    state = tmp_path / "above" / "state"
    job = Store(state).job("job")
    assert synced == [str(tmp_path), str(tmp_path / "above"), *[str(state)] * 4]  # who holds each new folder
    synced.clear()
    job.lines(TREES).put(tree(0), 0)
    assert synced == [str(state / "jobs"), str(job.folder / "trees.jsonl.part"), str(job.folder)]
    synced.clear()
    job.lines(TREES).put(tree(1), 1)
    assert synced == [str(shard(job))]
    synced.clear()
    job.save_arrays("scores", {"scores": np.zeros(2)})
    assert synced == [str(job.folder / "scores.npz.part"), str(job.folder)]
    synced.clear()
    job.publish({}, (TREES,))
    draft = job.folder / "model"
    for name in (TREES, "job.json", "manifest.json"):
        assert synced.index(str(draft / f"{name}.part")) < synced.index(str(state / "models"))
    assert synced[-1] == str(state / "jobs")


def test_a_state_folder_that_cannot_be(tmp_path: Path) -> None:
    """A file where the state folder should be is the person's to move, and is named."""
    (tmp_path / "state").write_text("not a folder")
    with pytest.raises(BadInput, match=str(tmp_path / "state")):
        Store(tmp_path / "state")
