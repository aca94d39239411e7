"""The attempts at jobs that this party has seen, on disk: messages may come late, also after a restart.

`state/attempts.json` has, for each submission of a job, the highest attempt that was opened or left, whether it was
left, and the digest of the job that the first one opened (`treetap.protocols.agreement`). The last `MOST` submissions
that were opened are kept, and as many that were only left, whose names a coordinator can make up.
"""

from __future__ import annotations

import json
from pathlib import Path

from treetap.errors import ConfigError, DataError, OutOfOrder
from treetap.models.checksums import with_checksum, without_checksum
from treetap.models.durable import write_whole
from treetap.models.store import read_json
from treetap.protocols.agreement import changed

SEED = "attempts"
#: Most submissions that are remembered.
MOST = 1024


class Attempts:
    """Store of the attempts that are over. Raises `DataError` if the file is damaged or cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            found = without_checksum(path, read_json(path), SEED) if path.is_file() else {}
            #: (job, submission) as one text → (highest attempt, left?, digest), the last one that changed at the end.
            self._known = {key: (int(number), bool(left), str(digest)) for key, (number, left, digest) in found.items()}
        except (DataError, ValueError, TypeError):  # a back-up would be stale
            raise DataError(f"{path}: is damaged; remove it; late copies of requests are then not known") from None
        except OSError as failure:
            raise DataError(f"{path}: cannot be read: {failure.strerror}; start this party again when it can") from None

    def check(self, job: str, submission: str, attempt: int, digest: str) -> None:
        """Raise for an attempt that must not begin. `digest`: of its job, in hexadecimal.

        Raises:
            OutOfOrder: it is over: this party has left it, or a later one has begun.
            ConfigError: it is at another job than the first attempt of this submission.
        """
        highest, left, first = self._of(job, submission)
        check_latest(job, attempt, highest)
        if attempt == highest and left:
            raise OutOfOrder(f"attempt {attempt} of job {job} is over: this party has left it")
        if first and first != digest:
            raise ConfigError(changed(job, first, digest))

    def opened(self, job: str, submission: str, attempt: int, digest: str) -> None:
        """Note that an attempt begins; `OSError` if the disk refuses it."""
        self._note(_key(job, submission), (attempt, False, digest))

    def later_begun(self, job: str, submission: str, attempt: int) -> bool:
        """True if a later attempt has begun."""
        return attempt < self._of(job, submission)[0]

    def left(self, job: str, submission: str, attempt: int) -> None:
        """Note that an attempt is over; `OSError` if the disk refuses it."""
        self._note(_key(job, submission), (attempt, True, self._of(job, submission)[2]))

    def _of(self, job: str, submission: str) -> tuple[int, bool, str]:
        return self._known.get(_key(job, submission), (0, False, ""))

    def _note(self, key: str, state: tuple[int, bool, str]) -> None:
        if self._known.get(key) == state:
            return
        known = {other: held for other, held in self._known.items() if other != key} | {key: state}
        alike = [other for other, held in known.items() if bool(held[2]) == bool(state[2])]
        if len(alike) > MOST:
            del known[alike[0]]
        write_whole(self._path, json.dumps(with_checksum(known, SEED)).encode())
        self._known = known


def check_latest(job: str, attempt: int, latest: int) -> None:
    """`OutOfOrder` if attempt `latest`, a later one, has begun."""
    if attempt < latest:
        raise OutOfOrder(f"attempt {attempt} of job {job} is over: attempt {latest} has begun")


def _key(job: str, submission: str) -> str:
    return f"{job}/{submission}"
