"""The job that a transcript records, by its first step alone: whose transcript it is decides how it is read."""

from __future__ import annotations

from pathlib import Path

from attacks.view.replay import checked
from attacks.view.transcripts import located
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import control_pb2, setup_pb2


def recorded_job(path: Path, job: str | None = None) -> setup_pb2.JobSpec | None:
    """The job as its first submission in this transcript describes it; None where it begins no training.

    Raises:
        BadInput: there is no such transcript, or it is ambiguous: see `located`.
        Malformed: a record before that step was changed.
    """
    with located(path, job) as place:
        for record in TranscriptReader(place):
            if record.step == "prepare" and isinstance(step := checked(record), control_pb2.StepRequest):
                return step.setup.prepare.spec
    return None
