"""Ids of records, each of which is there once, as text in Arrow's memory: their UTF-8 bytes, and where each ends.

A list of Python's strings takes some 60 bytes more for each id. What is done with all ids at once is Arrow's and
NumPy's; iteration makes strings of a few at a time.

Of several id columns an id is the text of each after its length in bytes and a colon, in the order of the columns:
`1:a2:bc` of `a` and `bc`, which `ab` and `c` do not have.

A table may have several keys, each of some of its id columns, any of which a record may lack. A record then goes by all
id columns together, and parties compare the ids of one key after another (docs/alignment.md).

Cells of a table that its model takes otherwise than those of the training: counted, said, and refused where all are.

A category that the training had not is unknown to every split, and a column without a value is missing everywhere: both
predict, and predict worse, without any other sign.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treetap.arrays import Rows
from treetap.errors import DataError
from treetap.tables.categories import Seen
from treetap.tables.normalised import in_words, normaliser
from treetap.tables.source import Origin, doubles, is_number, is_text, kind_name, row_name

#: Ids that are strings of Python, or in a digest's buffer, at a time.
_AT_ONCE = 1 << 16
_LENGTH_BYTES = 4
#: Ids that are there more than once of which a message has two rows each.
_SHOWN = 3
#: What to do about them in a table.
CHOICE = '; write duplicates = "first" or "last" in the table\'s settings, or give each record an id of its own'


class Ids(Sequence[str]):
    """An immutable sequence of texts; equal to every sequence of the same texts in the same order."""

    __hash__ = None  # type: ignore[assignment]  # as of a list, which it may be equal to

    def __init__(
        self, texts: pa.LargeStringArray, rules: tuple[str, ...] = (), keys: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        """`texts`: (N,), without null. `rules`: those of each column that made them, by `normalise` of a table.

        `keys`: of a table with several, the places among its id columns that each has.
        """
        self._texts, self.rules, self.keys = texts, rules, keys

    @classmethod
    def of(cls, texts: Iterable[str]) -> Ids:
        """The texts in their order."""
        if isinstance(texts, Ids):
            return texts
        return cls(pa.array(texts if isinstance(texts, list | tuple) else list(texts), pa.large_string()))

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> Ids:
        """Whole numbers as they are written, or text without surrounding blanks; of a null an empty one.

        It is made part by part: beside the column there are only the ids.
        """
        parts = (
            pc.fill_null(pc.utf8_trim_whitespace(part.cast(pa.large_string())), "")
            for part in chain.from_iterable(map(_slices, column.chunks))
        )
        return cls(pa.chunked_array(parts, pa.large_string()).combine_chunks())

    @property
    def array(self) -> pa.LargeStringArray:
        """The ids as Arrow has them, (N,)."""
        return self._texts

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        return self._texts if type is None else self._texts.cast(type)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Ids: ...
    def __getitem__(self, place: int | slice) -> str | Ids:
        if isinstance(place, slice):
            return Ids(self._texts[place], self.rules, self.keys)
        text: str = self._texts[place].as_py()
        return text

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(part.to_pylist() for part in _slices(self._texts))

    def __add__(self, others: Ids) -> Ids:
        return Ids(pa.concat_arrays([self._texts, others._texts]), self.rules, self.keys)

    def __eq__(self, others: object) -> bool:
        if isinstance(others, Ids):
            return bool(self._texts.equals(others._texts))
        return isinstance(others, Sequence) and len(self) == len(others) and all(map(str.__eq__, self, others))

    def __repr__(self) -> str:
        return f"<{len(self)} ids>"

    def take(self, places: Rows) -> Ids:
        """The ids at these places, in this order."""
        return Ids(self._texts.take(pa.array(places)), self.rules, self.keys)

    def marked(self, mark: str) -> Ids:
        """Each id with a mark before it."""
        kind = pa.large_string()
        texts = pc.binary_join_element_wise(pa.scalar(mark, kind), self._texts, pa.scalar("", kind))
        return Ids(texts, self.rules, self.keys)

    @classmethod
    def joined(cls, columns: Sequence[Ids]) -> Ids:
        """The ids of several columns together, each text after its length."""
        kind = pa.large_string()
        texts = []
        for column in columns:
            texts += [pc.binary_length(column.array).cast(kind), pa.scalar(":", kind), column.array]
        return cls(pc.binary_join_element_wise(*texts, pa.scalar("", kind)))

    def columns(self, number: int) -> list[Ids]:
        """The inverse of `joined`: the texts of each of `number` columns; of one, the ids as they are."""
        if number == 1:
            return [self]
        columns, rest = [], self._texts
        for _ in range(number):
            written = pc.struct_field(pc.extract_regex(rest, r"^(?P<bytes>[0-9]+):"), "bytes")
            lengths = np.asarray(written.cast(pa.int64()), dtype=np.int64)
            ends, content = _buffers(rest)
            first = ends[:-1] - ends[0] + np.asarray(pc.binary_length(written), dtype=np.int64) + 1
            columns.append(Ids(_spans(content, first, lengths)))
            rest = _spans(content, first + lengths, ends[1:] - ends[0] - first - lengths)
        return columns

    def by_key(self, mark: int = 0) -> list[KeyIds]:
        """What each key has of these records, which have marks of this length before their ids; one key has them all.

        A key has a record of which no part of it is empty, and whose id by it no other record has.
        """
        if not self.keys:
            return [KeyIds(self, np.arange(len(self), dtype=np.int64))]
        columns = Ids(pc.utf8_slice_codeunits(self._texts, mark)).columns(1 + max(map(max, self.keys)))
        lists = list[KeyIds]()
        for key in self.keys:
            parts = [columns[place] for place in key]
            whole = np.logical_and.reduce([np.asarray(pc.binary_length(part.array)) > 0 for part in parts])
            texts = (
                pc.utf8_slice_codeunits(self._texts, 0, mark),
                Ids.joined(parts).array,
                pa.scalar("", pa.large_string()),
            )
            having = np.flatnonzero(whole)
            ids, order, same = in_sorted_order(Ids(pc.binary_join_element_wise(*texts)).take(having))
            alone = np.flatnonzero(~(np.append(same, False) | np.append(False, same))[: len(having)])
            lists.append(
                KeyIds(ids.take(alone), having[order[alone]], len(self) - len(having), len(having) - len(alone))
            )
        return lists

    @property
    def columns_of_keys(self) -> list[int]:
        """How many columns each of several keys has."""
        return list(map(len, self.keys))

    @property
    def form(self) -> dict[str, Any]:
        """What all parties have alike, by fields of their messages: the rules of each key's columns, and how many."""
        every = chain.from_iterable(self.keys)
        rules = [self.rules[place] for place in every] if self.rules and self.keys else list(self.rules)
        return {"normalise": rules, "keys": self.columns_of_keys}

    def order(self) -> Rows:
        """The places of the ids in ascending order (N,); of equal ones the first place comes first."""
        return np.asarray(pc.sort_indices(self._texts), dtype=np.int64)  # UTF-8 sorts as text does

    def places_of(self, others: Ids) -> Rows:
        """The place of each of the others among these ids, which are distinct; -1 of one that is not among them."""
        places = pc.index_in(others._texts, value_set=self._texts)
        return np.asarray(pc.fill_null(places, -1), dtype=np.int64)

    def packed(self) -> tuple[bytes, bytes]:
        """The ids for a worker: their UTF-8 text, joined, and the place of each and the end, as 64-bit numbers."""
        ends, content = _buffers(self._texts)
        return content.tobytes(), (ends - ends[0]).tobytes()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over the ids in their order, each after its length, of four bytes."""
        state = hashlib.sha256()
        for part in _slices(self._texts):
            ends, content = _buffers(part)
            lengths = np.diff(ends)
            heads = (ends[:-1] - ends[0] + _LENGTH_BYTES * np.arange(len(lengths)))[:, None] + np.arange(_LENGTH_BYTES)
            whole = np.empty(len(content) + heads.size, dtype=np.uint8)
            whole[heads] = lengths.astype(">u4").view(np.uint8).reshape(-1, _LENGTH_BYTES)
            texts = np.ones(len(whole), dtype=bool)
            texts[heads] = False
            whole[texts] = content
            state.update(whole.data)
        return state.digest()


class KeyIds(NamedTuple):
    """The records that a key has: `ids` by it, distinct (n,), and the `places` of these records (n,).

    `lacking`, `shared`: how many others lack a part of it, or have the id of another record.
    """

    ids: Ids
    places: Rows
    lacking: int = 0
    shared: int = 0


def _slices(texts: pa.Array) -> Iterator[pa.Array]:
    return (texts.slice(first, _AT_ONCE) for first in range(0, len(texts), _AT_ONCE))


def _buffers(texts: pa.LargeStringArray) -> tuple[Rows, npt.NDArray[np.uint8]]:
    """Offsets of the texts and of the end of the last (N + 1,), and the bytes from the first to the last of these."""
    _, ends, content = texts.buffers()
    if ends is None or not len(texts):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    bounds = np.frombuffer(ends, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if content is None:
        return bounds, np.zeros(0, dtype=np.uint8)
    return bounds, np.frombuffer(content, dtype=np.uint8)[bounds[0] : bounds[-1]]


def _spans(content: npt.NDArray[np.uint8], first: Rows, lengths: Rows) -> pa.LargeStringArray:
    """Texts of these lengths that begin at these bytes."""
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    places = np.arange(ends[-1]) + np.repeat(first - ends[:-1], lengths)
    return pa.LargeStringArray.from_buffers(len(first), pa.py_buffer(ends), pa.py_buffer(content[places]))


def sorted_keys(
    path: Origin,
    columns: Mapping[str, pa.ChunkedArray],
    rules: tuple[str, ...] = (),
    keys: tuple[tuple[int, ...], ...] = (),
) -> tuple[Ids, npt.NDArray[np.int64]]:
    """The ids of one column or of several together in their order, and the row of each. `rules`, `keys`: see `Ids`.

    Raises:
        DataError: one is missing, in any of the columns, or of several keys in all; or there twice.
    """
    place, ids = keys_in(path, columns, rules, keys)
    return _sorted(path, place, ids, CHOICE)


def keys_in(
    path: Origin,
    columns: Mapping[str, pa.ChunkedArray],
    rules: tuple[str, ...] = (),
    keys: tuple[tuple[int, ...], ...] = (),
) -> tuple[str, Ids]:
    """The ids of one column or of several together in the order of the rows, and these columns in words.

    Raises:
        DataError: a cell is missing, or `rules` leave nothing of it; in a column alone it may still be blank. With
            several `keys`: of a row all are.
    """
    lacks = bool(keys)
    by = f" ({in_words(rules)})" if rules else ""
    if len(columns) == 1:
        ((name, column),) = columns.items()
        place = f"column {name!r}"
        return f"{place}{by}", _normalised(path, place, _texts(path, place, column), rules)
    parts = []
    for (name, column), rule in zip(columns.items(), rules or ("",) * len(columns), strict=True):
        place = f"column {name!r}"
        part = _normalised(path, place, _texts(path, place, column, lacks), (rule,) if rule else (), lacks)
        if not lacks:
            _refuse_empty(path, place, np.asarray(pc.equal(part.array, "")))
        parts.append(part)
    ids, place = Ids(Ids.joined(parts).array, rules, keys), f"columns {', '.join(map(repr, columns))}"
    _refuse_empty(path, place, np.asarray(pc.equal(ids.array, "0:" * len(parts))))
    return f"{place}{by}", ids


def _refuse_empty(path: Origin, place: str, empty: npt.NDArray[np.bool_]) -> None:
    if empty.any():
        raise DataError(f"{path}: {row_name(path, int(np.argmax(empty)))}, {place}: the id is missing")


def ids_of(path: Origin, place: str, column: pa.ChunkedArray, rules: tuple[str, ...] = ()) -> Ids:
    """Ids as text without surrounding blanks; `DataError` for one missing or there twice. `rules`: see `Ids`."""
    return distinct_ids(path, place, _texts(path, place, column), rules)


def distinct_ids(path: Origin, place: str, ids: Ids, rules: tuple[str, ...] = ()) -> Ids:
    """The ids by these rules; `DataError` for one that is empty or there twice."""
    made = _normalised(path, place, ids, rules)
    _sorted(path, f"{place} ({in_words(rules)})" if rules else place, made)
    return made


def is_id(kind: pa.DataType) -> bool:
    """True for plain columns that may be ids: whole numbers, also of a database's DECIMAL(n, 0), and text."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0) or is_text(kind))


