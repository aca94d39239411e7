"""Marks of split candidates by the monotone constraints of their columns: see `treetap.trees.monotone`."""

from __future__ import annotations

INCREASING, DECREASING = 1, -1
#: The mark of a candidate of an increasing column that has a mirror image; of a decreasing column it is negative.
MIRRORED = 2
#: All marks of a candidate; 0: its column has no constraint.
MARKS = (-MIRRORED, DECREASING, 0, INCREASING, MIRRORED)
