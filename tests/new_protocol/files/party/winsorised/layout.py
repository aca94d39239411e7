"""The layout of a record's plaintext: the target and 1."""

from __future__ import annotations

from treetap.trees.loss import UNIT
from treetap.trees.slots import Slots, width_for


def layout(records: int) -> Slots:
    """Both slots are wide enough for the sum over all records."""
    return Slots((width_for(records, UNIT), width_for(records, 1)))


def implied(records: int, slots: int, classes: int) -> Slots:
    """The layout that a job implies, however many slots there are said to be."""
    del slots, classes
    return layout(records)