def _normalised(path: Origin, place: str, ids: Ids, rules: tuple[str, ...], lacks: bool = False) -> Ids:
    """The ids by these rules; `DataError` for one of which they leave nothing, or as `normaliser`.

    `lacks`: records may have none.
    """
    if not rules:
        return ids
    make, kind = normaliser(rules), pa.large_string()
    parts = [pa.array(list(map(make, part.to_pylist())), kind) for part in _slices(ids.array)]
    made = Ids(pa.chunked_array(parts, kind).combine_chunks(), rules)
    held, left = (np.asarray(pc.binary_length(texts.array)) > 0 for texts in (ids, made))
    gone = np.flatnonzero(held & ~left)
    if len(gone) and not lacks:
        more = f", nor of {len(gone) - 1:,} more" if len(gone) > 1 else ""
        raise DataError(
            f"{path}: {row_name(path, int(gone[0]))}, {place}: {in_words(rules)} leaves nothing of the id{more}: "
            "correct the cells, or list other rules"
        )
    return made


def _texts(path: Origin, place: str, column: pa.ChunkedArray, lacks: bool = False) -> Ids:
    if column.null_count and not lacks:
        index = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DataError(f"{path}: {row_name(path, index)}, {place}: the id is missing")
    kind = column.type
    if is_id(kind):
        return Ids.of_column(column)
    if is_number(kind) and not (doubles(column) % 1).any():
        raise DataError(
            f"{path}: {place}: whole numbers are ids, and these are stored as {kind}: write them as whole numbers (in "
            "pandas by astype('int64')) or as text"
        )
    raise DataError(
        f"{path}: {place} holds {kind_name(kind)}; ids are whole numbers or text: write them as one of these"
    )


