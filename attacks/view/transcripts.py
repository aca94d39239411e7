"""The search for a job's transcript: in its own folder, among others in a party's state, or in an archive."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from attacks.view.archives import unpack
from treetap.errors import BadInput, Malformed
from treetap.wire.tap_file import TAP
from treetap.wire.transcript import TranscriptReader

_BELOW = 3  # greatest depth of transcripts below a party's state, its parent folder or a container's volume
_IN_ARCHIVES = 10  # archives may have further leading folders


class Found(NamedTuple):
    """A transcript on disk: a folder or a file. `kind`: its job's kind, by the first readable records.

    One without a record, as a party leaves that was killed when it began it, is `empty`.
    """

    job: str
    path: Path
    kind: Literal["training", "prediction", "unknown", "empty"]


@contextmanager
def located(path: Path, job: str | None = None) -> Iterator[Path]:
    """The folder (or single .tap file) with the transcript of `job`, or of the only training job that there is.

    `path` is a folder of .tap files; one with such folders up to three levels below it, as a party's state or the
    volume of its container; a single .tap file; or a tar archive (compressed or not) or zip archive of any of
    these, which is unpacked for as long as the context lasts.

    Raises:
        BadInput: there is no transcript, or the job is ambiguous; names the jobs found.
        Malformed: the transcript is damaged. Errors name an archive instead of the folder where it was unpacked.
    """
    if not path.is_file() or path.suffix == ".tap":
        yield _chosen(path, path, job)
        return
    with tempfile.TemporaryDirectory(prefix="treetap-transcript-") as scratch:
        unpack(path, Path(scratch))
        try:
            yield _chosen(Path(scratch), path, job, below=_IN_ARCHIVES)
        except (Malformed, BadInput) as fault:
            raise type(fault)(str(fault).replace(scratch, str(path))) from None


def find(path: Path, below: int = _BELOW) -> list[Found]:
    """Every transcript at `path` or at most `below` levels below it, by job."""
    if path.is_file() or _has_files(path):
        return [_look(path)]
    folders = {file.parent for depth in range(1, below + 1) for file in path.glob("*/" * depth + "*.tap")}
    return sorted(_look(folder) for folder in folders if _has_files(folder))


def _chosen(path: Path, named: Path, job: str | None, below: int = _BELOW) -> Path:
    if not path.exists():
        raise BadInput(f"{named}: there is no such file or folder")
    transcripts = find(path, below)
    if not transcripts:
        raise BadInput(f"{named}: holds no transcript, and no folder within {below} levels below it does")
    transcripts = [it for it in transcripts if it.kind != "empty"] or transcripts
    fitting = _of_job(transcripts, named, job)
    if len(fitting) > 1:
        places = ", ".join(str(it.path.relative_to(path)) for it in fitting)
        raise BadInput(f"{named}: holds job {fitting[0].job!r} more than once; give one of these folders: {places}")
    return fitting[0].path


def _of_job(transcripts: list[Found], named: Path, job: str | None) -> list[Found]:
    """The transcripts of a job, or of the only training, or the only one that there is."""
    jobs = ", ".join(sorted({it.job for it in transcripts}))
    if job is not None:
        fitting = [it for it in transcripts if it.job == job]
        if not fitting:
            raise BadInput(f"{named}: holds no transcript of job {job!r}, only of: {jobs}")
        return fitting
    fitting = transcripts if len(transcripts) == 1 else [it for it in transcripts if it.kind != "prediction"]
    if not fitting:
        raise BadInput(f"{named}: holds transcripts of predictions only ({jobs}); no tree was grown in them")
    if len({it.job for it in fitting}) > 1:
        raise BadInput(f"{named}: holds the transcripts of several jobs; choose one by name: {jobs}")
    return fitting


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(TAP.fullmatch(file.name) for file in folder.glob("*.tap"))


def _look(path: Path) -> Found:
    """Job and kind by the first records; of an unreadable one by its folder: reading it later raises the error."""
    seen = Found(path.stem, path, "empty")
    try:
        for record in TranscriptReader(path):
            if record.step in ("prepare", "open_model"):
                return Found(record.job, path, "training" if record.step == "prepare" else "prediction")
            seen = Found(record.job, path, "unknown")
    except Malformed:
        return seen._replace(kind="unknown")
    return seen
