"""The label holder's own columns: labels as they were read, and sample weights.

Labels are closed: a party's code opens them in one place, `treetap.party.defences.clean_labels`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.categories import is_code
from treetap.tables.source import Origin, is_number, kind_name, numbers_of, row_name


class LabelCells:
    """The N cells of a label column; `cells_of` opens them. `texts`: as a file without types writes them."""

    def __init__(self, cells: pa.ChunkedArray, texts: pa.ChunkedArray | None = None) -> None:
        self._cells, self._texts = cells, texts

    def __repr__(self) -> str:
        return f"<LabelCells of {len(self._cells)} records>"

    def take(self, records: np.ndarray[tuple[int], np.dtype[np.int64]]) -> LabelCells:
        """Those of the records at these places, in this order."""
        texts = None if self._texts is None else self._texts.take(pa.array(records))
        return LabelCells(self._cells.take(pa.array(records)), texts)

    def digest_part(self) -> bytes:
        """The content as bytes to be hashed; types that differ differ."""
        sink = pa.BufferOutputStream()
        column = pa.table({"label": self._cells.combine_chunks()})
        if self._texts is not None:
            column = column.append_column("text", self._texts.combine_chunks())
        with pa.ipc.new_stream(sink, column.schema) as stream:
            stream.write_table(column)
        return bytes(sink.getvalue())


def cells_of(label: LabelCells) -> pa.ChunkedArray:
    """The cells themselves. Lint refuses it, and all that reads labels, to the code of parties."""
    return label._cells


def classes_of(where: str, label: LabelCells, classes: Sequence[str] | None = None) -> pa.ChunkedArray:
    """The cells as classes: numbers, or as a file without types writes them where that makes them codes.

    They are codes where the known `classes` are, else where two texts are one value (`is_numeric`). `where`: the
    column, for messages.

    Raises:
        DataError: the column holds numbers, and the known classes are codes, which numbers do not tell apart.
    """
    cells, texts = label._cells, label._texts
    codes = any(map(is_code, classes or ()))
    if codes and texts is None and is_number(cells.type):
        raise DataError(f"{where}: holds {kind_name(cells.type)}, and the classes are codes, such as 007: write text")
    if texts is not None and classes is None:
        codes = pc.count_distinct(pc.utf8_trim_whitespace(texts)).as_py() > pc.count_distinct(cells).as_py()
    return texts if codes and texts is not None else cells


Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


def weights_of(path: Origin, name: str, column: pa.ChunkedArray) -> Floats:
    """The weights (n,) of a file's rows, in its order.

    Raises:
        DataError: a cell is missing, infinite, negative or no number; the message names its place.
    """
    values = numbers_of(path, name, column, advice="a sample weight is one")
    wrong = np.flatnonzero(~(values >= 0))
    if wrong.size:
        index = int(wrong[0])
        fault = "is missing" if np.isnan(values[index]) else "is negative"
        raise DataError(f"{path}: {row_name(path, index)}, weight column {name!r}: the weight {fault}")
    return values


def check_weight_bound(path: Origin, name: str, weights: Floats, rows: Rows, most: float) -> None:
    """Check that a job with the bound `most` can have the weights (N,) of records in these rows (N,) of a file.

    Raises:
        DataError: it cannot; the message names a place, and no weight.
    """
    beyond = np.flatnonzero(weights > most)
    if beyond.size:
        place = row_name(path, int(rows[beyond[0]]))
        raise DataError(
            f"{path}: {place}, weight column {name!r}: the weight is above max_sample_weight = {most:g} of the job: "
            "give the job a bound that no weight exceeds"
        )
