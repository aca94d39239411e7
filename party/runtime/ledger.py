"""The ledger of a party: what its data were charged for over all jobs, by table, partner, job, attempt and kind.

`state/ledger.jsonl` has a line a charge. A line is only ever added, and is on disk before what it charges for is sent,
so a crash between the two costs the charge and tells nothing. Its checksums find a line that was changed, moved or
taken out of the middle; the party's trail finds an older copy of the whole file.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from treetap.errors import DataError, Interrupted
from treetap.models.durable import make_folder, stamp_of
from treetap.models.line_file import LineFile
from treetap.models.sealed import Seal
from treetap.removed import CHARGED

#: The ledger in a party's state folder.
LEDGER, SEED = "ledger.jsonl", "ledger"
#: Ledgers of earlier versions.
EARLIER = ("label_budget.jsonl", "label_releases.jsonl", "column_budget.jsonl", "previews.jsonl")
#: Seconds for which a charge counts for a limit a day.
DAY_S = 86_400.0
#: Tries to hold it against other processes, which take the time of one write, and seconds between two.
TRIES, TRY_S = 100, 0.05
#: Held from a look into a ledger until a charge is on disk: jobs begin at once, and some of their steps in threads.
_one_at_a_time = threading.RLock()


class Kind(StrEnum):
    """Kinds of charges, and the meaning of an amount."""

    TRAINING = "training"  #: 1: an attempt
    PREDICTION = "prediction"  #: 1: an attempt
    PREVIEW = "preview"  #: 1
    ANSWER = "preview's answer"  #: 0: what a preview told this party is among the details
    RECORDS = "records"  #: records that all parties of a training or a prediction have
    NOISY_LABELS = "noisy labels"  #: ε of a draw
    CLEAN_LABELS = "measures by clean labels"  #: labels that they were computed from
    NOISED_SUMS = "noised sums"  #: ρ of an attempt
    NOISED_WEIGHTS = "noised leaf weights"  #: ε of a job of PIVODL


@dataclass(frozen=True)
class Occasion:
    """The occasion of a charge.

    Attributes:
        table: its name in the party's configuration.
        parties: the other parties of the job; with `coordinator` the partners.
        job, attempt: the job's name, and the number of the attempt.
    """

    table: str
    parties: tuple[str, ...]
    coordinator: str
    job: str
    attempt: int

    @property
    def partners(self) -> tuple[str, ...]:
        """The other parties and the coordinator, which some charges of earlier versions have not."""
        return (*self.parties, self.coordinator) if self.coordinator else self.parties


def _seconds() -> float:
    return time.time()


@dataclass(frozen=True)
class Charge:
    """A line of the ledger.

    Attributes:
        kind: see `Kind`; or one that earlier versions charged.
        occasion: what it is for.
        amount: see `Kind`.
        details: further figures of the kind, as JSON types.
        seconds: when, since 1970.
    """

    kind: str
    occasion: Occasion
    amount: float = 1
    details: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = field(default_factory=_seconds)

    @property
    def partners(self) -> tuple[str, ...]:
        """The partners of the occasion; of some charges of earlier versions the label holder alone."""
        told = self.details.get("label_holder")
        return self.occasion.partners if told is None else (told,)

    @property
    def at(self) -> str:
        """The time in UTC."""
        return utc(self.seconds)

    @classmethod
    def of(cls, line: dict[str, Any]) -> Charge:
        """The charge of a stored line."""
        kind, details, amount, seconds = (line.pop(name) for name in ("kind", "details", "amount", "seconds"))
        occasion = Occasion(**{**line, "parties": tuple(line["parties"])})
        return cls(kind if kind in CHARGED else Kind(kind), occasion, amount, details, seconds)

    def plain(self) -> dict[str, Any]:
        """The line, as JSON types."""
        own = {"seconds": self.seconds, "kind": str(self.kind), "amount": self.amount}
        return {**own, **asdict(self.occasion), "details": dict(self.details)}


class Ledger:
    """The ledger of a state folder; see `ledger_of`."""

    def __init__(self, state: Path, seal: Seal | None = None) -> None:
        self._state, self.path, self.seal = state, state / LEDGER, seal
        self._lines = LineFile(self.path, lambda: SEED, seal)
        self._held: list[Charge] = []
        self._by_kind: defaultdict[str, list[Charge]] = defaultdict(list)
        self._stamp: tuple[int, ...] | None = None  # of the file that was read; None: it was not read yet

    def charges(self, *kinds: str) -> list[Charge]:
        """The charges of these kinds, or all, the first one first.

        Raises:
            DataError: the ledger is damaged, or the state folder has one of an earlier version.
        """
        with _one_at_a_time:
            if self._stamp != stamp_of(self.path):
                self._read()
            if len(kinds) == 1:  # without a look at the others: a job asks often
                return list(self._by_kind[kinds[0]])
            return [charge for charge in self._held if not kinds or charge.kind in kinds]

    def enter(self, charge: Charge, check: Callable[[], None] = lambda: None) -> int:
        """Enter a charge, durably; returns the number of earlier ones of its kind.

        `check`: raises if there is no room for it; no other charge comes between.

        Raises:
            DataError: as `charges`.
            Interrupted: another process, such as a command beside the party, writes all the time.
            OSError: the disk refuses it.
        """
        with _one_at_a_time, _held(self._state):
            number = len(self.charges(charge.kind))
            check()
            self._stamp = None  # where the writing fails, the file is read again
            self._lines.put(charge.plain(), len(self._held))
            self._held.append(charge)
            self._by_kind[charge.kind].append(charge)
            self._stamp = stamp_of(self.path)
            return number

    def head(self, lines: int | None = None) -> tuple[int, str]:
        """The number of lines, and the checksum of the last one; of the first `lines`, or of all if there are fewer.

        Raises as `charges`.
        """
        with _one_at_a_time:
            stored = len(self.charges())
            lines = stored if lines is None else min(lines, stored)
            return lines, self._lines.digest(lines)

    def previews(self) -> list[tuple[Charge, str]]:
        """All previews, the first one first, each with what it told this party; empty: nothing. Raises as `charges`."""
        told = {charge.details["of"]: charge.details["told"] for charge in self.charges(Kind.ANSWER)}
        return [(charge, told.get(number, "")) for number, charge in enumerate(self.charges(Kind.PREVIEW))]

    def _read(self) -> None:
        for name in EARLIER:
            if (self._state / name).exists():
                raise DataError(
                    f"{self._state / name}: is a ledger of an earlier version, whose charges {LEDGER} does not have; "
                    "go on with that version, or move the file away, and its charges do not count any more"
                )
        stamp = stamp_of(self.path)
        try:
            self._held = [Charge.of(line) for line in self._lines.read()]
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{self.path}: is damaged; bring a back-up of the file back") from None
        self._by_kind.clear()
        for charge in self._held:
            self._by_kind[charge.kind].append(charge)
        self._stamp = stamp


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a ledger against other processes: commands enter charges while the party serves."""
    make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(TRY_S)
        else:
            raise Interrupted(f"{folder / LEDGER}: another process has held it for {TRIES * TRY_S:g} s; end that one")
        yield
    finally:
        os.close(descriptor)


@lru_cache(maxsize=64)
def ledger_of(state: Path, seal: Seal | None = None) -> Ledger:
    """The ledger of a state folder: one for all jobs of a process, so that the file is read once.

    `seal`: of the folder, if it has a state key.
    """
    return Ledger(state, seal)


def utc(seconds: float) -> str:
    """A time, in seconds since 1970, as text."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
