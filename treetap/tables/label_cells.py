"""A label column as it was read, closed: a party's code opens it in one place, `party.defences.clean_labels`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


class LabelCells:
    """The N cells of a label column; `cells_of` opens them."""

    def __init__(self, cells: pa.ChunkedArray) -> None:
        self._cells = cells

    def __repr__(self) -> str:
        return f"<LabelCells of {len(self._cells)} records>"

    def take(self, records: np.ndarray[tuple[int], np.dtype[np.int64]]) -> LabelCells:
        """Those of the records at these places, in this order."""
        return LabelCells(self._cells.take(pa.array(records)))

    def digest_part(self) -> bytes:
        """The content as bytes to be hashed; types that differ differ."""
        sink = pa.BufferOutputStream()
        column = pa.table({"label": self._cells.combine_chunks()})
        with pa.ipc.new_stream(sink, column.schema) as stream:
            stream.write_table(column)
        return bytes(sink.getvalue())


def cells_of(label: LabelCells) -> pa.ChunkedArray:
    """The cells themselves. Lint refuses it, and all that reads labels, to the code of parties."""
    return label._cells
