"""What the score of each record begins with beside the model's base score: columns of the label holder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from treetap.arrays import Floats, Rows
from treetap.names import BASE_MARGIN


@dataclass(frozen=True)
class Offsets:
    """`values` (N,): base margin plus the logarithm of the exposure; `columns`: setting → the column that it names."""

    values: Floats
    columns: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<Offsets of {len(self.values)} records>"

    def take(self, records: Rows) -> Offsets:
        """Those of the records at these places, in this order."""
        return replace(self, values=self.values[records])

    @property
    def begin(self) -> bool:
        """True if they stand in the place of the base score."""
        return BASE_MARGIN in self.columns
