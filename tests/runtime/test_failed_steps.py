"""A step that fails ends the attempt at its party; the next one goes on from what is on disk, damaged or not."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay import HERE, JOB, ORACLE, Conducted, Replay, ask, with_word
from tests.runtime.stored_jobs import publish, shard, tree, with_trees
from tests.simulator import Faults, Federation
from tests.worlds import PARTIES, assert_oracles_model
from treetap.errors import ConfigError, DataError, Interrupted, Malformed
from treetap.models.store import TREES
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.job_store import Store
from treetap.party.runtime.step_order import id_of
from treetap.party.setup.steps import bin_features
from treetap.trees.binning import BinnedTable
from treetap.wire.frame import name_of
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, _ = PARTIES


def cut_sums(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
    """Candidate sums of one feature party come without what they are about."""
    if sender == FEATURE and name_of(parcel) == "candidate_sums":
        parcel.growth.candidate_sums.Clear()
        parcel.growth.candidate_sums.SetInParent()


async def test_after_a_failure_the_attempt_is_over_at_that_party(
    jobs: tuple[Conducted, Conducted], tmp_path: Path
) -> None:
    """No step but repeats, until the next attempt; the costs of the job are reported, and the party can be left."""

    federation = Federation(tmp_path, HERE.tables)
    replay = Replay(federation, jobs[0])
    federation.tamper = cut_sums
    with pytest.raises(Malformed) as first:
        await replay.to()
    (choose,) = [
        request
        for kind, to, request in jobs[0]
        if (kind, to, *id_of(request)) == ("begin", LABEL_HOLDER, "choose_splits", 0, 0)
    ]
    with pytest.raises(Malformed) as again:
        await ask(federation, LABEL_HOLDER, choose)
    assert str(again.value) == str(first.value)
    for name in ("relay_children", "store_tree", "publish"):
        with pytest.raises(Interrupted) as refused:
            await ask(federation, LABEL_HOLDER, with_word(name))
        assert str(refused.value) == (
            f"label-holder: the attempt has ended before {name} of round 0, stage 0: "
            f"choose_splits of round 0, stage 0 failed: {first.value}; resume the job for a new one"
        )
    account = await ask(federation, LABEL_HOLDER, with_word("account"))
    assert {row.disclosure for row in account.setup.accounted.traffic} >= {"CIPHERTEXT"}
    federation.tamper = None
    prepare = with_word("prepare", attempt=2)
    assert (await ask(federation, LABEL_HOLDER, prepare)).setup.prepared.aligned_attempt == 1
    await ask(federation, LABEL_HOLDER, with_word("leave", attempt=2))
    assert federation.node(LABEL_HOLDER)._sessions == {}


async def test_a_failure_whose_answer_was_lost_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request comes twice, unheard first: the step fails once, and whoever asks next gets that error."""
    failed: list[str] = []

    async def spoilt(context: StepContext, *about: Any, **more: Any) -> BinnedTable:
        if context.party != FEATURE:
            return await bin_features(context, *about, **more)
        failed.append(context.job)
        raise DataError("column b0 is spoilt").at(context.party)

    federation = Federation(tmp_path, HERE.tables, faults=Faults(double=1.0, delay_s=2.0, seed=1))
    with monkeypatch.context() as patch:
        patch.setattr("treetap.party.growth.feature_party_job.bin_features", spoilt)
        status = await federation.train(JOB)
    assert (status.state, status.bad_input) == ("failed", True)
    assert status.error == "feature-b: column b0 is spoilt"
    assert failed == ["job"]
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)


# ---- A disk that fails at a party interrupts the job by name, of party and file; afterwards the job goes on


