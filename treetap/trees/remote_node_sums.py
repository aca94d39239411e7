"""A tree's value as a sum over the nodes that the label holder does not own, for inference under encryption.

Candidate leaves (Fed-EINI, Proposition 1) cost one encrypted column per leaf. One per remote node is enough.
Let D(u) be the value reached from node u if every remote node sends the record right. Then

    f(x) = D(root) + Σ_v reach(v) · left(v) · (D(2v) - D(2v + 1)),   v over remote nodes,

where reach(v) is 1 if no decision above v turns away from it, else 0. This holds because a remote node's value is that
of its right child plus left(v) times the difference of its children. The label holder knows D and its own factors of
reach(v); every other party knows its own factors of reach(v) · left(v). The sum is the score up to the label holder's
own D(root), so decrypting it reveals no more than the score does. A party's factors of reach(v) · left(v) are its own
branches on the way to 2v: `treetap.trees.paths.reachable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from treetap.arrays import Bools, Ints


def label_columns(
    leaves: Mapping[int, int | Ints], remote: Iterable[int], left: Mapping[int, Bools], n: int
) -> tuple[Ints, dict[int, Ints]]:
    """The label holder's side of one tree for n records.

    Args:
        leaves: rounded value of each leaf, by heap number: one number, or one for each record (n,).
        remote: heap numbers of the nodes that others own.
        left: for each node of its own, the records that go left there (n,).

    Returns:
        D(root) (n,), and for each remote node its column (n,): 0 where the label holder's own nodes lead elsewhere.
    """
    columns: dict[int, Ints] = {}
    others = set(remote)

    def value(node: int, reached: Bools) -> Ints:
        if node in leaves:
            return np.full(n, leaves[node], dtype=np.int64)
        if node in others:
            towards_left, towards_right = value(2 * node, reached), value(2 * node + 1, reached)
            columns[node] = reached * (towards_left - towards_right)
            return towards_right
        goes_left = left[node]
        return np.where(goes_left, value(2 * node, reached & goes_left), value(2 * node + 1, reached & ~goes_left))

    return value(1, np.ones(n, dtype=np.bool_)), columns
