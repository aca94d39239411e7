"""The decision log of a label holder that serves: what was answered to whom, and what was refused.

`state/decisions/DAY.jsonl` has the lines of a day (UTC): one for each record of an answer, and one for each refusal, on
disk before either leaves. A line has a number, one more than that of the line before it in this file or in the file
before; its checksum covers its bytes and the line before it in the file. So a line that was changed, moved, doubled or
taken out is found, and a day that is missing between two. Not found are lines that were cut off at the end of the
newest file, days that are missing at the beginning, as after the retention, and an older copy of the folder; and
whoever may write there can compute all checksums anew.

Who was asked about is known by HMAC-SHA-256 of the id, 16 bytes, under a key in `key.json`. It is drawn where there is
no line, and stays as long as there is one. Whoever has it tests a guess at the price of a hash; without it lines still
show which of them are about one person, and scores (docs/threats.md).

A clock that is set back leaves the lines in order: they go on in the newest file.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import threading
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

from treetap.errors import DataError, NotServed, cannot
from treetap.models.durable import (
    KEY,
    append,
    make_folder,
    parse_json,
    read_document,
    sync_folder,
    write_document,
    write_whole,
    writing_whole,
)
from treetap.models.line_file import Line, checked_bodies, checked_line, first
from treetap.party.runtime.context import Offload
from treetap.party.runtime.job_store import DECISIONS

log = logging.getLogger(__name__)
#: The file of the key, and the seed of its checksum.
KEY_FILE, KEY_SEED = "key.json", "key of decisions"
#: Bytes of the key, and of the hash of an id.
KEY_BYTES, HASH_BYTES = 32, 16
#: What a line has beside its number, time and checksum: of an answer one id; of a refusal those asked about, if its
#: client may ask and the model is here. `reasons`: PARTY:COLUMN, or PARTY:#NUMBER. `lacked_by`: feature parties that
#: lack the record, of several at least one; `spent_by`: that permits no further query of it; `away`: without which it
#: was scored.
EMPTY: Line = {
    "client": "",
    "status": "",
    "ids": [],
    "model": "",
    "model_digest": "",
    "job": "",
    "job_digest": "",
    "prediction": None,
    "scores": [],
    "reasons": [],
    "lacked_by": [],
    "spent_by": [],
    "away": [],
}
#: All keys of a line, in order; the last one of lines in which `treetap forget` has blanked ids and reasons.
COLUMNS = ("n", "at", *EMPTY, "forgotten")


@dataclass
class _Batch:
    """Lines that one sync brings to the disk; `fault`: why they are not there, empty once they are."""

    lines: list[Line] = field(default_factory=list)
    fault: str = "the disk has not answered"


class DecisionLog:
    """The log of one party, which alone writes it."""

    def __init__(self, party: str, state: Path, days: int, offload: Offload) -> None:
        """Go on where the last process ended. `days`: those for which a line is kept.

        Raises:
            DataError: the newest file is damaged, or the key is missing.
            BadInput: the folder cannot be used.
        """
        self._party, self._folder, self._days, self._offload = party, state / DECISIONS, days, offload
        self._day, self._number, self._digest, self._end = "", 1, "", 0  # of the newest file, and of the next line
        self._sure, self._failing = True, False  # the newest file ends with a line; the last batch was not written
        self._batch = _Batch()
        self._one, self._lock = asyncio.Lock(), threading.Lock()
        with cannot("keep decisions", self._folder):
            make_folder(self._folder)
            self._expire(_now().date())
            files = days_of(self._folder)
            if not files and not (self._folder / KEY_FILE).exists():
                write_document(self._folder / KEY_FILE, {"key": secrets.token_bytes(KEY_BYTES).hex()}, KEY_SEED)
            self._key = key_of(self._folder)
            if files:
                # Take up the newest file, and cut off a last line that a crash tore.
                self._day, self._digest, last = files[-1].stem, first(_seed(files[-1])), b'{"n":0}'
                with files[-1].open("r+b") as file:
                    for body, self._digest in checked_bodies(files[-1], file, _seed(files[-1])):
                        last, self._end = body, file.tell()
                    self._number = parse_json(last)["n"] + 1
                    if torn := file.seek(0, os.SEEK_END) - self._end:
                        file.truncate(self._end)
                        os.fsync(file.fileno())
                        log.warning(
                            "%s: this party ended, or lost its power, while it wrote: the last %d bytes are no whole "
                            "line and are cut off; what they were about was not answered",
                            *(files[-1], torn),
                        )

    def hashed(self, record: str) -> str:
        """The hash of an id."""
        return hashed(self._key, record)

    async def write(self, lines: Sequence[Line]) -> None:
        """Add lines, with keys of `EMPTY`; they are on disk when this returns. Those that come at once share one sync.

        Raises:
            NotServed: the disk does not take them.
            Interrupted: it does not answer.
        """
        batch = self._batch
        batch.lines += lines
        await asyncio.sleep(0)  # the other requests that the round has answered come first
        async with self._one:
            if batch is self._batch:  # else one of the others has written it
                self._batch = _Batch()
                await self._offload(partial(self._write, batch), whole=True)
        if batch.fault:
            raise NotServed(
                f"{self._party} answers nobody, as its decision log cannot be written ({batch.fault}); ask again later"
            )

    def _write(self, batch: _Batch) -> None:
        with self._lock:
            try:
                self._append(batch.lines)
                batch.fault = ""
            except OSError as failure:
                batch.fault = failure.strerror or str(failure)
                if not self._failing:
                    log.error(
                        "%s: cannot be written: %s; no client is answered until it can", self._folder, batch.fault
                    )
            self._failing = bool(batch.fault)

    def _append(self, lines: Sequence[Line]) -> None:
        """Write lines into the file of today, or the newest one; it stands as before where the disk refuses them."""
        now = _now()
        day, digest, end = max(now.date().isoformat(), self._day), self._digest, self._end
        path, content = self._folder / f"{day}.jsonl", b""
        if begins := day > self._day:
            digest, end = first(_seed(path)), 0
            self._expire(now.date())
        for number, line in enumerate(lines, start=self._number):
            raw, digest = checked_line({"n": number, "at": now.isoformat(), **EMPTY, **line}, digest)
            content += raw
        if begins:
            write_whole(path, content)
        else:
            if not self._sure:
                with path.open("r+b") as file:
                    file.truncate(end)
            self._sure = False
            append(path, content)
        self._sure = True
        self._day, self._digest, self._end = day, digest, end + len(content)
        self._number += len(lines)

    def _expire(self, today: date) -> None:
        """Delete the files that are older than the retention."""
        first_kept = (today - timedelta(self._days)).isoformat()
        old = [path for path in days_of(self._folder) if path.stem < first_kept]
        for path in old:
            path.unlink()
        if old:
            sync_folder(self._folder)


def days_of(folder: Path) -> list[Path]:
    """The files of a folder of decisions, in order."""
    return sorted(folder.glob("????-??-??.jsonl"))


def decisions_of(state: Path, day: str = "") -> Iterator[Line]:
    """The lines of a state folder in order, each with its checksum; those of one day alone if it is given.

    Raises:
        DataError: a line is not what was written, or some are missing.
    """
    due: int | None = None
    for path in days_of(state / DECISIONS):
        if day not in ("", path.stem):
            continue
        with path.open("rb") as file:
            for body, digest in checked_bodies(path, file, _seed(path)):
                line = parse_json(body)
                if due not in (None, line["n"]):
                    raise DataError(
                        f"{path}: begins with line {line['n']}, and {due} is due: bring a back-up of the "
                        "files between back"
                    )
                due = line["n"] + 1
                yield line | {KEY: digest}


def forget(path: Path, ids: Collection[str], *, dry: bool) -> int:
    """Blank the hashes of these records in a file, and the reasons beside them; returns how many lines had one.

    The lines keep their numbers, and get a mark and new checksums. With `dry` nothing is written.

    Raises:
        DataError: the file is damaged, or the key is missing.
    """
    key = key_of(path.parent)
    gone = {hashed(key, record) for record in ids}
    had = sum(marked for _, marked in _forgotten(path, gone))
    if had and not dry:
        with writing_whole(path) as file:
            file.writelines(raw for raw, _ in _forgotten(path, gone))
    return had


def _forgotten(path: Path, gone: Set[str]) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file as they are without these hashes, and whether a line had one."""
    before = first(_seed(path))
    with path.open("rb") as file:
        for body, _ in checked_bodies(path, file, _seed(path)):
            line = parse_json(body)
            if marked := not gone.isdisjoint(line["ids"]):
                line["ids"] = ["" if value in gone else value for value in line["ids"]]
                line |= {"reasons": [], "forgotten": True}
            raw, before = checked_line(line, before)
            yield raw, marked


def key_of(folder: Path) -> bytes:
    """The key of the hashes in a folder of decisions. Raises `DataError` if it is missing or damaged."""
    path = folder / KEY_FILE
    if not path.exists():
        raise DataError(
            f"{path}: there is no such file, and no line is found by its id without this key: bring a back-up of it "
            "back, or move the whole folder away"
        )
    return bytes.fromhex(read_document(path, KEY_SEED)["key"])


def hashed(key: bytes, record: str) -> str:
    """The hash of an id, hexadecimal."""
    return hmac.digest(key, record.encode(errors="surrogatepass"), "sha256")[:HASH_BYTES].hex()


def _seed(path: Path) -> str:
    """The seed of a file's checksums."""
    return f"decisions of {path.stem}"


def _now() -> datetime:
    return datetime.now(UTC)
