"""Messages with the numbers of embeddings and of gradients, in parts of bounded size. It needs no torch."""

from __future__ import annotations

from collections.abc import Iterator

from treetap.neural.params import NUMBER_BYTES
from treetap.party.runtime.context import MESSAGE_BYTES
from treetap.wire.v2 import splitnn_pb2

EMBEDDINGS, GRADIENTS = "embeddings", "embedding_gradients"
Numbers = splitnn_pb2.Embeddings | splitnn_pb2.EmbeddingGradients
_KINDS: dict[str, type[Numbers]] = {EMBEDDINGS: splitnn_pb2.Embeddings, GRADIENTS: splitnn_pb2.EmbeddingGradients}


def bodies(kind: str, content: bytes, width: int, wire_type: str) -> Iterator[Numbers]:
    """The messages of whole rows, `content`; none of no row."""
    row = width * NUMBER_BYTES[wire_type]
    size = max(1, MESSAGE_BYTES // row) * row
    for start in range(0, len(content), size):
        part = content[start : start + size]
        yield _KINDS[kind](rows=len(part) // row, width=width, wire_type=wire_type, values=part)
