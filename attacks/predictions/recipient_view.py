"""What the recipient of a masked prediction knows of a model's trees and of the scored records, from its own disk.

Its shard has the shape of all trees, its own splits and the weights of leaves that it keeps; its transcript of the
training the weights that it received; its transcript of the prediction the records that arrived at its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.predictions.masked_trees import Bools, Ints, MaskedTree, possible_leaves
from attacks.view.pivodl_view import PivodlView
from attacks.view.replay import checked
from treetap.errors import Malformed
from treetap.models.own_split import OwnSplit
from treetap.trees.ensemble import ROOT
from treetap.wire.frame import content_of
from treetap.wire.records import unpack_bits
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import control_pb2, exchange_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

Floats = npt.NDArray[np.float64]
Place = tuple[int, int]


def read_arrivals(path: Path, records: int) -> dict[Place, Bools]:
    """(tree, node) → (n,) records that arrived there, of the nodes of the transcript's party below others' splits.

    Raises:
        Malformed: the transcript of the prediction was changed, or its messages are of other records.
    """
    arrived: dict[Place, Bools] = {}
    block = records
    for record in TranscriptReader(path):
        message = checked(record)
        if isinstance(message, control_pb2.StepRequest) and record.step == "open_model":
            opening: Any = content_of(message, "open_model")
            block = opening.block or records
        elif (
            isinstance(message, exchange_pb2.PeerMessage)
            and record.step == "arrived_records"
            and record.kind == TranscriptRecord.RECEIVED
        ):
            first = message.round * block
            if first >= records:
                raise Malformed(f"{path}: block {message.round} is beyond the {records} records")
            content: Any = content_of(message, "arrived_records")
            last = min(first + block, records)
            for it in content.nodes:
                here = arrived.setdefault((it.tree, it.node), np.zeros(records, dtype=bool))
                here[first:last] = unpack_bits(it.records, last - first)
    return arrived


def recipient_trees(
    view: PivodlView,
    shard: Sequence[Mapping[str, Any]],
    arrived: Mapping[Place, Bools],
    features: Floats,
    fraction: int,
) -> list[MaskedTree]:
    """The trees as the recipient knows them.

    Args:
        view: of its transcript of the training.
        shard: the lines of its own model, tree by tree.
        features: (n, d) its own columns of the scored records, in the order of the blocks, NaN where missing.
        fraction: binary places of weights and scores.
    """
    trees = []
    for t, (line, tree) in enumerate(zip(shard, view.trees, strict=True)):
        kept = {leaf["node"]: np.array(leaf["weight"]) for leaf in line["weights"]}
        received = {leaf: weight.value for leaf, weight in tree.weights.items() if weight.exact}
        exact = {leaf: np.rint(value * 2.0**fraction).astype(np.int64) for leaf, value in (received | kept).items()}
        leaves = np.array(tree.leaves, dtype=np.int64)
        known = np.array([leaf in exact for leaf in tree.leaves])
        nothing: Ints = np.zeros(view.params.width, dtype=np.int64)
        seen, lefts = _own_ways(t, line, arrived, features, set(kept))
        trees.append(
            MaskedTree(
                leaves,
                possible_leaves(leaves, seen, lefts, len(features)),
                np.stack([exact.get(leaf, nothing) for leaf in tree.leaves]),
                known,
            )
        )
    return trees


def _own_ways(
    t: int, line: Mapping[str, Any], arrived: Mapping[Place, Bools], features: Floats, kept: set[int]
) -> tuple[dict[int, Bools], dict[int, Bools]]:
    """Own node or kept leaf → the records that arrive; own split → those that go left."""
    seen: dict[int, Bools] = {}
    lefts: dict[int, Bools] = {}
    splits = {split.node: split for split in map(OwnSplit.from_dict, line["splits"])}
    for node in sorted(splits.keys() | kept):
        above = node >> 1
        if node == ROOT:
            seen[node] = np.ones(len(features), dtype=bool)
        elif above in lefts:  # its own split passes records on to itself
            seen[node] = seen[above] & (lefts[above] if node % 2 == 0 else ~lefts[above])
        else:
            seen[node] = arrived[t, node]
        if node in splits:
            lefts[node] = splits[node].goes_left(features[:, splits[node].feature])
    return seen, lefts
