"""A transcript found in a folder, a state or an archive, and the part of it that is kept in memory, within a budget.

Of an archive no more is unpacked than a transcript can hold. Kept are numbered series of messages; of a split network
embeddings or their gradients, by epoch and batch.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np

from treetap.arrays import Ints
from treetap.errors import BadInput, Malformed
from treetap.usage import half_of_memory
from treetap.wire import own_rows
from treetap.wire.frame import content_of, name_of
from treetap.wire.transcript import TAP, TranscriptReader
from treetap.wire.v2 import exchange_pb2, splitnn_pb2

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
    limit = left = _AT_LEAST + _TIMES * archive.stat().st_size

    def copy(source: IO[bytes], target: IO[bytes]) -> None:
        nonlocal left
        while block := source.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise BadInput(f"{archive}: unpacks to more than {limit} bytes, which no transcript does")
            target.write(block)

    def place(name: str, content: IO[bytes]) -> None:
        path = PurePosixPath(name)
        if not (TAP.fullmatch(path.name) or own_rows.NAME.fullmatch(path.name)):
            return
        if path.is_absolute() or ".." in path.parts:
            raise BadInput(f"{archive}: {name!r} leads out of the archive")
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            copy(content, file)

    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for entry in zipped.infolist():
                    if not entry.is_dir():
                        with zipped.open(entry) as content:
                            place(entry.filename, content)
            return
        with tempfile.TemporaryFile() as plain:
            with _decompressed(archive) as content:
                copy(content, plain)
            plain.seek(0)
            # Of a plain file no header can take up more memory than the file is long.
            with tarfile.open(fileobj=plain, mode="r:") as tar:
                for member in tar:
                    if member.isfile() and (taken := tar.extractfile(member)) is not None:
                        place(member.name, taken)
    except (*_UNREADABLE, ValueError) as failure:
        raise BadInput(
            f"{archive}: cannot be unpacked ({type(failure).__name__}): give a transcript's folder, one .tap file, or "
            "a tar or zip archive"
        ) from failure


def _decompressed(archive: Path) -> IO[bytes]:
    """The content of an archive, decompressed if it is compressed."""
    for compression in _COMPRESSIONS:
        with compression(archive) as content:
            try:
                content.read(1)
            except _UNREADABLE:
                continue
        return compression(archive)  # type: ignore[no-any-return]
    return archive.open("rb")


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


_SETS = 16  # sets of all records that must fit


class MemoryBudget:
    """Counts the bytes that are kept of a transcript. `limit`: in bytes, by default half of this machine's memory."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = self._left = half_of_memory() if limit is None else limit

    def take(self, size: int) -> None:
        """Count `size` bytes that are kept, below 0 that are released. Raises BadInput above the limit."""
        self._left -= size
        if self._left < 0:
            raise BadInput(f"its records take up more than {self._limit >> 20} MiB, half of this machine's memory")

    def rows(self, total: int) -> Ints:
        """The positions of all records, (total,). Raises BadInput for more than this machine could read a tree of."""
        if 8 * _SETS * total > self._limit:
            raise BadInput(f"its sets are of {total} records, too many for this machine's memory")
        return np.arange(total, dtype=np.int64)


T = TypeVar("T")


@dataclass
class Series(Generic[T]):
    """The parts of one series; a part whose content is not kept is None. `last`: number of the last one, once known."""

    parts: dict[int, T | None] = field(default_factory=dict)
    last: int | None = None

    def add(self, message: exchange_pb2.PeerMessage, content: T | None) -> bool:
        """Take a part; returns True if there is more to keep. Raises Malformed if it came with another content."""
        known = message.part in self.parts
        before = self.parts.setdefault(message.part, content)
        if None not in (before, content) and before != content:
            raise Malformed(f"{name_of(message)}: part {message.part} came twice with different content")
        if message.last:
            self.last = message.part
        return content is not None and not known

    @property
    def whole(self) -> bool:
        """True if no part is missing."""
        return self.last is not None and len(self.parts) == self.last + 1 == max(self.parts) + 1

    def in_order(self) -> list[T]:
        """The contents that are kept, by their numbers."""
        return [content for _, content in sorted(self.parts.items()) if content is not None]


