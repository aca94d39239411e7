"""The branches of one party on the path to each leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treetap.trees.growing_tree import Made
from treetap.wire.v2 import growth_pb2, types_pb2

#: Most leaf paths in one message.
LEAVES_PER_MESSAGE = 4096


def leaf_paths(made: Mapping[int, Made], party: int, leaves: Sequence[int]) -> list[growth_pb2.LeafPaths]:
    """For each leaf in order, the branches at the splits of party number `party`."""
    paths = []
    for leaf in leaves:
        branches = []
        for up in range(leaf.bit_length() - 1, 0, -1):
            parent, child = leaf >> up, leaf >> (up - 1)
            if made[parent].party == party:
                branches.append(types_pb2.Branch(handle=made[parent].handle, left=child % 2 == 0))
        paths.append(growth_pb2.LeafPath(branches=branches))
    return [
        growth_pb2.LeafPaths(leaves=paths[start : start + LEAVES_PER_MESSAGE])
        for start in range(0, len(paths), LEAVES_PER_MESSAGE)
    ]
