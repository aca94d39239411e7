"""Transcripts of a job: the search in a folder, a party's state or an archive of any origin.

Of an archive no more is unpacked than a transcript can hold.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple

from treetap.errors import BadInput, Malformed
from treetap.wire import own_rows
from treetap.wire.transcript import TAP, TranscriptReader

_UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)
#: Most times an archive's size that it may unpack to: files of a transcript are compressed already.
_TIMES = 20
_AT_LEAST = 16 << 20
_BLOCK = 1 << 20
_COMPRESSIONS: tuple[Any, ...] = (gzip.open, bz2.open, lzma.open)


def unpack(archive: Path, into: Path) -> None:
    """Unpack the files of transcripts in an archive below `into`, with their folders.

    Raises:
        BadInput: it is no archive, is damaged, leads out of `into`, or unpacks to too much.
    """
    try:
        budget = _Budget(archive)
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for entry in zipped.infolist():
                    if not entry.is_dir():
                        with zipped.open(entry) as content:
                            _place(budget, entry.filename, content, into)
            return
        with tempfile.TemporaryFile() as plain:
            _decompress(budget, archive, plain)
            plain.seek(0)
            # Of a plain file no header can take up more memory than the file is long.
            with tarfile.open(fileobj=plain, mode="r:") as tar:
                for member in tar:
                    if member.isfile() and (taken := tar.extractfile(member)) is not None:
                        _place(budget, member.name, taken, into)
    except (*_UNREADABLE, ValueError) as failure:
        raise BadInput(
            f"{archive}: cannot be unpacked ({type(failure).__name__}): give a transcript's folder, one .tap file, or "
            "a tar or zip archive"
        ) from failure


class _Budget:
    """Limits the bytes that are unpacked from an archive."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self._left = self._limit = _AT_LEAST + _TIMES * archive.stat().st_size

    def copy(self, source: IO[bytes], target: IO[bytes]) -> None:
        while block := source.read(_BLOCK):
            self._left -= len(block)
            if self._left < 0:
                raise BadInput(f"{self.archive}: unpacks to more than {self._limit} bytes, which no transcript does")
            target.write(block)


def _decompress(budget: _Budget, archive: Path, plain: IO[bytes]) -> None:
    """Copy an archive, decompressed if it is compressed."""
    for compression in _COMPRESSIONS:
        with compression(archive) as decompressed:
            try:
                decompressed.read(1)
            except _UNREADABLE:
                continue
            decompressed.seek(0)
            budget.copy(decompressed, plain)
            return
    with archive.open("rb") as file:
        budget.copy(file, plain)


def _place(budget: _Budget, name: str, content: IO[bytes], into: Path) -> None:
    place = PurePosixPath(name)
    if not (TAP.fullmatch(place.name) or own_rows.NAME.fullmatch(place.name)):
        return
    if place.is_absolute() or ".." in place.parts:
        raise BadInput(f"{budget.archive}: {name!r} leads out of the archive")
    target = into / place
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        budget.copy(content, file)


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
    # unnamed, a training is meant: predictions lie beside it in the same folder
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
