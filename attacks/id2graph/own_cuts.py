"""Groups of records by the signature of a party's own winning splits: no received set is needed, and no leaf.

A party that is shown no instance space still learns which of its candidates won at which node, and every record lies
on one side of each. Splits were chosen because their sides differ in the label, so records with similar sides tend to
share it.

1. Signature: of each own split −1 (left), 1 (right), or 0 where the record cannot lie in the node: an own split above
   sends it elsewhere, or the party was sent the node's records.
2. Weight: discount^(t−1) · 2^(−depth), the tree's weight in equation 1 of the ID2Graph paper times the share of the
   records that a node of this depth has on average.
3. Clusters: k-means on the signatures, one cluster per class.

Not from a paper.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treetap.attacks.id2graph.clustering import Floats, Ints
from treetap.errors import BadInput


class OwnCut(NamedTuple):
    """An own split: its node by heap number, and the records that may lie in the node on its left and right."""

    node: int
    left: Ints
    right: Ints


#: Per tree, in training order, the splits that a party made.
OwnCuts = Sequence[Sequence[OwnCut]]


def weighed(cuts: OwnCuts, records: int, discount: float) -> list[tuple[float, OwnCut]]:
    """The splits with their weights, the heaviest first; splits that divide the records alike are one, of both weights.

    Raises:
        BadInput: a record that does not exist.
    """
    weights: dict[bytes, float] = {}
    first: dict[bytes, OwnCut] = {}
    for t, tree in enumerate(cuts):
        for cut in tree:
            key = hashlib.sha256(sides(cut, records).tobytes()).digest()
            first.setdefault(key, cut)
            weights[key] = weights.get(key, 0.0) + discount**t * 0.5 ** (cut.node.bit_length() - 1)
    return [(weights[key], first[key]) for key in sorted(weights, key=lambda key: -weights[key])]


def signatures(cuts: OwnCuts, records: int, discount: float, most: int) -> Floats:
    """Signatures (N, splits) times the roots of their weights: distances are weighted Hamming distances.

    `most`: entries of the matrix; of more the splits with the largest weights are kept. Raises as `weighed` does.
    """
    kept = weighed(cuts, records, discount)[: _kept(records, most)]
    if not kept:  # no record differs from another
        return np.zeros((records, 1))
    return np.stack([sides(cut, records) * np.sqrt(weight) for weight, cut in kept], axis=1)


def left_out(cuts: OwnCuts, records: int, most: int) -> str:
    """What `signatures` leaves out, as a clause; empty if nothing."""
    kept = _kept(records, most)
    if sum(map(len, cuts)) <= kept:
        return ""
    unlike = len(weighed(cuts, records, 1.0))
    return f"uses the {kept} heaviest of {unlike} own splits: max_entries allows {most:,}" if unlike > kept else ""


def _kept(records: int, most: int) -> int:
    return max(1, most // max(1, records))


def sides(cut: OwnCut, records: int) -> npt.NDArray[np.int8]:
    """(N,) −1, 0 or 1. Raises BadInput for a record that does not exist."""
    places = np.zeros(records, dtype=np.int8)
    for rows, side in ((cut.left, -1), (cut.right, 1)):
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < records:
            raise BadInput(f"own split of node {cut.node}: names a record outside 0..{records - 1}")
        places[rows] = side
    return places
