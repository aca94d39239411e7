"""Sums over a transcript: messages and bytes by kind, peer, step and disclosure class."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from treetap.errors import Malformed
from treetap.wire.transcript import TranscriptReader, counted
from treetap.wire.v2.transcript_pb2 import TranscriptRecord


def summarise(path: Path, ca: Path | None = None, revoked: Path | None = None) -> dict[str, Any]:
    """A transcript's summary, ready for JSON: ``records``, ``first_unix_nanos`` and ``last_unix_nanos`` (None
    if empty), ``torn``, ``signed`` (see :class:`Anchor`), and ``rows``: ``kind`` (received, sent, own), ``peer``,
    ``step``, ``class``, the number of ``messages`` that carried the class and the ``bytes`` of it.

    Raises BadInput and Malformed as :class:`TranscriptReader` does, and for messages that are not what a record says.
    """
    reader = TranscriptReader(path, ca, revoked)
    counts: defaultdict[tuple[str, str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    records, first, last = 0, None, None
    for record in reader:
        records, last = records + 1, record.unix_nanos
        first = last if first is None else first
        try:
            classes = counted(record)
        except Malformed as fault:
            raise Malformed(f"{path}: {fault}") from None
        for disclosure, size in classes.items():
            count = counts[TranscriptRecord.Kind.Name(record.kind).lower(), record.peer, record.step, disclosure]
            count[0] += 1
            count[1] += size
    names = ("kind", "peer", "step", "class", "messages", "bytes")
    rows = [dict(zip(names, (*key, *count), strict=True)) for key, count in sorted(counts.items())]
    return {
        "records": records,
        "first_unix_nanos": first,
        "last_unix_nanos": last,
        "torn": reader.torn,
        "signed": reader.anchor.plain(),
        "rows": rows,
    }