def _refuse_below(
    patch: pytest.MonkeyPatch, folder: Path, name: str = "fsync", *, within: str = "", code: int = errno.ENOSPC
) -> None:
    """Let an operation fail on what lies below a folder and has `within` in its path, as on a full disk."""
    real = getattr(os, name)

    def operate(target: Any, *given: Any, **named: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
        if path.startswith(f"{folder}{os.sep}") and within in path:
            raise OSError(code, os.strerror(code))
        return real(target, *given, **named)

    patch.setattr(os, name, operate)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(
    ("party", "file"),
    [(PARTIES[2], "job.json"), (PARTIES[1], TREES), (PARTIES[0], "scores.npz"), (PARTIES[0], "model/manifest.json")],
)
async def test_a_disk_that_refuses_an_fsync(party: str, file: str, code: int, tmp_path: Path) -> None:
    """The error says which party could not store what; it is no defect, and the job is resumed when there is room."""

    federation = Federation(tmp_path, HERE.tables)
    with pytest.MonkeyPatch.context() as patch:
        _refuse_below(patch, federation.state(party) / "jobs", within=file, code=code)
        status = await federation.train(JOB)
    path = federation.state(party) / "jobs" / "job" / file
    assert status.state == "interrupted"
    assert re.fullmatch(
        rf"{party}: [a-z_ 0-9,]*: {os.strerror(code)}: {path}; then: treetap resume job", status.error
    ), status.error
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)


async def test_a_transcript_that_cannot_be_written(tmp_path: Path) -> None:
    """A party that records, and has no room for it, names itself and the file."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "000001.log")

    federation = Federation(tmp_path, HERE.tables, record="both")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranscriptWriter, "append", full)
        status = await federation.train(JOB)
    assert status.state == "interrupted"
    assert status.error.partition(": ")[0] in PARTIES
    assert ": prepare: No space left on device: 000001.log; then: treetap resume job" in status.error
    assert (await federation.resume()).state == "finished"


async def test_files_that_cannot_be_deleted(tmp_path: Path) -> None:
    """A cancelled job names the party that may still hold files; a repeated cancel deletes them, as the start does."""
    federation = Federation(tmp_path, HERE.tables)
    party = PARTIES[1]
    with pytest.MonkeyPatch.context() as patch:
        _refuse_below(patch, federation.state(party) / "jobs")
        await federation.train(JOB)
        _refuse_below(patch, federation.state(party) / "jobs", "replace")
        status = await federation.jobs.cancel("job")
    assert f"{party} did not confirm it and may still hold files: treetap cancel job repeats it" in status.error
    assert (await federation.jobs.cancel("job")).error == "cancelled by an operator"
    assert [list((state / "jobs").iterdir()) for state in federation.states.values()] == [[], [], []]


# ---- Damage to the files of an unfinished job: it is an error with the file's name, and nothing is made of it


def test_damaged_progress_is_told(tmp_path: Path) -> None:
    """Scores or a shard that are no such files any more are named, with what to do."""
    job = with_trees(tmp_path, 1)
    (job.folder / "scores.npz").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match=r"scores\.npz: is damaged"):
        job.load_arrays("scores")
    shard(job).write_bytes(b"not a tree\n")
    with pytest.raises(DataError, match=r"trees\.jsonl: line 1 is damaged"):
        job.lines(TREES).read()


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
    # A job that has begun, with a file of every kind.
    job = with_trees(tmp_path, 3)
    job.bind("table")
    job.save_arrays("scores", {"scores": np.arange(3.0), "trees": np.array(3)})
    path = job.folder / name
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


def test_lines_that_are_missing_doubled_or_moved_are_told(tmp_path: Path) -> None:
    """Each line's checksum covers the line before it; those of another job are told too."""
    job = with_trees(tmp_path, 3)
    a, b, c = shard(job).read_bytes().splitlines(keepends=True)
    for number, lines in ((2, [a, c]), (1, [b, c]), (3, [a, b, b]), (1, [b, a, c]), (2, [a, a, b, c])):
        shard(job).write_bytes(b"".join(lines))
        with pytest.raises(DataError, match=rf"trees\.jsonl: line {number} is damaged; bring a back-up"):
            Store(tmp_path).job("job").lines(TREES).read()
    another = Store(tmp_path).job("another")
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
        publish(job)
    assert not job.published


def test_jobs_of_nobody_are_refused_and_discarded(tmp_path: Path) -> None:
    """Without the checksum of the file that says whose they are, and without that file."""
    job = with_trees(tmp_path, 1)
    path = job.folder / "job.json"
    path.write_text('{"submission": "one"}')
    for use in (lambda: job.claim("one", "d"), lambda: job.bind("table"), lambda: job.lines(TREES).read()):
        with pytest.raises(DataError, match=rf"{path}: is damaged; bring a back-up"):
            use()
    path.unlink()
    with pytest.raises(DataError, match=rf"{path}: is not there; bring a back-up of it back, or cancel the job"):
        job.claim("one", "d")
    job.discard("one")
    assert not job.folder.exists()