def _sorted(path: Origin, place: str, ids: Ids, advice: str = "") -> tuple[Ids, Rows]:
    """The ids in their order, and the row of each; `DataError` for the first row whose id is empty or there before."""
    in_order, order, same = in_sorted_order(ids)
    repeated = int(order[1:][same].min()) if same.any() else len(ids)
    if len(ids) and not in_order[0] and int(order[0]) <= repeated:  # equal ids keep their order: the first empty one
        raise DataError(f"{path}: {row_name(path, int(order[0]))}, {place}: the id is missing")
    if same.any():
        raise DataError(f"{path}: {repeated_ids(path, place, order, same)}{advice}")
    return in_order, order


def in_sorted_order(ids: Ids) -> tuple[Ids, Rows, npt.NDArray[np.bool_]]:
    """The N ids in their order, the row of each, and which of them but the first are the one before them (N - 1,)."""
    order = ids.order()
    in_order = ids.take(order)
    return in_order, order, np.asarray(pc.equal(in_order.array[1:], in_order.array[:-1]), dtype=bool)


def repeated_ids(path: Origin, place: str, order: Rows, same: npt.NDArray[np.bool_]) -> str:
    """The ids that are there more than once, in words: their number, and the first rows of three.

    `order`, `same`: see `in_sorted_order`; there is one at least.
    """
    several = np.flatnonzero(same & ~np.append(False, same[:-1]))  # the first of each
    pairs = sorted((int(order[start + 1]), int(order[start])) for start in several)[:_SHOWN]
    rows = [(row_name(path, again), row_name(path, first)) for again, first in pairs]
    said = f"{rows[0][0]}, {place}: the id is there already, at {rows[0][1]}"
    if len(several) == 1:
        return said
    also = [f"{again} as at {first}" for again, first in rows[1:]] + ["…"] * bool(several[_SHOWN:].size)
    return f"{said}; {len(several):,} ids are there more than once, also at {', '.join(also)}"


