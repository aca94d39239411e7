"""Priors of labels by the label holder's own columns, from noisy labels of other records: stages 2 and on of LP-MST.

The model has the columns of all records, which are no labels, and the noisy labels drawn so far: it is the same
whatever the label of a record is for which it gives a prior. Nothing of it leaves the label holder.
"""

from __future__ import annotations

import hashlib

import numpy as np

from treetap.privacy.label_dp import Floats, Ints, Priors
from treetap.tables.reading import Table
from treetap.trees.class_frequencies import MODEL, ClassFrequencies


def priors_by(table: Table, classes: int) -> Priors:
    """The priors (n, C) of some records, given noisy labels of others: see `treetap.privacy.label_dp.Priors`.

    They raise `DataError` if a column holds an infinite value.
    """

    def priors(before: Ints, noisy: Ints, following: Ints) -> Floats:
        return ClassFrequencies(table.features, classes).of(following, before, noisy)

    return priors


def source_of(table: Table) -> str:
    """The source of the priors beside noisy labels: the model, and the SHA-256 of the table's ids and columns."""
    state = hashlib.sha256(table.digest())
    state.update(repr(table.features.shape).encode() + np.ascontiguousarray(table.features).data)
    return f"{MODEL} {state.hexdigest()}"
