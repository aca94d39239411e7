"""The account of previews in a party's state folder: those of the last day, by partner, and what each of them told.

An exact count of common records answers a question about a single id where the same parties ask twice, with one id more
in a list. So previews with a partner are limited, by the policy's `previews_per_day`. A preview is charged, on disk,
before any identifier leaves; one that fails later stays charged, because its partner may have had the answer.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from treetap.errors import Refused
from treetap.models.line_file import LineFile

log = logging.getLogger(__name__)
#: The account in a party's state folder.
PREVIEWS, SEED = "previews.jsonl", "previews"
#: Seconds for which a preview counts.
DAY_S = 86_400.0

#: Held while a line is numbered and written: two previews may run at once.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Charge:
    """A preview that this party takes part in.

    Attributes:
        seconds: when, since 1970, and `at`: the same in UTC.
        job: its name, and `coordinator`: whose it is.
        answer: count or records.
        table: the own one.
        partners: the other parties.
    """

    seconds: float
    at: str
    job: str
    coordinator: str
    answer: str
    table: str
    partners: list[str]

    @classmethod
    def now(cls, job: str, coordinator: str, answer: str, table: str, partners: list[str]) -> Charge:
        """The charge of a preview that begins."""
        seconds = time.time()
        return cls(seconds, _utc(seconds), job, coordinator, answer, table, partners)


class PreviewAccount:
    """The account of a state folder."""

    def __init__(self, state: Path) -> None:
        self.path = state / PREVIEWS
        self._lines = LineFile(self.path, lambda: SEED)

    def charges(self) -> list[tuple[Charge, str]]:
        """All previews, the first one first, each with what it told this party; empty: nothing.

        Raises:
            DataError: the file is damaged.
        """
        charges: list[Charge] = []
        told: dict[int, str] = {}
        for line in self._lines.read():
            if "told" in line:
                told[line["of"]] = line["told"]
            else:
                charges.append(Charge(**line))
        return [(charge, told.get(number, "")) for number, charge in enumerate(charges)]

    def charge(self, party: str, most: int, charge: Charge) -> int:
        """Enter a preview, durably; returns its number. `most`: previews a day with one partner.

        Raises:
            Refused: there were as many with a partner in the last 24 hours; the party's own log says with which.
            OSError: the disk refuses it.
        """
        with _one_at_a_time:
            before = [earlier for earlier, _ in self.charges()]
            for partner in charge.partners:
                since = charge.seconds - DAY_S  # one of the future, by a clock that was set back, counts too
                times = sorted(one.seconds for one in before if partner in one.partners and one.seconds > since)
                if len(times) >= most:
                    log.warning(
                        "job %s: refused: the policy says previews_per_day = %d, and in 24 hours there were as many "
                        "with %s; the next may come after %s, or with a greater number in the policy file",
                        *(charge.job, most, partner, _utc(times[-most] + DAY_S)),
                    )
                    # no more than this is said: other coordinators may have asked for them
                    spent = "the previews_per_day of its policy are used up; its log says until when"
                    raise Refused(f"{party} takes no part: {spent}")
            self._lines.put(asdict(charge), self._lines.count())
            return len(before)

    def told(self, number: int, what: str) -> None:
        """Enter what a preview told this party, durably. Raises `OSError` if it cannot be written."""
        with _one_at_a_time:
            self._lines.put({"of": number, "told": what}, self._lines.count())


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
