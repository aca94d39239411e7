"""The bins of one column whose values come in batches: by all values, or by a sketch of their quantiles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError
from treetap.tables.features import Extent
from treetap.trees.binning import FeatureBins, cuts_at_quantiles, fit, fit_categories, quantile_cuts
from treetap.trees.quantiles import BLOCK, QuantileSketch

Floats = npt.NDArray[np.float64]


class ColumnBins:
    """Takes values, NaN where missing; then `extent` is theirs, and `bins` follow from them.

    `categories`: their number in a column of categories, which needs no values; `max_cat_to_onehot`: see
    `treetap.trees.binning.fit_categories`. `sketched`: the values are many.
    """

    def __init__(self, name: str, max_bin: int, categories: int, max_cat_to_onehot: int, *, sketched: bool) -> None:
        self.extent = Extent()
        self._name, self._max_bin = name, max_bin
        self._categories, self._max_cat_to_onehot = categories, max_cat_to_onehot
        self._sketch = QuantileSketch(max_bin, BLOCK) if sketched and not categories else None
        self._parts: list[Floats] = []

    def add(self, values: Floats) -> None:
        """Further values (n,)."""
        self.extent.see(values)
        if self._sketch is not None:
            self._sketch.add(values[~np.isnan(values)])
        elif not self._categories:
            self._parts.append(values.copy())  # not a view, which would keep the whole batch

    def bins(self) -> FeatureBins:
        """The bins, a constant column's too. `DataError` if a value is infinite."""
        if self._categories:
            missing = np.full(int(self.extent.missing), np.nan)
            return fit_categories(missing, self._categories, self._max_cat_to_onehot, self._name, may_be_constant=True)
        if self._sketch is None:
            values = np.concatenate([np.empty(0), *self._parts])
            return fit(values, self._max_bin, self._name, may_be_constant=True)
        if np.isinf([self.extent.least, self.extent.largest]).any():
            raise DataError(f"column {self._name!r} holds an infinite value: mark it missing or clip it")
        distinct = self._sketch.distinct()
        if distinct is not None:
            cuts = quantile_cuts(distinct, np.ones(len(distinct), dtype=np.int64), self._max_bin)
        else:
            cuts = cuts_at_quantiles(*self._sketch.weighted(), self._max_bin)
        return FeatureBins(cuts, self.extent.missing)
