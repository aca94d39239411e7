"""Priors of labels by the label holder's own columns, from noisy labels of other records: stages 2 and on of LP-MST.

A protocol names the model (`TrainingProtocol.own_priors`). It has the columns of all records, which are no labels, and
the noisy labels drawn so far: it is the same whatever the label of a record is for which it gives a prior. Nothing of
it leaves the label holder.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.privacy.label_dp import Priors

if TYPE_CHECKING:  # the coordinator reads no table
    from treetap.tables.reading import Table


@dataclass(frozen=True)
class OwnPriors:
    """The priors of one table's records.

    Attributes:
        source: what they depend on beside noisy labels: with another source noisy labels are drawn anew.
        of: the priors; they raise `DataError` where the model cannot learn from the columns.
    """

    source: str
    of: Priors


def by_own_trees(table: Table, classes: int, *_: object) -> OwnPriors:
    """Class frequencies by trees grown alone, whatever the job's party and parameters are."""
    from treetap.trees.centralised import MODEL, ClassFrequencies

    def priors(before: Ints, noisy: Ints, following: Ints) -> Floats:
        return ClassFrequencies(table.features, classes).of(following, before, noisy)

    return OwnPriors(f"{MODEL} {columns_digest(table)}", priors)


def columns_digest(table: Table) -> str:
    """SHA-256 over a table's ids, features and images, in hexadecimal digits."""
    state = hashlib.sha256(table.ids.digest)
    state.update(repr(table.features.shape).encode() + np.ascontiguousarray(table.features).data)
    for name, cells in table.tensors.items():
        state.update(f"{name} {cells.shape}".encode() + np.ascontiguousarray(cells).data)
    return state.hexdigest()
