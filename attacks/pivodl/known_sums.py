"""Sums of g and h of nodes that follow from others: those of a node and its two children are known if two are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attacks.view.known_trees import Ints


def closed(sums: Mapping[int, Ints], split: Iterable[int]) -> dict[int, Ints]:
    """All sums (2K,) by node that follow; `split`: the nodes that have children."""
    found, parents = dict(sums), sorted(split)
    grown = True
    while grown:
        grown = False
        for node in parents:
            family = (node, 2 * node, 2 * node + 1)
            missing = [each for each in family if each not in found]
            if len(missing) != 1:
                continue
            grown = True
            if missing[0] == node:
                found[node] = found[2 * node] + found[2 * node + 1]
            else:
                found[missing[0]] = found[node] - found[missing[0] ^ 1]
    return found
