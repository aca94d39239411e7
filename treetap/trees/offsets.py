"""What the score of each record begins with beside the model's base score: columns of the label holder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # configurations are read before numpy is there
    from treetap.arrays import Floats, Rows

#: The settings of a table that name such columns. A base margin is in the place of the base score, as XGBoost has it;
#: the logarithm of an exposure, a duration or a size, is added.
BASE_MARGIN, EXPOSURE = "base_margin", "exposure"
OFFSETS = (BASE_MARGIN, EXPOSURE)


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