log = logging.getLogger(__name__)


class Unlike(NamedTuple):
    """`unknown_cells`: of categories that the training had not. `empty_columns`: without a value, which had some.

    `columns`: the names of both; none of a party elsewhere, which keeps them.
    """

    unknown_cells: int = 0
    empty_columns: int = 0
    columns: tuple[str, ...] = ()


NOTHING = Unlike()


def unlike_training(path: Origin, seen: Mapping[str, Seen], empty: Collection[str], records: int) -> Unlike:
    """The counts of a table's columns, each of which the log names. `empty`: those without a value in the training.

    A table of one record is never refused.

    Raises:
        DataError: no cell of a column with categories has one of the training.
    """
    gone = [name for name, column in seen.items() if not column.present and name not in empty]
    strange = {name: column for name, column in seen.items() if column.unknown}
    for name, column in strange.items():
        log.warning(
            "%s: column %r: %d of %d cells are of no category of the training",
            path,
            name,
            column.unknown,
            column.present,
        )
    for name in gone:
        log.warning("%s: column %r has no value, and had some in the training", path, name)
    # a single record may well have a new category: nobody confused tables
    if records > 1:
        for name, column in strange.items():
            if column.unknown == column.present > 1:
                raise DataError(
                    f"{path}: column {name!r}: all {column.present} cells are of no category of the training: write "
                    "them as the training has them"
                )
    return Unlike(sum(column.unknown for column in strange.values()), len(gone), (*strange, *gone))


def check_values(path: Origin, seen: Mapping[str, Seen], unlike: Unlike, records: int) -> None:
    """Raise `DataError` for a table to predict, of several records, of which no column has a value any more."""
    if records > 1 and unlike.empty_columns and not any(column.present for column in seen.values()):
        raise DataError(
            f"{path}: no column has any value, and {unlike.empty_columns} had some in the training: is it the right "
            "table?"
        )
