"""Jobs on a lattice by either way, whatever their layout says: small worlds choose by few candidates otherwise."""

from __future__ import annotations

import pytest

from party.growth import lattice_sums, lattice_values
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_ways import Needs, Way


def take_way(patch: pytest.MonkeyPatch, way: Way) -> list[Way]:
    """Have all parties choose this way, unless nodes have bins of their own; returns what they choose."""
    chosen: list[Way] = []

    def way_of(_: HistogramParameters, __: int, needs: Needs) -> Way:
        chosen.append(Way.SETS if needs.both_children else way)
        return chosen[-1]

    patch.setattr(lattice_values, "way_of", way_of)
    patch.setattr(lattice_sums, "way_of", way_of)
    return chosen
