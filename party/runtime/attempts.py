"""The attempts at jobs that this party has seen, on disk: messages may come late, also after a restart.

`state/attempts.json` has, for each submission of a job, the highest attempt that was opened or left, and whether it was
left. The last `MOST` submissions are kept.
"""

from __future__ import annotations

import json
from pathlib import Path

from treetap.errors import DataError, OutOfOrder
from treetap.models.checksums import with_checksum, without_checksum
from treetap.models.durable import write_whole
from treetap.models.store import read_json

SEED = "attempts"
#: Most submissions that are remembered.
MOST = 1024


class Attempts:
    """Store of the attempts that are over. Raises `DataError` if the file is damaged or cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            found = without_checksum(path, read_json(path), SEED) if path.is_file() else {}
        except DataError:  # a back-up would be stale
            raise DataError(f"{path}: is damaged; remove it; late copies of requests are then not known") from None
        except OSError as failure:
            raise DataError(f"{path}: cannot be read: {failure.strerror}; start this party again when it can") from None
        #: (job, submission) as one text → (highest attempt, left?), the last one that changed at the end.
        self._known = {key: (int(attempt), bool(left)) for key, (attempt, left) in found.items()}

    def check(self, job: str, submission: str, attempt: int) -> None:
        """`OutOfOrder` if the attempt is over: this party has left it, or a later one has begun."""
        highest, left = self._known.get(_key(job, submission), (0, False))
        check_latest(job, attempt, highest)
        if attempt == highest and left:
            raise OutOfOrder(f"attempt {attempt} of job {job} is over: this party has left it")

    def opened(self, job: str, submission: str, attempt: int) -> None:
        """Note that an attempt begins; `OSError` if the disk refuses it."""
        self._note(_key(job, submission), (attempt, False))

    def later_begun(self, job: str, submission: str, attempt: int) -> bool:
        """True if a later attempt has begun."""
        return attempt < self._known.get(_key(job, submission), (0, False))[0]

    def left(self, job: str, submission: str, attempt: int) -> None:
        """Note that an attempt is over; `OSError` if the disk refuses it."""
        self._note(_key(job, submission), (attempt, True))

    def _note(self, key: str, state: tuple[int, bool]) -> None:
        if self._known.get(key) == state:
            return
        known = {other: held for other, held in self._known.items() if other != key} | {key: state}
        known = dict(list(known.items())[-MOST:])
        write_whole(self._path, json.dumps(with_checksum(known, SEED)).encode())
        self._known = known


def check_latest(job: str, attempt: int, latest: int) -> None:
    """`OutOfOrder` if attempt `latest`, a later one, has begun."""
    if attempt < latest:
        raise OutOfOrder(f"attempt {attempt} of job {job} is over: attempt {latest} has begun")


def _key(job: str, submission: str) -> str:
    return f"{job}/{submission}"
