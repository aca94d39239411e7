"""Messages with the numbers of embeddings and of gradients, in parts of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from party.runtime.expected import ALLOWANCE, OVERHEAD
from party.runtime.outbox import MESSAGE_BYTES
from treetap.neural.params import NUMBER_BYTES
from treetap.wire.v2 import splitnn_pb2

EMBEDDINGS, GRADIENTS = "embeddings", "embedding_gradients"
Numbers = splitnn_pb2.Embeddings | splitnn_pb2.EmbeddingGradients
_KINDS: dict[str, type[Numbers]] = {EMBEDDINGS: splitnn_pb2.Embeddings, GRADIENTS: splitnn_pb2.EmbeddingGradients}
#: Stages of an epoch: its batches, whose number is known once the records are aligned.
BATCHES = range(1 << 31)
#: Bytes of a message's fields beside its numbers.
_FIELDS = 64


def size_of(rows: int, width: int, wire_type: str, blocks: int = 1) -> int:
    """Most bytes of a series with the numbers of this number of rows, in `blocks` that may go one by one."""
    size = rows * width * NUMBER_BYTES[wire_type]
    return size + (size // MESSAGE_BYTES + blocks) * (_FIELDS + OVERHEAD) + ALLOWANCE


def bodies(kind: str, content: bytes, width: int, wire_type: str) -> Iterator[Numbers]:
    """The messages of whole rows, `content`; none of no row."""
    row = width * NUMBER_BYTES[wire_type]
    each = max(1, MESSAGE_BYTES // row) * row
    for start in range(0, len(content), each):
        part = content[start : start + each]
        yield _KINDS[kind](rows=len(part) // row, width=width, wire_type=wire_type, values=part)
