"""The file of candidate paths: of each record, tree by tree, the leaves that it may have reached and their conditions.

A row per record, written a few at a time: its id, and `paths`, a list of `tree` and `leaf` (heap number), each with its
`conditions` from the root down. Conditions are few and repeat, so they are kept as a dictionary. A leaf whose value the
label holder's own columns decide for each record, in a local subtree, says so in a last condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.models.durable import writing_whole
from treetap.trees.ensemble import Split, Tree
from treetap.trees.local_values import covering
from treetap.trees.paths import Bools, paths

Bytes = npt.NDArray[np.uint8]
#: The condition of a side of a split, as text.
Meaning = Callable[[Split, bool], str]
#: The name under which the leaves that are open to a record are kept with its score.
OPEN_LEAVES = "open_leaves"
#: The last condition of a leaf that a local subtree replaces.
DECIDED_ALONE = "value by the label holder's own columns"
#: Approximate number of paths in memory at a time.
PATHS_AT_ONCE = 200_000
PATHS = pa.list_(
    pa.struct(
        [
            ("tree", pa.int32()),
            ("leaf", pa.int64()),
            ("conditions", pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        ]
    )
)


def pack_masks(masks: Iterable[Bools]) -> Bytes:
    """Masks (n, leaves) of the used trees, in order, as (n, bytes); a tree begins with a byte."""
    return np.concatenate([np.packbits(mask, axis=1) for mask in masks], axis=1)


def foreign(split: Split, names: Mapping[int, str], left: bool | None) -> str:
    """Another party's split: by name if its owner sent it, else by handle; and by its side where that is known."""
    name = names.get(split.handle)
    what = f"{split.owner}#{split.handle}" if name is None else f"{split.owner}: {name}"
    return what if left is None else f"{what} ({'left' if left else 'right'})"


def records_at_once(trees: Sequence[Tree]) -> int:
    """The number of records whose paths are in memory at a time."""
    return max(1, PATHS_AT_ONCE // max(1, sum(len(tree.leaves) for tree in trees)))


def write_paths(
    path: Path, column: pa.Field, parts: Iterable[tuple[pa.Array, Bytes]], trees: Sequence[Tree], meaning: Meaning
) -> None:
    """Write the open leaves of records, part by part.

    `column`: that of ids as the party's table has it. `parts`: ids (n,), and their open leaves (n, bytes) as
    `pack_masks` makes them of the trees.
    """
    schema = pa.schema([column, ("paths", PATHS)])
    known = _Leaves(trees, meaning)
    with writing_whole(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for ids, leaves in parts:
            writer.write_table(pa.table([ids, known.lists(known.unpack_masks(leaves))], schema=schema))


class _Leaves:
    """Every leaf of every tree, in order: its tree, its heap number, and its conditions by number."""

    def __init__(self, trees: Sequence[Tree], meaning: Meaning) -> None:
        texts: dict[str, int] = {}
        self._sizes = [len(tree.leaves) for tree in trees]
        self.tree: list[int] = []
        self._leaf: list[int] = []
        ways: list[list[int]] = []
        for tree in trees:
            covered = covering(tree)
            for leaf, way in paths(tree).items():
                self.tree.append(tree.index)
                self._leaf.append(leaf)
                conditions = [meaning(split, left) for split, left in way]
                conditions += [DECIDED_ALONE] if leaf in covered else []
                ways.append([texts.setdefault(text, len(texts)) for text in conditions])
        self._texts = pa.array(list(texts), pa.string())
        self._branches = np.array([number for way in ways for number in way], dtype=np.int32)
        self._lengths = np.array([len(way) for way in ways], dtype=np.int64)
        self._starts = np.array(list(accumulate(map(len, ways), initial=0))[:-1], dtype=np.int64)

    def unpack_masks(self, leaves: Bytes) -> Bytes:
        """The inverse of `pack_masks`: (n, leaves of all trees)."""
        bytes_of = [-(-size // 8) for size in self._sizes]
        parts = np.split(leaves, np.cumsum(bytes_of)[:-1], axis=1)
        masks = (np.unpackbits(part, axis=1, count=size) for part, size in zip(parts, self._sizes, strict=True))
        return np.concatenate(list(masks), axis=1)

    def lists(self, leaves: Bytes) -> pa.ListArray:
        """The paths of some records; `leaves` (records, leaves) marks the open ones."""
        records, found = np.nonzero(leaves)
        lengths = self._lengths[found]
        ends = np.cumsum(lengths)
        branches = np.arange(lengths.sum()) + np.repeat(self._starts[found] - (ends - lengths), lengths)
        texts = pa.DictionaryArray.from_arrays(pa.array(self._branches[branches]), self._texts)
        ways = pa.StructArray.from_arrays(
            [
                pa.array(np.array(self.tree, dtype=np.int32)[found]),
                pa.array(np.array(self._leaf, dtype=np.int64)[found]),
                pa.ListArray.from_arrays(_offsets(ends), texts),
            ],
            names=["tree", "leaf", "conditions"],
        )
        each = np.cumsum(np.bincount(records, minlength=len(leaves)))
        return pa.ListArray.from_arrays(_offsets(each), ways)


def _offsets(ends: npt.NDArray[np.int64]) -> pa.Array:
    """The beginning of each list, and the end of the last."""
    return pa.array(np.concatenate([[0], ends]).astype(np.int32))
