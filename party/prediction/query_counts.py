"""Counts of predictions by record and partner: `queries_per_record` of a party's policy.

`state/queries/PARTNER.jsonl` begins with a random key. A record is known by a hash of its id under that key, 8 bytes:
without the key an id cannot be looked up. A line has the hashes of one block of records, and is on disk before the
block is answered. Counts go on over predictions, models and jobs. Memory and file have a number for each record that
was asked for, which are at most those of the party's own tables: lines are merged from time to time.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from treetap.arrays import Bools, Ints
from treetap.errors import DataError, Refused
from treetap.models.keyed_ids import KEY_BYTES, Hashes, hashes
from treetap.models.line_file import LineFile
from treetap.party.runtime.context import Rows, StepContext
from treetap.party.runtime.job_store import QUERIES
from treetap.tables.record_ids import Ids

#: Lines of a file that are merged into one.
MOST_LINES = 1024
Counts = Ints


class QueryCounts:
    """The counts of one partner; see `counts_of`."""

    def __init__(self, state: Path, partner: str) -> None:
        self.path, self._partner = state / QUERIES / f"{partner}.jsonl", partner
        self._lines = LineFile(self.path, lambda: f"queries of {partner}")
        self._key = b""
        self._hashes: Hashes = np.zeros(0, dtype=np.uint64)  # (R,) ascending
        self._counts: Counts = np.zeros(0, dtype=np.int64)  # (R,)

    def most(self) -> int:
        """The queries of the record that was asked for most often. Raises `DataError` if the file is damaged."""
        with self._lines.held(self._read):
            return int(self._counts.max(initial=0))

    def enter(self, party: str, ids: Ids, most: int) -> None:
        """Count a query of each of these records, durably.

        Raises:
            Refused: one of them has been asked for `most` times; none is counted.
            DataError: the file is damaged.
            OSError: it cannot be written.
        """
        with self._lines.held(self._read, to_write=True):
            key, asked = self._hashed(ids)
            if over := int((self._of(asked) >= most).sum()):
                raise Refused(
                    f"{party} answers {self._partner} no more about {over} of the records that are asked for: its "
                    f"policy says queries_per_record = {most} under [partners.{self._partner}]; predict other records, "
                    f"or change it in {party}'s policy file and send {party} SIGHUP"
                )
            self._enter(key, asked)

    def enter_permitted(self, ids: Ids, most: int) -> Bools:
        """Count a query of those of these records that were asked for fewer than `most` times; returns the others (n,).

        A record that is named several times is asked for as often.

        Raises DataError and OSError as `enter` does.
        """
        with self._lines.held(self._read, to_write=True):
            key, asked = self._hashed(ids)
            order, before = np.argsort(asked, kind="stable"), np.empty(len(asked), dtype=np.int64)
            # times that each was named before in these
            before[order] = np.arange(len(asked)) - np.searchsorted(asked[order], asked[order])
            spent: Bools = self._of(asked) + before >= most
            if not spent.all():
                self._enter(key, asked[~spent])
            return spent

    def _hashed(self, ids: Ids) -> tuple[bytes, Hashes]:
        """The key, drawn if there is no file yet, and the records' hashes (n,) under it."""
        key = self._key or secrets.token_bytes(KEY_BYTES)
        return key, hashes(ids, key)

    def _enter(self, key: bytes, asked: Hashes) -> None:
        """Count a query of each of these records, durably."""
        number = self._lines.count()
        if 0 < number < MOST_LINES:
            self._lines.put({"queries": _text(asked)}, number)
            self._add(asked)
        else:
            self._key = key
            self._add(asked)
            self._merge()

    def forget(self, ids: Iterable[str], *, only_count: bool) -> int:
        """Drop the counts of these records, durably; returns how many of these it had. Raises as `enter` does."""
        with self._lines.held(self._read, to_write=not only_count):
            kept = ~np.isin(self._hashes, hashes(ids, self._key)) if self._key else np.zeros(0, dtype=np.bool_)
            if not (only_count or kept.all()):
                self._hashes, self._counts = self._hashes[kept], self._counts[kept]
                self._merge()
            return int((~kept).sum())

    def _merge(self) -> None:
        """Make the counts the only line beside the key, durably."""
        merged = {"hashes": _text(self._hashes), "counts": _text(self._counts.astype(np.uint64))}
        self._lines.fill([{"key": self._key.hex()}, merged])

    def _of(self, asked: Hashes) -> Counts:
        """The counts (n,) of these records."""
        places = np.searchsorted(self._hashes, asked)
        known = places < len(self._hashes)
        known[known] = self._hashes[places[known]] == asked[known]
        counts = np.zeros(len(asked), dtype=np.int64)
        counts[known] = self._counts[places[known]]
        return counts

    def _add(self, asked: Hashes) -> None:
        """Count a query of each of these records, some of which may come several times."""
        fresh = np.unique(asked[self._of(asked) == 0])
        places = np.searchsorted(self._hashes, fresh)
        self._hashes = np.insert(self._hashes, places, fresh)
        self._counts = np.insert(self._counts, places, 0)
        np.add.at(self._counts, np.searchsorted(self._hashes, asked), 1)

    def _read(self) -> None:
        self._key = b""
        self._hashes, self._counts = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
        try:
            for number, line in enumerate(self._lines.read()):
                if number == 0:
                    self._key = bytes.fromhex(line["key"])
                elif "queries" in line:
                    self._add(_numbers(line["queries"]))
                else:
                    self._hashes, self._counts = _numbers(line["hashes"]), _numbers(line["counts"]).astype(np.int64)
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{self.path}: is damaged; bring a back-up of the file back") from None


@lru_cache(maxsize=256)
def counts_of(state: Path, partner: str) -> QueryCounts:
    """The counts of a partner in a state folder: one for all jobs of a process."""
    return QueryCounts(state, partner)


def _counts(context: StepContext, partner: str) -> QueryCounts:
    ledger = context.ledger.ledger
    return counts_of(ledger.path.parent, partner)


async def charge_queries(context: StepContext, ids: Ids, rows: Rows) -> None:
    """Count a query of the records at these places, each there once, for each partner with a limit.

    Raises as `QueryCounts.enter` does.
    """
    for partner, most in context.ledger.queries_per_record():
        counts = _counts(context, partner)
        try:
            await context.offload(partial(counts.enter, context.party, ids.take(rows), most), whole=True)
        except Refused:
            context.metrics.unanswered.labels(partner).inc(len(rows))
            raise


async def charge_permitted(context: StepContext, ids: Ids, rows: Rows) -> Bools:
    """Count as `charge_queries` does, but where a limit is reached leave the record out; returns those records (n,)."""
    spent = np.zeros(len(rows), dtype=bool)
    for partner, most in context.ledger.queries_per_record():
        counts, left = _counts(context, partner), np.flatnonzero(~spent)
        work = partial(counts.enter_permitted, ids.take(rows[left]), most)
        spent[left] = await context.offload(work, whole=True)
        context.metrics.unanswered.labels(partner).inc(int(spent[left].sum()))
    return spent


def _text(numbers: Hashes) -> str:
    return base64.b64encode(numbers.astype("<u8").tobytes()).decode()


def _numbers(text: Any) -> Hashes:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<u8").astype(np.uint64)
