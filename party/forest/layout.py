"""The layout of a record's plaintext in a forest, which the label holder makes and a feature party expects."""

from __future__ import annotations

from treetap.errors import Malformed
from treetap.trees.loss import UNIT
from treetap.trees.params import ForestParams
from treetap.trees.slots import Slots, width_for


def layout(params: ForestParams, records: int, outputs: int, classes: int = 0) -> Slots:
    """One slot per class, for counts; or the target and 1. Each is wide enough for the sum over all records.

    A tree draws no more records than there are. `classes`: of the label, where its counts over all records, drawn or
    not, are in further slots.

    Raises:
        PlaintextOverflow: such sums need wider slots than there are.
    """
    if params.criterion == "gini":
        return Slots((width_for(records, 1),) * (outputs + classes))
    return Slots((width_for(records, UNIT), width_for(records, 1)))


def implied(params: ForestParams, on_lattice: bool, records: int, slots: int, classes: int) -> Slots:
    """The layout of `slots` slots that a job implies; a feature party cannot tell the number of classes from it.

    `classes`: those slots that count all records, which with a key have sums of their own instead.

    Raises:
        Malformed: no number of classes leads to `slots` slots.
    """
    of_all = on_lattice and params.criterion == "gini" and slots == 2 * classes > 2
    if slots < 2 or (classes and not of_all):
        raise Malformed(f"{slots} slots, {classes} of all records, are not counts of classes, nor a target and a count")
    return layout(params, records, slots - classes, classes)