# The messages of a split network that a party received, embeddings or their gradients, by epoch and batch.


#: The messages with the numbers of a batch: at a label holder, and at a feature party.
EMBEDDINGS, GRADIENTS = "embeddings", "embedding_gradients"
Numbers = splitnn_pb2.Embeddings | splitnn_pb2.EmbeddingGradients


@dataclass
class NetworkMessages:
    """Numbers that a party received.

    Attributes:
        kind: the name of their messages.
        epochs: those whose numbers are kept; None: all, or with `newest` those from the last stored one on.
        newest: as soon as an epoch is stored, the numbers of those before it are dropped: the party had all of its own.
        of_blocks: they are of a prediction: an attempt, which has records of its own, counts as an epoch, and a block
            of its records as a batch.
        senders: their senders.
    """

    kind: str = GRADIENTS
    epochs: Collection[int] | None = None
    newest: bool = False
    of_blocks: bool = False
    senders: set[str] = field(default_factory=set)
    _batches: defaultdict[tuple[str, int, int], dict[int, Series[Numbers]]] = field(  # sender, epoch, batch → attempt
        default_factory=lambda: defaultdict(dict)
    )

    def take(self, peer: str, message: exchange_pb2.PeerMessage, budget: MemoryBudget) -> None:
        """Take a received message; one that came before is the same message.

        Raises:
            Malformed: it is another one.
            BadInput: the numbers are more than the budget.
        """
        self.senders.add(peer)
        content = cast(Numbers, content_of(message, self.kind))
        epoch, batch, attempt = message.round, message.stage, message.attempt
        if self.of_blocks:
            epoch, batch, attempt = message.attempt, message.round, message.stage
        series = self._batches[peer, epoch, batch].setdefault(attempt, Series())
        try:
            if series.add(message, content if self.epochs is None or epoch in self.epochs else None):
                budget.take(content.ByteSize())
        except Malformed as fault:
            raise Malformed(f"{peer}, round {message.round}, stage {message.stage}: {fault}") from None

    def stored(self, epoch: int, budget: MemoryBudget) -> None:
        """Note that the party was asked to store an epoch, of which it has received all."""
        if self.newest:
            self.drop({earlier for _, earlier, _ in self._batches if earlier < epoch}, budget)

    def drop(self, epochs: Iterable[int], budget: MemoryBudget) -> None:
        """Drop the numbers of these epochs; which batches there were is still known."""
        dropped = frozenset(epochs)
        for (_, epoch, _), attempts in self._batches.items():
            for series in attempts.values() if epoch in dropped else ():
                budget.take(-sum(content.ByteSize() for content in series.in_order()))
                series.parts = dict.fromkeys(series.parts)

    def places(self, sender: str) -> dict[int, list[int]]:
        """Epoch → the batches whose numbers a sender has sent whole, ascending."""
        batches: defaultdict[int, list[int]] = defaultdict(list)
        for peer, epoch, batch in sorted(self._batches):
            if peer == sender and any(series.whole for series in self._batches[peer, epoch, batch].values()):
                batches[epoch].append(batch)
        return dict(batches)

    def held(self, sender: str) -> list[int]:
        """The epochs of a sender with numbers that are kept, ascending."""
        return sorted(
            {
                epoch
                for (peer, epoch, _), attempts in self._batches.items()
                if peer == sender and any(series.in_order() for series in attempts.values())
            }
        )

    def parts(self, sender: str, epoch: int, batch: int) -> list[Numbers]:
        """The parts of a batch in order, of the last attempt that has all of them; none where no attempt has."""
        for _, series in sorted(self._batches.get((sender, epoch, batch), {}).items(), reverse=True):
            if series.whole:
                return series.in_order()
        return []
