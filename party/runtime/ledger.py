"""The ledger of a party: what its data were charged for over all jobs, by table, partner, job, attempt and kind.

`state/ledger.jsonl` has a line a charge. A line is only ever added, and is on disk before what it charges for is sent,
so a crash between the two costs the charge and tells nothing. Its checksums find a line that was changed, moved or
taken out of the middle. `attempts.json` beside it says how many lines there were when an attempt last opened or was
left, so a ledger that is missing, cut or older than that is found; an older copy of both is not.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from treetap.errors import DataError
from treetap.models.durable import read_document
from treetap.models.line_file import LineFile

#: The ledger in a party's state folder.
LEDGER, SEED = "ledger.jsonl", "ledger"
#: The attempts at jobs beside it (`treetap.party.runtime.attempts`), the seed of their checksum, and ends not kept any
#: more.
ATTEMPTS, ATTEMPTS_SEED, FORGOTTEN = "attempts.json", "attempts", "forgotten"
#: Seconds for which a charge counts for a limit a day.
DAY_S = 86_400.0
#: Lines of a ledger: their number, and the checksum of the last one, which covers all before it.
Head: TypeAlias = tuple[int, str]


class Attempted(NamedTuple):
    """A submission of a job: its highest attempt, if it was left, the digest that it opened, its end, and whose it is.

    `digest`: in hexadecimal; empty: none was opened. `ended`: seconds since 1970; 0: it may go on. `discarded`: its
    files are, since the last attempt. `coordinator`: empty where that is not known.
    """

    number: int = 0
    left: bool = False
    digest: str = ""
    ended: float = 0.0
    discarded: bool = False
    coordinator: str = ""


class Kind(StrEnum):
    """Kinds of charges, and the meaning of an amount."""

    TRAINING = "training"  #: 1: an attempt
    PREDICTION = "prediction"  #: 1: an attempt
    PREVIEW = "preview"  #: 1
    ANSWER = "preview's answer"  #: 0: what a preview told this party is among the details
    RECORDS = "records"  #: records that all parties of a training or a prediction have
    LOOK_UPS = "look-ups"  #: ids that a label holder may look up, charged before it does
    NOISY_LABELS = "noisy labels"  #: ε of a draw
    CLEAN_LABELS = "measures by clean labels"  #: labels that they were computed from
    NOISED_SUMS = "noised sums"  #: ρ of an attempt
    NOISED_WEIGHTS = "noised leaf weights"  #: ε of a job of PIVODL
    FORGOTTEN = "forgotten ids"  #: ids that `treetap forget` was given, of no job; transcripts that went are details


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
        """The other parties and the coordinator, which a forgetting has not."""
        return (*self.parties, self.coordinator) if self.coordinator else self.parties


@dataclass(frozen=True)
class Charge:
    """A line of the ledger.

    Attributes:
        kind: see `Kind`.
        occasion: what it is for.
        amount: see `Kind`.
        details: further figures of the kind, as JSON types.
        seconds: when, since 1970.
    """

    kind: Kind
    occasion: Occasion
    amount: float = 1
    details: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = field(default_factory=lambda: time.time())  # noqa: PLW0108 - as it is when it is called

    @property
    def partners(self) -> tuple[str, ...]:
        """The partners of the occasion."""
        return self.occasion.partners

    @property
    def at(self) -> str:
        """The time in UTC."""
        return utc(self.seconds)

    @classmethod
    def of(cls, line: dict[str, Any]) -> Charge:
        """The charge of a stored line."""
        kind, details, amount, seconds = (line.pop(name) for name in ("kind", "details", "amount", "seconds"))
        occasion = Occasion(**{**line, "parties": tuple(line["parties"])})
        return cls(Kind(kind), occasion, amount, details, seconds)

    def plain(self) -> dict[str, Any]:
        """The line, as JSON types."""
        own = {"seconds": self.seconds, "kind": str(self.kind), "amount": self.amount}
        return {**own, **asdict(self.occasion), "details": dict(self.details)}


class Ledger:
    """The ledger of a state folder; see `ledger_of`."""

    def __init__(self, state: Path) -> None:
        self._state, self.path = state, state / LEDGER
        self._lines = LineFile(self.path, lambda: SEED)
        self._held: list[Charge] = []
        self._by_kind: defaultdict[str, list[Charge]] = defaultdict(list)

    def charges(self, *kinds: str) -> list[Charge]:
        """The charges of these kinds, or all, the first one first.

        Raises:
            DataError: the ledger is damaged or lacks lines.
        """
        with self._lines.held(self._read):
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
        with self._lines.held(self._read, to_write=True):  # jobs begin at once, and some of their steps in threads
            number = len(self._by_kind[charge.kind])
            check()
            self._lines.put(charge.plain(), len(self._held))
            self._held.append(charge)
            self._by_kind[charge.kind].append(charge)
            return number

    def head(self) -> Head:
        """The number of lines, and the checksum of the last one. Raises as `charges`."""
        with self._lines.held(self._read):
            return len(self._held), self._lines.digest(len(self._held))

    def previews(self) -> list[tuple[Charge, str]]:
        """All previews, the first one first, each with what it told this party; empty: nothing. Raises as `charges`."""
        told = {charge.details["of"]: charge.details["told"] for charge in self.charges(Kind.ANSWER)}
        return [(charge, told.get(number, "")) for number, charge in enumerate(self.charges(Kind.PREVIEW))]

    def _read(self) -> None:
        _, _, known = stored_attempts(self._state)  # first: the ledger may grow meanwhile, and is written before them
        try:
            self._held = [Charge.of(line) for line in self._lines.read()]
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{self.path}: is damaged; bring a back-up of the file back") from None
        if known is not None and (known[0] > len(self._held) or self._lines.digest(known[0]) != known[1]):
            raise DataError(
                f"{self.path}: lacks charges: {self._state / ATTEMPTS} knows of {known[0]} lines of it, and here are "
                f"{len(self._held)}, or others; bring the newest back-up of the ledger back; if it is lost, move "
                f"{ATTEMPTS} away, and what was charged does not count any more"
            )
        self._by_kind.clear()
        for charge in self._held:
            self._by_kind[charge.kind].append(charge)


@lru_cache(maxsize=64)
def ledger_of(state: Path) -> Ledger:
    """The ledger of a state folder: one for all jobs of a process, so that the file is read once."""
    return Ledger(state)


def stored_attempts(state: Path) -> tuple[dict[str, Attempted], dict[str, float], Head | None]:
    """The attempts at jobs that a state folder has, the last ends that were forgotten, and the ledger's head then.

    The ends are by coordinator, under an empty name for all of them. A head is None where there is no file.

    Raises:
        DataError: the file is damaged.
        OSError: it cannot be read.
    """
    path = state / ATTEMPTS
    try:
        held = read_document(path, ATTEMPTS_SEED) if path.is_file() else {}
        head = held.pop(LEDGER, None)
        forgotten = {str(of): float(end) for of, end in held.pop(FORGOTTEN, {}).items()}
        known = {key: Attempted._make(attempted) for key, attempted in held.items()}
        return known, forgotten, None if head is None else (int(head[0]), str(head[1]))
    except (AttributeError, DataError, IndexError, TypeError, ValueError):  # a back-up would be stale
        raise DataError(
            f"{path}: is damaged; remove it; late copies of requests, and what {LEDGER} had, are then not known"
        ) from None


def utc(seconds: float) -> str:
    """A time, in seconds since 1970, as text."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
