"""A disk that fails at a party interrupts the job by name, of party and file; afterwards the job goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation
from tests.worlds import PARTIES, assert_oracles_model
from treetap.wire.transcript_writer import TranscriptWriter


def _refuse_below(patch: pytest.MonkeyPatch, folder: Path, name: str = "fsync") -> None:
    """Let an operation fail on what lies below a folder, as on a full disk."""
    real = getattr(os, name)

    def operate(target: Any, *given: Any, **named: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
        if path.startswith(f"{folder}{os.sep}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(target, *given, **named)

    patch.setattr(os, name, operate)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", PARTIES)
async def test_a_full_disk_while_a_job_opens(party: str, tmp_path: Path) -> None:
    """The error says which party could not store what; it is no defect, and the job is resumed when there is room."""

    federation = Federation(tmp_path, HERE.tables)
    with pytest.MonkeyPatch.context() as patch:
        _refuse_below(patch, federation.state(party) / "jobs")
        status = await federation.train(JOB)
    file = federation.state(party) / "jobs" / "job" / "job.json"
    assert status.state == "interrupted"
    assert status.error == f"{party}: prepare: No space left on device: {file}; then: treetap resume job"
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
