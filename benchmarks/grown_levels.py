"""Levels of a tree that was trained, for the estimate of its costs (`treetap.commands.capacity`)."""

from __future__ import annotations

from collections.abc import Mapping

from treetap.commands.capacity.training import Level


def grown_levels(owners: Mapping[int, int], drawn: Mapping[int, int], depth: int) -> tuple[Level, ...]:
    """Levels of a tree that is known: node → the party that won it, and node → its drawn records.

    Every child above `depth` counts as one that may be split.
    """
    levels: list[Level] = []
    nodes: list[int] = [1]
    parents: tuple[int, ...] = ()
    while nodes and len(levels) < depth:
        split = [node for node in nodes if node in owners]
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        built = [min(pair, key=lambda child: drawn[child]) for pair in pairs] if levels else nodes
        levels.append(Level(tuple(drawn[node] for node in built), parents, tuple(owners[node] for node in split)))
        nodes = [2 * node + side for node in split for side in range(2)]
        parents = tuple(owners[node >> 1] for node in nodes)
    return tuple(levels)
