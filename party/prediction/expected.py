"""Messages between the parties of a prediction, with size limits from the model, the block and the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from party.prediction.chain import ChainPlace
from party.prediction.entry_scheme import BLOCK_BYTES, MessageNames
from party.runtime.expected import BLOCKS, Expected, Receives, public_key_size, record_set, record_sets
from treetap.protocols.key_options import KeyKind

#: Most bytes of entries that come once, where their number is not known beforehand.
CONSTANT_BYTES = 16 * BLOCK_BYTES
#: Bytes of a branch, of an entry, and of a tree with up to a thousand outputs.
_BRANCH, _ENTRY, _TREE = 16, 24, 8192


class ShardSize:
    """Size of a party's shard of a model, which limits the messages about its trees."""

    def __init__(self, shard: Sequence[dict[str, Any]], splits: str) -> None:
        """`splits`: the name of the party's own splits in a line."""
        self.trees = len(shard)
        self.splits = sum(len(tree[splits]) for tree in shard)
        ways = [leaf for tree in shard for leaf in tree.get("leaves", ())]  # a label holder's line has none
        self.leaves, self.depth = len(ways), max(map(len, ways), default=0)

    def layout(self, leaves_each: int = 1) -> int:
        """Most bytes of a layout of entries. `leaves_each`: the most entries of one leaf."""
        return self.trees * _TREE + self.leaves * leaves_each * _ENTRY

    def columns(self) -> int:
        """Bytes of a layout of columns, each with its branches."""
        return self.trees * _TREE + self.leaves * (self.depth + 2) * _BRANCH

    def queries(self, records: int) -> int:
        """Bytes of the queries of a level: no record twice in a tree."""
        return min(self.trees * record_sets(records, 1), self.splits * record_set(records)) + self.splits * 2 * _BRANCH


def block_records(label_holder: str, records: Callable[[], int]) -> Receives:
    """The records of each block, from the label holder."""
    return {"block_records": Expected([label_holder], lambda: record_set(records()), BLOCKS)}


def public_key(label_holder: str, key: KeyKind) -> Receives:
    """The public key, from the label holder."""
    return {"public_key": Expected([label_holder], lambda: public_key_size(key.bits))}


def entries(
    place: ChainPlace, names: MessageNames, entry_bytes: Callable[[], int], constant_bytes: int = CONSTANT_BYTES
) -> Receives:
    """The entries that a feature party of the chain masks.

    `entry_bytes`: of all entries of one record; `constant_bytes`: most of those that come once.
    """
    found = {names.entries: Expected([place.before], lambda: max(BLOCK_BYTES, entry_bytes()), BLOCKS)}
    if place.first:
        found[names.constants] = Expected([place.label_holder], lambda: min(CONSTANT_BYTES, constant_bytes))
    return found


def sums(chain: Sequence[str], names: MessageNames, records: int, ciphertexts: int, key: KeyKind) -> Receives:
    """The sums of a block, which the last member of the chain returns. `ciphertexts`: of each record."""
    size = records * ciphertexts * key.ciphertext_bytes
    return {names.sums: Expected(chain[-1:], lambda: size, BLOCKS)}
