"""A table's features: held in memory, or read anew from the source, batch by batch, whenever they are needed.

A table says which rows of its source its records are, (N,); its features are given these rows. Batches come in the
order of the rows, whatever the order of the records, so that whatever depends on that order is the same for both kinds.

A constant column has one value in every record, or no value at all: no tree splits at it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treetap.arrays import Floats, Rows
from treetap.errors import DataError
from treetap.tables.categories import Category, Seen, encoded, texts_of
from treetap.tables.opening import plain_batches
from treetap.tables.source import BATCH_ROWS, RowsOf, Source, are_booleans, is_text
from treetap.usage import half_of_memory


@dataclass
class Extent:
    """The least and the largest value of a feature, NaN while there is none, and whether one is missing."""

    least: float = np.nan
    largest: float = np.nan
    missing: bool = False

    def see(self, values: Floats) -> None:
        """Take further values (n,) into account."""
        if len(values):
            self.least = float(np.fmin(self.least, np.fmin.reduce(values)))
            self.largest = float(np.fmax(self.largest, np.fmax.reduce(values)))
            self.missing |= bool(np.isnan(values).any())

    @property
    def empty(self) -> bool:
        """True if there is no value at all."""
        return bool(np.isnan(self.least))

    @property
    def constant(self) -> bool:
        """True if there is one value in all records, or none in any."""
        return self.empty or (self.least == self.largest and not self.missing)


def _extents(features: Features, rows: Rows) -> list[Extent]:
    extents = [Extent() for _ in range(features.width)]
    for _, values in features.batches(rows):
        for extent, column in zip(extents, values.T, strict=True):
            extent.see(column)
    return extents


class Held:
    """Features in memory: (N, d)."""

    def __init__(self, values: Floats) -> None:
        self._values, self.width = values, values.shape[1]

    def batches(self, rows: Rows, columns: Sequence[int] | None = None) -> Iterator[tuple[Rows, Floats]]:
        order = np.argsort(rows, kind="stable")
        chosen = slice(None) if columns is None else list(columns)
        for first in range(0, len(order), BATCH_ROWS):
            places = order[first : first + BATCH_ROWS]
            yield places, self._values[places][:, chosen]

    def take(self, records: Rows) -> Features:
        return Held(self._values[records])

    def keep(self, columns: Sequence[int]) -> Features:
        return Held(self._values[:, list(columns)])

    def whole(self, _rows: Rows) -> Floats:
        return self._values

    def extents(self, rows: Rows) -> list[Extent]:
        return _extents(self, rows)

    def digest_parts(self, _rows: Rows) -> Iterator[bytes | memoryview]:
        yield np.ascontiguousarray(self._values).data


@dataclass(frozen=True)
class Survey:
    """The extents of streamed features of all rows of a source, and the SHA-256 of each one's values.

    `seen`: by column of the source.
    """

    extents: list[Extent]
    digests: list[bytes]
    seen: Mapping[str, Seen]


class Streamed:
    """Features of a source that streams, of which no more than a batch is in memory.

    Args:
        source: the rows; `total` of them.
        stamp: the source's, before anything was read of it.
        made: the columns of the source, with the features that each becomes by its category, if it has one.
        missing: the number that means a missing cell.
    """

    def __init__(
        self,
        source: Source,
        stamp: object,
        total: int,
        made: Mapping[str, Sequence[str]],
        categories: Mapping[str, Category],
        missing: float | None,
        kept: Sequence[int] | None = None,
        survey: Survey | None = None,
    ) -> None:
        self._source, self._stamp, self._total = source, stamp, total
        self._made, self._categories = made, categories
        self._missing, self._survey = missing, survey
        self._seen: dict[str, Seen] = {}  # of the pass that is under way
        features = [(column, place) for column, names in made.items() for place in range(len(names))]
        self._features = features if kept is None else [features[place] for place in kept]
        self._kept = list(range(len(features))) if kept is None else list(kept)
        self.width = len(self._features)

    def surveyed(self) -> Streamed:
        """The same of all rows, each cell having been read and checked once. `DataError` names the first fault."""
        extents, states = [Extent() for _ in range(self.width)], [hashlib.sha256() for _ in range(self.width)]
        self._seen.clear()
        for _, values in self.batches(np.arange(self._total)):
            for place, column in enumerate(np.ascontiguousarray(values.T)):
                extents[place].see(column)
                states[place].update(column.data)
        survey = Survey(extents, [state.digest() for state in states], dict(self._seen))
        return self._with(self._kept, survey)

    @property
    def names(self) -> list[str]:
        """Those of all features that the columns became."""
        return [name for names in self._made.values() for name in names]

    @property
    def seen(self) -> Mapping[str, Seen]:
        """The cells of each column, of features that are `surveyed`."""
        assert self._survey is not None
        return self._survey.seen

    def batches(self, rows: Rows, columns: Sequence[int] | None = None) -> Iterator[tuple[Rows, Floats]]:
        """No page of another column of the source is read."""
        chosen = self._features if columns is None else [self._features[place] for place in columns]
        asked = {column for column, _ in chosen}
        wanted = [name for name in self._made if name in asked]
        widths = np.cumsum([0, *(len(self._made[name]) for name in wanted)]).tolist()
        begins = dict(zip(wanted, widths, strict=False))
        picked = [begins[column] + place for column, place in chosen]
        # batches come in the order of the source, records in any
        place_of = np.full(self._total, -1, dtype=np.int64)
        place_of[rows] = np.arange(len(rows))
        self._check_stamp()
        read, booleans = 0, dict[str, bool]()
        text = texts_of(self._categories)
        for first, cells in plain_batches(self._source, wanted, text) if wanted else ():
            count = len(cells[wanted[0]])
            if first + count > self._total:
                raise self._changed()
            for name, column in cells.items():
                texts = column.unique().to_pylist() if is_text(column.type) and name not in self._categories else []
                if any(texts) and booleans.setdefault(name, are_booleans(texts)) != are_booleans(texts):
                    raise DataError(f"{self._source}: column {name!r} holds numbers in some rows, and true and false")
            origin = RowsOf(self._source, range(first, first + count))
            made = encoded(origin, cells, count, None, self._categories, self._missing)
            values = made.values
            for name, seen in made.seen.items():
                self._seen[name] = self._seen.get(name, Seen()).plus(seen)
            places = place_of[first : first + count]
            here = places >= 0
            read += count
            if here.any():
                block: Floats = values[here][:, picked]
                yield places[here], block
        if wanted and read < self._total:
            raise self._changed()
        self._check_stamp()

    def take(self, _records: Rows) -> Features:
        return self._with(self._kept, None)

    def keep(self, columns: Sequence[int]) -> Features:
        survey = self._survey and Survey(
            [self._survey.extents[place] for place in columns],
            [self._survey.digests[place] for place in columns],
            self._survey.seen,
        )
        return self._with([self._kept[place] for place in columns], survey)

    def whole(self, rows: Rows) -> Floats:
        size = len(rows) * self.width * 8
        if size > half_of_memory():
            raise DataError(
                f"{self._source}: {len(rows)} records of {self.width} features are {size / 2**30:.1f} GiB of numbers, "
                "more than half of this machine's memory, and this step needs them at once: train by boosting with the "
                "bins of the job, or leave columns out"
            )
        everything = np.empty((len(rows), self.width))
        for places, values in self.batches(rows):
            everything[places] = values
        return everything

    def extents(self, rows: Rows) -> list[Extent]:
        return _extents(self, rows) if self._survey is None else self._survey.extents

    def digest_parts(self, rows: Rows) -> Iterator[bytes | memoryview]:
        """Rows and columns in the order of the source, on which sketches of quantiles depend."""
        surveyed = self if self._survey is not None else self.surveyed()
        assert surveyed._survey is not None
        yield b"streamed" + np.ascontiguousarray(rows).tobytes()
        yield from surveyed._survey.digests

    def _with(self, kept: Sequence[int], survey: Survey | None) -> Streamed:
        return Streamed(
            self._source, self._stamp, self._total, self._made, self._categories, self._missing, kept, survey
        )

    def _check_stamp(self) -> None:
        """Raise `DataError` if the source may have other content than when its ids were read."""
        if self._source.stamp() != self._stamp:
            raise self._changed()

    def _changed(self) -> DataError:
        return DataError(
            f"{self._source}: has been written again since the beginning of the job: leave a table as it is until its "
            "jobs have ended"
        )


def joined(first: Features, count: int, second: Features) -> Features:
    """The features of `count` records and, behind them, those of others, in memory if both are."""
    if isinstance(first, Held) and isinstance(second, Held):
        none = np.empty(0, dtype=np.int64)
        return Held(np.concatenate([first.whole(none), second.whole(none)]))
    return Joined(first, count, second)


class Joined:
    """Features of two tables, the records of the `first` one, `count` of them, before those of the other."""

    def __init__(self, first: Features, count: int, second: Features) -> None:
        self._first, self._count, self._second = first, count, second
        self.width: int = first.width

    def batches(self, rows: Rows, columns: Sequence[int] | None = None) -> Iterator[tuple[Rows, Floats]]:
        """The rows of the first table, then those of the other."""
        yield from self._first.batches(rows[: self._count], columns)
        for places, values in self._second.batches(rows[self._count :], columns):
            yield places + self._count, values

    def take(self, records: Rows) -> Features:
        """The records of the first table are the first ones here too."""
        own, count = records[records < self._count], int((records < self._count).sum())
        return Joined(self._first.take(own), count, self._second.take(records[count:] - self._count))

    def keep(self, columns: Sequence[int]) -> Features:
        return Joined(self._first.keep(columns), self._count, self._second.keep(columns))

    def whole(self, rows: Rows) -> Floats:
        return np.concatenate([self._first.whole(rows[: self._count]), self._second.whole(rows[self._count :])])

    def extents(self, rows: Rows) -> list[Extent]:
        return _extents(self, rows)

    def digest_parts(self, rows: Rows) -> Iterator[bytes | memoryview]:
        yield from self._first.digest_parts(rows[: self._count])
        yield from self._second.digest_parts(rows[self._count :])


#: The features of records: float64, NaN where missing. All have
#:
#: - `width`: their number, d, and `extents` of each;
#: - `batches`: places (n,) of records in `rows`, each once, in the order of the rows, and features (n, columns);
#:   `DataError` where the source cannot be read, or is another one than before;
#: - `take`: those of the records at these places; `keep`: some of them alone;
#: - `whole`: all of them, (N, d); `DataError` if they take up more than half of the memory and are not held;
#: - `digest_parts`: bytes that differ if a cell of a record does; between held and streamed ones they differ always.
Features = Held | Streamed | Joined


def constant_columns(
    sources: Sequence[str],
    features: Mapping[str, Extent],
    categories: Mapping[str, Category],
    *,
    one_hot: bool = False,
) -> dict[str, str]:
    """The constant ones of these columns of a file, in their order, with what is wrong with each in words.

    A value in some records that is missing in others is none. `features`: those that the columns became by their
    `categories`. `one_hot`: look at columns encoded so too, in which all features have to be constant.
    """
    faults = {}
    for column in sources:
        category = categories.get(column)
        if category is not None and category.encode == "one-hot" and not one_hot:
            continue
        made = [column] if category is None else category.features
        extents = [features[name] for name in made if name in features]
        # one that varies is enough for the column to say something
        if not extents or not all(extent.constant for extent in extents):
            continue
        faults[column] = "has no value at all" if all(extent.empty for extent in extents) else "is constant"
    return faults


def in_words(constant: Mapping[str, str]) -> str:
    """All of them, for a reader who may see a party's columns."""
    return ", ".join(f"column {name!r} {fault}" for name, fault in constant.items())
