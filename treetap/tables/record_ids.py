"""Ids of records as text in Arrow's memory: their UTF-8 bytes side by side, and eight bytes for where each ends.

A list of Python's strings takes some 60 bytes more for each id. What is done with all ids at once is Arrow's and
NumPy's; iteration makes strings of a few at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]
#: Ids that are strings of Python, or in a digest's buffer, at a time.
_AT_ONCE = 1 << 16
_LENGTH_BYTES = 4


class Ids(Sequence[str]):
    """An immutable sequence of texts; equal to every sequence of the same texts in the same order."""

    __slots__ = ("_texts",)
    __hash__ = None  # type: ignore[assignment]  # as of a list, which it may be equal to

    def __init__(self, texts: pa.LargeStringArray) -> None:
        """`texts`: (N,), without null."""
        self._texts = texts

    @classmethod
    def of(cls, texts: Iterable[str]) -> Ids:
        """The texts in their order."""
        if isinstance(texts, Ids):
            return texts
        return cls(pa.array(texts if isinstance(texts, list | tuple) else list(texts), pa.large_string()))

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> Ids:
        """Whole numbers as they are written, or text without surrounding blanks; a column without null.

        It is made part by part: beside the column there are only the ids.
        """
        parts = (pc.utf8_trim_whitespace(part.cast(pa.large_string())) for part in _parts(column))
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
            return Ids(self._texts[place])
        text: str = self._texts[place].as_py()
        return text

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(part.to_pylist() for part in _slices(self._texts))

    def __add__(self, others: Ids) -> Ids:
        return Ids(pa.concat_arrays([self._texts, others._texts]))

    def __eq__(self, others: object) -> bool:
        if isinstance(others, Ids):
            return bool(self._texts.equals(others._texts))
        return isinstance(others, Sequence) and len(self) == len(others) and all(map(str.__eq__, self, others))

    def __repr__(self) -> str:
        return f"<{len(self)} ids>"

    def take(self, places: Rows) -> Ids:
        """The ids at these places, in this order."""
        return Ids(self._texts.take(pa.array(places)))

    def marked(self, mark: str) -> Ids:
        """Each id with a mark before it."""
        kind = pa.large_string()
        return Ids(pc.binary_join_element_wise(pa.scalar(mark, kind), self._texts, pa.scalar("", kind)))

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


def _parts(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    return chain.from_iterable(map(_slices, column.chunks))


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
