"""Small transcripts for the tests of the log."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import zstandard
from google.protobuf.wrappers_pb2 import StringValue

from treetap.wire.transcript import HEADER, ORIGIN, TranscriptReader, framed
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

RECEIVED, SENT, OWN = TranscriptRecord.RECEIVED, TranscriptRecord.SENT, TranscriptRecord.OWN


def log(folder: Path, *texts: str, rotate_bytes: int = 1_000_000) -> None:
    """Write one record per text."""
    with TranscriptWriter(folder, rotate_bytes) as writer:
        for text in texts:
            writer.append(RECEIVED, "peer", "step", "job", 1, 2, 3, StringValue(value=text))


def texts_of(path: Path) -> list[str]:
    """The texts of the records."""
    return [StringValue.FromString(record.message).value for record in TranscriptReader(path)]


def files_of(folder: Path) -> list[str]:
    """Names of the files of a log."""
    return sorted(path.name for path in folder.iterdir())


def record_ends(content: bytes) -> list[int]:
    """Where each record of a file ends."""
    ends, at = [], len(HEADER)
    while at < len(content):
        at += 4 + int.from_bytes(content[at : at + 4], "big")
        ends.append(at)
    return ends


def chained(folder: Path, records: Sequence[TranscriptRecord]) -> None:
    """Make the folder's log one file with these records, as they are but for a chain that is computed anew."""
    compressor, previous, content = zstandard.ZstdCompressor(write_checksum=True), ORIGIN, HEADER
    for number, record in enumerate(records):
        record.sequence, record.previous = number, previous
        content += framed(plain := record.SerializeToString(), compressor)
        previous = hashlib.sha256(plain).digest()
    for path in folder.glob("*.tap"):
        path.unlink()
    (folder / "000001.tap").write_bytes(content)
