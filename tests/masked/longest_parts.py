"""The longest part of every kind of message of a masked prediction: see `tests.runtime.test_longest_parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from treetap.party.masked.member import _bodies
from treetap.party.runtime.context import MESSAGE_BYTES, Body, batches
from treetap.privacy.masks import KEY_BYTES
from treetap.wire.records import pack_bits
from treetap.wire.v2 import masked_pb2

#: Records of a long block.
_RECORDS = 1_000_000


def _arrivals() -> Iterable[Body]:
    bits = pack_bits(np.ones(_RECORDS, dtype=np.bool_))
    nodes = (masked_pb2.NodeArrivals(tree=2**31, node=2**20 + node, records=bits) for node in range(20))
    return (masked_pb2.ArrivedRecords(nodes=batch) for batch in batches(nodes))


#: Kind → its parts, or the longest of them.
PARTS: dict[str, Callable[[], Iterable[Body]]] = {
    "mask_key": lambda: [masked_pb2.MaskKey(key=bytes(KEY_BYTES))],
    "arrived_records": _arrivals,
    "score_shares": lambda: _bodies(np.zeros((MESSAGE_BYTES, 1), dtype=np.uint64)),
}
#: Kinds of which a part is never long.
SHORT = ("mask_key",)
