"""Class frequencies of records by other records' labels and one party's columns: a random forest (Breiman 2001)."""

from __future__ import annotations

import numpy as np

from treetap.arrays import Array, Floats, Ints
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised_forest import train_forest
from treetap.trees.params import ForestParams

#: The model and its settings; raised with any change of the frequencies.
MODEL = "forest/1"
#: Each leaf has at least this many of the records drawn, unless that is more than a quarter of all.
_LEAF = 10
#: The party's name in a model without other parties.
_OWN = "own"


class ClassFrequencies:
    """Frequencies (n, C) of the classes by columns (N, d), NaN where missing; a column may be constant.

    Raises `DataError` if a column holds an infinite value.
    """

    def __init__(self, features: Array, classes: int) -> None:
        names = [str(place) for place in range(features.shape[1])]
        self._features, self._classes = features, classes
        self._bins = bin_table(features, names, ForestParams.max_bin, may_be_constant=names)

    def of(self, records: Ints, known: Ints, labels: Ints) -> Floats:
        """Those of the `records` (n,), learned from `labels` (m,) of the records `known` (m,); the same every time."""
        if len(np.unique(labels)) < 2:  # nothing to learn: one class, and the others less likely
            counts = np.bincount(labels, minlength=self._classes) + 1.0
            return np.tile(counts / counts.sum(), (len(records), 1))
        params = ForestParams(n_estimators=30, min_samples_leaf=max(1, min(_LEAF, len(known) // 4)))
        bins = BinnedTable(self._bins.codes[known], self._bins.features)
        forest = train_forest([(_OWN, self._features[known])], labels, params, self._classes, [(_OWN, bins)])
        return forest.predict([(_OWN, self._features[records])])
