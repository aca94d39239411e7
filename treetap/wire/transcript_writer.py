"""Writing a transcript: numbered, chained and signed records, one folder a job.

The writer signs when a file is full and when it is closed. A file is on disk before the next one begins, so that a
power loss cannot take records of which a later file speaks. After a kill the next writer leaves the torn end as it is
and starts a new file, whose first record follows the last whole one.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

import zstandard
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from treetap.errors import BadInput, ConfigError, Interrupted, Refused, cannot
from treetap.models.durable import make_folder, sync_folder
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.signatures import head_of
from treetap.wire.tls import Transport
from treetap.wire.transcript import HEADER, ORIGIN, files_of, framed, frames, opened
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

log = logging.getLogger(__name__)
ROTATE_BYTES = 64 * 2**20
Kind: TypeAlias = TranscriptRecord.Kind.ValueType


class TranscriptWriter:
    """Appends records to a folder, from any thread. One writer a folder: a second one is refused with BadInput.

    A folder that holds a transcript is continued in a new file. Without a `signer` there are no heads. Raises Malformed
    if its last file is damaged by more than a torn end, and BadInput if the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        rotate_bytes: int = ROTATE_BYTES,
        clock: Callable[[], int] = time.time_ns,
        signer: Transport | None = None,
    ) -> None:
        self.folder, self._rotate_bytes, self._clock, self._signer = folder, rotate_bytes, clock, signer
        self._lock = threading.Lock()
        self._compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        self._unlock = weakref.finalize(self, os.close, _claim(folder))
        self._sequence, self._previous, self._number = 0, ORIGIN, 0
        self._job, self._signed = "", True  # of the last record; True where no record follows the last head
        self.job_digest = b""  #: of the job at which the party is at work, for the next head
        self._torn = False  # a part of a record is at the file's end
        try:
            self._continue(files_of(folder))
            self._file = self._next_file()
        except BaseException:
            self._unlock()
            raise

    def _continue(self, files: dict[int, Path]) -> None:
        """Find the last whole record, and bring the files down to it on disk: the next one refers to it."""
        self._number = max(files, default=0)
        for _, path in sorted(files.items(), reverse=True):
            with opened(path) as file:
                whole = [frame for frame in frames(path, file) if frame.whole]
                os.fsync(file.fileno())
                if whole:
                    record, self._previous = whole[-1].open()
                    self._sequence, self._job = record.sequence + 1, record.job
                    self._signed = record.kind == TranscriptRecord.HEAD
                    return

    def append(  # in order: peer, content, place in the job
        self, kind: Kind, peer: str, step: str, job: str, attempt: int, round: int, stage: int, message: Message
    ) -> None:
        """Log one message; it is with the operating system when this returns.

        Raises Refused for a type that holds secrets, BadInput for a message of more than 20 MiB, and Interrupted if the
        disk does not take the record.
        """
        if secret := _secret_type(cast(Descriptor, message.DESCRIPTOR)):
            raise Refused(f"{secret}: a type whose name contains secret is never logged")
        serialised = message.SerializeToString()
        record = TranscriptRecord(
            kind=kind,
            peer=peer,
            step=step,
            job=job,
            attempt=attempt,
            round=round,
            stage=stage,
            message_type=message.DESCRIPTOR.full_name,
            message=serialised,
            bytes_by_class=bytes_by_class_of(serialised, type(message)),
        )
        with self._lock:
            plain, frame = self._numbered(record)
            end = self._file.tell()
            if self._torn or (len(HEADER) < end and end + len(frame) > self._rotate_bytes):
                # Sign the full file, bring it to disk, and only then begin the next: after a power loss it lacks no
                # record.
                self._sign()
                with cannot("write the transcript", self._file.name, Interrupted):
                    os.fsync(self._file.fileno())
                full, self._file, self._torn = self._file, self._next_file(), False
                full.close()
                plain, frame = self._numbered(record)  # it follows the head now
            self._write(plain, frame)
            self._job, self._signed = job, False

    def close(self) -> None:
        """Sign, close the file and free the folder for another writer, whatever fails. Closing twice is harmless.

        Where the disk fails, the end stays unsigned, which is said in the log.
        """
        with self._lock:
            try:
                if not self._file.closed:
                    with self._file:
                        self._sign()
                        os.fsync(self._file.fileno())
            except (Interrupted, OSError) as failure:
                log.warning("%s: the end of the transcript is not signed: %s", self._file.name, failure)
            finally:
                self._unlock()

    def __enter__(self) -> TranscriptWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _numbered(self, record: TranscriptRecord) -> tuple[bytes, bytes]:
        """The record with its place in the chain, serialised, and as it is written."""
        record.sequence, record.previous, record.unix_nanos = self._sequence, self._previous, self._clock()
        plain = record.SerializeToString()
        return plain, framed(plain, self._compressor)

    def _sign(self) -> None:
        """Add a head if records follow the last one."""
        if self._signer is None or self._signed or self._torn:
            return
        record = TranscriptRecord(
            kind=TranscriptRecord.HEAD,
            step="head",
            job=self._job,
            sequence=self._sequence,
            previous=self._previous,
            unix_nanos=self._clock(),
        )
        try:
            head = head_of(self._signer, record, self.job_digest)
        except ConfigError as failure:  # as while a certificate is replaced: the next head signs these too
            log.warning("%s: the transcript is not signed up to here: %s", self._file.name, failure)
            return
        record.message_type, record.message = head.DESCRIPTOR.full_name, head.SerializeToString()
        record.bytes_by_class.update(bytes_by_class_of(record.message, type(head)))
        plain = record.SerializeToString()
        self._write(plain, framed(plain, self._compressor))
        self._signed = True

    def _write(self, plain: bytes, frame: bytes) -> None:
        """Write one record, in a single call where the system takes it whole, and extend the chain."""
        end = self._file.tell()
        try:
            _write_all(self._file, frame)
        except OSError as error:
            # cut off a part of a record: in the middle of a file it would read as damage, at the end as torn
            try:
                os.ftruncate(self._file.fileno(), end)
                self._file.seek(end)
            except OSError:
                self._torn = True  # the next record begins a new file
            raise Interrupted(f"{self._file.name}: cannot write the transcript: {error.strerror}") from error
        self._sequence, self._previous = self._sequence + 1, hashlib.sha256(plain).digest()

    def _next_file(self) -> BinaryIO:
        path = self.folder / f"{self._number + 1:06}.tap"
        made: BinaryIO | None = None
        try:
            made = open(  # noqa: SIM115  # open for as long as the writer
                path, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600)
            )
            _write_all(made, HEADER)
            os.fsync(made.fileno())
            sync_folder(self.folder)
        except OSError as error:
            if made is not None:  # a file without a begin would leave a gap in the numbers
                made.close()
                path.unlink(missing_ok=True)
            raise Interrupted(f"{path}: cannot write the transcript: {error.strerror}") from error
        self._number += 1
        return made


def _claim(folder: Path) -> int:
    """A descriptor that holds the folder for this writer until it is closed, at the latest when the process ends."""
    with cannot("hold a transcript", folder):
        make_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise BadInput(f"{folder}: another process writes this transcript; give each party its own folder") from None
    return descriptor


def _write_all(file: BinaryIO, *parts: bytes) -> None:
    for part in parts:
        rest = memoryview(part)
        while rest:  # an unbuffered file may take less than it is given
            rest = rest[file.write(rest) :]


@cache
def _secret_type(message_type: Descriptor) -> str:
    """Full name of the first type reachable from ``message_type`` whose name contains secret; empty if none."""
    pending = [message_type]
    seen = set(pending)
    while pending:
        descriptor = pending.pop()
        if "secret" in descriptor.name.lower():
            return descriptor.full_name
        inner = {field.message_type for field in descriptor.fields if field.message_type is not None} - seen
        seen |= inner
        pending += inner
    return ""
