"""Priors of labels by the label holder's own columns, from noisy labels of other records: stages 2 and on of LP-MST.

The model is a random forest (Breiman 2001), whose class frequencies are the priors of RRWithPrior. It has the columns
of all records, which are no labels, and the noisy labels drawn so far: it is the same whatever the label of a record is
for which it gives a prior. Nothing of it leaves the label holder.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from treetap.privacy.label_dp import Priors
from treetap.tables.reading import Table
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised_forest import train_forest
from treetap.trees.params import ForestParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: The model and its settings; raised with any change of the priors.
MODEL = "forest/1"
#: Of a node's records at least this many are in each leaf, unless that is more than a quarter of all.
_LEAF = 10
#: The party's name in a model without other parties.
_OWN = "own"


def priors_by(table: Table, classes: int) -> Priors:
    """The priors (n, C) of some records, given noisy labels of others: see `treetap.privacy.label_dp.Priors`.

    Raises `DataError` if a column holds an infinite value.
    """
    names = [str(place) for place in range(len(table.columns))]
    bins = bin_table(table.features, names, ForestParams.max_bin, may_be_constant=names)

    def priors(before: Ints, noisy: Ints, following: Ints) -> Floats:
        if len(np.unique(noisy)) < 2:  # nothing to learn: one class, and the others less likely
            counts = np.bincount(noisy, minlength=classes) + 1.0
            return np.tile(counts / counts.sum(), (len(following), 1))
        params = ForestParams(n_estimators=30, min_samples_leaf=max(1, min(_LEAF, len(before) // 4)))
        known = BinnedTable(bins.codes[before], bins.features)
        forest = train_forest([(_OWN, table.features[before])], noisy, params, classes, [(_OWN, known)])
        return forest.predict([(_OWN, table.features[following])])

    return priors


def source_of(table: Table) -> str:
    """What the priors depend on beside noisy labels: the model, and the SHA-256 of the table's ids and columns."""
    state = hashlib.sha256(table.digest())
    state.update(repr(table.features.shape).encode() + np.ascontiguousarray(table.features).data)
    return f"{MODEL} {state.hexdigest()}"
