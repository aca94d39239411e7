"""What a job stores, and how it is published.

- A party's disk: what a crash at any moment leaves, and what the next start makes of it.
- A model on a party's disk: it appears at once, as a whole, and is what was published.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.stored_jobs import PowerCut, publish, shard, tree, with_trees
from treetap.errors import BadInput, ConfigError, DataError
from treetap.models.arrays import content_of
from treetap.models.durable import write_document
from treetap.models.line_file import plain_lines
from treetap.models.store import JOB, JOB_SEED, TREES, WEIGHTS, read_model, read_weights, sha256_of
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
            publish(job)
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
        publish(job)
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
    publish(job)
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
        job.lines(TREES).put(tree(0), 0)
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
    job.claim("one", "d")
    assert job.bind("table")
    assert synced == []  # there is nothing yet that would be somebody's
    job.lines(TREES).put(tree(0), 0)
    files = [str(job.folder / f"{name}.part") for name in (JOB, TREES)]
    assert synced == [str(state / "jobs"), *files, str(job.folder)]
    synced.clear()
    job.lines(TREES).put(tree(1), 1)
    assert synced == [str(shard(job))]
    synced.clear()
    job.save_arrays("scores", {"scores": np.zeros(2)})
    assert synced == [str(job.folder / "scores.npz.part"), str(job.folder)]
    synced.clear()
    publish(job)
    draft = job.folder / "model"
    files = [str(draft / f"{name}.part") for name in (TREES, JOB, "manifest.json")]
    assert synced == [*files, str(draft), str(state / "models"), str(state / "jobs")]


def test_a_state_folder_that_cannot_be(tmp_path: Path) -> None:
    """A file where the state folder should be is the person's to move, and is named."""
    (tmp_path / "state").write_text("not a folder")
    with pytest.raises(BadInput, match=str(tmp_path / "state")):
        Store(tmp_path / "state")


def test_a_model_without_trees(tmp_path: Path) -> None:
    """A job that ended before its first tree still makes a model that can be read."""
    store = Store(tmp_path)
    publish(with_trees(tmp_path, 0), {"role": "feature_party"})
    assert read_model(store.model("job", "one"))[1] == []


def test_a_shard_of_several_kinds(tmp_path: Path) -> None:
    """Every file of a model is hashed in its manifest."""
    store, files = Store(tmp_path), {TREES: plain_lines([tree(0)]), WEIGHTS: content_of({"a": np.arange(2.0)})}
    with_trees(tmp_path, 1).publish({}, files)
    model = store.model("job", "one")
    manifest, trees = read_model(model)
    assert (manifest["files"], trees) == ({name: sha256_of(model / name) for name in files}, [tree(0)])
    same, weights = read_weights(model)
    assert (same, list(weights), weights["a"].tolist()) == (manifest, ["a"], [0.0, 1.0])


def test_a_model_is_what_was_published(tmp_path: Path) -> None:
    """A shard that lost a line, a damaged file and a model of another submission are told, not used."""
    store = Store(tmp_path)
    job = with_trees(tmp_path, 2)
    publish(job, {"role": "label_holder"})
    with pytest.raises(DataError, match="trained by another job of that name"):
        store.model("job", "two")
    shard = job.model / TREES
    whole = shard.read_bytes()
    for content in (whole.splitlines(keepends=True)[0], whole + b"{}\n", b""):
        shard.write_bytes(content)
        with pytest.raises(DataError, match=r"trees\.jsonl: is not the file that was published"):
            store.model("job", "one")
    shard.write_bytes(whole)
    (job.model / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json: is damaged"):
        store.model("job", "one")


def _operations(folder: Path, cut: int) -> None:
    """Publish a job on a disk that does `cut` operations and no more; `PowerCut` if there are more to do."""
    left = cut

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def operate(*given: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                raise PowerCut
            left -= 1
            return real(*given, **named)

        return operate

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "replace", "mkdir", "unlink", "rmdir", "open"):
            patch.setattr(os, name, counted(getattr(os, name)))
        publish(Store(folder).job("job"), {"role": "label_holder"})


def test_a_kill_at_any_operation_of_publishing(tmp_path: Path) -> None:
    """Afterwards there is the whole progress or the whole model; another start and attempt make it the model alone."""
    for cut in range(200):
        root = tmp_path / str(cut)
        job = with_trees(root, 2)
        job.save_arrays("scores", {"scores": np.zeros(2)})
        progress = {path.name: path.read_bytes() for path in job.folder.iterdir()}
        try:
            _operations(root, cut)
        except PowerCut:
            ended = False
        else:
            ended = True
        again = Store(root).job("job")
        if not again.published:
            assert {path.name: path.read_bytes() for path in again.folder.iterdir()} == progress
        again.claim("one", "d")
        publish(again, {"role": "label_holder"})
        assert read_model(Store(root).model("job", "one"))[1] == [tree(0), tree(1)]
        files = [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_file()]
        assert files == [f"models/job/{name}" for name in ("job.json", "manifest.json", TREES)]
        if ended:
            break
    assert 20 < cut < 199


def test_progress_beside_its_model_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Left by a kill or by a deletion that the disk refused: at the next attempt or start, which says so."""
    for start in (False, True):
        job = with_trees(tmp_path, 1)
        publish(job)
        write_document(job.folder / JOB, {"submission": "one", "digest": "d"}, JOB_SEED)
        caplog.clear()
        if start:
            Store(tmp_path)
            assert str(job.folder) in caplog.text
        else:
            job.claim("one", "d")
        assert not job.folder.exists()
        job.discard("one")
